"""What a plan starts from, and what it asks for on the way.

The planner does no I/O: `runtime.fit.planner.plan` is a generator that yields an `Ask` and is sent the answer.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runtime.errors import Failure
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Machine, Measured, MemoryPlan, SpeedSample
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions, ModelsOptions

Part = Literal["model", "draft"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A layout whose bytes the planner wants to know.

    `part` says of which file: the model itself (with its projector, if it has one) or the draft model. The answer is
    what llama.cpp measured, the `Failure` why it could not, or None where nobody can measure: then the formula serves.
    """

    part: Part
    resolved: ResolvedLoad


PlanSteps = Generator[Ask, Measured | Failure | None, MemoryPlan]


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything one plan depends on; the same inputs and answers give the same plan.

    Attributes:
        model: id, or `repo/file` of one that is not on disk.
        shape: of the model.
        options: as asked, automatic kept as automatic.
        machine: its devices with what is free on them at this moment.
        models_options: what the person wants kept free.
        ours_bytes: what our own loaded models hold on each device, by llama.cpp's name (`CPU` is system memory, and
            there only what would come free: mapped weights already count as free).
        alone: count `ours_bytes` as free, since those models would be unloaded first.
        draft: shape of the draft model; None without one.
        projector_bytes: size of the projector's file; 0 without one.
        least_n_ubatch: rows of a picture that the model must read in one micro-batch; 0 without such.
        history: speeds of this machine's answers, newest last; they correct predictions.
        exact: ask for dry runs; False answers at once by formula.
    """

    model: str
    shape: ModelShape
    options: LoadOptions
    machine: Machine
    models_options: ModelsOptions = field(default_factory=ModelsOptions)
    ours_bytes: Mapping[str, int] = field(default_factory=dict)
    alone: bool = True
    draft: ModelShape | None = None
    projector_bytes: int = 0
    least_n_ubatch: int = 0
    history: Sequence[SpeedSample] = ()
    exact: bool = True
