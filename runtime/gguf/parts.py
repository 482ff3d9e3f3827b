"""The files that make one model: a whole one, or the parts of a split one."""

from collections.abc import Sequence
from pathlib import Path

from runtime.errors import FileTruncated, ModelLoadFailed
from runtime.gguf.architecture import ModelShape, shape_of
from runtime.gguf.facts import split_name
from runtime.gguf.header import GgufHeader, read_header
from runtime.gguf.source import FileSource


def part_paths(path: Path) -> tuple[Path, ...]:
    """All parts, in order, of the model whose first (or any) part is `path`; a whole file is its only part."""
    split = split_name(path.name)
    if split is None:
        return (path,)
    suffix = path.suffix
    return tuple(
        path.with_name(f"{split.stem}-{number:05d}-of-{split.count:05d}{suffix}")
        for number in range(1, split.count + 1)
    )


def read_headers(path: Path) -> tuple[GgufHeader, ...]:
    """The header of each part.

    Raises:
        NotGguf, FileTruncated, ModelLoadFailed: as `read_header`; `FileTruncated` also when a part is missing,
            `ModelLoadFailed` also when the parts do not belong together.
        OSError: if a file cannot be read.
    """
    found: list[GgufHeader] = []
    for part in part_paths(path):
        try:
            with FileSource(part) as source:
                found.append(read_header(source))
        except FileNotFoundError as error:
            if part == path:
                raise
            raise FileTruncated(
                f"{part.name} is missing: it is a part of the same model.",
                hint="Download the missing part into the same folder.",
                path=str(part),
                reason="a part is missing",
            ) from error
    check_parts(found, path.name)
    return tuple(found)


def check_parts(headers: Sequence[GgufHeader], name: str) -> None:
    """Check that headers are all parts of one model, in order.

    Args:
        headers: of all parts; a whole model is its only part.
        name: the model in a message to a person.

    Raises:
        ModelLoadFailed: a part is of another set or at another place of it, or a tensor is in two of them.
    """
    if len(headers) == 1:
        return  # one part alone, or a whole model: a missing part was told by its name
    names: set[str] = set()
    for number, header in enumerate(headers, 1):
        place = header.integer("split.no")
        count = header.integer("split.count")
        if place is not None and (place != number - 1 or count != len(headers)):
            raise _mixed(name, f"part {number} of {len(headers)} calls itself part {place + 1} of {count}")
        own = {tensor.name for tensor in header.tensors}
        if twice := names & own:
            raise _mixed(name, f"the tensor {min(twice)!r} is in two parts")
        names |= own
    wanted = headers[0].integer("split.tensors.count")
    if wanted is not None and wanted != len(names):
        raise _mixed(name, f"{wanted} tensors were split, {len(names)} are there")


def _mixed(name: str, reason: str) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"The parts of {name} do not belong together: {reason}.",
        hint="Download all parts again, from one place.",
        reason=reason,
    )


def read_shape(path: Path) -> ModelShape:
    """The shape of a model on disk, or of the sparse files that stand for one.

    Raises:
        NotGguf, FileTruncated, ModelLoadFailed, OSError: as `read_headers` and `shape_of`.
    """
    return shape_of(read_headers(path))
