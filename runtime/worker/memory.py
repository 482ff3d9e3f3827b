"""What a loaded model takes on each device, and which layers went where: the same account for a load and a dry run.

From llama.cpp's breakdown (`runtime.worker.breakdown`) where it can be read, else from its log, which rounds to
0.01 MiB. Two things come from elsewhere:

* the logits' buffer, which the breakdown leaves out, from the log;
* weights that are mapped from the file. llama.cpp counts the whole range of the file between the first and the last
  of them, also what lies elsewhere; here they are the tensors that are really there (`runtime.worker.tensor_map`), or
  where that cannot be read, what is not elsewhere.

In a dry run llama.cpp prints no sizes of weights and caches: by the log alone these are summed by layer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runtime.fit.context_memory import hidden_rows_bytes, layer_context_bytes
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory, ResolvedLoad
from runtime.worker import breakdown, cxx_map, tensor_map
from runtime.worker.breakdown import BufferUse
from runtime.worker.devices import CPU, Device
from runtime.worker.llama_log import LlamaLog

_MAPPED = "_Mapped"


@dataclass(slots=True)
class _Parts:
    """Bytes by device."""

    weights: dict[str, int] = field(default_factory=dict)
    context: dict[str, int] = field(default_factory=dict)
    compute: dict[str, int] = field(default_factory=dict)
    output: dict[str, int] = field(default_factory=dict)


def measure(
    model: int,
    contexts: Sequence[int],
    log: LlamaLog,
    *,
    shape: ModelShape,
    resolved: ResolvedLoad,
    devices: Sequence[Device],
    dry_run: bool,
    by_log: bool = not cxx_map.IS_TRIED,
) -> Measured:
    """Account for a model and the contexts that were made of it last.

    Args:
        model: the `llama_model`.
        contexts: its `llama_context`, and that of its multi-token heads where there is one.
        log: with everything printed since the model was opened.
        shape: of the model's files.
        resolved: what it was loaded with.
        devices: those it could use.
        dry_run: nothing was allocated.
        by_log: leave the breakdown alone.
    """
    names = {device.ggml_name: device.name for device in devices} | {CPU: CPU}
    layers = {index: names.get(name, CPU) for index, name in log.layer_devices().items()}
    uses = None if by_log else breakdown.read_breakdown(contexts[0])
    if uses is None and dry_run:
        parts = _by_layer(log, names, shape, resolved, layers)
    else:
        buffers = _from_log(log) if uses is None else uses
        in_buffers = None if dry_run or by_log else tensor_map.bytes_by_buffer(model)
        beside = () if uses is None else _beside(contexts[1:])
        parts = _summed((*_without_gaps(buffers, in_buffers), *beside), names)
        if in_buffers is None and any(use.buffer_type == CPU + _MAPPED for use in buffers):
            elsewhere = sum(size for name, size in parts.weights.items() if name != CPU)
            is_copied = _has_other_order((use.buffer_type for use in buffers), names)
            parts.weights[CPU] = _all_weights(shape, layers, is_copied=is_copied) - elsewhere
    for adapter in resolved.adapters:
        for index, n_bytes in enumerate(adapter.layer_bytes):
            if n_bytes:  # llama.cpp keeps an adapter's matrices where those are that they change
                name = layers.get(index, CPU)
                parts.weights[name] = parts.weights.get(name, 0) + n_bytes
    # Printed when the context is made, with a row for each sequence; it grows with the first step that has more.
    n_rows = max(resolved.n_outputs_max, resolved.n_seq_max)
    own, of_heads = log.sizes("output")[:1], log.sizes("output")[1:]
    parts.output = {
        name: size_bytes * n_rows // resolved.n_seq_max for name, size_bytes in _by_device(own, names).items()
    }
    for name, size_bytes in _by_device(of_heads, names).items():
        parts.output[name] = parts.output.get(name, 0) + size_bytes
    parts.output[CPU] = parts.output.get(CPU, 0) + hidden_rows_bytes(shape, resolved)
    every = (parts.weights, parts.context, parts.compute, parts.output)
    used = [name for name in resolved.devices if any(part.get(name) for part in every)]
    n_layer_on: dict[str, int] = {}
    for name in layers.values():
        n_layer_on[name] = n_layer_on.get(name, 0) + 1
    return Measured(
        memory=tuple(
            DeviceMemory(name, *(part.get(name, 0) for part in every)) for name in dict.fromkeys((*used, CPU))
        ),
        n_layer_on=n_layer_on,
        method="dry_run",
    )


def _beside(contexts: Sequence[int]) -> tuple[BufferUse, ...]:
    """What further contexts of the same model take, each of which counts the model again."""
    found = (use for context in contexts for use in breakdown.read_breakdown(context) or ())
    return tuple(replace(use, model_bytes=0) for use in found)


def _from_log(log: LlamaLog) -> tuple[BufferUse, ...]:
    """The buffers of a real load as llama.cpp printed them."""
    none = BufferUse("", "", is_host=False, model_bytes=0, context_bytes=0, compute_bytes=0)
    return (
        *(replace(none, buffer_type=name, model_bytes=size) for name, size in log.sizes("model")),
        *(replace(none, buffer_type=name, context_bytes=size) for name, size in log.sizes("cache")),
        *(replace(none, buffer_type=name, compute_bytes=size) for name, size in log.sizes("compute")),
    )


def _without_gaps(buffers: Iterable[BufferUse], in_buffers: Mapping[str, int] | None) -> Iterable[BufferUse]:
    """Put the tensors in a mapped buffer in place of the range of the file that llama.cpp counts for it."""
    for use in buffers:
        if in_buffers is not None and use.buffer_type.endswith(_MAPPED):
            yield replace(use, model_bytes=in_buffers.get(use.buffer_type, 0))
        else:
            yield use


def _summed(buffers: Iterable[BufferUse], names: Mapping[str, str]) -> _Parts:
    parts = _Parts()
    for use in buffers:
        name = CPU if use.is_host else names.get(use.device) or _device_of(use.buffer_type, names)
        parts.weights[name] = parts.weights.get(name, 0) + use.model_bytes
        parts.context[name] = parts.context.get(name, 0) + use.context_bytes
        parts.compute[name] = parts.compute.get(name, 0) + use.compute_bytes
    return parts


def _by_layer(
    log: LlamaLog, names: Mapping[str, str], shape: ModelShape, resolved: ResolvedLoad, layers: Mapping[int, str]
) -> _Parts:
    """A dry run by the log: llama.cpp prints 0 for weights and caches, so those are summed by layer."""
    parts = _Parts(weights={CPU: shape.input_bytes}, compute=_by_device(log.sizes("compute"), names))
    for layer in shape.layers:
        name = layers.get(layer.index, CPU)
        experts = layer.expert_bytes if layer.index < resolved.n_cpu_moe else 0
        parts.weights[name] = parts.weights.get(name, 0) + layer.weight_bytes - experts
        parts.weights[CPU] += experts
        if shape.has_memory:
            kept_on = name if resolved.offload_kqv else CPU
            parts.context[kept_on] = parts.context.get(kept_on, 0) + layer_context_bytes(
                layer,
                n_cells=resolved.n_cells,
                n_seq_max=resolved.n_seq_max,
                n_ubatch=resolved.n_ubatch,
                type_k=resolved.type_k,
                type_v=resolved.type_v,
                n_rs_seq=resolved.n_rs_seq,
            )
    output_on = _output_device(layers)
    is_copied = _has_other_order((name for name, _size in log.sizes("model")), names)
    output_bytes = _all_weights(shape, layers, is_copied=is_copied) - shape.input_bytes - shape.layers_bytes
    parts.weights[output_on] = parts.weights.get(output_on, 0) + output_bytes
    return parts


def _all_weights(shape: ModelShape, layers: Mapping[int, str], *, is_copied: bool) -> int:
    """All tensors that are loaded.

    A tied output layer is a copy of the embeddings where it is on another device, or in system memory in the order
    that a faster kernel wants (`is_copied`: some tensors are kept so).
    """
    if shape.is_tied and not is_copied and _output_device(layers) == CPU:
        return shape.size_bytes - shape.skipped_bytes
    return shape.input_bytes + shape.layers_bytes + shape.output_bytes


def _output_device(layers: Mapping[int, str]) -> str:
    """The output layer is the one after the last repeating layer."""
    return layers[max(layers)] if layers else CPU


def _has_other_order(buffer_names: Iterable[str], names: Mapping[str, str]) -> bool:
    """Whether some weights in system memory are kept in another order than the file's (`CPU_REPACK`, `AMX`)."""
    return any(
        name.removesuffix(_MAPPED) != CPU and not name.endswith("_Host") and _device_of(name, names) == CPU
        for name in buffer_names
    )


def _by_device(sizes: Iterable[tuple[str, int]], names: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for buffer_name, size_bytes in sizes:
        name = _device_of(buffer_name, names)
        found[name] = found.get(name, 0) + size_bytes
    return found


def _device_of(buffer_name: str, names: Mapping[str, str]) -> str:
    """The device of a buffer by its name: `CUDA0`, `CPU_REPACK`, `CUDA_Host`, `RPC0[10.0.0.5:50052]`."""
    base = buffer_name.removesuffix(_MAPPED)
    return names.get(base, base if base in names.values() else CPU)
