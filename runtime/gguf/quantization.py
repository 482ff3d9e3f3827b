"""Number formats of tensors and files: ids, sizes, names, and what a file's name says about them.

Sources: `ggml_type` and its block sizes (`ggml/src/ggml.c`), `llama_ftype` (`include/llama.h`), both of the
llama.cpp that is built in. An id that is not in the tables is a newer format: its size is unknown, not an error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's number format: `block_size` numbers take `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        """Bits each number takes, scales included."""
        return self.block_bytes * 8 / self.block_size


TENSOR_TYPES: Mapping[int, TensorType] = {
    type_id: TensorType(name, block_size, block_bytes)
    for type_id, name, block_size, block_bytes in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    )
}

FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""`general.file_type` to the name of the mixture; 4, 5, 6 and 33 to 35 were removed from llama.cpp."""

_GUESSED = 1024
"""Flag in `general.file_type`: the converter guessed it."""

_MIXTURES = ("MXFP4", *(f"Q{bits}_K_XL" for bits in (2, 3, 4, 5, 6, 8)), *(f"Q{bits}_K_L" for bits in (2, 4, 5, 6)))
"""Names of publishers that no `file_type` has: mixtures with larger embeddings, or other bits in each layer."""
_REMOVED = ("Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8")
"""Layouts for one kind of processor that llama.cpp no longer reads; Q4_0 is rearranged while loading instead."""
_ALIASES: Mapping[str, str] = {"FP16": "F16", "FP32": "F32", "Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""As `llama-quantize` takes them, and spellings that are seen on the hub."""
_NAMES_IN_FILES = sorted({*FILE_TYPES.values(), *_MIXTURES, *_REMOVED, *_ALIASES}, key=len, reverse=True)
_IN_NAME = re.compile(
    rf"(?<![A-Z0-9])(?P<dynamic>UD-)?(?P<name>{'|'.join(map(re.escape, _NAMES_IN_FILES))})(?![A-Z0-9])"
)


def name_of_file_type(file_type: int | None) -> str:
    """`15` -> `Q4_K_M`; "" for `None` and for ids this table does not know."""
    return "" if file_type is None else FILE_TYPES.get(file_type & ~_GUESSED, "")


def quantization_in_name(file_name: str) -> str:
    """The format that a file's name tells, upper case, `UD-` kept; "" if it tells none.

    A part's number (`-00001-of-00003`) or a `mmproj-` in front change nothing.

    The last mention wins: `f16-to-Q4_K_M.gguf` is `Q4_K_M`.
    """
    found = ""
    for match in _IN_NAME.finditer(file_name.upper()):
        found = (match["dynamic"] or "") + _ALIASES.get(match["name"], match["name"])
    return found


def is_removed(quantization: str) -> bool:
    """Whether llama.cpp once knew this format and cannot load it any more."""
    return quantization.upper() in _REMOVED


def tensor_bytes(type_id: int, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor's data; `None` for a format that is not in the table."""
    kind = TENSOR_TYPES.get(type_id)
    if kind is None:
        return None
    n_elements = 1
    for length in shape:
        n_elements *= length
    return -(-n_elements // kind.block_size) * kind.block_bytes


def type_name(type_id: int) -> str:
    """`12` -> `Q4_K`; a format that is not in the table is called by its number."""
    kind = TENSOR_TYPES.get(type_id)
    return kind.name if kind is not None else f"type {type_id}"
