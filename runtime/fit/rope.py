"""Context extension: how positions are told to a model when a conversation may be longer than it was trained for.

Names and defaults are llama.cpp's (`llama_context_params`, `common_params`). One thing is added: where a way of scaling
is chosen and its factor left automatic, it is as much as the context asks for.
"""

from runtime.gguf.architecture import ModelShape
from runtime.messages.load import ResolvedLoad, RopeScaling
from runtime.options import LoadOptions

_SCALING = ("linear", "yarn")
_NAMES = {"linear": "linear scaling", "yarn": "YaRN"}


def rope_of(shape: ModelShape, options: LoadOptions, n_ctx: int) -> RopeScaling:
    """What llama.cpp is told for a context of `n_ctx` tokens."""
    scale = options.rope_freq_scale
    if scale is None:
        scale = _stretching(shape, n_ctx) if options.rope_scaling in _SCALING else 0.0
    return RopeScaling(
        scaling_type=options.rope_scaling,
        freq_base=options.rope_freq_base or 0.0,
        freq_scale=scale,
        yarn_ext_factor=_or_file(options.yarn_ext_factor),
        yarn_attn_factor=_or_file(options.yarn_attn_factor),
        yarn_beta_fast=_or_file(options.yarn_beta_fast),
        yarn_beta_slow=_or_file(options.yarn_beta_slow),
        yarn_orig_ctx=options.yarn_orig_ctx or 0,
    )


def _stretching(shape: ModelShape, n_ctx: int) -> float:
    """The scale with which `n_ctx` positions lie where the trained ones did; 0 (as in the file) if they do already."""
    if not 0 < shape.n_ctx_train < n_ctx:
        return 0.0
    return shape.n_ctx_train / n_ctx / shape.rope_factor


def _or_file(value: float | None) -> float:
    return -1.0 if value is None else value


def extension_note(shape: ModelShape, resolved: ResolvedLoad) -> str:
    """A sentence on a context beyond the training; empty where it is not."""
    n_ctx, train, rope = resolved.n_ctx, shape.n_ctx_train, resolved.rope
    if not 0 < train < n_ctx:
        return ""
    if rope.scaling_type in _SCALING:
        how = _NAMES[rope.scaling_type]
        return f"{how[0].upper()}{how[1:]} stretches the {train:,} tokens it was trained for {n_ctx / train:.2g} times."
    if rope.freq_scale or rope.freq_base:
        return f"Its positions are changed for more than the {train:,} tokens it was trained for."
    return f"It was trained for {train:,} tokens: without RoPE scaling answers go wrong beyond them."
