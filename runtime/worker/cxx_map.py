"""A `std::map` that a C++ function of llama.cpp returns by value, read from its memory.

Some of llama.cpp's accounts are only to be had so (`src/llama-ext.h`, `tools/mtmd/mtmd.h`). Nothing but the layout in
the three C++ standard libraries tells how to read one: each has a red-black tree whose nodes hold the value after
four words, and they differ in where the links are. What is read is checked before it is followed; where a check fails
the caller does without. The nodes are not freed (some hundred bytes a call).
"""

import ctypes
import sys
from ctypes import c_size_t, c_void_p
from typing import Any, NamedTuple

_WORD = ctypes.sizeof(c_void_p)
_VALUE_WORD = 4
MAX_ENTRIES = 256


class Map(ctypes.Structure):
    """Room for a map of any of the three libraries (48 bytes in libstdc++, 24 in libc++, 16 in MSVC's)."""

    _fields_ = (("words", c_size_t * (2 if sys.platform == "win32" else 6)),)


class _Layout(NamedTuple):
    """Where a standard library keeps what. `size`: word of the map; `left`, `right`: words of a node."""

    size: int
    left: int
    right: int


_LIBSTDCXX = _Layout(size=5, left=2, right=3)
_LIBCXX = _Layout(size=2, left=0, right=1)
_MSVC = _Layout(size=1, left=0, right=2)
_LAYOUT = {"win32": _MSVC, "darwin": _LIBCXX}.get(sys.platform, _LIBSTDCXX)

IS_TRIED = sys.platform == "linux"
"""Whether this platform's layout was seen to work. Elsewhere only a process that may crash should try it."""


def entries(found: Map, n_value_words: int) -> list[tuple[int, ...]] | None:
    """Key and value of each entry as words, keys being pointers; None where it does not look like a map."""
    words: Any = found.words
    count = words[_LAYOUT.size]
    if not 0 < count <= MAX_ENTRIES:
        return None
    listed: list[tuple[int, ...]] = []
    waiting = [_root(words)]
    while waiting:
        node = waiting.pop()
        if _is_end(node):
            continue
        if len(listed) >= count:
            return None
        values = (c_size_t * (_VALUE_WORD + n_value_words)).from_address(node)
        entry = tuple(values[_VALUE_WORD:])
        if not _is_pointer(entry[0]):
            return None
        listed.append(entry)
        waiting += [values[_LAYOUT.left], values[_LAYOUT.right]]
    return listed if len(listed) == count else None


def _root(words: Any) -> int:  # noqa: ANN401 - a C array
    if _LAYOUT is _LIBSTDCXX:
        return int(words[2])
    # libc++: the end node's first word; MSVC: the parent (second word) of the head node.
    at, word = (words[1], 0) if _LAYOUT is _LIBCXX else (words[0], 1)
    return int((c_size_t * 2).from_address(at)[word]) if _is_pointer(at) else 0


def _is_end(node: int) -> bool:
    if not _is_pointer(node):
        return True
    # MSVC's leaves point back to the head node, which says so in the byte after its colour.
    return _LAYOUT is _MSVC and bool(ctypes.c_ubyte.from_address(node + 3 * _WORD + 1).value)


def _is_pointer(value: int) -> bool:
    return value > 0xFFFF and value % _WORD == 0  # noqa: PLR2004 - the first pages are never mapped
