"""What the engine itself costs, with the starter model: `python -m tests.bench.engine [--json] [--quick]`.

All ratios come from one run. A step of the engine and a step of a bare `llama_decode` loop (the same model, a
second context of the same parameters, the same number of sequences and positions, nothing sampled) take turns, so
that whatever else the machine does falls on both alike; medians over the steps are compared.

* share: time inside llama.cpp, of the time of the engine's steps;
* own work: the rest of a step, divided by the tokens it generated, in microseconds (median step). It is told
  twice. With the decode on another device (here: left out, the last logits stand), as on a fast GPU, where it is
  what counts; the bound is for this one. And between decodes on this processor, which have just emptied its caches
  of everything else: there each step also waits for memory, and the share says what that costs;
* against the bare loop: tokens a second of the median steps;
* warm against cold: time to first token of the second turn of a conversation whose first turn was read before,
  against reading such a conversation anew;
* from disk against cold: the same for an engine that begins anew and finds the conversation in a file (which the
  system may still have in memory: read it is, checked and copied, but not waited for).
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from runtime.library.starter import find_starter
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import Done, EngineOutput, EngineRequest, Text
from runtime.worker import native, parameters
from runtime.worker.batch import BatchArrays
from runtime.worker.engine import Engine
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.state_disk import StateDisk
from tests.bench.command import run_part

LEAST_SHARE = 0.97
MOST_OWN_US = 60.0
LEAST_OF_BARE = 0.97
MOST_OF_COLD = 0.10
MOST_OF_COLD_FROM_DISK = 0.10

N_PARALLEL = 32
N_CTX = 2048
PROMPT_TOKENS = 16
CONVERSATION_TOKENS = 1_500
STORED_TOKENS = 2_000
STORE_BYTES = 4 * 1024**3
OWN_STEPS = 300
STEPS = {1: 160, 8: 60, 32: 24}
SAMPLINGS = {"greedy": SamplingOptions(temperature=0), "default": SamplingOptions()}


class Speed(msgspec.Struct, frozen=True):
    """One setting measured."""

    sequences: int
    sampling: str
    share: float
    own_us: float
    own_between_decodes_us: float
    tokens_per_s: float
    bare_tokens_per_s: float
    of_bare: float


class Turns(msgspec.Struct, frozen=True):
    """Time to first token of a conversation."""

    prompt_tokens: int
    cold_s: float
    warm_s: float
    of_cold: float


class Stored(msgspec.Struct, frozen=True):
    """Time to first token of a conversation that was stored on disk."""

    prompt_tokens: int
    file_bytes: int
    cold_s: float
    stored_s: float
    of_cold: float


class Report(msgspec.Struct, frozen=True):
    """All figures of a run, and whether each bound was kept."""

    engine: str
    n_threads: int
    speeds: tuple[Speed, ...]
    turns: Turns
    stored: Stored
    missed: tuple[str, ...]


class SteppedEngine:
    """An engine stepped on this thread, as `Engine.run` does on its own."""

    def __init__(self, model: LlamaModel, store: StateDisk | None = None) -> None:
        self.done: dict[str, Done] = {}
        self.tokens: dict[str, int] = {}
        self.engine = Engine(model, self._on_outputs, store)

    def _on_outputs(self, outputs: tuple[EngineOutput, ...]) -> None:
        for output in outputs:
            if isinstance(output, Done):
                self.done[output.request_id] = output
            elif isinstance(output, Text):
                self.tokens[output.request_id] = self.tokens.get(output.request_id, 0) + output.n_tokens

    def step(self) -> None:
        self.engine._step()

    def ask(self, name: str, prompt: tuple[int, ...], max_tokens: int, sampling: SamplingOptions) -> None:
        options = GenerateOptions(max_tokens=max_tokens, ignore_eos=True, sampling=sampling)
        self.engine.submit(EngineRequest(name, prompt, options))

    def finish(self, name: str) -> Done:
        while name not in self.done:
            self.step()
        return self.done[name]


class BareLoop:
    """`llama_decode` and nothing else."""

    def __init__(self, model: LlamaModel) -> None:
        params = parameters.context_params(model.resolved)
        self._context: int = native.init_from_model(model.model, params)
        self._memory: int = native.get_memory(self._context)
        self._arrays = BatchArrays(model.resolved.n_batch)
        self._n = 0

    def begin(self, n_sequences: int, length: int) -> None:
        """Put `length` tokens into each sequence."""
        native.memory_clear(self._memory, False)
        for seq_id in range(n_sequences):
            plan = BatchPlan(list(prompt(seq_id, length)), list(range(length)), [seq_id] * length, [length - 1])
            self._arrays.fill(plan)
            native.decode(self._context, self._arrays.batch)
        rows = list(range(n_sequences))
        self._arrays.fill(BatchPlan([500 + row for row in rows], [length] * n_sequences, rows, rows))
        self._n = n_sequences

    def step(self) -> None:
        """One token of each sequence."""
        native.decode(self._context, self._arrays.batch)
        native.synchronize(self._context)
        self._arrays.pos[: self._n] += 1

    def close(self) -> None:
        native.free(self._context)


def prompt(seed: int, length: int) -> tuple[int, ...]:
    """Tokens that share no beginning with those of another seed."""
    return tuple(300 + (seed * 131 + index * 7) % 20_000 for index in range(length))


def measure_speed(stepped: SteppedEngine, bare: BareLoop, n: int, sampling: str, steps: int) -> Speed:
    names = [f"{sampling} {n} {index}" for index in range(n)]
    for index, name in enumerate(names):
        stepped.ask(name, prompt(1 + index, PROMPT_TOKENS), steps + OWN_STEPS + 8, SAMPLINGS[sampling])
    while not all(stepped.tokens.get(name, 0) for name in names):
        stepped.step()
    bare.begin(n, PROMPT_TOKENS + 1)
    bare.step()
    figures = stepped.engine.figures
    ours_s: list[float] = []
    bare_s: list[float] = []
    own_s: list[float] = []
    inside_s = 0.0
    for _ in range(steps):
        decode_before_s, tokens_before = figures.decode_s, figures.generated_tokens
        started_s = time.perf_counter()
        stepped.step()
        between_s = time.perf_counter()
        bare.step()
        bare_s.append(time.perf_counter() - between_s)
        if figures.generated_tokens - tokens_before != n:
            raise RuntimeError("a step did not generate one token of each sequence")
        step_s = between_s - started_s
        decode_s = figures.decode_s - decode_before_s
        ours_s.append(step_s)
        own_s.append(step_s - decode_s)
        inside_s += decode_s
    own_us = measure_own(stepped, n)
    for name in names:
        stepped.engine.cancel(name)
    for name in names:
        stepped.finish(name)
    stepped.engine._scheduler.placement.reset()
    ours, bared = n / statistics.median(ours_s), n / statistics.median(bare_s)
    return Speed(
        sequences=n,
        sampling=sampling,
        share=inside_s / sum(ours_s),
        own_us=own_us,
        own_between_decodes_us=statistics.median(own_s) / n * 1e6,
        tokens_per_s=ours,
        bare_tokens_per_s=bared,
        of_bare=ours / bared,
    )


def measure_own(stepped: SteppedEngine, n: int) -> float:
    """Microseconds of our own for a token while the decode runs elsewhere: it returns at once, with the last logits.

    All else of a step is done: commands, plan, filling the batch, sampling, stops, text, hand-off.
    """
    backend, figures = stepped.engine._backend, stepped.engine.figures
    real = backend.decode

    def elsewhere(plan: BatchPlan) -> int:
        backend._arrays.fill(plan)
        return 0

    backend.decode = elsewhere  # type: ignore[method-assign]
    own_s: list[float] = []
    for _ in range(OWN_STEPS):
        tokens_before = figures.generated_tokens
        started_s = time.perf_counter()
        stepped.step()
        own_s.append(time.perf_counter() - started_s)
        if figures.generated_tokens - tokens_before != n:
            raise RuntimeError("a step did not generate one token of each sequence")
    backend.decode = real  # type: ignore[method-assign]
    return statistics.median(own_s) / n * 1e6


def measure_turns(stepped: SteppedEngine, repetitions: int) -> Turns:
    cold_s: list[float] = []
    warm_s: list[float] = []
    greedy = SAMPLINGS["greedy"]
    for index in range(repetitions):
        first = prompt(1_000 + index, CONVERSATION_TOKENS)
        stepped.ask(f"cold {index}", first, 8, greedy)
        cold_s.append(stepped.finish(f"cold {index}").timings.time_to_first_token_s)
        scheduler = stepped.engine._scheduler
        held = max((scheduler.placement.tree.tokens(seq_id) for seq_id in scheduler.placement._idle), key=len)
        stepped.ask(f"warm {index}", (*held, *prompt(2_000 + index, 24)), 8, greedy)
        done = stepped.finish(f"warm {index}")
        if done.usage.cached_tokens != len(held):
            raise RuntimeError(f"{done.usage.cached_tokens} of {len(held)} tokens were reused")
        warm_s.append(done.timings.time_to_first_token_s)
        scheduler.placement.reset()
    cold, warm = statistics.median(cold_s), statistics.median(warm_s)
    return Turns(CONVERSATION_TOKENS, cold, warm, warm / cold)


def measure_stored(model: LlamaModel, repetitions: int) -> Stored:
    """What `Engine.run` does at its end and the next one at its beginning, on the same loaded model."""
    cold_s: list[float] = []
    stored_s: list[float] = []
    greedy = SAMPLINGS["greedy"]
    with tempfile.TemporaryDirectory() as folder:

        def engine() -> tuple[SteppedEngine, StateDisk]:
            store = StateDisk(Path(folder), "0" * 32, Path("bench"), STORE_BYTES, prefixes_do=True)
            store.start()
            return SteppedEngine(model, store), store

        for index in range(repetitions):
            tokens = prompt(3_000 + index, STORED_TOKENS)
            first, store = engine()
            first.ask("cold", tokens, 8, greedy)
            cold_s.append(first.finish("cold").timings.time_to_first_token_s)
            store.store_all(first.engine._scheduler.placement.left_behind(), 60.0)
            store.close(60.0)
            second, store = engine()
            second.ask("stored", (*tokens, *prompt(4_000 + index, 24)), 8, greedy)
            done = second.finish("stored")
            if done.usage.cached_tokens != STORED_TOKENS:
                raise RuntimeError(f"{done.usage.cached_tokens} of {STORED_TOKENS} tokens were reused")
            stored_s.append(done.timings.time_to_first_token_s)
            store.close(60.0)
        file_bytes = max(file.stat().st_size for file in Path(folder).glob("*/*.state"))
    cold, stored = statistics.median(cold_s), statistics.median(stored_s)
    return Stored(STORED_TOKENS, file_bytes, cold, stored, stored / cold)


def judge(speeds: list[Speed], turns: Turns, stored: Stored) -> tuple[str, ...]:
    """Sentences about the bounds that were not kept."""
    missed: list[str] = []
    for speed in speeds:
        where = f"{speed.sequences} sequences, {speed.sampling}"
        if speed.share < LEAST_SHARE:
            missed.append(f"share inside llama_decode {speed.share:.4f} < {LEAST_SHARE} ({where})")
        if speed.own_us > MOST_OWN_US:
            missed.append(f"own work {speed.own_us:.1f} us > {MOST_OWN_US:.0f} us a token ({where})")
        if speed.of_bare < LEAST_OF_BARE:
            missed.append(f"speed {speed.of_bare:.4f} < {LEAST_OF_BARE} of the bare loop ({where})")
    if turns.of_cold > MOST_OF_COLD:
        missed.append(f"warm turn {turns.of_cold:.3f} > {MOST_OF_COLD} of a cold one")
    if stored.of_cold > MOST_OF_COLD_FROM_DISK:
        missed.append(f"turn from disk {stored.of_cold:.3f} > {MOST_OF_COLD_FROM_DISK} of a cold one")
    return tuple(missed)


def run(*, quick: bool) -> Report:
    path = find_starter()
    if path is None:
        raise SystemExit("the starter model is not installed")
    model = load_model(path, LoadOptions(n_parallel=N_PARALLEL, n_ctx=N_CTX), lambda _stage, _fraction: None)
    stepped, bare = SteppedEngine(model), BareLoop(model)
    speeds = [
        measure_speed(stepped, bare, n, sampling, max(8, steps // 4) if quick else steps)
        for n, steps in STEPS.items()
        for sampling in SAMPLINGS
    ]
    turns = measure_turns(stepped, 1 if quick else 3)
    bare.close()
    stored = measure_stored(model, 1 if quick else 2)
    missed = judge(speeds, turns, stored)
    report = Report(model.facts.engine, model.resolved.n_threads, tuple(speeds), turns, stored, missed)
    model.close()
    return report


def show(report: Report) -> None:
    print(f"engine: {report.engine}, {report.n_threads} threads, starter model")
    print("sequences  sampling   share inside   own work   (between decodes)   tokens/s   bare loop   ours/bare")
    for speed in report.speeds:
        figures = (
            f"{speed.sequences:9}  {speed.sampling:8}",
            f"{speed.share:12.4f}",
            f"{speed.own_us:5.1f} us",
            f"{speed.own_between_decodes_us:14.1f} us",
            f"{speed.tokens_per_s:8.1f}",
            f"{speed.bare_tokens_per_s:9.1f}",
            f"{speed.of_bare:9.4f}",
        )
        print("   ".join(figures))
    turns = report.turns
    print(
        f"time to first token, {turns.prompt_tokens:,} tokens: cold {turns.cold_s * 1000:.0f} ms,"
        f" warm second turn {turns.warm_s * 1000:.0f} ms, ratio {turns.of_cold:.3f}"
    )
    stored = report.stored
    print(
        f"time to first token, {stored.prompt_tokens:,} tokens: cold {stored.cold_s * 1000:.0f} ms,"
        f" from a file of {stored.file_bytes / 1e6:.0f} MB {stored.stored_s * 1000:.0f} ms, ratio {stored.of_cold:.3f}"
    )


def main() -> int:
    return run_part("tests.bench.engine", __doc__, "a quarter of the steps, one conversation", run, show)


if __name__ == "__main__":
    sys.exit(main())
