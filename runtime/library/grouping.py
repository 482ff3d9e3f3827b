"""Files to models: the parts of a split set together, and each picture part (mmproj) with the model it belongs to."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.gguf.facts import split_name
from runtime.gguf.quantization import quantization_in_name
from runtime.library.disk import DiskFile
from runtime.library.facts import FileFacts
from runtime.library.names import model_id

FactsOf = Callable[[DiskFile], FileFacts | None]

_BEST_FIRST = ("F16", "BF16", "Q8_0", "F32")
"""Which of several projectors is taken: F16 is what llama.cpp's converter writes and every backend reads."""


@dataclass(frozen=True, slots=True)
class Group:
    """One model: its files in order, and what goes with it.

    Attributes:
        spares: the same projector in other number formats; not used, and not a model of their own either.
    """

    stem: str
    files: tuple[DiskFile, ...]
    projector: DiskFile | None = None
    spares: tuple[DiskFile, ...] = ()


def group(files: Sequence[DiskFile], facts_of: FactsOf, root: Path) -> list[Group]:
    """All files below `root` as models. A projector that belongs to none of them stands for itself."""
    groups = _sets(files)
    projectors: dict[Path, list[DiskFile]] = defaultdict(list)
    models: list[Group] = []
    for one in groups:
        facts = facts_of(one.files[0])
        if facts is not None and facts.kind == "projector":
            projectors[one.files[0].path.parent].append(one.files[0])
        else:
            models.append(one)
    if not projectors:
        return models
    bases: dict[Path, set[str]] = defaultdict(set)
    for one in models:
        facts = facts_of(one.files[0])
        if facts is not None and facts.kind == "chat":
            bases[one.files[0].path.parent].add(base_name(one.stem))
    paired = []
    taken: set[Path] = set()
    for one in models:
        found = _projector(one, facts_of, projectors, bases, root)
        spares: tuple[DiskFile, ...] = ()
        if found is not None:
            base = base_name(found.path.stem)
            same = (file for file in projectors[found.path.parent] if base_name(file.path.stem) == base)
            spares = tuple(file for file in same if file.path != found.path)
            taken.update((found.path, *(file.path for file in spares)))
        paired.append(Group(one.stem, one.files, found, spares))
    alone = [file for several in projectors.values() for file in several if file.path not in taken]
    return paired + [Group(file.path.stem, (file,)) for file in alone]


def base_name(stem: str) -> str:
    """The name without quantization and marks: `mmproj-Qwen2.5-VL-7B-f16` -> `qwen2.5-vl-7b`; may be ""."""
    quantization = quantization_in_name(stem)
    if quantization:
        at = stem.upper().rfind(quantization)
        stem = stem[:at] + stem[at + len(quantization) :]
    words = [word for word in model_id(stem).split("-") if word not in ("mmproj", "model", "ud", "")]
    return "-".join(words)


def fits(projector: FileFacts, model: FileFacts) -> bool:
    """Whether the widths of the two agree; true where a file does not tell."""
    return not projector.widths or model.n_embd is None or model.n_embd in projector.widths


def _sets(files: Sequence[DiskFile]) -> list[Group]:
    sets: dict[tuple[Path, str, int], list[DiskFile]] = {}
    groups: list[Group] = []
    for file in files:
        split = split_name(file.path.name)
        if split is None:
            groups.append(Group(file.path.stem, (file,)))
        else:
            sets.setdefault((file.path.parent, split.stem, split.count), []).append(file)
    for (_, stem, _), parts in sets.items():
        groups.append(Group(stem, tuple(sorted(parts, key=lambda part: part.path.name))))
    return groups


def _projector(
    one: Group,
    facts_of: FactsOf,
    projectors: dict[Path, list[DiskFile]],
    bases: dict[Path, set[str]],
    root: Path,
) -> DiskFile | None:
    facts = facts_of(one.files[0])
    if facts is None or facts.kind != "chat":
        return None
    folder = one.files[0].path.parent
    # Repositories with a folder for each quantization keep the projector above them.
    for place in (folder, folder.parent) if folder not in (root, root.parent) else (folder,):
        is_one_model = len(bases[folder] | bases[place]) == 1 and place != root
        fitting = []
        for file in projectors.get(place, ()):
            own = facts_of(file)
            if own is None or not fits(own, facts):
                continue
            base, wanted = base_name(file.path.stem), base_name(one.stem)
            is_named = bool(base) and (wanted.startswith(base) or base.startswith(wanted))
            is_plain = not base and (is_one_model or bool(own.widths) or len(bases[place]) == 1)
            if is_named or is_plain or is_one_model:
                fitting.append((not is_named, _order(own), file.path.name, file))
        if fitting:
            return min(fitting, key=lambda entry: entry[:3])[3]
    return None


def _order(facts: FileFacts) -> int:
    return _BEST_FIRST.index(facts.quantization) if facts.quantization in _BEST_FIRST else len(_BEST_FIRST)
