"""Bytes of a model's memory of the conversation: KV cache and recurrent state, layer by layer, as llama.cpp sizes them.

Exact where `ModelShape.kv_source` is "exact" (`llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp` and
`llama-memory-recurrent.cpp` of llama.cpp): a plan's dry run says the same.
"""

from collections.abc import Mapping

from runtime.gguf.architecture import LayerShape, ModelShape
from runtime.messages.load import ResolvedLoad
from runtime.options import KvType

_F32_BYTES = 4
CELL_PAD = 256
"""llama.cpp pads the cells of a cache to a multiple of it (`llama-context.cpp`)."""

_BLOCK: Mapping[KvType, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Elements and bytes of one block of each number format (`ggml-common.h`)."""


def padded(n_cells: int) -> int:
    """Cells llama.cpp makes of so many."""
    return -(-n_cells // CELL_PAD) * CELL_PAD


def row_bytes(kv_type: KvType, width: int) -> int:
    """Bytes of `width` elements in a row of this number format."""
    elements, size = _BLOCK[kv_type]
    return -(-width // elements) * size


def is_quantized(kv_type: KvType) -> bool:
    """Whether llama.cpp counts the format as quantized (such a V cache needs flash attention)."""
    return _BLOCK[kv_type][0] > 1


def layer_cells(layer: LayerShape, n_cells: int, n_seq_max: int, n_ubatch: int) -> int:
    """Cells a layer keeps: all, or with a sliding window only what its sequences can still see."""
    if not layer.n_swa:
        return padded(n_cells)
    return min(padded(n_cells), padded(layer.n_swa * n_seq_max + n_ubatch))


def layer_context_bytes(
    layer: LayerShape, *, n_cells: int, n_seq_max: int, n_ubatch: int, type_k: KvType, type_v: KvType, n_rs_seq: int = 0
) -> int:
    """KV cache and recurrent state of one layer, for one pool all sequences share and no full-size windows.

    `n_rs_seq`: tokens that a recurrent state can be taken back by.
    """
    cells = layer_cells(layer, n_cells, n_seq_max, n_ubatch) if layer.k_width or layer.v_width else 0
    cache = cells * (row_bytes(type_k, layer.k_width) + row_bytes(type_v, layer.v_width))
    return cache + layer.state_bytes * n_seq_max * (1 + n_rs_seq)


def hidden_rows_bytes(shape: ModelShape, resolved: ResolvedLoad) -> int:
    """Hidden rows of a whole batch, which a model's multi-token heads read and give; 0 without them."""
    return 2 * _F32_BYTES * shape.n_embd * resolved.n_batch if resolved.speculation == "mtp" else 0


def context_bytes(
    shape: ModelShape, *, n_cells: int, n_seq_max: int, n_ubatch: int, type_k: KvType, type_v: KvType, n_rs_seq: int = 0
) -> int:
    """KV cache and recurrent state of all layers; 0 for an encoder, which keeps none."""
    if not shape.has_memory:
        return 0
    return sum(
        layer_context_bytes(
            layer,
            n_cells=n_cells,
            n_seq_max=n_seq_max,
            n_ubatch=n_ubatch,
            type_k=type_k,
            type_v=type_v,
            n_rs_seq=n_rs_seq,
        )
        for layer in shape.layers
    )
