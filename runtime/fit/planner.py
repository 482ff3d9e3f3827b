"""The plan of one load: which layers go where, how much context, what it takes, how fast it will be, and why.

The formula proposes a layout, a dry run measures it, what the formula got wrong is learnt, and the search starts again
until it proposes a layout that is measured already. So the plan returned with `method` "dry_run" is one whose every
byte llama.cpp has told, and it fits by these figures.
"""

import dataclasses

from msgspec.structs import replace

from runtime.errors import KINDS, Failure, ModelLoadFailed, NotEnoughMemory
from runtime.fit import defaults
from runtime.fit.budget import Budgets
from runtime.fit.choice import Chooser
from runtime.fit.figures import Figures
from runtime.fit.inputs import Ask, PlanInputs, PlanSteps
from runtime.fit.layout import Choice, Layouts
from runtime.fit.verdict import Outcome, Verdict
from runtime.messages.fit import Measured, MemoryPlan, PlanMethod
from runtime.options import LoadOptions

MAX_ROUNDS = 12
"""Layouts measured for one plan at most; one or two are usual. A dry run takes 0.05 to 1 s."""
MAX_PROBED_CELLS = 1 << 24
"""Cells of a cache that llama.cpp is asked about at most. A dry run allocates no cache, yet its list of cells, some 50
bytes each: for a context of two thousand million tokens that alone would take all memory."""

CAREFUL_AFTER = 3
"""Rounds without a layout that fits, after which only the worst that was measured is believed."""


def plan(inputs: PlanInputs) -> PlanSteps:
    """Plan a load.

    Yields what is to be measured and is sent the answer (see `Ask`); returns the plan. `made_s` is left to the caller.

    Raises:
        BadRequest: options that llama.cpp cannot combine, or a split for devices that are not there.
    """
    planner = _Planner(inputs)
    choice = planner.propose()
    if not inputs.exact:
        return planner.result(choice, "formula")
    best: Choice | None = None
    for count in range(MAX_ROUNDS):
        if any(ask.resolved.n_cells > MAX_PROBED_CELLS for ask in planner.asks(choice)):
            return planner.result(best or choice, "dry_run" if best else "formula")
        for ask in planner.asks(choice):
            answer = yield ask
            if isinstance(answer, Failure) and _is_about_the_model(answer):
                return planner.unsupported(choice, answer)
            if not isinstance(answer, Measured):
                return planner.result(best or choice, "dry_run" if best else "formula")
            planner.learn(ask, answer, is_careful=best is None and count >= CAREFUL_AFTER)
        if planner.fits(choice):
            best = choice
        choice = planner.propose()
        if not planner.asks(choice):
            return planner.result(choice, "dry_run")
    return planner.result(best or choice, "dry_run" if best else "formula")


def plan_by_formula(inputs: PlanInputs) -> MemoryPlan:
    """The plan without any dry run, at once; what the sliders use.

    Raises:
        BadRequest: as `plan`.
    """
    planner = _Planner(inputs)
    return planner.result(planner.propose(), "formula")


def _is_about_the_model(failure: Failure) -> bool:
    """Whether llama.cpp refused the file itself, not the probe or the machine."""
    kind = KINDS.get(failure.kind)
    return kind is not None and issubclass(kind, ModelLoadFailed) and not issubclass(kind, NotEnoughMemory)


def unsupported(made: MemoryPlan, failure: Failure) -> MemoryPlan:
    """This plan, of a file that turned out impossible to load."""
    return replace(
        made,
        verdict="unsupported",
        sentence=f"Not supported: {failure.message}",
        reason="",
        speed=None,
        problem=f"{failure.message} {failure.hint}".strip(),
    )


class _Planner:
    def __init__(self, inputs: PlanInputs) -> None:
        self._inputs = inputs
        self._budgets = Budgets(inputs)
        self._figures = Figures(inputs)
        self._layouts = Layouts(inputs, self._budgets, self._figures)
        self._chooser = Chooser(inputs, self._budgets, self._layouts)

    def propose(self) -> Choice:
        """The best layout as far as is known."""
        return self._chooser.choose()

    def asks(self, choice: Choice) -> list[Ask]:
        """What of a layout is not measured yet."""
        wanted = [Ask("model", choice.resolved)]
        if choice.draft is not None:
            wanted.append(Ask("draft", choice.draft))
        return [ask for ask in wanted if not self._figures.is_known(ask.part, ask.resolved)]

    def learn(self, ask: Ask, measured: Measured, *, is_careful: bool) -> None:
        """Take in a measurement."""
        self._figures.learn(ask.part, ask.resolved, measured, is_careful=is_careful)

    def fits(self, choice: Choice) -> bool:
        """Whether it fits by what is known now."""
        return choice.fits and not self._layouts.over(choice)

    def result(self, choice: Choice, method: PlanMethod) -> MemoryPlan:
        """The plan of a layout."""
        outcome = self._outcome(choice)
        verdict = Verdict(self._inputs, self._budgets, outcome)
        remedy = "" if choice.fits else self._remedy()
        return MemoryPlan(
            model=self._inputs.model,
            options=self._inputs.options,
            resolved=choice.resolved,
            verdict=verdict.kind,
            sentence=verdict.sentence(),
            reason=verdict.reason(),
            budgets=verdict.bars(),
            needed_bytes=outcome.needed_bytes,
            free_bytes=verdict.free_bytes(),
            n_layer=self._layouts.n_units,
            n_layer_gpu=outcome.n_layer_gpu,
            method=method,
            speed=self._layouts.predicted(choice) if choice.fits else None,
            problem=verdict.problem(remedy),
            draft=choice.draft,
        )

    def unsupported(self, choice: Choice, failure: Failure) -> MemoryPlan:
        """The plan of a file that the built-in llama.cpp refuses."""
        return unsupported(self.result(choice, "formula"), failure)

    def _outcome(self, choice: Choice) -> Outcome:
        measured = self._figures.measured("model", choice.resolved)
        memory = self._layouts.memory(choice)
        return Outcome(choice, memory, measured.n_layer_on, self._budgets.overshoot(memory))

    # --- what would fit instead ---

    def _remedy(self) -> str:
        """What to change of the settings a person fixed; empty when no change helps."""
        options = self._inputs.options
        tries: list[tuple[LoadOptions, str]] = []
        placed = options.n_gpu_layers is not None or any(options.tensor_split) or options.n_cpu_moe is not None
        free = replace(options, n_gpu_layers=None, tensor_split=(), n_cpu_moe=None)
        if placed:
            tries.append((free, "layers"))
        if options.n_ctx is not None:
            if _is_wide(options) and self._chosen(replace(options, type_k="q8_0", type_v="q8_0")) is not None:
                return "With a cache of type q8_0 it fits."
            tries += [(options, "context"), (free, "context")]
        for changed, what in tries:
            found = self._longest(changed) if what == "context" else self._chosen(changed)
            if found is not None:
                return _told(options, found, what)
        return ""

    def _chosen(self, options: LoadOptions) -> Choice | None:
        inputs = _with_options(self._inputs, options)
        choice = Chooser(inputs, self._budgets, Layouts(inputs, self._budgets, self._figures)).choose()
        return choice if choice.fits else None

    def _longest(self, options: LoadOptions) -> Choice | None:
        """The longest context below the one asked for that fits."""
        low, high = 0, -(-(options.n_ctx or 0) // defaults.MIN_N_CTX)
        found: Choice | None = None
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._chosen(replace(options, n_ctx=middle * defaults.MIN_N_CTX))
            if tried is None:
                high = middle
            else:
                low, found = middle, tried
        return found


def _with_options(inputs: PlanInputs, options: LoadOptions) -> PlanInputs:
    return dataclasses.replace(inputs, options=options, exact=False)


def _is_wide(options: LoadOptions) -> bool:
    """Whether a smaller cache can be advised."""
    return options.flash_attn != "off" and {options.type_k, options.type_v} <= {"f32", "f16", "bf16"}


def _told(options: LoadOptions, found: Choice, what: str) -> str:
    n_gpu = found.resolved.n_gpu_layers
    if what == "layers":
        if options.n_gpu_layers is None:
            return "Set the split and the experts in system memory to automatic: then it fits."
        return f"Set GPU layers to automatic: then it fits with {n_gpu} of them."
    return f"A context of up to {found.resolved.n_ctx:,} tokens fits."
