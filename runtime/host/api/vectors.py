"""Vectors of texts, from the worker's bytes to what the dialects send."""

import base64
import math
import struct
import sys
from array import array
from collections.abc import Sequence

from runtime.errors import BadRequest


def check_dimensions(raws: Sequence[bytes], dimensions: int | None) -> None:
    """Check how many numbers of each vector were asked for.

    Raises:
        BadRequest: they have fewer.
    """
    n_embd = len(raws[0]) // 4 if raws else 0
    if dimensions is not None and 0 < n_embd < dimensions:
        raise BadRequest(
            f"`dimensions` is {dimensions}; this model's vectors have {n_embd}.",
            hint="Ask for fewer, or leave it out.",
            param="dimensions",
        )


def vector(raw: bytes, dimensions: int | None = None) -> list[float]:
    """Numbers of a vector; the first `dimensions` of them scaled to length 1 again."""
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    numbers = values.tolist()
    if dimensions is None or dimensions >= len(numbers):
        return numbers
    kept = numbers[:dimensions]
    length = math.sqrt(math.fsum(number * number for number in kept))
    return [number / length for number in kept] if length > 0 else kept


def vector_base64(raw: bytes, dimensions: int | None = None) -> str:
    """The same as base64 of little-endian float32."""
    if dimensions is not None and dimensions < len(raw) // 4:
        raw = struct.pack(f"<{dimensions}f", *vector(raw, dimensions))
    return base64.b64encode(raw).decode()
