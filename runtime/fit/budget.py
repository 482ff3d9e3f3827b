"""What may be used of each device: what is free now, less what is kept free on purpose.

The rules, with their reasons:

* A GPU keeps `GPU_MARGIN` free. llama.cpp's own figures leave out the driver's context (0.3 to 0.5 GiB), the pools its
  kernels grow later, and everything that other programs ask for while the model runs; its own fit keeps 1 GiB, which
  was too little on large cards (their pools and screens are larger) and forbids small ones altogether.
* System memory keeps a sixteenth, and room for the worker process itself.
* What other programs hold now is never counted on. What our own loaded models hold is, when they would be unloaded.
* Devices that work in system memory (integrated GPUs, a node on this very machine) share one budget with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime.fit.inputs import PlanInputs
from runtime.messages.load import ComputeDevice, DeviceMemory

CPU = "CPU"
"""llama.cpp's name of the processor, whose memory is the system's."""

GIB = 2**30
GPU_MARGIN_LOW = GIB // 2
GPU_MARGIN = GIB
GPU_MARGIN_HIGH = 2 * GIB
GPU_MARGIN_SHARE = 1 / 24
"""The margin is 1 GiB from 8 to 24 GiB; below an eighth of the card, at least 0.5 GiB; above a 24th, at most 2 GiB."""
SHARED_MARGIN = GIB // 2
"""Of a GPU in system memory: what it may use is less than all of it already (Metal's recommended working set)."""
RAM_MARGIN_LOW = GIB // 2
RAM_MARGIN_HIGH = 4 * GIB
RAM_MARGIN_SHARE = 1 / 16
UNTOLD_SHARE = 1 / 8
"""Of a node that tells all its memory as free, as one that lends its processor does: its system needs some of it."""
WORKER_BYTES = GIB // 4
"""The worker process beside the model: Python, the libraries and the tokenizer."""

_LOOPBACK = ("127.", "localhost", "[::1]", "::1")
_SAME_MEMORY = 0.02
"""A node on this machine whose memory is this machine's to within so much lends the processor, no card of its own."""


def margin_of(device: ComputeDevice, inputs: PlanInputs) -> int:
    """Bytes to keep free on a device; what the person set goes first."""
    wanted = inputs.models_options
    total = device.total_bytes
    if device.kind == "cpu":
        if wanted.ram_margin_bytes is not None:
            return wanted.ram_margin_bytes
        return min(max(int(total * RAM_MARGIN_SHARE), RAM_MARGIN_LOW), RAM_MARGIN_HIGH) + WORKER_BYTES
    if wanted.gpu_margin_bytes is not None:
        return wanted.gpu_margin_bytes
    if device.kind == "igpu":
        return SHARED_MARGIN
    if device.kind == "node" and device.free_bytes >= total:
        return max(int(total * UNTOLD_SHARE), 2 * GPU_MARGIN)
    if total < 8 * GPU_MARGIN:
        return max(total // 8, GPU_MARGIN_LOW)
    return min(max(int(total * GPU_MARGIN_SHARE), GPU_MARGIN), GPU_MARGIN_HIGH)


@dataclass(frozen=True, slots=True)
class Budget:
    """One device.

    Attributes:
        device: with what was free on it.
        free_bytes: free for this model before the margin: what our own models give back is in it.
        margin_bytes: kept free on purpose.
        in_ram: it works in system memory, whose budget it shares.
    """

    device: ComputeDevice
    free_bytes: int
    margin_bytes: int
    in_ram: bool

    @property
    def name(self) -> str:
        """llama.cpp's name."""
        return self.device.name

    @property
    def usable_bytes(self) -> int:
        """What the model may take; never negative."""
        return max(0, self.free_bytes - self.margin_bytes)


class Budgets:
    """All devices of a machine that can hold layers, the processor last.

    Attributes:
        cpu: system memory.
        gpus: cards of their own, in llama.cpp's order.
        shared: GPUs that work in system memory.
        nodes: other machines' devices.
        silent: devices that do not tell their memory, or have none: never planned with.
    """

    def __init__(self, inputs: PlanInputs) -> None:
        machine = inputs.machine
        found = next((device for device in machine.devices if device.kind == "cpu"), None)
        # llama.cpp tells all physical memory as free, so the system's own figure counts.
        self.cpu = self._budget(
            ComputeDevice(
                name=CPU,
                description=found.description if found else "System memory",
                kind="cpu",
                total_bytes=machine.ram_total_bytes,
                free_bytes=machine.ram_free_bytes,
            ),
            inputs,
        )
        others = [device for device in machine.devices if device.kind not in ("cpu", "accelerator")]
        self.silent = tuple(device for device in others if device.total_bytes <= 0)
        told = [self._budget(device, inputs) for device in others if device.total_bytes > 0]
        self.gpus = tuple(budget for budget in told if budget.device.kind == "gpu")
        self.shared = tuple(budget for budget in told if budget.device.kind == "igpu")
        self.nodes = tuple(budget for budget in told if budget.device.kind == "node")
        self.all = (*self.gpus, *self.shared, *self.nodes, self.cpu)
        self._by_name = {budget.name: budget for budget in self.all}

    @staticmethod
    def _budget(device: ComputeDevice, inputs: PlanInputs) -> Budget:
        machine = inputs.machine
        ours = inputs.ours_bytes.get(device.name, 0) if inputs.alone else 0
        is_here = device.node.startswith(_LOOPBACK) and (
            abs(device.total_bytes - machine.ram_total_bytes) <= machine.ram_total_bytes * _SAME_MEMORY
        )
        in_ram = device.kind in ("cpu", "igpu") or is_here or (machine.unified and device.kind == "gpu")
        free = min(device.free_bytes + ours, device.total_bytes)
        if in_ram and device.kind != "cpu":
            free = min(free, machine.ram_free_bytes + ours)
        return Budget(device, free, margin_of(device, inputs), in_ram)

    def named(self, name: str) -> Budget | None:
        """The device of this name."""
        return self._by_name.get(name)

    def locals(self) -> tuple[Budget, ...]:
        """This machine's own GPUs. As in llama.cpp, those in system memory only where there is no card."""
        return self.gpus or self.shared

    def overshoot(self, memory: Iterable[DeviceMemory]) -> Mapping[str, int]:
        """Bytes over the budget by device; empty when everything fits.

        What is on a device in system memory counts for the system's budget too.
        """
        over: dict[str, int] = {}
        in_ram = 0
        for part in memory:
            budget = self._by_name.get(part.device)
            if budget is None:
                continue
            if budget.in_ram:
                in_ram += part.total_bytes
            if budget.device.kind != "cpu" and part.total_bytes > budget.usable_bytes:
                over[part.device] = part.total_bytes - budget.usable_bytes
        if in_ram > self.cpu.usable_bytes:
            over[CPU] = in_ram - self.cpu.usable_bytes
        return over

    def usable_bytes(self, names: Iterable[str]) -> int:
        """What these devices and system memory may give together."""
        cards = [self._by_name[name] for name in names if name in self._by_name and name != CPU]
        return self.cpu.usable_bytes + sum(budget.usable_bytes for budget in cards if not budget.in_ram)
