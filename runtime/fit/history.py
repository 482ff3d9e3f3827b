"""What this machine's own answers say about predictions: a factor that corrects them, and how far it can be trusted.

A sample holds the speed that was measured and the one the devices' figures alone had predicted for it. Their ratio
says what those figures miss on this machine: the engine's own work, a slow memory, heat. Ratios of one kind of load
are put together by their median, so that answers given while something else used the machine do not count.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.messages.fit import SpeedSample

MAX_SAMPLES = 500
"""The newest so many are looked at."""
MIN_OF_A_KIND = 2
"""So many samples of other models are wanted before they correct anything; of the model itself one will do."""
LEAST_FACTOR, MOST_FACTOR = 0.2, 5.0
"""A ratio beyond these is no measurement of the devices (the machine slept, the file came from a slow disk)."""
DEPTH_STEP = 2.0
"""Samples of the model count as measured when their depth, plus `DEPTH_FLOOR`, is within this factor."""
DEPTH_FLOOR = 512

SPREAD_MEASURED, SPREAD_CALIBRATED = 0.08, 0.15
"""The range is never narrower than this: machines are warm or cold, and other programs run."""

Basis = Literal["measured", "calibrated", "formula"]
Ratio = Callable[[SpeedSample], float]


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` multiplies a prediction; `spread` is the half width of its range as a share; `n` samples were used."""

    factor: float
    spread: float
    basis: Basis
    n: int


@dataclass(frozen=True, slots=True)
class Kind:
    """What a prediction is for: see the fields of `SpeedSample`."""

    model: str
    devices: tuple[str, ...]
    tensor_type: str
    depth: int


def generation_ratio(sample: SpeedSample) -> float:
    """Measured to predicted generation speed; 0 where one is missing."""
    return _ratio(sample.generation_tps, sample.formula_generation_tps)


def prompt_ratio(sample: SpeedSample) -> float:
    """Measured to predicted prompt speed; 0 where one is missing."""
    return _ratio(sample.prompt_tps, sample.formula_prompt_tps)


def correction(
    samples: Sequence[SpeedSample], kind: Kind, *, ratio: Ratio = generation_ratio, spread: float = 0.25
) -> Correction:
    """The correction for one prediction.

    The closest kind that has samples serves: this model on these devices at about this depth, then at any depth, then
    other models of the same number format on these devices, then any on these devices.

    Args:
        samples: in the order they were taken, newest last.
        kind: what is predicted.
        ratio: of which speed.
        spread: of a prediction nothing corrects.
    """
    usable = [
        (sample, found)
        for sample in samples[-MAX_SAMPLES:]
        if sample.devices == kind.devices and LEAST_FACTOR <= (found := ratio(sample)) <= MOST_FACTOR
    ]
    of_model = [(sample, found) for sample, found in usable if kind.model and sample.model == kind.model]
    near = [found for sample, found in of_model if _is_near(sample.depth, kind.depth)]
    if near:
        return _summed(near, SPREAD_MEASURED, "measured")
    if of_model:
        return _summed([found for _sample, found in of_model], SPREAD_CALIBRATED, "measured")
    of_type = [found for sample, found in usable if sample.tensor_type == kind.tensor_type]
    if len(of_type) >= MIN_OF_A_KIND:
        return _summed(of_type, SPREAD_CALIBRATED, "calibrated")
    if len(usable) >= MIN_OF_A_KIND:
        return _summed([found for _sample, found in usable], spread, "calibrated")
    return Correction(1.0, spread, "formula", 0)


def _ratio(measured: float, predicted: float) -> float:
    return measured / predicted if measured > 0 and predicted > 0 else 0.0


def _is_near(sample_depth: int, depth: int) -> bool:
    low, high = sorted((sample_depth + DEPTH_FLOOR, depth + DEPTH_FLOOR))
    return high <= low * DEPTH_STEP


def _summed(ratios: Sequence[float], least_spread: float, basis: Basis) -> Correction:
    """Median on a logarithmic scale (half and double are equally far), spread from the median deviation."""
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.median(logs)
    # 1.4826 times the median deviation is the standard deviation of a normal distribution; two of them are the range.
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in logs)
    return Correction(math.exp(middle), max(least_spread, math.expm1(2 * deviation)), basis, len(ratios))
