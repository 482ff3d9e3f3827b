"""What a loaded model takes on each device, and which layers went where: the same account for a load and a dry run.

From llama.cpp's breakdown (`runtime.worker.breakdown`) where it can be read, else from its log, which rounds to
0.01 MiB. Two things come from elsewhere:

* the logits' buffer, which the breakdown leaves out, from the log;
* weights in system memory that are mapped from the file. llama.cpp counts the whole range of the file between the
  first and the last of them there, also what lies on other devices; here they are what the other devices do not
  hold, and in a dry run without a breakdown the sum of the tensors of the layers that stayed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.fit.context_memory import layer_context_bytes
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory, ResolvedLoad
from runtime.worker import breakdown, cxx_map
from runtime.worker.devices import CPU, Device
from runtime.worker.llama_log import LlamaLog


@dataclass(slots=True)
class _Parts:
    weights: dict[str, int] = field(default_factory=dict)
    context: dict[str, int] = field(default_factory=dict)
    compute: dict[str, int] = field(default_factory=dict)


def measure(
    context: int,
    log: LlamaLog,
    *,
    shape: ModelShape,
    resolved: ResolvedLoad,
    devices: Sequence[Device],
    dry_run: bool,
    by_log: bool = not cxx_map.IS_TRIED,
) -> Measured:
    """Account for the context that was made last and its model.

    Args:
        context: the `llama_context`.
        log: with everything printed since the model was opened.
        shape: of the model's files.
        resolved: what it was loaded with.
        devices: those it could use.
        dry_run: nothing was allocated.
        by_log: leave the breakdown alone.
    """
    names = {device.ggml_name: device.name for device in devices}
    names |= {CPU: CPU}
    layers = {index: names.get(name, CPU) for index, name in log.layer_devices().items()}
    uses = None if by_log else breakdown.read_breakdown(context)
    parts = _from_log(log, names, shape, resolved, layers, dry_run=dry_run) if uses is None else _from_uses(uses, names)
    if not dry_run and (uses is None or any(use.buffer_type.endswith("_Mapped") for use in uses)):
        elsewhere = sum(size for name, size in parts.weights.items() if name != CPU)
        parts.weights[CPU] = _all_weights(shape, layers) - elsewhere
    output = _by_device(log.sizes("output"), names)
    used = [name for name in resolved.devices if _has(name, parts.weights, parts.context, parts.compute, output)]
    n_layer_on: dict[str, int] = {}
    for name in layers.values():
        n_layer_on[name] = n_layer_on.get(name, 0) + 1
    return Measured(
        memory=tuple(
            DeviceMemory(
                device=name,
                weight_bytes=parts.weights.get(name, 0),
                context_bytes=parts.context.get(name, 0),
                compute_bytes=parts.compute.get(name, 0),
                output_bytes=output.get(name, 0),
            )
            for name in (*used, CPU)
        ),
        n_layer_on=n_layer_on,
        method="dry_run",
    )


def _has(name: str, *parts: Mapping[str, int]) -> bool:
    return any(part.get(name) for part in parts)


def _all_weights(shape: ModelShape, layers: Mapping[int, str]) -> int:
    """All tensors that are loaded; a tied output layer is a copy only where it left the system's memory."""
    if shape.is_tied and _output_device(layers) == CPU:
        return shape.size_bytes - shape.skipped_bytes
    return shape.input_bytes + shape.layers_bytes + shape.output_bytes


def _output_device(layers: Mapping[int, str]) -> str:
    """The output layer is the one after the last repeating layer."""
    return layers[max(layers)] if layers else CPU


def _from_uses(uses: Iterable[breakdown.BufferUse], names: Mapping[str, str]) -> _Parts:
    parts = _Parts()
    for use in uses:
        name = CPU if use.is_host else names.get(use.device, use.device)
        parts.weights[name] = parts.weights.get(name, 0) + use.model_bytes
        parts.context[name] = parts.context.get(name, 0) + use.context_bytes
        parts.compute[name] = parts.compute.get(name, 0) + use.compute_bytes
    return parts


def _from_log(
    log: LlamaLog,
    names: Mapping[str, str],
    shape: ModelShape,
    resolved: ResolvedLoad,
    layers: Mapping[int, str],
    *,
    dry_run: bool,
) -> _Parts:
    """In a dry run llama.cpp prints 0 for weights and caches: those are summed by layer."""
    if not dry_run:
        return _Parts(
            _by_device(log.sizes("model"), names),
            _by_device(log.sizes("cache"), names),
            _by_device(log.sizes("compute"), names),
        )
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
            )
    output_on = _output_device(layers)
    parts.weights[output_on] = (
        parts.weights.get(output_on, 0) + _all_weights(shape, layers) - (shape.input_bytes + shape.layers_bytes)
    )
    return parts


def _by_device(sizes: Iterable[tuple[str, int]], names: Mapping[str, str]) -> dict[str, int]:
    """Sizes by buffer name summed by device: `CUDA0`, `CPU_REPACK`, `CUDA_Host`, `RPC0[10.0.0.5:50052]`."""
    found: dict[str, int] = {}
    for buffer_name, size_bytes in sizes:
        base = buffer_name.removesuffix("_Mapped")
        name = names.get(base, base if base in names.values() else CPU)
        found[name] = found.get(name, 0) + size_bytes
    return found
