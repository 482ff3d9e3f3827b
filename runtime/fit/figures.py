"""What a layout takes, as far as it is known by now: the formula, corrected by the dry runs made so far.

A layout that was measured is known exactly. For the others the difference between formula and the latest measurement
is carried over: device by device for weights and compute buffers, as a share for the memory of the conversation, whose
size depends on the context.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.fit import formula
from runtime.fit.inputs import Part, PlanInputs
from runtime.fit.placement import CPU
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory, ResolvedLoad


@dataclass(slots=True)
class _Correction:
    weight: dict[str, int] = field(default_factory=dict)
    compute: dict[str, int] = field(default_factory=dict)
    output: int = 0
    context_share: float = 1.0
    projector: dict[str, int] | None = None
    on_gpu: bool = False


class Figures:
    """Sizes of the layouts of one model, and of its draft model."""

    def __init__(self, inputs: PlanInputs) -> None:
        self._inputs = inputs
        self._kinds = {device.name: device.kind for device in inputs.machine.devices}
        self._known: dict[tuple[Part, ResolvedLoad], Measured] = {}
        self._corrections: dict[Part, _Correction] = {}

    def shape(self, part: Part) -> ModelShape:
        """The shape of a part; the draft's only where there is one."""
        if part == "model" or self._inputs.draft is None:
            return self._inputs.shape
        return self._inputs.draft

    def is_known(self, part: Part, resolved: ResolvedLoad) -> bool:
        """Whether this layout was measured."""
        return (part, resolved) in self._known

    def learn(self, part: Part, resolved: ResolvedLoad, measured: Measured, *, is_careful: bool = False) -> None:
        """Keep a measurement.

        Args:
            part: which file.
            resolved: the layout.
            measured: what it takes.
            is_careful: never expect less than any measurement so far said: then a search that was led astray ends.
        """
        self._known[part, resolved] = measured
        guessed = {entry.device: entry for entry in self._formula(part, resolved).memory}
        found = self._corrections.setdefault(part, _Correction())
        context = [0, 0]
        output = 0
        projector: dict[str, int] = {}
        for entry in measured.memory:
            expected = guessed.get(entry.device, DeviceMemory(entry.device))
            for known, off in (
                (found.weight, entry.weight_bytes - expected.weight_bytes),
                (found.compute, entry.compute_bytes - expected.compute_bytes),
            ):
                known[entry.device] = max(off, known.get(entry.device, off)) if is_careful else off
            output += entry.output_bytes - expected.output_bytes
            context[0] += entry.context_bytes
            context[1] += expected.context_bytes
            if entry.projector_bytes:
                projector[entry.device] = entry.projector_bytes
        if context[1] > 0:
            share = context[0] / context[1]
            found.context_share = max(share, found.context_share) if is_careful else share
        found.output = output
        found.projector = projector if part == "model" and self._inputs.projector_bytes else None
        found.on_gpu = bool(resolved.devices)

    def measured(self, part: Part, resolved: ResolvedLoad) -> Measured:
        """What a layout takes: as measured, or by corrected formula."""
        known = self._known.get((part, resolved))
        if known is not None:
            return known
        guessed = self._formula(part, resolved)
        correction = self._corrections.get(part)
        if correction is None:
            return guessed
        corrected = [self._corrected(entry, correction, resolved) for entry in guessed.memory]
        return Measured(memory=tuple(corrected), n_layer_on=guessed.n_layer_on, method="formula")

    def _formula(self, part: Part, resolved: ResolvedLoad) -> Measured:
        projector = self._inputs.projector_bytes if part == "model" else 0
        return formula.estimate(self.shape(part), resolved, kinds=self._kinds, projector_bytes=projector)

    def _corrected(self, entry: DeviceMemory, correction: _Correction, resolved: ResolvedLoad) -> DeviceMemory:
        projector = entry.projector_bytes
        if correction.projector is not None and correction.on_gpu == bool(resolved.devices):
            projector = correction.projector.get(entry.device, 0)
        return DeviceMemory(
            device=entry.device,
            weight_bytes=max(0, entry.weight_bytes + _off(entry.device, correction.weight)),
            context_bytes=int(entry.context_bytes * correction.context_share),
            compute_bytes=max(0, entry.compute_bytes + _off(entry.device, correction.compute)),
            output_bytes=max(0, entry.output_bytes + correction.output) if entry.device == CPU else entry.output_bytes,
            projector_bytes=projector,
        )

    # --- for packing ---

    def unit_bytes(self, resolved: ResolvedLoad) -> list[int]:
        """What each unit of the model takes on a device that is not the processor."""
        shape = self._inputs.shape
        correction = self._corrections.get("model")
        share = correction.context_share if correction else 1.0
        sizes = []
        for index in range(shape.n_layer + 1):
            context = formula.unit_context_bytes(shape, resolved, index) if resolved.offload_kqv else 0
            sizes.append(formula.unit_weight_bytes(shape, resolved, index, on_cpu=False) + -int(-context * share // 1))
        return sizes

    def fixed_bytes(self, resolved: ResolvedLoad, device: str, *, has_output: bool, all_units: bool) -> int:
        """What a device takes beside its units: its compute buffer."""
        shape = self._inputs.shape
        units = [device] * (shape.n_layer + 1)
        if not has_output:
            units[-1] = ""
        if not all_units:
            units[0] = CPU
        size = formula.compute_bytes(shape, resolved, tuple(units), device, self._kinds)
        correction = self._corrections.get("model")
        if correction is None:
            return size
        return max(0, size + _off(device, correction.compute) + max(0, _off(device, correction.weight)))


def _off(device: str, known: Mapping[str, int]) -> int:
    """How far the formula is off on a device; one that was never measured is off as far as the worst that was."""
    if device in known:
        return known[device]
    return max(0, *(n_bytes for name, n_bytes in known.items() if name != CPU), 0) if device != CPU else 0


def combined(memory: Iterable[DeviceMemory], draft: Iterable[DeviceMemory] = ()) -> tuple[DeviceMemory, ...]:
    """One entry a device, what the draft model takes added as `draft_bytes`; the processor last."""
    parts: dict[str, DeviceMemory] = {entry.device: entry for entry in memory}
    extra: Mapping[str, int] = {entry.device: entry.total_bytes for entry in draft}
    for device in extra:
        parts.setdefault(device, DeviceMemory(device))
    joined = [
        DeviceMemory(
            device=entry.device,
            weight_bytes=entry.weight_bytes,
            context_bytes=entry.context_bytes,
            compute_bytes=entry.compute_bytes,
            output_bytes=entry.output_bytes,
            projector_bytes=entry.projector_bytes,
            draft_bytes=entry.draft_bytes + extra.get(entry.device, 0),
        )
        for entry in parts.values()
    ]
    return tuple(sorted(joined, key=lambda entry: entry.device == CPU))
