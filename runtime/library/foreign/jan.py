"""Jan: `<data>/llamacpp/models/<id>/model.yml`, which names the files; a file may be anywhere (imported in place).

The data folder is `JAN_DATA_FOLDER`, else `data_folder` of `Jan/settings.json`, else `Jan/data` in the person's data
folder; versions before 0.6 used `~/jan`. `model_path` and `mmproj_path` are whole paths, or relative to the data
folder. All files are called `model.gguf` and `mmproj.gguf`, so the id is the only name. Older versions kept
`<data>/models` with their own `model.yml` (`files`), or files alone.
"""

import re
from pathlib import Path

import msgspec

from runtime.library.disk import DiskFile, extended, look_at, walk
from runtime.library.foreign.program import ForeignModel, Listing, Surroundings, each_once, read_settings
from runtime.library.patience import touch
from runtime.unreadable import UNREADABLE

MAX_MODELS = 2000
MAX_DEPTH = 6

_LINE = re.compile(r"^(?P<key>[A-Za-z_][\w-]*):\s*(?P<value>.*?)\s*$")
_FIRST_FILE = re.compile(r"^files:\s*\n\s*-\s*(?P<value>.*?)\s*$", re.MULTILINE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Settings(msgspec.Struct):
    data_folder: str = ""


def folders(around: Surroundings) -> tuple[Path, ...]:
    """Its data folders, each with `llamacpp/models` or `models` in it."""
    settings = each_once(
        around.data / "Jan" / "settings.json",
        around.data / "jan.ai.app" / "settings.json",
        around.config / "Jan" / "settings.json",
    )
    data = each_once(
        around.variable("JAN_DATA_FOLDER"),
        *(_chosen(path, around) for path in settings),
        around.data / "Jan" / "data",
        around.config / "Jan" / "data",
        around.home / "jan",
    )
    return tuple(folder / name for folder in data for name in ("llamacpp/models", "models"))


def models(folder: Path) -> Listing:
    """What each `model.yml` names; files that none names are grouped as in any folder."""
    data = folder.parent.parent if folder.parent.name == "llamacpp" else folder.parent
    found: list[ForeignModel] = []
    named: set[Path] = set()
    for description in _descriptions(folder):
        model = _model(description, folder, data)
        if model is not None:
            found.append(model)
            named.update(file.path for file in model.files)
            if model.projector is not None:
                named.add(model.projector.path)
    tree = walk(folder)
    return Listing(tuple(file for file in tree.files if file.path not in named), tuple(found), problem=tree.problem)


def _chosen(path: Path, around: Surroundings) -> Path | None:
    try:
        chosen = msgspec.json.decode(read_settings(path), type=_Settings).data_folder
    except UNREADABLE:
        return None
    return around.path(chosen) if chosen else None


def _descriptions(folder: Path) -> list[Path]:
    """Every `model.yml` below the folder; ids may hold slashes, so they lie at any depth."""
    found: list[Path] = []
    waiting = [(folder, 0)]
    while waiting and len(found) < MAX_MODELS:
        here, depth = waiting.pop()
        try:
            touch(here)
            entries = sorted(Path(extended(str(here))).iterdir(), reverse=True)
        except OSError:
            continue
        for entry in entries:
            path = here / entry.name
            if entry.name == "model.yml":
                found.append(path)
            elif depth < MAX_DEPTH and not entry.name.startswith(".") and entry.is_dir():
                waiting.append((path, depth + 1))
    return found


def _model(description: Path, folder: Path, data: Path) -> ForeignModel | None:
    text = read_settings(description).decode("utf-8", "replace")
    values = {
        match["key"]: _scalar(match["value"]) for line in text.splitlines() if (match := _LINE.match(line)) is not None
    }
    first = _FIRST_FILE.search(text)
    raw = values.get("model_path") or (_scalar(first["value"]) if first is not None else "")
    file = _file(raw, description, data)
    if file is None:
        return None
    projector = _file(values.get("mmproj_path", ""), description, data)
    name = description.parent.relative_to(folder)
    announced = {file: values.get("model_sha256", "")}
    if projector is not None:
        announced[projector] = values.get("mmproj_sha256", "")
    return ForeignModel(
        stem=name.name or values.get("name", "") or file.path.stem,
        files=(file,),
        projector=projector,
        publisher=name.parts[0] if len(name.parts) > 1 else "",
        sha256={one.path: hash_ for one, hash_ in announced.items() if _SHA256.fullmatch(hash_)},
    )


def _file(raw: str, description: Path, data: Path) -> DiskFile | None:
    if not raw:
        return None
    path = Path(raw)
    for candidate in (path,) if path.is_absolute() else (data / path, description.parent / path):
        file = look_at(candidate)
        if file is not None:
            return file
    return None


def _scalar(raw: str) -> str:
    """A plain or quoted YAML scalar; anything richer is not used by what is read here."""
    raw = raw.strip()
    if len(raw) > 1 and raw[0] == raw[-1] == "'":
        return raw[1:-1].replace("''", "'")
    if len(raw) > 1 and raw[0] == raw[-1] == '"':
        return raw[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return raw.split(" #", 1)[0].rstrip()
