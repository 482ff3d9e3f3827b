"""Which layout to take.

What is preferred over what, in order:

1. Everything on one GPU, the fastest that can; then on as few of this machine's GPUs as can. The context is as long as
   fits, up to `COMFORT_N_CTX`, and may shrink to `FLOOR_N_CTX` for it: below that ordinary chats of reasoning models
   end, which costs more than a few slower layers.
2. A mixture of experts keeps every layer on the GPUs and the experts of as few layers as possible in system memory: of
   those only the few that a token is sent to are read, so they are what a slow memory can serve best.
3. As many layers as fit on the GPUs, the rest in system memory; a mixture then keeps all experts there.
4. The processor alone.
5. The same with the devices of nodes: when this machine's memory is not enough, or when its measured speed says that
   the way over the network is clearly faster.
6. Less context than `FLOOR_N_CTX`, down to `defaults.MIN_N_CTX`.

What a person fixed is never changed; a layout that does not fit then is still returned, marked so. Where speeds were
measured, the sets of 1 and the steps 2 to 4 are compared by the time of a typical exchange, and so are a GPU in system
memory and the processor. Equally fast devices are filled evenly, others fastest first. The cells for further
conversations shrink before the context does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from runtime.fit import defaults
from runtime.fit.budget import Budget, Budgets
from runtime.fit.inputs import PlanInputs
from runtime.fit.layout import Choice, Layouts, Wish

COMFORT_N_CTX = 32_768
"""An automatic context grows to this where all layers stay on GPUs: long documents and tool calls fit; more would take
memory from the next model, and people who need it say so."""
FLOOR_N_CTX = defaults.DEFAULT_N_CTX
COMFORT_N_CTX_SHARED = 16_384
"""The same where the GPU works in system memory: what the context takes there is missing to everything else."""
CTX_STEP = 1024
"""Automatic contexts above the floor are multiples of it."""
POOL_SHARES = (1.0, 0.5, 0.0)
"""Of the cells for further conversations, what is tried in turn."""
CLEARLY_FASTER = 1.25
"""A node is used beside local memory that would do when an exchange takes so much longer without it: a network can
fail, and its speed varies."""
NOTABLY_FASTER = 1.1
"""A layout further down the list is taken when one further up takes so much longer: predictions are no closer."""


class Chooser:
    """Finds the best layout under the figures known by now."""

    def __init__(self, inputs: PlanInputs, budgets: Budgets, layouts: Layouts) -> None:
        self._layouts = layouts
        self._budgets = budgets
        self._shape = inputs.shape
        self._options = inputs.options
        self._is_measured = inputs.machine.speed is not None
        train = self._shape.n_ctx_train or FLOOR_N_CTX
        self._floor = self._options.n_ctx or min(FLOOR_N_CTX, train)
        grows = self._options.n_ctx is None and self._shape.has_memory
        self._train = train if grows else self._floor
        self._n_units = layouts.n_units
        self._n_cpu_moe = min(self._options.n_cpu_moe or 0, self._shape.n_layer)

    def choose(self) -> Choice:
        """The best layout; when nothing fits, the smallest one that keeps to what was fixed, marked so.

        Raises:
            BadRequest: options that llama.cpp cannot combine, or a split for devices that are not there.
        """
        sets = self._sets()
        found: Choice | None = None
        for devices in sets:
            better = self._best_on(devices, self._floor, self._comfort(devices))
            if better is not None and (found is None or self._is_faster(better, found, CLEARLY_FASTER)):
                found = better if found is None else replace(better, is_faster=True)
            if found is not None and (found.level == "gpu" or not self._is_measured):
                break
        if found is None and self._options.n_ctx is None:
            found = self._shortened(sets)
        return found or self._too_large(sets[0])

    def _sets(self) -> list[tuple[Budget, ...]]:
        """Sets of devices in the order they are considered; the first is this machine's own."""
        fixed = self._layouts.fixed_devices()
        if fixed is not None:
            return [fixed]
        local = self._layouts.by_speed(self._budgets.locals())
        nodes = self._layouts.by_speed(self._budgets.nodes)
        sets = [local, *((*local, *nodes[:count]) for count in range(1, len(nodes) + 1))]
        if self._options.n_gpu_layers and not local and nodes:
            return sets[1:]  # layers were asked for, and only nodes can take them
        return sets

    def _comfort(self, devices: tuple[Budget, ...]) -> int:
        """The context that is enough for an automatic one."""
        wanted = COMFORT_N_CTX_SHARED if any(budget.in_ram for budget in devices) else COMFORT_N_CTX
        return max(self._floor, min(wanted, self._train))

    def _best_on(self, devices: tuple[Budget, ...], floor: int, comfort: int) -> Choice | None:
        """The best on these devices and the processor."""
        if self._layouts.cannot_hold(devices):
            return None
        wanted = self._options.n_gpu_layers
        if not devices or wanted == 0:
            return self._layouts.cpu_only(floor)
        if wanted is not None and wanted < self._n_units:
            return self._longest(Wish(devices, floor, wanted, self._n_cpu_moe), floor)
        if (whole := self._whole(devices, floor, comfort)) is not None:
            return whole
        experts = self._experts_in_ram(devices, floor, comfort)
        if wanted is not None:
            return experts
        return self._fastest(experts, self._partial(devices, floor), self._layouts.cpu_only(floor))

    def _whole(self, devices: tuple[Budget, ...], floor: int, comfort: int) -> Choice | None:
        """All layers on the first set of devices that can; on a later one where that is notably faster."""
        found: Choice | None = None
        for chosen in self._whole_sets(devices):
            tried = self._longest(Wish(chosen, floor, self._n_units, self._n_cpu_moe), comfort)
            found = self._fastest(found, tried)
            if found is not None and not self._is_measured:
                break
        if found is None or self._options.n_gpu_layers is not None:
            return found
        # A GPU in system memory reads it no faster than the processor does, and some compute no faster either.
        return self._fastest(found, self._layouts.cpu_only(floor)) if devices[0].in_ram else found

    def _whole_sets(self, devices: tuple[Budget, ...]) -> Iterator[tuple[Budget, ...]]:
        """Sets that are tried for the whole model: each device alone, then the fastest so many.

        With nodes only sets that use one: the others were tried before.
        """
        if self._options.tensor_split:
            yield devices
            return
        n_local = sum(budget.device.kind != "node" for budget in devices)
        if n_local == len(devices):
            yield from ((budget,) for budget in devices)
        for count in range(2 if n_local == len(devices) else n_local + 1, len(devices) + 1):
            yield devices[:count]

    def _longest(self, wish: Wish, comfort: int) -> Choice | None:
        """The longest context from the wish's to `comfort` with which it fits; the pool shrinks first."""
        floor = wish.n_ctx
        longest = self._layouts.lay(replace(wish, n_ctx=comfort))
        if longest is not None:
            return longest
        found = next(filter(None, (self._layouts.lay(replace(wish, pool_share=share)) for share in POOL_SHARES)), None)
        if found is None or comfort == floor:
            return found
        low, high = floor // CTX_STEP, -(-comfort // CTX_STEP)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._layouts.lay(replace(wish, n_ctx=middle * CTX_STEP))
            if tried is None:
                high = middle
            else:
                low, found = middle, tried
        return replace(found, shortened_from=comfort)

    def _experts_in_ram(self, devices: tuple[Budget, ...], floor: int, comfort: int) -> Choice | None:
        """All layers on the devices, the experts of as few as possible in system memory."""
        counts = [layer.index + 1 for layer in self._shape.layers if layer.expert_bytes]
        if not counts or self._options.n_cpu_moe is not None:
            return None
        for share in POOL_SHARES:
            wish = Wish(devices, floor, self._n_units, pool_share=share)
            at = _first(len(counts), self._fits_devices([replace(wish, n_cpu_moe=count) for count in counts]))
            if at is not None:
                found = self._longest(replace(wish, n_cpu_moe=counts[at]), comfort if share == 1 else floor)
                return found and replace(found, shortened_from=0)
        return None

    def _partial(self, devices: tuple[Budget, ...], floor: int) -> Choice | None:
        """As many layers on the devices as fit; a mixture with all experts in system memory, or with none."""
        automatic = self._shape.is_moe and self._options.n_cpu_moe is None
        found: Choice | None = None
        for n_cpu_moe in dict.fromkeys((self._shape.n_layer if automatic else self._n_cpu_moe, self._n_cpu_moe)):
            for share in POOL_SHARES:
                wish = Wish(devices, floor, 0, n_cpu_moe, share)
                wishes = [replace(wish, n_units=count) for count in range(self._n_units - 1, 0, -1)]
                at = _first(len(wishes), self._fits_devices(wishes))
                if at is not None:
                    found = self._fastest(found, self._layouts.lay(wishes[at]))
                    break
        return found

    def _fits_devices(self, wishes: Sequence[Wish]) -> Callable[[int], bool]:
        return lambda at: self._layouts.lay(wishes[at], check_ram=False) is not None

    def _shortened(self, sets: Sequence[tuple[Budget, ...]]) -> Choice | None:
        """Less context than the floor, halved until something fits."""
        length = self._floor // 2
        while length >= defaults.MIN_N_CTX:
            for devices in sets:
                found = self._best_on(devices, length, length)
                if found is not None:
                    return replace(found, shortened_from=self._floor)
            length //= 2
        return None

    def _too_large(self, devices: tuple[Budget, ...]) -> Choice:
        """What would be loaded if memory did not matter: what was fixed, and the least of what was not."""
        n_ctx = self._options.n_ctx or min(self._floor, defaults.MIN_N_CTX)
        wanted = self._options.n_gpu_layers
        if wanted is None and self._options.tensor_split:
            wanted = self._n_units
        units = min(wanted or 0, self._n_units) if devices else 0
        return self._layouts.unfitting(Wish(devices if units else (), n_ctx, units, self._n_cpu_moe, 0.0))

    # --- comparing ---

    def _fastest(self, *choices: Choice | None) -> Choice | None:
        """The first, unless a later one is notably faster."""
        found: Choice | None = None
        for choice in choices:
            if choice is not None and (found is None or self._is_faster(choice, found, NOTABLY_FASTER)):
                found = choice if found is None else replace(choice, is_faster=True)
        return found

    def _is_faster(self, choice: Choice, other: Choice, factor: float) -> bool:
        mine, its = self._layouts.seconds(choice), self._layouts.seconds(other)
        return mine is not None and its is not None and mine * factor < its


def _first(count: int, is_true: Callable[[int], bool]) -> int | None:
    """The first index for which it is true, where it stays true after; None where it is true for none."""
    if count == 0 or not is_true(count - 1):
        return None
    low, high = -1, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        if is_true(middle):
            high = middle
        else:
            low = middle
    return high
