"""What `python -m runtime.worker.quantize` is told and answers: one JSON line each.

The order is the first line of its standard input; the end of standard input cancels. It answers any number of
`QuantizeProgress` and then exactly one of the others.
"""

import msgspec

from runtime.errors import Failure

PARTIAL_SUFFIX = ".partial"
"""Of the file while it is written. A process that was killed leaves it: whoever started it removes it."""


class QuantizeOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Make `target` of `source`.

    Attributes:
        source: a GGUF file of F32, F16 or BF16 weights; of a split model, its first part.
        target: the file to make; it must not exist. Written with `PARTIAL_SUFFIX` and renamed at the end.
        quantization: name of the file type, such as `Q4_K_M`.
        n_threads: 0 takes the physical cores.
        preview: only say what it would come to; `target` may be empty.
    """

    source: str
    quantization: str
    target: str = ""
    n_threads: int = 0
    preview: bool = False


class QuantizeProgress(msgspec.Struct, frozen=True, tag=True):
    """How far it is, in bytes of the source's tensors. `tensor` is being converted."""

    done_bytes: int
    total_bytes: int
    tensor: str


class QuantizeDone(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The file stands, or would.

    Attributes:
        size_bytes: of the file; in a preview as exact, but for the few bytes a metadata entry may be longer.
        bits_per_weight: of all tensors.
        tensor_types: number format of every tensor, by tensor; only in a preview.
        notes: sentences about what was not as asked, such as tensors whose rows do not fit the format.
        took_s: seconds.
    """

    size_bytes: int
    bits_per_weight: float
    tensor_types: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    took_s: float = 0.0


class QuantizeFailed(msgspec.Struct, frozen=True, tag=True):
    """Nothing was made; the partial file is gone."""

    failure: Failure


QuantizeAnswer = QuantizeProgress | QuantizeDone | QuantizeFailed
