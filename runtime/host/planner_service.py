"""Plans, for the event loop: finds what a plan is about, measures what the planner asks for, and judges repositories.

The planner itself (`runtime.fit.planner`) is pure; every number it starts from is gathered here. What llama.cpp said of
one file and layout is kept, so moving a slider back costs nothing.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from runtime.errors import BadRequest, Failure, ModelLoadFailed, RuntimeFault, to_failure
from runtime.fit.inputs import Ask, PlanInputs, PlanSteps
from runtime.gguf.architecture import ModelShape, scaled_to
from runtime.gguf.heads import with_heads
from runtime.host.adapters import adapted
from runtime.host.machine import MachineView
from runtime.host.room import Holding
from runtime.host.subjects import Remote, Subject, Subjects
from runtime.messages.api import InstalledModel
from runtime.messages.fit import Machine, Measured, MemoryPlan, PlanRequest, SpeedSample
from runtime.messages.library import HubFile, HubModel, HubModelRequest, QuantVerdict, VerdictRequest, Verdicts
from runtime.options import LoadOptions, ModelsOptions
from runtime.probe.report import DryRun
from runtime.units import now

log = logging.getLogger(__name__)

MAX_MEASURED = 512
"""Answers of the probe that are kept; one takes about a kilobyte."""

MAX_ROWS = 100
"""Quantizations of one repository that are judged; the rest is left out."""

MAX_HEADERS = 4
"""Files of one repository whose headers are tried, should those before be broken."""


class DryRunner(Protocol):
    """Asks llama.cpp; `runtime.host.prober.Prober` does."""

    async def dry_run(self, request: DryRun) -> Measured:
        """What this load would take; raises a `RuntimeFault`."""
        ...


class History(Protocol):
    """What this machine measured; `runtime.host.speed_log` keeps it."""

    async def samples(self) -> tuple[SpeedSample, ...]:
        """Oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class HubAccess:
    """The hub, for plans of files that are not here."""

    page: Callable[[HubModelRequest], Awaitable[HubModel]]
    fetch: Callable[[str, str, str], Awaitable[Remote]]


@dataclass(frozen=True, slots=True)
class _Work:
    """One plan: its inputs, and of which files the planner's questions are."""

    inputs: PlanInputs
    subject: Subject
    draft: Subject | None


class PlannerService:
    """Home: the event loop."""

    def __init__(
        self,
        prober: DryRunner,
        machine: MachineView,
        find: Callable[[str], InstalledModel],
        hub: HubAccess,
        *,
        models_options: Callable[[], ModelsOptions],
        holdings: Callable[[], Sequence[Holding]],
        history: History,
    ) -> None:
        self._prober = prober
        self._machine = machine
        self._find = find
        self._hub = hub
        self._subjects = Subjects(find, hub.fetch)
        self._models_options = models_options
        self._holdings = holdings
        self._history = history
        self._measured: OrderedDict[bytes, Measured | Failure] = OrderedDict()

    async def machine(self, *, measure_anew: bool = False) -> Machine:
        """What can be planned with now.

        Raises:
            RuntimeFault: the speed was to be measured and cannot be.
        """
        return await (self._machine.measure_anew() if measure_anew else self._machine.now())

    async def shape_of(self, model: InstalledModel) -> ModelShape:
        """The shape of a model on disk.

        Raises:
            RuntimeFault: its header cannot be read.
        """
        return (await self._subjects.installed(model)).shape

    async def plan(self, request: PlanRequest) -> MemoryPlan:
        """Plan for a person who looks at a model.

        Raises:
            BadRequest: nothing that can be planned, or options that cannot be combined.
            RuntimeFault: no such model or file, or its header cannot be read.
        """
        subject = await self._subjects.of(request.target)
        held = self._holdings()
        going = [one for one in held if request.alone or one.model_id == subject.model_id]
        staying = [one for one in held if one not in going]
        options = msgspec.structs.replace(request.options, draft_model=request.draft or request.options.draft_model)
        return await self._plan(subject, options, staying=staying, going=going, exact=request.exact)

    async def plan_scaled(self, model: InstalledModel, size_bytes: int) -> MemoryPlan:
        """The plan, by formula, of a model on disk as if its file had so many bytes."""
        subject = await self._subjects.installed(model)
        scaled = replace(subject, shape=scaled_to(subject.shape, size_bytes))
        held = self._holdings()
        return await self._plan(scaled, LoadOptions(), staying=(), going=held, exact=False)

    async def plan_load(
        self, model: InstalledModel, options: LoadOptions, *, staying: Sequence[Holding], going: Sequence[Holding]
    ) -> MemoryPlan:
        """Plan a load that is about to happen (`runtime.host.room.LoadPlanner`)."""
        subject = await self._subjects.installed(model)
        return await self._plan(subject, options, staying=staying, going=going, exact=True)

    async def verdicts(self, request: VerdictRequest) -> Verdicts:
        """Judge every quantization of a repository: one header is fetched, the others are scaled from it.

        A file whose header turns out broken is told so in its row, and another's is taken.

        Raises:
            RuntimeFault: as the hub answered, or no header can be read.
        """
        page = await self._hub.page(HubModelRequest(request.repo, request.revision))
        files = [file for file in page.files if not file.is_projector][:MAX_ROWS]
        if not files:
            raise BadRequest(f"{request.repo} has no GGUF model.", hint="Choose another repository.", param="repo")
        subject, broken = await self._first_readable(request.repo, files, page.commit)
        subject = _with_heads(subject, request.options)
        inputs = PlanInputs(
            model="",
            shape=subject.shape,
            options=request.options,
            machine=await self._machine.now(exact=False),
            models_options=self._models_options(),
            ours_bytes=freed_bytes(self._holdings()),
            draft=draft.shape if (draft := await self._draft(request.options)) is not None else None,
            projector_bytes=subject.projector_bytes,
            least_n_ubatch=subject.whole_rows,
            history=await self._history.samples(),
            exact=False,
        )
        return await asyncio.to_thread(_judged, request, files, inputs, subject, broken)

    async def _first_readable(
        self, repo: str, files: Sequence[HubFile], commit: str
    ) -> tuple[Subject, dict[str, ModelLoadFailed]]:
        """A file with a whole header, from the middle of the list outwards, and what is wrong with those before it."""
        broken: dict[str, ModelLoadFailed] = {}
        middle = len(files) // 2
        for file in sorted(files, key=lambda one: abs(files.index(one) - middle))[:MAX_HEADERS]:
            try:
                return await self._subjects.remote(await self._hub.fetch(repo, file.name, commit)), broken
            except ModelLoadFailed as error:
                broken[file.name] = error
        raise next(iter(broken.values()))

    # --- one plan -----------------------------------------------------------------------------------------

    async def _plan(
        self,
        subject: Subject,
        options: LoadOptions,
        *,
        staying: Sequence[Holding],
        going: Sequence[Holding],
        exact: bool,
    ) -> MemoryPlan:
        subject = await self._subjects.with_options(subject, options)
        draft = await self._draft(options)
        if options.lora:
            subject = await asyncio.to_thread(adapted, subject, options.lora, self._find)
        subject = _with_heads(subject, options)
        machine = await self._machine.now(exact=exact)
        inputs = PlanInputs(
            model=subject.label,
            shape=subject.shape,
            options=options,
            machine=without_staying(machine, staying),
            models_options=self._models_options(),
            ours_bytes=freed_bytes(going),
            draft=draft.shape if draft is not None else None,
            projector_bytes=subject.projector_bytes,
            least_n_ubatch=subject.whole_rows,
            history=await self._history.samples(),
            exact=exact,
        )
        work = _Work(inputs, subject, draft)
        made = await self._steps(work) if exact else await asyncio.to_thread(_by_formula, inputs)
        return msgspec.structs.replace(made, made_s=now())

    async def _draft(self, options: LoadOptions) -> Subject | None:
        if not options.wants_draft:
            return None
        return await self._subjects.installed(await asyncio.to_thread(self._find, options.draft_model))

    async def _steps(self, work: _Work) -> MemoryPlan:
        steps = await asyncio.to_thread(_begin, work.inputs)
        try:
            ask = next(steps)
            while True:
                ask = steps.send(await self._answer(ask, work))
        except StopIteration as done:
            made: MemoryPlan = done.value
            return made

    async def _answer(self, ask: Ask, work: _Work) -> Measured | Failure | None:
        subject = work.draft if ask.part == "draft" and work.draft is not None else work.subject
        request = DryRun(
            str(subject.path),
            ask.resolved,
            projector=str(subject.projector) if subject.projector is not None and ask.part == "model" else "",
            revision=subject.revision,
        )
        key = msgspec.msgpack.encode(request)
        answer = self._measured.pop(key, None)
        if answer is None:
            try:
                answer = await self._prober.dry_run(request)
            except RuntimeFault as error:
                log.info("dry run of %s: %s", subject.label, error.message)
                # Not kept: memory may be the reason. Without a file it is the probe or a node, not the model.
                return to_failure(error) if "path" in error.details and "node" not in error.details else None
        self._measured[key] = answer
        while len(self._measured) > MAX_MEASURED:
            self._measured.popitem(last=False)
        return answer


# The planner brings numpy with it: it is imported when the first plan is made, in a thread, not while the host starts.


def _begin(inputs: PlanInputs) -> PlanSteps:
    from runtime.fit.planner import plan

    return plan(inputs)


def _by_formula(inputs: PlanInputs) -> MemoryPlan:
    from runtime.fit.planner import plan_by_formula

    return plan_by_formula(inputs)


def freed_bytes(going: Sequence[Holding]) -> dict[str, int]:
    """What comes free on each device when these are unloaded, beyond what the system counts as free already."""
    freed: dict[str, int] = {}
    for one in going:
        if not one.is_taken:
            continue
        for memory in one.memory:
            mapped = memory.weight_bytes if memory.device == CPU and one.is_mapped else 0
            freed[memory.device] = freed.get(memory.device, 0) + memory.total_bytes - mapped
    return freed


def without_staying(machine: Machine, staying: Sequence[Holding]) -> Machine:
    """The machine less what our other models hold that does not show in what is free.

    Mapped weights count as free, and yet a model whose weights leave memory reads them from disk for each token; a
    model that is being loaded has not taken its memory yet.
    """
    hidden: dict[str, int] = {}
    for one in staying:
        for memory in one.memory:
            if not one.is_taken:
                size_bytes = memory.total_bytes
            elif memory.device == CPU and one.is_mapped:
                size_bytes = memory.weight_bytes
            else:
                continue
            hidden[memory.device] = hidden.get(memory.device, 0) + size_bytes
    devices = tuple(
        msgspec.structs.replace(device, free_bytes=max(0, device.free_bytes - hidden.get(device.name, 0)))
        for device in machine.devices
    )
    return msgspec.structs.replace(
        machine, devices=devices, ram_free_bytes=max(0, machine.ram_free_bytes - hidden.get(CPU, 0))
    )


def _with_heads(subject: Subject, options: LoadOptions) -> Subject:
    """The model with its multi-token heads counted, where they are to guess."""
    return replace(subject, shape=with_heads(subject.shape)) if options.speculation == "mtp" else subject


def _judged(
    request: VerdictRequest,
    files: Sequence[HubFile],
    inputs: PlanInputs,
    subject: Subject,
    broken: Mapping[str, ModelLoadFailed],
) -> Verdicts:
    """Every file by formula, from the shape of the one whose header is here."""
    from runtime.fit.planner import unsupported
    from runtime.fit.quant_choice import Candidate, recommend

    plans: list[tuple[HubFile, MemoryPlan]] = []
    for file in files:
        is_the_one = file.size_bytes == subject.shape.size_bytes
        shape = subject.shape if is_the_one else scaled_to(subject.shape, file.size_bytes)
        made = _by_formula(replace(inputs, model=f"{request.repo}/{file.name}", shape=shape))
        if (error := broken.get(file.name)) is not None:
            made = unsupported(made, to_failure(error))
        plans.append((file, msgspec.structs.replace(made, made_s=now())))
    candidates = [Candidate(file.name, file.quantization, file.size_bytes, made) for file, made in plans]
    choice = recommend(candidates, n_ctx_train=subject.shape.n_ctx_train)
    rows = tuple(
        QuantVerdict(file.name, made, file.name == choice.name, choice.reason if file.name == choice.name else "")
        for file, made in plans
    )
    return Verdicts(request.repo, rows, choice.rule if choice.name else choice.reason, subject.fetched_bytes)


CPU = "CPU"
"""llama.cpp's name of the processor, whose memory is the system's."""
