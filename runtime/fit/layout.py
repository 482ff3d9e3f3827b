"""One layout at a time: whether it fits, what it takes, how fast it is.

Which layouts are tried, and in which order, is `runtime.fit.choice`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from runtime.errors import BadRequest, NotEnoughMemory
from runtime.fit import defaults, speed
from runtime.fit.budget import CPU, Budget, Budgets
from runtime.fit.context_memory import padded
from runtime.fit.figures import Figures, combined
from runtime.fit.inputs import PlanInputs
from runtime.fit.placement import Room, pack, pack_even, units_on
from runtime.messages.fit import SpeedRange, SpeedSample
from runtime.messages.load import DeviceMemory, ResolvedLoad

DRAFT_SHARE = 0.5
"""A draft model goes to the first GPU unless it takes more than this of what is usable there."""
SAME_SPEED = 1.25
"""Devices whose measured reading speeds differ by less than this factor count as equally fast."""
TYPICAL_PROMPT, TYPICAL_ANSWER = 512, 256
"""Tokens of the exchange by whose time layouts are compared."""

Level = Literal["gpu", "experts", "partial", "cpu", "none"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A layout.

    `shortened_from` is the context that was given up for it, 0 if none was; `fits` is False where none does.
    `is_faster` is True where a layout further up the list would fit too, but takes clearly longer by prediction.
    """

    level: Level
    resolved: ResolvedLoad
    draft: ResolvedLoad | None
    fits: bool = True
    shortened_from: int = 0
    is_faster: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """A layout to try: the last `n_units` on `devices`, the experts of the first `n_cpu_moe` layers in system memory.

    `pool_share` is how much of the cells for further conversations is kept.
    """

    devices: tuple[Budget, ...]
    n_ctx: int
    n_units: int
    n_cpu_moe: int = 0
    pool_share: float = 1.0


class Layouts:
    """Layouts of one model on one machine.

    Attributes:
        n_units: layers, the output layer included.
    """

    def __init__(self, inputs: PlanInputs, budgets: Budgets, figures: Figures) -> None:
        self._inputs = inputs
        self._budgets = budgets
        self._figures = figures
        self._shape = inputs.shape
        self._options = inputs.options
        self._read_bps = _reading_speeds(inputs)
        self.n_units = inputs.shape.n_layer + 1

    # --- making ---

    def lay(self, wish: Wish, *, check_ram: bool = True) -> Choice | None:
        """Carry out a wish; None if a device, or (checked on demand) system memory, cannot take its part."""
        template = self.resolved(wish)
        draft = self.draft(wish.devices, template)
        level: Level = "partial" if wish.n_units < self.n_units else "experts" if template.n_cpu_moe else "gpu"
        if self._options.tensor_split:
            choice = Choice(level, self._counted(template), draft)
            over = self.over(choice)
            return None if over and (check_ram or set(over) != {CPU}) else choice
        sizes = self._figures.unit_bytes(template)[self.n_units - wish.n_units :]
        rooms = self._rooms(wish, template, draft)
        packing = pack_even if self._are_equal(wish.devices) else pack
        for _attempt in range(4):
            counts = packing(sizes, rooms)
            if counts is None:
                return None
            used = tuple(budget for budget, count in zip(wish.devices, counts, strict=True) if count)
            split = tuple(float(count) for count in counts if count) if len(used) > 1 else ()
            choice = Choice(level, replace(self.resolved(replace_devices(wish, used)), tensor_split=split), draft)
            over = self.over(choice)
            if not check_ram:
                over.pop(CPU, None)
            if not over:
                return choice
            if CPU in over:
                return None
            # The formula for rooms is a little apart from that for layouts: give way and pack again.
            rooms = [
                Room(room.units_bytes - over.get(budget.name, 0), room.output_bytes)
                for budget, room in zip(wish.devices, rooms, strict=True)
            ]
        return None

    def cpu_only(self, n_ctx: int) -> Choice | None:
        """Everything in system memory; None if it does not fit."""
        try:
            resolved = defaults.resolve(
                self._shape,
                replace(self._options, n_ctx=n_ctx),
                n_cores=self._inputs.machine.n_cores,
                free_bytes=max(0, self._budgets.cpu.usable_bytes - self._shape.layers_bytes - self._shape.input_bytes),
                least_n_ubatch=self._inputs.least_n_ubatch,
            )
        except NotEnoughMemory:
            return None
        choice = Choice("cpu", resolved, self.draft((), resolved))
        return None if self.over(choice) else choice

    def unfitting(self, wish: Wish) -> Choice:
        """A wish as it stands, whether or not it fits."""
        resolved = self.resolved(wish)
        if not wish.devices:
            # Without a bound on memory flash attention would be off, and its scores would dwarf the model.
            resolved = replace(resolved, flash_attn=self._options.flash_attn)
        elif self._options.tensor_split:
            resolved = self._counted(resolved)
        elif len(wish.devices) > 1:
            shares = tuple(float(budget.usable_bytes) for budget in wish.devices)
            resolved = replace(resolved, tensor_split=shares if any(shares) else ())
        return Choice("none", resolved, self.draft(wish.devices, resolved), fits=False)

    def resolved(self, wish: Wish) -> ResolvedLoad:
        """All options of a wish as numbers; layers are split by the person's shares or not at all yet."""
        experts = [layer.index for layer in self._shape.layers if layer.expert_bytes and layer.index < wish.n_cpu_moe]
        shares = tuple(share for share in self._options.tensor_split if share)
        placement = defaults.Placement(
            n_gpu_layers=wish.n_units if wish.devices else 0,
            devices=tuple(budget.name for budget in wish.devices),
            tensor_split=shares if len(wish.devices) > 1 else (),
            overrides=(defaults.experts_in_ram(experts),) if experts and wish.devices else (),
            nodes=tuple(dict.fromkeys(budget.device.node for budget in wish.devices if budget.device.node)),
            n_cpu_moe=wish.n_cpu_moe if experts and wish.devices else 0,
        )
        resolved = defaults.resolve(
            self._shape,
            replace(self._options, n_ctx=wish.n_ctx),
            n_cores=self._inputs.machine.n_cores,
            free_bytes=defaults.PLENTY,
            placement=placement,
            least_n_ubatch=self._inputs.least_n_ubatch,
        )
        extra = int((resolved.n_parallel - 1) * min(resolved.n_ctx, defaults.POOL_SHARE) * wish.pool_share)
        return replace(resolved, n_cells=padded(resolved.n_ctx + extra))

    def _counted(self, template: ResolvedLoad) -> ResolvedLoad:
        """A person's split as layer counts, devices that get none left out."""
        counts = units_on(self._shape.n_layer, template)
        names = tuple(name for name in template.devices if name in counts)
        split = tuple(float(counts[name]) for name in names) if len(names) > 1 else ()
        nodes = [budget.device.node for budget in self._budgets.nodes if budget.name in names]
        return replace(template, devices=names, tensor_split=split, nodes=tuple(dict.fromkeys(nodes)))

    def _rooms(self, wish: Wish, template: ResolvedLoad, draft: ResolvedLoad | None) -> list[Room]:
        """What is left of each device for layers."""
        taken: dict[str, int] = {}
        if draft is not None:
            for entry in self._figures.measured("draft", draft).memory:
                taken[entry.device] = entry.total_bytes
        if self._inputs.projector_bytes:
            for entry in self._figures.measured("model", template).memory:
                taken[entry.device] = taken.get(entry.device, 0) + entry.projector_bytes
        all_units = wish.n_units == self.n_units
        rooms = []
        for budget in wish.devices:
            without, with_output = (
                self._figures.fixed_bytes(template, budget.name, has_output=has_output, all_units=all_units)
                for has_output in (False, True)
            )
            usable = budget.usable_bytes - taken.get(budget.name, 0)
            rooms.append(Room(usable - without, max(0, with_output - without)))
        return rooms

    def draft(self, devices: Sequence[Budget], model: ResolvedLoad) -> ResolvedLoad | None:
        """The draft model whole on the first device, or on the processor; None without one."""
        shape = self._inputs.draft
        if shape is None or model.speculation != "draft":
            return None
        n_cores = self._inputs.machine.n_cores
        for budget in devices[:1]:
            placement = defaults.Placement(
                n_gpu_layers=shape.n_layer + 1,
                devices=(budget.name,),
                nodes=(budget.device.node,) if budget.device.node else (),
            )
            resolved = defaults.resolve_draft(shape, self._options, model, n_cores=n_cores, placement=placement)
            on_device = self._figures.measured("draft", resolved).memory
            taken = sum(entry.total_bytes for entry in on_device if entry.device == budget.name)
            if taken <= DRAFT_SHARE * budget.usable_bytes:
                return resolved
        return defaults.resolve_draft(shape, self._options, model, n_cores=n_cores)

    # --- judging ---

    def memory(self, choice: Choice) -> tuple[DeviceMemory, ...]:
        """What a choice takes on each device, the draft model included, the processor last."""
        draft = self._figures.measured("draft", choice.draft).memory if choice.draft is not None else ()
        return combined(self._figures.measured("model", choice.resolved).memory, draft)

    def over(self, choice: Choice) -> dict[str, int]:
        """Bytes over what may be used, by device; empty when the choice fits."""
        return dict(self._budgets.overshoot(self.memory(choice)))

    def cannot_hold(self, devices: Sequence[Budget]) -> bool:
        """Whether not even the weights fit on these devices and in system memory together."""
        usable = self._budgets.usable_bytes(budget.name for budget in devices)
        return self._shape.layers_bytes + self._shape.input_bytes > usable

    def seconds(self, choice: Choice) -> float | None:
        """Predicted time of a typical exchange; None where the devices were not measured."""
        if self._inputs.machine.speed is None:
            return None
        # By the devices' figures alone: answers given so far would favour what was tried, and the plan would wander.
        predicted = self.predicted(choice, history=())
        return TYPICAL_PROMPT / predicted.prompt_tps + TYPICAL_ANSWER / predicted.generation_tps

    def predicted(self, choice: Choice, history: Sequence[SpeedSample] | None = None) -> SpeedRange:
        """Predicted speed; `history` in place of the one the plan was given."""
        return speed.predict(
            self._shape,
            choice.resolved,
            speed=self._inputs.machine.speed,
            n_layer_on=self._figures.measured("model", choice.resolved).n_layer_on,
            model=self._inputs.model,
            history=self._inputs.history if history is None else history,
        )

    def by_speed(self, devices: Sequence[Budget]) -> tuple[Budget, ...]:
        """Fastest first by measurement; those that were not measured stay in llama.cpp's order behind the others."""
        return tuple(sorted(devices, key=lambda budget: -self._read_bps.get(budget.name, 0.0)))

    def _are_equal(self, devices: Sequence[Budget]) -> bool:
        """Whether all devices are about equally fast: by measurement, else when they are the same product."""
        speeds = [self._read_bps.get(budget.name, 0.0) for budget in devices]
        if all(speeds):
            return max(speeds) <= SAME_SPEED * min(speeds)
        return len({(budget.device.description, budget.device.total_bytes) for budget in devices}) == 1

    def fixed_devices(self) -> tuple[Budget, ...] | None:
        """The devices of a split that the person fixed, None without one.

        Raises:
            BadRequest: the split is for more devices than there are.
        """
        shares = self._options.tensor_split
        if not any(shares):
            return None
        devices = [*self._budgets.locals(), *self._budgets.nodes]
        if len(shares) > len(devices):
            raise BadRequest(
                f"The tensor split names {len(shares)} devices, but there are {len(devices)} beside the processor.",
                hint="Leave the split empty, or connect the device that is missing.",
                param="tensor_split",
            )
        return tuple(budget for budget, share in zip(devices, shares, strict=False) if share)


def replace_devices(wish: Wish, devices: tuple[Budget, ...]) -> Wish:
    """The same wish on other devices."""
    return Wish(devices, wish.n_ctx, wish.n_units, wish.n_cpu_moe, wish.pool_share)


def _reading_speeds(inputs: PlanInputs) -> dict[str, float]:
    """How fast each device reads the number format most of the model is in; else the fastest it was measured with."""
    if inputs.machine.speed is None:
        return {}
    kind = speed.main_type(inputs.shape)
    found: dict[str, float] = {}
    exact: set[str] = set()
    for entry in inputs.machine.speed.throughput:
        if entry.tensor_type == kind:
            found[entry.device] = entry.read_bps
            exact.add(entry.device)
        elif entry.device not in exact:
            found[entry.device] = max(found.get(entry.device, 0.0), entry.read_bps)
    return found
