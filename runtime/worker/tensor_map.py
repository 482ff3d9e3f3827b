"""Which buffer each tensor of a loaded model is in: llama.cpp's own list, read from its memory.

`llama_internal_get_tensor_map` (`src/llama-model.h`) returns a `std::vector` of pairs of a `std::string` and a
`ggml_tensor *` by reference. Only the end of each pair, the pointer, is read.
"""

import ctypes
import sys
from collections.abc import Iterator
from ctypes import c_size_t, c_void_p

from runtime.worker import ggml, native

MAX_TENSORS = 100_000
_WORD = ctypes.sizeof(c_void_p)
_PAIR_WORDS = 4 if sys.platform == "darwin" else 5
"""A string has three words in libc++, and four in libstdc++ and MSVC's library."""
_BUFFER_WORD = 1  # ggml_tensor: type and padding, then `buffer` (ggml.h)
_ALIGNMENT = 32
_NAMES = (
    "llama_internal_get_tensor_map",
    "_Z29llama_internal_get_tensor_mapB5cxx11PK11llama_model",
    "_Z29llama_internal_get_tensor_mapPK11llama_model",
)

_nbytes = ggml.bind(ggml.base, "ggml_nbytes", c_size_t, c_void_p)
_buffer_name = ggml.bind(ggml.base, "ggml_backend_buffer_name", ctypes.c_char_p, c_void_p)


def bytes_by_buffer(model: int) -> dict[str, int] | None:
    """Bytes of the tensors in each kind of buffer (`CPU_Mapped`, `CPU_REPACK`, `CUDA0`); None where unknown."""
    function = next((one for name in _NAMES if (one := native.optional(name, c_void_p, c_void_p))), None)
    if function is None:
        return None
    found: dict[str, int] = {}
    for tensor in _tensors(function(model)):
        buffer = (c_size_t * 2).from_address(tensor)[_BUFFER_WORD]
        if not buffer:
            return None
        name = (_buffer_name(buffer) or b"").decode("utf-8", "replace")
        found[name] = found.get(name, 0) + -(-_nbytes(tensor) // _ALIGNMENT) * _ALIGNMENT
    return found or None


def _tensors(vector: int) -> Iterator[int]:
    begin, end = (c_size_t * 2).from_address(vector)
    size = _PAIR_WORDS * _WORD
    if end <= begin or (end - begin) % size or (end - begin) // size > MAX_TENSORS:
        return
    words = (c_size_t * ((end - begin) // _WORD)).from_address(begin)
    yield from words[_PAIR_WORDS - 1 :: _PAIR_WORDS]
