"""The plan of one load: which layers go where, how much context, and what it takes."""

from runtime.errors import Failure, NotEnoughMemory
from runtime.fit import defaults
from runtime.fit.context_memory import context_bytes
from runtime.fit.inputs import Ask, PlanInputs, PlanSteps
from runtime.messages.fit import DeviceBudget, Measured, MemoryPlan
from runtime.messages.load import DeviceMemory
from runtime.units import format_bytes


def plan(inputs: PlanInputs) -> PlanSteps:
    """Plan a load.

    Yields what is to be measured and is sent the answer (see `Ask`); returns the plan.

    Raises:
        BadRequest: options that llama.cpp cannot combine.
    """
    shape, machine = inputs.shape, inputs.machine
    try:
        resolved = defaults.resolve(
            shape, inputs.options, n_cores=machine.n_cores, free_bytes=max(0, machine.ram_free_bytes - shape.size_bytes)
        )
    except NotEnoughMemory:
        resolved = defaults.resolve(shape, inputs.options, n_cores=machine.n_cores, free_bytes=2**62)
    measured: Measured | Failure | None = (yield Ask("model", resolved)) if inputs.exact else None
    if not isinstance(measured, Measured):
        cache = context_bytes(
            shape,
            n_cells=resolved.n_cells,
            n_seq_max=resolved.n_seq_max,
            n_ubatch=resolved.n_ubatch,
            type_k=resolved.type_k,
            type_v=resolved.type_v,
        )
        measured = Measured(memory=(DeviceMemory("CPU", shape.size_bytes, cache),), method="formula")
    cpu = machine.devices[-1]
    memory = measured.memory[-1]
    left = machine.ram_free_bytes - memory.total_bytes
    verdict, total = ("cpu" if left >= 0 else "too_large"), format_bytes(memory.total_bytes)
    return MemoryPlan(
        model=inputs.model,
        options=inputs.options,
        resolved=resolved,
        verdict="cpu" if left >= 0 else "too_large",
        sentence=f"Runs on CPU, {total} of {format_bytes(machine.ram_total_bytes)}"
        if verdict == "cpu"
        else f"Too large: needs {total}, {format_bytes(machine.ram_free_bytes)} free",
        reason="No GPU takes part.",
        budgets=(DeviceBudget(cpu, memory, 0, machine.ram_total_bytes - machine.ram_free_bytes, 0, left),),
        needed_bytes=memory.total_bytes,
        free_bytes=machine.ram_free_bytes,
        n_layer=shape.n_layer + 1,
        n_layer_gpu=0,
        method=measured.method,
    )


def plan_by_formula(inputs: PlanInputs) -> MemoryPlan:
    """The plan without any dry run, at once; what the sliders use.

    Raises:
        BadRequest: options that llama.cpp cannot combine.
    """
    steps = plan(inputs)
    try:
        next(steps)
        while True:
            steps.send(None)
    except StopIteration as done:
        result: MemoryPlan = done.value
        return result
