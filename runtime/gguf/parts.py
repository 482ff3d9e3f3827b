"""The files that make one model: a whole one, or the parts of a split one."""

from pathlib import Path

from runtime.errors import FileTruncated
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
        NotGguf, FileTruncated, ModelLoadFailed: as `read_header`; `FileTruncated` also when a part is missing.
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
    return tuple(found)


def read_shape(path: Path) -> ModelShape:
    """The shape of a model on disk, or of the sparse files that stand for one.

    Raises:
        NotGguf, FileTruncated, ModelLoadFailed, OSError: as `read_headers` and `shape_of`.
    """
    return shape_of(read_headers(path))
