"""Multi-token heads (MTP, "nextn"): layers behind a model's own that guess the token after the next one.

Most files leave them out. llama.cpp loads them where it is told to (`load_mtp`) and runs them in a second context of
the same model (`LLAMA_CONTEXT_TYPE_MTP`), for the architectures that have a graph for it. It ends the process on some
that have none, so what is asked of it is checked here first.
"""

from dataclasses import replace
from types import MappingProxyType

from runtime.gguf.architecture import ModelShape

_SINGLE = frozenset(
    {
        *("glm4moe", "deepseek2", "deepseek32", "glm-dsa", "cohere2moe"),
        *("qwen3next", "qwen35", "qwen35moe", "nemotron_h_moe", "bailingmoe3"),
    }
)
"""Their graphs (`graph_mtp` in llama.cpp's `src/models`, 0.3.36) take one layer of heads and abort at more."""
_SEVERAL = frozenset({"hy_v3", "mimo2", "step35"})
"""Theirs choose one of several (`nextn_layer_offset`); the first is used here for every token of a guess."""
GIVES_OUTPUT_ROWS = frozenset({"mimo2", "step35"})
"""Their heads give hidden rows of the wanted rows alone (llama.cpp's `masked`). Those of others give one for every row
of a batch; told to mask, llama.cpp takes the first ones for the wanted ones."""
TAKES_BACK_BY_SNAPSHOT = frozenset(
    {
        *("kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h", "nemotron_h_moe"),
        *("lfm2", "lfm2moe", "bailingmoe3"),
    }
)
"""llama.cpp can keep states of the last few tokens of a sequence (`n_rs_seq`), and goes back to one of them, where the
architecture is one of these (`llm_arch_supports_rs_rollback`)."""


def why_no_heads(shape: ModelShape) -> str:
    """Why a model's own heads cannot guess, as the end of a sentence; empty when they can."""
    if not shape.heads:
        return (
            "its file promises such heads but leaves them out"
            if shape.promises_heads
            else "it has no multi-token heads"
        )
    architecture = shape.architecture
    if architecture not in _SINGLE | _SEVERAL:
        return f"the built-in llama.cpp cannot run the multi-token heads of the architecture {architecture}"
    if len(shape.heads) > 1 and architecture in _SINGLE:
        return (
            f"it has {len(shape.heads)} layers of multi-token heads, and the built-in llama.cpp runs one for the "
            f"architecture {architecture}"
        )
    if architecture == "deepseek2" and any(head.v_width for head in shape.heads):
        return "its file keeps uncompressed keys and values, with which llama.cpp cannot run the heads"
    return ""


def with_heads(shape: ModelShape) -> ModelShape:
    """The shape of the model with its heads loaded: the last layers have weights and a cache then.

    A shape that has none comes back as it is.
    """
    if not shape.heads:
        return shape
    layers = (*shape.layers[: -len(shape.heads)], *shape.heads)
    types = dict(shape.tensor_types)
    for head in shape.heads:
        for name, n_bytes in head.tensor_types.items():
            types[name] = types.get(name, 0) + n_bytes
    weight_bytes = sum(head.weight_bytes for head in shape.heads)
    return replace(
        shape,
        layers=layers,
        tensor_types=MappingProxyType(types),
        skipped_bytes=max(0, shape.skipped_bytes - weight_bytes),
    )
