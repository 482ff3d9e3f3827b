"""Texts read into vectors with the starter model: many in one request against one at a time, in the same run.

`python -m tests.bench.reading [--json] [--quick]`. Requests of one text and of
all texts take turns; medians of the processor time are compared, with one thread, since other programs may be busy.
"""

import statistics
import sys
import time

import msgspec

from runtime.library.starter import find_starter
from runtime.options import LoadOptions
from runtime.scheduler.types import EngineRequest, PooledTask
from runtime.worker.load import load_model
from tests.bench.command import run_part
from tests.bench.engine import SteppedEngine

N_TEXTS = 32
REPETITIONS = 3
LEAST_RATIO = 0.85
"""On a processor alone little is gained (1.15 for 12 tokens, 0.91 for 42; one thread, 2026-11-30); none may be lost."""
_WORDS = "river bread wine moon tree song light water stone bird"
_LENGTHS = {"short": 1, "medium": 4}
"""Times the words above, some dozen tokens."""


class Reading(msgspec.Struct, frozen=True):
    """Texts of one length."""

    length: str
    tokens_each: float
    alone_ms: float
    together_ms: float
    ratio: float


class Report(msgspec.Struct, frozen=True):
    """Times are per text."""

    readings: tuple[Reading, ...]
    missed: tuple[str, ...]


def run(*, quick: bool) -> Report:
    path = find_starter()
    if path is None:
        raise SystemExit("the starter model is not installed")
    model = load_model(path, LoadOptions(n_parallel=4, n_ctx=2048, n_threads=1), lambda _stage, _fraction: None)
    stepped = SteppedEngine(model)
    names = iter(range(10**6))

    def read_s(texts: list[tuple[int, ...]]) -> float:
        name = f"r{next(names)}"
        began_s = time.process_time()
        stepped.engine.submit(EngineRequest(name, (), pooled=PooledTask(tuple(texts))))
        stepped.finish(name)
        return time.process_time() - began_s

    readings = []
    for length, times in _LENGTHS.items():
        texts = [
            tuple(model.vocab.tokenize(f"{index} " + _WORDS * times, add_special=True, parse_special=False))
            for index in range(N_TEXTS)
        ]
        read_s(texts)  # makes the context
        alone: list[float] = []
        together: list[float] = []
        for _ in range(1 if quick else REPETITIONS):
            alone.append(sum(read_s([text]) for text in texts) / N_TEXTS)
            together.append(read_s(texts) / N_TEXTS)
        alone_s, together_s = statistics.median(alone), statistics.median(together)
        n_tokens = sum(map(len, texts)) / N_TEXTS
        readings.append(Reading(length, n_tokens, alone_s * 1000, together_s * 1000, alone_s / together_s))
    model.close()
    missed = tuple(
        f"{one.length} texts together are {one.ratio:.2f} times as fast as alone, less than {LEAST_RATIO}"
        for one in readings
        if one.ratio < LEAST_RATIO
    )
    return Report(tuple(readings), missed)


def show(report: Report) -> None:
    print(f"texts into vectors, {N_TEXTS} of them, starter model, milliseconds a text")
    for one in report.readings:
        print(
            f"{one.length:7} {one.tokens_each:6.1f} tokens   one at a time {one.alone_ms:7.1f}"
            f"   in one request {one.together_ms:7.1f}   {one.ratio:.2f} times as fast"
        )


def main() -> int:
    return run_part("tests.bench.reading", __doc__, "one repetition", run, show)


if __name__ == "__main__":
    sys.exit(main())
