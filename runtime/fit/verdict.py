"""A layout in words: the verdict for a row, the sentence on why it was chosen, and what to do when it does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.fit.budget import CPU, Budget, Budgets
from runtime.fit.inputs import PlanInputs
from runtime.fit.layout import Choice
from runtime.fit.rope import extension_note
from runtime.messages.fit import DeviceBudget, VerdictKind
from runtime.messages.load import ComputeDevice, DeviceMemory
from runtime.units import format_bytes

HINT = "Choose a smaller quantization or a smaller model, or close other programs."


@dataclass(frozen=True, slots=True)
class Outcome:
    """A choice with its figures, as the sentences need it.

    `memory` has the processor last, `n_layer_on` counts the output layer, `over` is what does not fit by device.
    """

    choice: Choice
    memory: tuple[DeviceMemory, ...]
    n_layer_on: Mapping[str, int]
    over: Mapping[str, int]

    @property
    def n_layer_gpu(self) -> int:
        """Layers that are not on the processor."""
        return sum(count for name, count in self.n_layer_on.items() if name != CPU)

    @property
    def needed_bytes(self) -> int:
        """All devices together."""
        return sum(entry.total_bytes for entry in self.memory)


class Verdict:
    """Words and bars for one outcome."""

    def __init__(self, inputs: PlanInputs, budgets: Budgets, outcome: Outcome) -> None:
        self._inputs = inputs
        self._budgets = budgets
        self._outcome = outcome
        self._n_units = inputs.shape.n_layer + 1
        found = (budgets.named(name) for name in outcome.choice.resolved.devices)
        self._devices = tuple(budget for budget in found if budget is not None)

    # --- bars ---

    def bars(self) -> tuple[DeviceBudget, ...]:
        """One bar a device that takes part, the processor last; each adds up to the device's total."""
        outcome = self._outcome
        in_ram = sum(entry.total_bytes for entry in outcome.memory if self._is_in_ram(entry.device))
        cpu_left = self._budgets.cpu.free_bytes - self._budgets.cpu.margin_bytes - in_ram
        bars = []
        for entry in outcome.memory:
            budget = self._budgets.named(entry.device)
            if budget is None:
                continue
            left = budget.free_bytes - budget.margin_bytes - entry.total_bytes
            if budget.in_ram:
                left = cpu_left if budget.name == CPU else min(left, cpu_left)
            total = budget.device.total_bytes
            bars.append(
                DeviceBudget(
                    device=budget.device,
                    memory=entry,
                    n_layers=outcome.n_layer_on.get(entry.device, 0),
                    others_bytes=total - entry.total_bytes - budget.margin_bytes - left,
                    margin_bytes=budget.margin_bytes,
                    free_bytes=left,
                )
            )
        return tuple(bars)

    def free_bytes(self) -> int:
        """What was free for it: of the devices that take part, or of all when it does not fit."""
        if self._outcome.choice.fits:
            return self._budgets.usable_bytes(entry.device for entry in self._outcome.memory)
        return self._budgets.usable_bytes(budget.name for budget in self._budgets.all)

    def _is_in_ram(self, name: str) -> bool:
        budget = self._budgets.named(name)
        return budget is not None and budget.in_ram

    # --- words ---

    @property
    def kind(self) -> VerdictKind:
        """The verdict in one word."""
        choice, n_gpu = self._outcome.choice, self._outcome.n_layer_gpu
        if not choice.fits:
            return "too_large"
        if not n_gpu:
            return "cpu"
        return "gpu" if n_gpu >= self._n_units and not choice.resolved.n_cpu_moe else "partial"

    def sentence(self) -> str:
        """The verdict for a row."""
        outcome = self._outcome
        if not outcome.choice.fits:
            return self._too_large_sentence()
        if not outcome.n_layer_gpu:
            return f"Runs on CPU, {self._used([CPU])}"
        names = [budget.name for budget in self._devices]
        where, used = self._where(), self._used(names)
        n_moe = outcome.choice.resolved.n_cpu_moe
        if outcome.n_layer_gpu < self._n_units:
            return f"{outcome.n_layer_gpu} of {self._n_units} layers on {where}, {used}"
        if n_moe:
            return f"All on {where} but the experts of {n_moe} of {self._inputs.shape.n_layer} layers, {used}"
        return f"All on {where}, {used}"

    def reason(self) -> str:
        """One sentence on why this layout was chosen."""
        if not self._outcome.choice.fits:
            return ""
        choice = self._outcome.choice
        note = extension_note(self._inputs.shape, choice.resolved)
        return f"{self._layout_reason()} {note}".strip()

    def _layout_reason(self) -> str:
        choice = self._outcome.choice
        text = self._placement_reason()
        n_ctx = choice.resolved.n_ctx
        if choice.shortened_from and n_ctx < choice.shortened_from:
            if self.kind == "gpu":
                return f"A context of {n_ctx:,} tokens is the longest with which all layers stay on {self._names()}."
            text += f" More than {n_ctx:,} tokens of context do not fit."
        return text

    def problem(self, remedy: str = "") -> str:
        """Why it cannot be loaded and what to do; empty when it fits. `remedy` goes before the general advice."""
        outcome = self._outcome
        if outcome.choice.fits:
            return ""
        return f"{self._shortage()} {remedy or self._advice()}".strip()

    # --- parts of sentences ---

    def _where(self) -> str:
        nodes = sum(budget.device.kind == "node" for budget in self._devices)
        gpus = len(self._devices) - nodes
        words = []
        if gpus:
            words.append("GPU" if gpus == 1 else f"{gpus} GPUs")
        if nodes:
            words.append("1 node" if nodes == 1 else f"{nodes} nodes")
        return " and ".join(words)

    def _names(self) -> str:
        return _listed([_called(budget.device) for budget in self._devices])

    def _used(self, names: Sequence[str]) -> str:
        memory = sum(entry.total_bytes for entry in self._outcome.memory if entry.device in names)
        total = sum(budget.device.total_bytes for name in names if (budget := self._budgets.named(name)))
        return _of(memory, total)

    def _placement_reason(self) -> str:
        outcome, shape = self._outcome, self._inputs.shape
        choice = outcome.choice
        if not outcome.n_layer_gpu:
            return self._cpu_reason()
        if any(budget.device.kind == "node" for budget in self._devices):
            nodes = [budget for budget in self._devices if budget.device.kind == "node"]
            count = sum(outcome.n_layer_on.get(budget.name, 0) for budget in nodes)
            who = _listed([_called(budget.device) for budget in nodes])
            takes = "takes" if len(nodes) == 1 else "take"
            layers = "1 layer" if count == 1 else f"{count} layers"
            if choice.is_faster:
                return f"{who[0].upper()}{who[1:]} {takes} {layers}: this machine alone would be clearly slower."
            return f"This machine's memory alone is not enough, so {who} {takes} {layers}."
        if outcome.n_layer_gpu < self._n_units:
            left = self._n_units - outcome.n_layer_gpu
            if self._inputs.options.n_gpu_layers is not None:
                asked = self._inputs.options.n_gpu_layers
                return f"GPU layers are set to {asked}; the other {left} stay in system memory."
            room = self._budgets.usable_bytes([CPU, *(budget.name for budget in self._devices)])
            room -= self._budgets.cpu.usable_bytes
            if room <= 0:  # the GPU works in system memory
                room = sum(budget.usable_bytes for budget in self._devices)
            them = "1 layer stays" if left == 1 else f"{left} layers stay"
            free = f"of {self._names()} {format_bytes(room)} may be used"
            return f"{them} in system memory: {free}, which is too little for all."
        if choice.resolved.n_cpu_moe:
            if self._inputs.options.n_cpu_moe is not None:
                return f"The experts of {choice.resolved.n_cpu_moe} layers stay in system memory, as set."
            return (
                f"The experts of {choice.resolved.n_cpu_moe} layers stay in system memory, which is where they cost "
                f"least: a token reads {shape.n_expert_used} of {shape.n_expert}."
            )
        many = f"on {self._names()}" if len(self._devices) == 1 else f"on {self._names()} together"
        return f"All {self._n_units} layers and a context of {choice.resolved.n_ctx:,} tokens fit {many}."

    def _cpu_reason(self) -> str:
        asked = self._inputs.options.n_gpu_layers
        if asked == 0:
            return "GPU layers are set to 0."
        gpus = self._budgets.locals()
        if not gpus:
            if self._budgets.silent:
                return f"{_called(self._budgets.silent[0])} does not tell its memory, so the model stays off it."
            if self._inputs.machine.problem and not self._budgets.nodes:
                return self._inputs.machine.problem
            return "There is no GPU that llama.cpp can use."
        room = format_bytes(max(budget.usable_bytes for budget in gpus))
        names = _listed([_called(budget.device) for budget in gpus])
        if self._outcome.choice.is_faster:
            return f"The processor is faster here than with layers on {names}."
        return f"No layer fits on {names}: {room} may be used there."

    def _too_large_sentence(self) -> str:
        needed, free, _where = self._worst()
        if self._is_fixed():
            return f"Does not fit as set: needs {format_bytes(needed)}, {format_bytes(free)} free"
        return f"Too large: needs {format_bytes(needed)}, {format_bytes(free)} free"

    def _shortage(self) -> str:
        needed, free, where = self._worst()
        n_ctx = self._outcome.choice.resolved.n_ctx
        kept = sum(budget.margin_bytes for budget in self._budgets.all if where is None or budget is where)
        subject = "It" if not self._is_fixed() else "With these settings it"
        what = f"{subject} needs {format_bytes(needed)} at a context of {n_ctx:,} tokens"
        place = "on this machine" if where is None else f"on {_called(where.device)}"
        after = f" after the {format_bytes(kept)} kept for other programs" if kept else ""
        return f"{what}, and {format_bytes(free)} are free {place}{after}."

    def _worst(self) -> tuple[int, int, Budget | None]:
        """Needed and free bytes where it fails: of one device, or (None) of the whole machine."""
        outcome = self._outcome
        cards = {name: n_bytes for name, n_bytes in outcome.over.items() if name != CPU}
        if cards:
            name = max(cards, key=lambda device: cards[device])
            budget = self._budgets.named(name)
            if budget is not None:
                return cards[name] + budget.usable_bytes, budget.usable_bytes, budget
        cpu = self._budgets.cpu
        options = self._inputs.options
        if options.n_gpu_layers is not None or any(options.tensor_split):
            return cpu.usable_bytes + outcome.over.get(CPU, 0), cpu.usable_bytes, cpu
        free = self.free_bytes()
        # What GPUs have left may be too little for a single layer: then it does not count.
        return outcome.needed_bytes, free if outcome.needed_bytes > free else cpu.usable_bytes, None

    def _is_fixed(self) -> bool:
        options = self._inputs.options
        return bool(options.n_gpu_layers is not None or options.n_ctx or any(options.tensor_split) or options.n_cpu_moe)

    def _advice(self) -> str:
        if self._inputs.ours_bytes and not self._inputs.alone:
            return "Unload other models, or choose a smaller quantization or a smaller model."
        return HINT


def _called(device: ComputeDevice) -> str:
    """A device as a person knows it."""
    if device.kind == "cpu":
        return "system memory"
    if device.kind == "node":
        return f"node {device.node or device.name}"
    return device.description or device.name


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    if len(unique) < len(names) and len(unique) == 1:
        return f"{len(names)} x {unique[0]}"
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} and {unique[-1]}" if unique else ""


def _of(part_bytes: int, total_bytes: int) -> str:
    """`5.9 of 8.0 GB`; both units where they differ."""
    part, total = format_bytes(part_bytes), format_bytes(total_bytes)
    if part.split(" ")[-1] == total.split(" ")[-1]:
        part = part.split(" ", maxsplit=1)[0]
    return f"{part} of {total}"
