"""Bytes a load takes, by formula: at once, for sliders, and where no dry run can be had.

Weights and the memory of the conversation follow llama.cpp's own rules and are exact where the shape is. Compute
buffers are the peak of a graph allocator and have no closed form; what is here are the terms that decide, fitted to
llama.cpp's figures for the shapes of Llama 3 (1B, 8B, 70B), Qwen 3 (0.6B, 30B-A3B), Gemma 3 27B and Mamba at micro-
batches of 128 to 2,048 and contexts of 4,096 to 32,768, with flash attention and without, on one device and on two
(within 8 % there; `tests/fit/test_formula.py` holds it against the real thing).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.fit.context_memory import hidden_rows_bytes, layer_cells, layer_context_bytes
from runtime.fit.placement import CPU, unit_devices
from runtime.gguf.architecture import LayerShape, ModelShape
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory, ResolvedLoad

F32 = 4
PROJECTOR_COMPUTE_BYTES = 256 * 2**20
"""Compute buffer of a picture projector: 0.1 to 0.4 GiB for those in use; its dry run tells the real one."""
_DENSE_ROWS, _EXPERT_ROWS = (4, 3, 2), (5, 4, 6)
"""Rows of `n_embd` beside the feed-forward part: on the processor, on the device with the first layer, on others."""
_REARRANGED = {"Q4_0", "Q4_K", "IQ4_NL"}
"""Formats that both AVX2 and NEON kernels want rearranged (`ggml_repack_get_optimal_repack_type`)."""
PIPELINE_COPIES = 4
"""Copies of a graph's inputs where several cards work as a pipeline (`GGML_SCHED_MAX_COPIES`)."""


@dataclass(slots=True)
class _Sums:
    weight: dict[str, int] = field(default_factory=dict)
    context: dict[str, int] = field(default_factory=dict)
    compute: dict[str, int] = field(default_factory=dict)
    output: dict[str, int] = field(default_factory=dict)
    projector: dict[str, int] = field(default_factory=dict)


def estimate(
    shape: ModelShape, resolved: ResolvedLoad, *, kinds: Mapping[str, str] | None = None, projector_bytes: int = 0
) -> Measured:
    """What a load takes on each device.

    Args:
        shape: of the model.
        resolved: the load.
        kinds: kind of each device by name (`ComputeDevice.kind`); only cards copy weights of the processor's layers.
        projector_bytes: size of the projector's file, which goes to the first device that holds layers.
    """
    kinds = kinds or {}
    devices = unit_devices(shape.n_layer, resolved)
    sums = _Sums()
    for index, device in enumerate(devices):
        _add(sums.weight, device, unit_weight_bytes(shape, resolved, index, on_cpu=device == CPU))
        if index < shape.n_layer:
            _add(sums.weight, CPU, experts_left_bytes(shape.layers[index], resolved) if device != CPU else 0)
            _add(sums.context, device if resolved.offload_kqv else CPU, unit_context_bytes(shape, resolved, index))
    _add(sums.weight, CPU, shape.input_bytes)
    names = dict.fromkeys((*resolved.devices, CPU))
    used = [name for name in names if name in devices or name == CPU]
    for name in used:
        _add(sums.compute, name, compute_bytes(shape, resolved, devices, name, kinds))
    _add(sums.output, CPU, output_rows_bytes(shape, resolved))
    if projector_bytes:
        _add(sums.projector, used[0], projector_bytes + PROJECTOR_COMPUTE_BYTES)
    return Measured(
        memory=tuple(
            DeviceMemory(
                device=name,
                weight_bytes=sums.weight.get(name, 0),
                context_bytes=sums.context.get(name, 0),
                compute_bytes=sums.compute.get(name, 0),
                output_bytes=sums.output.get(name, 0),
                projector_bytes=sums.projector.get(name, 0),
            )
            for name in used
        ),
        n_layer_on={name: devices.count(name) for name in used if name in devices},
        method="formula",
    )


def _add(sums: dict[str, int], device: str, n_bytes: int) -> None:
    sums[device] = sums.get(device, 0) + n_bytes


# --- weights and context, unit by unit --------------------------------------------------------------------


def unit_weight_bytes(shape: ModelShape, resolved: ResolvedLoad, index: int, *, on_cpu: bool) -> int:
    """Weights of one unit on its own device; the output layer is the unit after the last layer.

    On the processor a tied output layer is the token embeddings, which are there already, unless they are rearranged
    for its matrix kernels, which takes a copy.
    """
    if index == shape.n_layer:
        if shape.is_tied and on_cpu and not _REARRANGED & set(shape.output_types):
            return min(shape.output_bytes, F32 * shape.n_embd)  # its norm
        return shape.output_bytes
    layer = shape.layers[index]
    return layer.weight_bytes if on_cpu else layer.weight_bytes - experts_left_bytes(layer, resolved)


def experts_left_bytes(layer: LayerShape, resolved: ResolvedLoad) -> int:
    """Experts of a layer on a GPU that stay in system memory."""
    return layer.expert_bytes if layer.index < resolved.n_cpu_moe else 0


def unit_context_bytes(shape: ModelShape, resolved: ResolvedLoad, index: int) -> int:
    """KV cache and recurrent state of one unit."""
    if not shape.has_memory or index >= shape.n_layer:
        return 0
    return layer_context_bytes(
        shape.layers[index],
        n_cells=resolved.n_cells,
        n_seq_max=resolved.n_seq_max,
        n_ubatch=resolved.n_ubatch,
        type_k=resolved.type_k,
        type_v=resolved.type_v,
        n_rs_seq=resolved.n_rs_seq,
    )


def output_rows_bytes(shape: ModelShape, resolved: ResolvedLoad) -> int:
    """Logits that the host reads: one row a sequence (with embeddings, one row of those a token of a batch)."""
    if resolved.embeddings:
        return F32 * shape.n_embd * resolved.n_batch
    heads_rows = resolved.n_seq_max if resolved.speculation == "mtp" else 0
    rows = (resolved.n_outputs_max or resolved.n_seq_max) + heads_rows
    return F32 * shape.n_vocab * rows + hidden_rows_bytes(shape, resolved)


# --- compute ----------------------------------------------------------------------------------------------


def compute_bytes(
    shape: ModelShape, resolved: ResolvedLoad, devices: tuple[str, ...], name: str, kinds: Mapping[str, str]
) -> int:
    """Compute buffer of one device."""
    mine = [index for index, device in enumerate(devices) if device == name]
    layers = [shape.layers[index] for index in mine if index < shape.n_layer]
    masks = resolved.n_ubatch * _mask_bytes(shape, resolved)
    if name == CPU and not mine:
        return masks + _host_bytes(shape, resolved)
    row = F32 * shape.n_embd * resolved.n_ubatch
    peak = 2 * row
    side = 0 if name == CPU else 1 if 0 in mine else 2
    for layer in layers:
        words = max(
            _attention_words(shape, layer, resolved) + (3 if name == CPU else 2) * shape.n_embd,
            _ffn_words(shape, layer) + (_EXPERT_ROWS if layer.expert_bytes else _DENSE_ROWS)[side] * shape.n_embd,
        )
        peak = max(peak, F32 * resolved.n_ubatch * words)
        if layer.state_bytes:
            # Mamba's state is as wide as its layer; copies of it for every sequence come on top.
            peak = max(peak, 13 * row + layer.state_bytes * resolved.n_seq_max)
    if shape.n_layer in mine:
        outputs = resolved.n_outputs_max or resolved.n_ubatch
        peak = max(peak, F32 * min(outputs, resolved.n_ubatch) * shape.n_vocab + row)
    if kinds.get(name) in ("gpu", "igpu"):
        peak += _copied_weight_bytes(shape, resolved, devices)
        if len(set(devices)) > 1 and CPU not in devices and not resolved.n_cpu_moe:
            peak += (PIPELINE_COPIES - 1) * (masks + row)
    if resolved.speculation == "mtp" and shape.n_layer - 1 in mine:
        peak += _heads_compute_bytes(shape, resolved)
    return masks + peak


def _heads_compute_bytes(shape: ModelShape, resolved: ResolvedLoad) -> int:
    """The buffer of the context that runs a model's multi-token heads: one layer, and a few rows of logits."""
    layer = shape.layers[-1]
    words = max(
        _attention_words(shape, layer, resolved) + 3 * shape.n_embd,
        _ffn_words(shape, layer) + (_EXPERT_ROWS if layer.expert_bytes else _DENSE_ROWS)[0] * shape.n_embd,
    )
    logits = F32 * resolved.n_seq_max * shape.n_vocab
    masks = resolved.n_ubatch * (2 if _has_flash(resolved) else F32) * resolved.n_cells
    return masks + max(F32 * resolved.n_ubatch * words, logits)


def _host_bytes(shape: ModelShape, resolved: ResolvedLoad) -> int:
    """What is left for the processor when every layer is elsewhere: lookup, masks, and the experts that stayed."""
    words = 2 * shape.n_embd
    if not _has_flash(resolved):
        widths = {layer.n_swa > 0: layer.k_width + layer.v_width for layer in shape.layers}
        words += sum(widths.values())
    for layer in shape.layers:
        if experts_left_bytes(layer, resolved):
            words = max(words, _ffn_words(shape, layer) + shape.n_embd)
    return F32 * resolved.n_ubatch * words


def _has_flash(resolved: ResolvedLoad) -> bool:
    return resolved.flash_attn != "off"


def _mask_bytes(shape: ModelShape, resolved: ResolvedLoad) -> int:
    """Masks of one row: one for every length of cache, 16 bits with flash attention and 32 without."""
    lengths = {
        layer_cells(layer, resolved.n_cells, resolved.n_seq_max, resolved.n_ubatch) if layer.n_swa else resolved.n_cells
        for layer in shape.layers
        if layer.k_width or layer.v_width
    }
    kinds = {layer.n_swa > 0 for layer in shape.layers if layer.k_width or layer.v_width}
    cells = sum(lengths) if len(lengths) == len(kinds) else 2 * sum(lengths)
    if not shape.has_memory:
        cells = resolved.n_ubatch
    return (2 if _has_flash(resolved) else F32) * cells


def _attention_words(shape: ModelShape, layer: LayerShape, resolved: ResolvedLoad) -> int:
    """Numbers a row needs at the peak of attention: queries, keys, values, and without flash attention the scores."""
    if not layer.n_head:
        return 0
    head = layer.k_width // layer.n_head_kv if layer.n_head_kv else shape.n_embd // layer.n_head
    words = 2 * layer.n_head * head + layer.k_width + layer.v_width
    if _has_flash(resolved):
        return words
    if not shape.has_memory:
        return words + layer.n_head * resolved.n_ubatch
    return words + layer.n_head * layer_cells(layer, resolved.n_cells, resolved.n_seq_max, resolved.n_ubatch)


def _ffn_words(shape: ModelShape, layer: LayerShape) -> int:
    """Numbers a row needs at the peak of the feed-forward part, beside rows of `n_embd`."""
    if layer.expert_bytes:
        return layer.n_expert_used * (3 * shape.n_ff + shape.n_embd)
    return 3 * shape.n_ff


def _copied_weight_bytes(shape: ModelShape, resolved: ResolvedLoad, devices: tuple[str, ...]) -> int:
    """The largest matrix of the processor's that a card computes with in prompts (`op_offload`).

    A batch of 32 rows or more is computed on the card, each matrix copied over in turn into one place.
    """
    largest = 0
    for layer, device in zip(shape.layers, devices, strict=False):
        experts = layer.expert_bytes if device == CPU else experts_left_bytes(layer, resolved)
        dense = layer.weight_bytes - layer.expert_bytes if device == CPU else 0
        # Up, gate and down are a third of the experts each; of a dense layer the widest is about a quarter.
        largest = max(largest, experts // 3, dense // 4)
    if devices[-1] == CPU:
        largest = max(largest, shape.output_bytes)
    return min(largest, shape.largest_tensor_bytes)
