"""Machines to plan for, and a measurer that answers as llama.cpp might."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.errors import Failure
from runtime.fit.formula import estimate
from runtime.fit.inputs import Ask, PlanInputs
from runtime.fit.planner import plan
from runtime.messages.fit import Machine, MachineSpeed, Measured, MemoryPlan, Throughput
from runtime.messages.load import ComputeDevice, DeviceKind, DeviceMemory

GIB = 2**30
CPU = "CPU"


def gpu(
    name: str = "CUDA0",
    total_gib: float = 8,
    free_gib: float | None = None,
    *,
    description: str = "RTX",
    kind: DeviceKind = "gpu",
    node: str = "",
) -> ComputeDevice:
    free = total_gib - 0.5 if free_gib is None else free_gib
    return ComputeDevice(name, description, kind, int(total_gib * GIB), int(free * GIB), node=node)


def node(address: str = "10.0.0.5:50052", total_gib: float = 32, free_gib: float = 28) -> ComputeDevice:
    return gpu(f"RPC0[{address}]", total_gib, free_gib, description=address, kind="node", node=address)


def machine(
    *devices: ComputeDevice,
    ram_gib: float = 32,
    free_gib: float | None = None,
    unified: bool = False,
    speeds: Mapping[str, float] | None = None,
) -> Machine:
    """`speeds` are bytes a second by device; without them nothing was measured."""
    free = ram_gib - 6 if free_gib is None else free_gib
    processor = ComputeDevice(CPU, "Processor", "cpu", int(ram_gib * GIB), int(ram_gib * GIB))
    return Machine(
        devices=(*devices, processor),
        n_cores=8,
        ram_total_bytes=int(ram_gib * GIB),
        ram_free_bytes=int(free * GIB),
        unified=unified,
        speed=None if speeds is None else measured_speed(speeds),
    )


def measured_speed(speeds: Mapping[str, float]) -> MachineSpeed:
    return MachineSpeed(
        key="test",
        measured_s=0.0,
        throughput=tuple(
            Throughput(name, kind, read_bps=bps, flops=bps * 20, node_s=1e-6)
            for name, bps in speeds.items()
            for kind in ("Q4_K", "Q6_K", "F32")
        ),
        layer_s=dict.fromkeys(speeds, 2e-6),
        hop_s={name: 1e-4 for name in speeds if name != CPU},
    )


@dataclass
class FakeLlama:
    """Measures by formula, with parts that differ from it as the real thing's might; remembers what it was asked."""

    inputs: PlanInputs
    compute_factor: float = 1.0
    context_factor: float = 1.0
    weight_extra: int = 0
    asked: list[Ask] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Measured | Failure | None:
        self.asked.append(ask)
        shape = self.inputs.draft if ask.part == "draft" and self.inputs.draft else self.inputs.shape
        projector = self.inputs.projector_bytes if ask.part == "model" else 0
        found = estimate(shape, ask.resolved, projector_bytes=projector)
        memory = [
            DeviceMemory(
                device=entry.device,
                weight_bytes=entry.weight_bytes + (self.weight_extra if entry.device != CPU else 0),
                context_bytes=int(entry.context_bytes * self.context_factor),
                compute_bytes=int(entry.compute_bytes * self.compute_factor),
                output_bytes=entry.output_bytes,
                projector_bytes=entry.projector_bytes,
            )
            for entry in found.memory
        ]
        return Measured(memory=tuple(memory), n_layer_on=found.n_layer_on)


Answer = Callable[[Ask], Measured | Failure | None]


def run_plan(inputs: PlanInputs, answer: Answer) -> MemoryPlan:
    """Drive the planner to its end."""
    steps = plan(inputs)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(answer(ask))
    except StopIteration as done:
        result: MemoryPlan = done.value
        return result


def limits(made: MemoryPlan) -> Sequence[tuple[str, int]]:
    """What is left of each bar after the margin."""
    return [(bar.device.name, bar.free_bytes) for bar in made.budgets]
