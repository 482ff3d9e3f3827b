"""Which shared libraries an ELF file asks for, read from the file itself (no `ldd`, nothing is run).

Format: System V gABI, chapters "Program Header" and "Dynamic Section"; 64-bit files of either byte order.
"""

import os
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

_MAGIC = b"\x7fELF"
_CLASS_64 = 2
_LITTLE = 1
_PT_LOAD = 1
_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_NEEDED = 1
_DT_STRTAB = 5
_DT_STRSZ = 10
_MAX_DYNAMIC_BYTES = 1 << 20
_MAX_STRINGS_BYTES = 64 << 20


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def needed_libraries(path: Path) -> tuple[str, ...]:
    """The sonames of the DT_NEEDED entries, in order; empty for a file that is not 64-bit ELF.

    Raises:
        OSError: if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _needed(file)
    except (struct.error, LookupError, ValueError, OverflowError):
        return ()  # cut off or damaged; the loader will say so better than we can


def _needed(file: BinaryIO) -> tuple[str, ...]:
    head = file.read(64)
    if head[:4] != _MAGIC or head[4] != _CLASS_64:
        return ()
    order = "<" if head[5] == _LITTLE else ">"
    (table_offset,) = struct.unpack_from(f"{order}Q", head, 0x20)
    entry_size, count = struct.unpack_from(f"{order}HH", head, 0x36)
    if table_offset >= file.seek(0, os.SEEK_END):
        return ()
    file.seek(table_offset)
    raw = file.read(entry_size * count)
    segments = []
    for number in range(count):
        kind, _, offset, address, _, size = struct.unpack_from(f"{order}IIQQQQ", raw, number * entry_size)
        segments.append(_Segment(kind, offset, address, size))
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return ()
    if dynamic.offset >= file.seek(0, os.SEEK_END):
        return ()
    file.seek(dynamic.offset)
    entries = list(struct.iter_unpack(f"{order}qQ", _whole(file.read(min(dynamic.size, _MAX_DYNAMIC_BYTES)), 16)))
    values: dict[int, int] = {}
    names = []
    for tag, value in entries:
        if tag == _DT_NULL:
            break
        if tag == _DT_NEEDED:
            names.append(value)
        else:
            values[tag] = value
    strings = _strings(file, segments, values[_DT_STRTAB], values[_DT_STRSZ]) if names and _DT_STRTAB in values else b""
    return tuple(strings[name : strings.index(b"\0", name)].decode("ascii", "replace") for name in names)


def _whole(raw: bytes, size: int) -> bytes:
    return raw[: len(raw) // size * size]


def _strings(file: BinaryIO, segments: list[_Segment], address: int, size: int) -> bytes:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            offset = segment.offset + address - segment.address
            if offset >= file.seek(0, os.SEEK_END):
                return b""
            file.seek(offset)
            return file.read(min(size, _MAX_STRINGS_BYTES))
    return b""
