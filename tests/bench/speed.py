"""Predicted against measured speed: `python -m tests.bench.speed [--json] [--quick]`.

Models of several sizes with random weights are written, quantized by our own quantizer in two ways, and loaded as the
worker loads them. For each, the measurement of the devices and real decodes take turns, since a machine is not equally
fast from minute to minute; the lower quartile of the steps counts, as the shortest runs do in the measurement.

Beside the prediction stands what the formula everybody uses says: file size over memory bandwidth. `corrected` is the
prediction after the other models' runs of this bench went into the history, as the program does with its answers.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from runtime.fit import speed as predictions
from runtime.gguf.architecture import ModelShape, shape_of
from runtime.gguf.header import read_header
from runtime.gguf.source import FileSource
from runtime.messages.fit import MachineSpeed, SpeedRange, SpeedSample
from runtime.messages.quantize import QuantizeAnswer, QuantizeDone, QuantizeOrder
from runtime.options import LoadOptions
from runtime.probe.throughput import measure
from runtime.scheduler.plan import BatchPlan
from runtime.worker import native
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel, load_model
from tests.bench.command import run_part
from tests.support.random_model import Shape, write_random_model

MOST_OFF = 0.20
SIZES = {
    "42M": Shape(512, 8, 1536, 8, 4, 16_000),
    "150M": Shape(768, 16, 2048, 12, 4),
    "280M": Shape(1024, 20, 2816, 16, 4),
    "470M": Shape(1280, 22, 3584, 20, 4),
}
NOT_BOUND = {"42M"}
"""So small that it stays in the caches of many processors, whose room other programs change from moment to moment."""
QUANTIZATIONS = ("Q4_K_M", "Q8_0")
N_CTX = 2048
DEPTH = 64
STEPS = 24
ROUNDS, ROUNDS_QUICK = 5, 2
BUDGET_S = 0.6
PROMPT = 512
UNQUIET = 0.3


class Figures(msgspec.Struct, frozen=True):
    """One model: tokens a second, and predicted over measured."""

    model: str
    quantization: str
    size_bytes: int
    measured_tps: float
    predicted_tps: float
    ratio: float
    corrected_ratio: float
    bandwidth_ratio: float
    prompt_tps: float
    prompt_ratio: float


class Report(msgspec.Struct, frozen=True):
    """All models, what was measured of the machine last, and what missed its bound."""

    figures: tuple[Figures, ...]
    memory_bps: float
    busy: float
    missed: tuple[str, ...]


class Rounds:
    """What the rounds of one model found."""

    def __init__(self) -> None:
        self.generation: list[tuple[float, SpeedRange, float]] = []
        self.prompt: list[tuple[float, SpeedRange]] = []
        self.busy: list[float] = []

    @property
    def ratio(self) -> float:
        """Predicted over measured generation speed."""
        return statistics.median(
            found.formula_generation_tps / measured for measured, found, _memory in self.generation
        )


def make_models(folder: Path) -> dict[tuple[str, str], Path]:
    """Write and quantize all models."""
    made: dict[tuple[str, str], Path] = {}
    for name, shape in SIZES.items():
        source = write_random_model(folder / f"random-{name}-F16.gguf", shape)
        for quantization in QUANTIZATIONS:
            target = folder / f"random-{name}-{quantization}.gguf"
            order = QuantizeOrder(source=str(source), target=str(target), quantization=quantization)
            quantize(order)
            made[name, quantization] = target
        source.unlink()
    return made


def quantize(order: QuantizeOrder) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "runtime.worker.quantize"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(msgspec.json.encode(order) + b"\n")
    child.stdin.flush()
    answers = [msgspec.json.decode(line, type=QuantizeAnswer) for line in child.stdout]
    child.wait()
    if not isinstance(answers[-1], QuantizeDone):
        raise SystemExit(f"not quantized: {answers[-1]}")


class Decoder:
    """Bare decodes of a model that was loaded as the worker loads it."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._memory: int = native.get_memory(model.context)
        self._arrays = BatchArrays(model.resolved.n_batch)

    def _decode(self, n_tokens: int, position: int) -> float:
        tokens = [300 + (position + index) % 1000 for index in range(n_tokens)]
        positions = list(range(position, position + n_tokens))
        self._arrays.fill(BatchPlan(tokens, positions, [0] * n_tokens, [n_tokens - 1]))
        started = time.perf_counter()
        if native.decode(self._model.context, self._arrays.batch):
            raise SystemExit("llama_decode failed")
        native.synchronize(self._model.context)
        return time.perf_counter() - started

    def prompt_tps(self) -> float:
        """Read a prompt from nothing, twice; the faster time counts."""
        step = self._model.resolved.n_batch
        times: list[float] = []
        for _ in range(2):
            native.memory_clear(self._memory, False)
            times.append(sum(self._decode(min(step, PROMPT - start), start) for start in range(0, PROMPT, step)))
        return PROMPT / min(times)

    def generation_tps(self) -> float:
        """The lower quartile of some steps after `DEPTH` tokens."""
        native.memory_clear(self._memory, False)
        self._decode(DEPTH, 0)
        times = [self._decode(1, DEPTH + index) for index in range(STEPS)]
        return 1 / statistics.quantiles(times, n=4)[0]


def shape_at(path: Path) -> ModelShape:
    with FileSource(path) as source:
        return shape_of([read_header(source)])


def run_model(path: Path, rounds: int) -> tuple[Rounds, ModelShape, LlamaModel, MachineSpeed]:
    shape = shape_at(path)
    model = load_model(path, LoadOptions(n_ctx=N_CTX, n_parallel=1), lambda _stage, _fraction: None)
    decoder = Decoder(model)
    found = Rounds()
    machine = measure(budget_s=BUDGET_S)
    for _ in range(rounds):
        generation, prompt = decoder.generation_tps(), decoder.prompt_tps()
        after = measure(budget_s=BUDGET_S)
        for speed in (machine, after):
            at = predictions.predict(shape, model.resolved, speed=speed, depth=DEPTH + STEPS // 2)
            begin = predictions.predict(shape, model.resolved, speed=speed, depth=0)
            found.generation.append((generation, at, speed.memory_bps["CPU"]))
            found.prompt.append((prompt, begin))
            found.busy.append(speed.busy)
        machine = after
    model.close()
    return found, shape, model, machine


def run(*, quick: bool) -> Report:
    figures: list[Figures] = []
    samples: dict[tuple[str, str], SpeedSample] = {}
    kept: dict[tuple[str, str], tuple[Rounds, ModelShape, LlamaModel, MachineSpeed]] = {}
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder))
        sizes = {key: path.stat().st_size for key, path in models.items()}
        for key, path in models.items():
            kept[key] = run_model(path, ROUNDS_QUICK if quick else ROUNDS)
            rounds, shape, model, _machine = kept[key]
            measured = statistics.median(entry[0] for entry in rounds.generation)
            samples[key] = predictions.sample_of(
                rounds.generation[-1][1],
                shape,
                model.resolved,
                model=" ".join(key),
                at_s=0.0,
                generation_tps=rounds.generation[-1][1].formula_generation_tps / rounds.ratio,
            )
    for key, (rounds, shape, model, machine) in kept.items():
        measured = statistics.median(entry[0] for entry in rounds.generation)
        history = [sample for other, sample in samples.items() if other != key]
        corrected = predictions.predict(
            shape, model.resolved, speed=machine, depth=DEPTH, model=" ".join(key), history=history
        )
        factor = corrected.generation_tps / corrected.formula_generation_tps
        figures.append(
            Figures(
                model=key[0],
                quantization=key[1],
                size_bytes=sizes[key],
                measured_tps=measured,
                predicted_tps=measured * rounds.ratio,
                ratio=rounds.ratio,
                corrected_ratio=rounds.ratio * factor,
                bandwidth_ratio=statistics.median(
                    memory / sizes[key] / found for found, _range, memory in rounds.generation
                ),
                prompt_tps=statistics.median(found for found, _range in rounds.prompt),
                prompt_ratio=statistics.median(at.formula_prompt_tps / found for found, at in rounds.prompt),
            )
        )
    busy = statistics.median(share for rounds, *_ in kept.values() for share in rounds.busy)
    memory_bps = statistics.median(entry[2] for rounds, *_ in kept.values() for entry in rounds.generation)
    missed = tuple(
        f"{entry.model} {entry.quantization}: predicted is {entry.ratio:.2f} of measured, "
        f"more than {MOST_OFF:.0%} off" + (", but other programs were busy" if busy > UNQUIET else "")
        for entry in figures
        if entry.model not in NOT_BOUND and abs(entry.ratio - 1) > MOST_OFF
    )
    return Report(tuple(figures), memory_bps, busy, missed)


def show(report: Report) -> None:
    print(
        f"speed of generation at {DEPTH} tokens; memory reads {report.memory_bps / 1e9:.1f} GB/s; "
        f"other programs used {report.busy:.0%} of the processor"
    )
    print("model   format     size      measured   predicted   ratio   corrected   size/bandwidth   prompt     ratio")
    for entry in report.figures:
        columns = (
            f"{entry.model:5}",
            f"{entry.quantization:6}",
            f"{entry.size_bytes / 1e6:5.0f} MB",
            f"{entry.measured_tps:7.1f}/s",
            f"{entry.predicted_tps:8.1f}/s",
            f"{entry.ratio:5.2f}",
            f"{entry.corrected_ratio:9.2f}",
            f"{entry.bandwidth_ratio:14.2f}",
            f"{entry.prompt_tps:7.0f}/s",
            f"{entry.prompt_ratio:5.2f}",
        )
        print("   ".join(columns))


def main() -> int:
    return run_part("tests.bench.speed", __doc__, "two rounds a model instead of five", run, show)


if __name__ == "__main__":
    sys.exit(main())
