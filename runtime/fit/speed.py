"""How fast a model will be on this machine, from what each token makes each device do.

One conversation's token goes through the layers one after the other, so the times of the devices add up; a mean of
their speeds would be wrong. A device's time is

* weights: bytes of the tensors a token touches, by number format, over the speed at which the device multiplies that
  format (measured with llama.cpp's own kernels, so both a slow memory and a slow processor show). Of routed experts
  only the share that is used, of lookup tables nothing;
* the rest of a layer: norms, rotations, additions and the start of each operation, which decide for small models;
* attention: every number the cache holds for the tokens so far, times the query heads that look at it;
* recurrent state: read and written once;
* hops: handing the row to the next device.

For a prompt the same with many rows at once: then the arithmetic counts and not the bytes. What this machine measured
before corrects the result (`runtime.fit.history`). Held against real runs by `python -m tests.bench.speed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.fit import history as histories
from runtime.gguf.architecture import LayerShape, ModelShape
from runtime.gguf.quantization import TENSOR_TYPES
from runtime.messages.fit import AttentionSpeed, MachineSpeed, SpeedRange, SpeedSample, Throughput
from runtime.messages.load import ResolvedLoad

CPU = "CPU"
NODE_PREFIX = "RPC"
"""Beginning of the names of devices that other machines lend."""
DEFAULT_DEPTH = 1024
"""Tokens in the conversation a speed is told for, where the context holds as many."""
PROMPT_TOKENS = 512
"""Length of the prompt whose speed is told, read after `depth` tokens; llama-bench's default."""
CELL_PAD = 256
"""Attention looks at so many cells at once (llama-kv-cache.cpp, `n_pad` of `get_n_kv`)."""

OPS_OF_EXPERTS = 1.7
OPS_OF_STATE = 1.5
"""Operations of a layer with experts or a recurrent state to those of a dense one (graphs of qwen3moe, mamba)."""

SPREAD_FORMULA, SPREAD_FORMULA_PROMPT = 0.20, 0.35
SPREAD_GUESS = 0.6

GUESS_CPU_BPS, GUESS_GPU_BPS = 12e9, 150e9
GUESS_CPU_FLOPS, GUESS_GPU_FLOPS = 100e9, 10e12
"""An ordinary desktop; used only where nothing was measured, and then the range is wide."""
GUESS_LAYER_S, GUESS_HOP_S = 50e-6, 300e-6

_BITS: Mapping[str, float] = {kind.name: kind.bits_per_weight for kind in TENSOR_TYPES.values()}


@dataclass(frozen=True, slots=True)
class Placed:
    """Layers `[first, last)` on one device; the index after the last repeating layer is the output layer."""

    device: str
    first: int
    last: int


def predict(
    shape: ModelShape,
    resolved: ResolvedLoad,
    *,
    speed: MachineSpeed | None,
    n_layer_on: Mapping[str, int] | None = None,
    depth: int | None = None,
    model: str = "",
    history: Sequence[SpeedSample] = (),
) -> SpeedRange:
    """Predict prompt and generation speed of one conversation.

    Args:
        shape: of the model.
        resolved: how it is loaded.
        speed: what the quick measurement found; None guesses.
        n_layer_on: layers on each device, output layer included (`Measured.n_layer_on`); None follows `resolved`.
        depth: tokens already in the conversation; None takes `DEFAULT_DEPTH`, at most half of the context.
        model: its id, to find its own runs in `history`.
        history: what this machine measured before, newest last.
    """
    at = depth if depth is not None else min(DEFAULT_DEPTH, resolved.n_ctx // 2)
    placed = placement(shape, resolved, n_layer_on)
    devices = tuple(part.device for part in placed)
    costs = _Costs(shape, resolved, speed)
    generation_s = costs.decode_s(placed, n_rows=1, depth=at)
    prompt_s = costs.prompt_s(placed, n_tokens=PROMPT_TOKENS, depth=at)
    generation, prompt = 1 / generation_s, PROMPT_TOKENS / prompt_s
    kind = histories.Kind(model, devices, main_type(shape), at)
    first = histories.correction(
        history, kind, ratio=histories.generation_ratio, spread=SPREAD_FORMULA if speed else SPREAD_GUESS
    )
    second = histories.correction(
        history, kind, ratio=histories.prompt_ratio, spread=SPREAD_FORMULA_PROMPT if speed else SPREAD_GUESS
    )
    generation_range, prompt_range = _range(generation, first), _range(prompt, second)
    return SpeedRange(
        generation_tps=generation * first.factor,
        generation_low_tps=generation_range[0],
        generation_high_tps=generation_range[1],
        prompt_tps=prompt * second.factor,
        prompt_low_tps=prompt_range[0],
        prompt_high_tps=prompt_range[1],
        depth=at,
        basis="guess" if first.basis == "formula" and speed is None else first.basis,
        formula_generation_tps=generation,
        formula_prompt_tps=prompt,
    )


def sample_of(
    predicted: SpeedRange,
    shape: ModelShape,
    resolved: ResolvedLoad,
    *,
    model: str,
    at_s: float,
    n_layer_on: Mapping[str, int] | None = None,
    generation_tps: float = 0.0,
    prompt_tps: float = 0.0,
) -> SpeedSample:
    """What to remember of an answer.

    Args:
        predicted: by `predict` for the depth at which it was measured.
        shape: as given to `predict`.
        resolved: as given to `predict`.
        model: as given to `predict`.
        at_s: seconds since 1970.
        n_layer_on: as given to `predict`.
        generation_tps: measured while no other conversation ran; 0 was not measured.
        prompt_tps: the same, of a prompt of a few hundred tokens that was read whole.
    """
    return SpeedSample(
        model=model,
        devices=tuple(part.device for part in placement(shape, resolved, n_layer_on)),
        tensor_type=main_type(shape),
        depth=predicted.depth,
        at_s=at_s,
        generation_tps=generation_tps,
        prompt_tps=prompt_tps,
        formula_generation_tps=predicted.formula_generation_tps,
        formula_prompt_tps=predicted.formula_prompt_tps,
    )


def main_type(shape: ModelShape) -> str:
    """The number format of most of the weights, lookup tables left out."""
    counted: dict[str, int] = dict(shape.output_types)
    for layer in shape.layers:
        for name, n_bytes in layer.tensor_types.items():
            counted[name] = counted.get(name, 0) + n_bytes
    return max(counted, key=lambda name: counted[name], default="")


def placement(
    shape: ModelShape, resolved: ResolvedLoad, n_layer_on: Mapping[str, int] | None = None
) -> tuple[Placed, ...]:
    """Which layers each device holds: the processor the first ones, the others follow in order."""
    n_total = shape.n_layer + 1
    if n_layer_on is None:
        n_layer_on = _layers_by_options(resolved, n_total)
    names = [CPU, *(name for name in resolved.devices if name != CPU)]
    names += [name for name in n_layer_on if name not in names]
    placed: list[Placed] = []
    first = 0
    for name in names:
        last = min(first + n_layer_on.get(name, 0), n_total)
        if last > first:
            placed.append(Placed(name, first, last))
        first = last
    if first < n_total:  # counts that do not reach the end belong to the last device
        end = placed.pop() if placed else Placed(CPU, 0, 0)
        placed.append(Placed(end.device, end.first, n_total))
    return tuple(placed)


def _layers_by_options(resolved: ResolvedLoad, n_total: int) -> dict[str, int]:
    n_gpu = min(resolved.n_gpu_layers, n_total) if resolved.devices else 0
    counts = {CPU: n_total - n_gpu}
    shares = resolved.tensor_split[: len(resolved.devices)] or tuple(1.0 for _name in resolved.devices)
    total = sum(shares) or 1.0
    given, reached = 0, 0.0
    for name, share in zip(resolved.devices, shares, strict=False):
        reached += share
        until = round(n_gpu * reached / total)
        counts[name] = counts.get(name, 0) + until - given
        given = until
    return counts


def _range(predicted: float, correction: histories.Correction) -> tuple[float, float]:
    value = predicted * correction.factor
    return value / (1 + correction.spread), value * (1 + correction.spread)


class _Costs:
    """Seconds of one decode call, part by part."""

    def __init__(self, shape: ModelShape, resolved: ResolvedLoad, speed: MachineSpeed | None) -> None:
        self._shape = shape
        self._resolved = resolved
        self._speed = speed or MachineSpeed(key="", measured_s=0.0, throughput=())
        self._kernels = {(entry.device, entry.tensor_type): entry for entry in self._speed.throughput}
        self._attention = {(entry.device, entry.kv_type, entry.flash): entry for entry in self._speed.attention}
        # The measurement used all cores that compute; fewer threads are slower, more do not help.
        measured, used = self._speed.n_threads, resolved.n_threads
        self._cpu_share = min(used / measured, 1.0) if measured and used else 1.0
        self._in_cache = 0.0

    def prompt_s(self, placed: Sequence[Placed], *, n_tokens: int, depth: int) -> float:
        """A prompt in micro-batches, each looking at one more."""
        step = max(1, min(self._resolved.n_ubatch, n_tokens))
        return sum(
            self.decode_s(placed, n_rows=min(step, n_tokens - start), depth=depth + start)
            for start in range(0, n_tokens, step)
        )

    def decode_s(self, placed: Sequence[Placed], *, n_rows: int, depth: int) -> float:
        """One micro-batch of `n_rows` tokens of one conversation that holds `depth` already."""
        total = self._speed.decode_s
        self._in_cache = self._cached_share(placed)
        for part in placed:
            total += self._hop_s(part.device, n_rows)
            for index in range(part.first, part.last):
                if index < self._shape.n_layer:
                    total += self._layer_s(self._shape.layers[index], part.device, n_rows, depth)
                else:
                    # Of a prompt only the last token's row reaches the output layer.
                    total += self._weights_s(part.device, self._shape.output_types, 1.0, 1)
        return total

    def _layer_s(self, layer: LayerShape, device: str, n_rows: int, depth: int) -> float:
        dense = {name: n - layer.expert_types.get(name, 0) for name, n in layer.tensor_types.items()}
        total = self._weights_s(device, dense, 1.0, n_rows)
        if layer.expert_bytes:
            in_ram = layer.index < self._resolved.n_cpu_moe
            share = min(layer.n_expert_used / self._shape.n_expert, 1.0) if self._shape.n_expert else 1.0
            total += self._weights_s(CPU if in_ram else device, layer.expert_types, share, n_rows)
            if in_ram and device != CPU:
                total += 2 * self._hop_s(device, n_rows)
        ops = OPS_OF_EXPERTS if layer.expert_bytes else 1.0
        if layer.state_bytes:
            ops = max(ops, OPS_OF_STATE)
            total += 2 * layer.state_bytes / self._memory_bps(device)
        total += ops * self._speed.layer_s.get(device, self._speed.layer_s.get(CPU, GUESS_LAYER_S))
        if n_rows > 1:
            element_s = self._speed.element_s.get(device, 0.0) / self._share(device)
            total += ops * element_s * n_rows * self._shape.n_embd
        return total + self._attention_s(layer, device, n_rows, depth)

    def _weights_s(self, device: str, types: Mapping[str, int], share: float, n_rows: int) -> float:
        """Multiply the rows with these weights; of experts each row takes `share`."""
        total = 0.0
        for name, n_bytes in types.items():
            kernel = self._kernel(device, name)
            if n_rows == 1:
                total += n_bytes * share * self._byte_s(device, kernel)
                continue
            n_params = n_bytes * 8 / _BITS.get(name, 16.0)
            touched = n_bytes * min(share * n_rows, 1.0)
            total += max(2 * n_params * share * n_rows / kernel.flops, touched / kernel.read_bps)
        return total / self._share(device)

    def _byte_s(self, device: str, kernel: Throughput) -> float:
        """Seconds for one byte of weights; a small model stays in the processor's caches from token to token."""
        if device != CPU or not kernel.cached_bps:
            return 1 / kernel.read_bps
        return self._in_cache / kernel.cached_bps + (1 - self._in_cache) / kernel.read_bps

    def _cached_share(self, placed: Sequence[Placed]) -> float:
        """How much of what the processor reads for a token its caches hold."""
        n_bytes = 0.0
        for part in placed:
            if part.device == CPU:
                n_bytes += sum(self._active_bytes(layer) for layer in self._shape.layers[part.first : part.last])
                n_bytes += self._shape.output_bytes if part.last > self._shape.n_layer else 0
        # The next larger size serves: caches also hold what a token computes, and other programs' data.
        return next((share for size, share in self._speed.cached_share if n_bytes <= size), 0.0)

    def _active_bytes(self, layer: LayerShape) -> float:
        share = min(layer.n_expert_used / self._shape.n_expert, 1.0) if self._shape.n_expert else 1.0
        return layer.weight_bytes - layer.expert_bytes * (1 - share)

    def _attention_s(self, layer: LayerShape, device: str, n_rows: int, depth: int) -> float:
        if not layer.k_width:
            return 0.0
        cells = depth + n_rows
        if layer.n_swa:
            cells = min(cells, layer.n_swa + n_rows)
        cells = -(-cells // CELL_PAD) * CELL_PAD
        # Where only K is kept (MLA), it serves as V too.
        width = layer.k_width + (layer.v_width or layer.k_width)
        numbers = n_rows * cells * width * layer.n_head / max(layer.n_head_kv, 1)
        place = device if self._resolved.offload_kqv else CPU
        speed = self._attention_speed(place)
        if speed is None:
            n_bytes = cells * width * _BITS.get(self._resolved.type_k.upper(), 16.0) / 8
            return n_bytes / self._memory_bps(place)
        return numbers / ((speed.read_eps if n_rows == 1 else speed.prompt_eps) * self._share(place))

    def _attention_speed(self, device: str) -> AttentionSpeed | None:
        flash = self._resolved.flash_attn != "off"
        for kv_type in (self._resolved.type_k, "q8_0", "f16"):
            if found := self._attention.get((device, kv_type, flash)):
                return found
        known = next((entry for entry in self._speed.attention if entry.device == device), None)
        return self._attention_speed(CPU) if known is None and device.startswith(NODE_PREFIX) else known

    def _kernel(self, device: str, tensor_type: str) -> Throughput:
        """The measured kernel; of a format that was not measured, that of the closest size."""
        if found := self._kernels.get((device, tensor_type)):
            return found
        bits = _BITS.get(tensor_type, 16.0)
        known = [entry for entry in self._speed.throughput if entry.device == device]
        if not known:
            # What a node's devices are is not told and seldom measured: they are taken to be like this processor.
            is_cpu = device == CPU or device.startswith(NODE_PREFIX)
            if is_cpu and device != CPU and self._speed.throughput:
                return self._kernel(CPU, tensor_type)
            return Throughput(
                device,
                tensor_type,
                GUESS_CPU_BPS if is_cpu else GUESS_GPU_BPS,
                GUESS_CPU_FLOPS if is_cpu else GUESS_GPU_FLOPS,
                0.0,
            )
        return min(known, key=lambda entry: abs(_BITS.get(entry.tensor_type, 16.0) - bits))

    def _share(self, device: str) -> float:
        return self._cpu_share if device == CPU else 1.0

    def _memory_bps(self, device: str) -> float:
        otherwise = GUESS_CPU_BPS if device == CPU else GUESS_GPU_BPS
        return self._speed.memory_bps.get(device, 0.0) or otherwise

    def _hop_s(self, device: str, n_rows: int) -> float:
        if device == CPU:
            return 0.0
        fixed = self._speed.hop_s.get(device, GUESS_HOP_S)
        link = self._speed.link_bps.get(device, 0.0)
        return fixed + (4 * self._shape.n_embd * n_rows / link if link else 0.0)
