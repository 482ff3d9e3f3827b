"""What guessing ahead gains and costs, with the starter model: `python -m tests.bench.speculation [--json] [--quick]`.

Engines with and without it answer the same prompts and take turns step by step, so that whatever else the machine does
falls on all alike. A step counts as the median of its engine's steps with as many rows. One thread computes: on a busy
machine a second one is waited for hundreds of times a token.

* text that repeats: the prompt is a table that the answer goes on with, and the likeliest token is taken; prompt lookup
  has to gain;
* fresh text: stories at temperature 1, nothing of which was said before; prompt lookup may not cost more than a little;
* a draft model: the starter model with its weights as F32, several times as large, drafted for by itself as it is,
  which guesses nearly always right; and a draft model of random weights, which never does;
* heads of the model's own (MTP): no model that has them is small enough to be at hand, so models of random weights are
  written, once so that the heads guess what the model will say, and once so that they never do.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import msgspec
from msgspec.structs import replace

from runtime.library.starter import find_starter
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import EngineRequest
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.speculation import load_draft
from tests.bench.command import run_part
from tests.bench.engine import SteppedEngine
from tests.fakes.tiny_heads import Heads, write_with_heads
from tests.support.dequantized import write_f32

N_CTX = 1024
TOKENS = 192
LEAST_FRESH = 0.97
LEAST_REPEATED = 1.1
LEAST_DRAFT = 1.05
LEAST_HEADS = 1.2
LEAST_USELESS_HEADS = 0.8
"""They read each token too, and are one layer of 17 here."""
LEAST_USELESS_DRAFT = 0.9
"""Some of its guesses are tried again and again, and each costs a step of the draft model too."""
GREEDY = SamplingOptions(temperature=0)
REPEATED = (
    "Name: Ada, City: London, Job: engineer\nName: Ben, City: London, Job: engineer\n"
    "Name: Cleo, City: London, Job: engineer\nName: Dan, City: London, Job: engineer\nName: Eve,"
)
STORIES = ("The lighthouse keeper", "On the day the river froze,", "My grandmother used to say", "In the old harbour,")


class Arm(msgspec.Struct, frozen=True):
    """One way on one kind of text."""

    text: str
    way: str
    tokens_per_s: float
    of_plain: float
    drafted: int
    accepted: int


class Report(msgspec.Struct, frozen=True):
    """All figures of a run, and whether each bound was kept."""

    engine: str
    arms: tuple[Arm, ...]
    missed: tuple[str, ...]


class Timed:
    """An engine whose steps are timed by their rows."""

    def __init__(self, way: str, model: LlamaModel) -> None:
        self.way = way
        self.model = model
        self.stepped = SteppedEngine(model)
        self.drafted = self.accepted = 0
        self._steps: dict[int, list[float]] = defaultdict(list)
        self._n_tokens = 0
        self._rows = 0
        backend = self.stepped.engine._backend
        real = backend.decode

        def decode(plan: BatchPlan) -> int:
            self._rows = len(plan.tokens)
            return real(plan)

        backend.decode = decode  # type: ignore[method-assign]

    def begin(self, name: str, prompt: str, sampling: SamplingOptions, n_tokens: int) -> None:
        tokens = tuple(self.model.vocab.tokenize(prompt, add_special=False, parse_special=False))
        options = GenerateOptions(max_tokens=n_tokens, ignore_eos=True, sampling=sampling)
        self.stepped.engine.submit(EngineRequest(name, tokens, options))
        while not self.stepped.tokens.get(name):
            self.stepped.step()

    def step(self, name: str) -> None:
        figures = self.stepped.engine.figures
        before = figures.generated_tokens
        started_s = time.perf_counter()
        self.stepped.step()
        self._steps[self._rows].append(time.perf_counter() - started_s)
        self._n_tokens += figures.generated_tokens - before
        if name in self.stepped.done:
            timings = self.stepped.done[name].timings
            self.drafted += timings.draft_tokens
            self.accepted += timings.draft_accepted

    def tokens_per_s(self) -> float:
        """Tokens of a second, each step counted as the median of those with as many rows."""
        whole_s = sum(len(steps) * statistics.median(steps) for steps in self._steps.values())
        found = self._n_tokens / whole_s
        self._steps.clear()
        self._n_tokens = 0
        return found


def compare(text: str, engines: list[Timed], prompts: tuple[str, ...], sampling: SamplingOptions, n: int) -> list[Arm]:
    """All engines on all prompts, step by step in turn; the first one is the plain one."""
    for index, prompt in enumerate(prompts):
        name = f"{text} {index}"
        for timed in engines:
            timed.begin(name, prompt, sampling, n)
        while running := [timed for timed in engines if name not in timed.stepped.done]:
            for timed in running:
                timed.step(name)
    speeds = [timed.tokens_per_s() for timed in engines]
    arms = [
        Arm(text, timed.way, speed, speed / speeds[0], timed.drafted, timed.accepted)
        for timed, speed in zip(engines, speeds, strict=True)
    ]
    for timed in engines:
        timed.drafted = timed.accepted = 0
    return arms


def judge(arms: list[Arm]) -> tuple[str, ...]:
    """Sentences about the bounds that were not kept."""
    bounds = {
        ("repeated", "lookup"): LEAST_REPEATED,
        ("fresh", "lookup"): LEAST_FRESH,
        ("F32", "draft: itself, quantized"): LEAST_DRAFT,
        ("F32", "draft: random weights"): LEAST_USELESS_DRAFT,
        ("heads", "mtp: agreeing heads"): LEAST_HEADS,
        ("heads", "mtp: random heads"): LEAST_USELESS_HEADS,
    }
    return tuple(
        f"{arm.way} on {arm.text} text: {arm.of_plain:.3f} < {bound} of the speed without"
        for arm in arms
        if arm.of_plain < (bound := bounds.get((arm.text, arm.way), 0.0))
    )


def loaded(path: Path, draft: Path | None = None, **options: object) -> LlamaModel:
    common = LoadOptions(n_parallel=1, n_ctx=N_CTX, n_threads=1, draft_model=str(draft or ""))
    chosen = replace(common, **options)
    model = load_model(path, chosen, lambda _stage, _fraction: None)
    if draft is not None:
        load_draft(model, draft, None, lambda _stage, _fraction: None)
    return model


def run(*, quick: bool) -> Report:
    path = find_starter()
    if path is None:
        raise SystemExit("the starter model is not installed")
    n_tokens = TOKENS // 3 if quick else TOKENS
    stories = STORIES[:1] if quick else STORIES
    arms: list[Arm] = []
    engines = [
        Timed("without", loaded(path, speculation="off")),
        Timed("lookup", loaded(path, speculation="lookup")),
    ]
    arms += compare("repeated", engines, (REPEATED,), GREEDY, n_tokens)
    arms += compare("fresh", engines, stories, SamplingOptions(temperature=1), n_tokens)
    told = engines[0].model.facts.engine
    for timed in engines:
        timed.model.close()
    with tempfile.TemporaryDirectory() as name:
        large, random = Path(name) / "f32.gguf", Path(name) / "random.gguf"
        write_f32(path, large)
        write_f32(path, random, n_layer=2, is_random=True)
        engines = [
            Timed("without", loaded(large, speculation="off")),
            Timed("draft: itself, quantized", loaded(large, path)),
            Timed("draft: random weights", loaded(large, random)),
        ]
        arms += compare("F32", engines, stories[:2], GREEDY, n_tokens)
        for timed in engines:
            timed.model.close()
    for heads in (Heads.AGREEING, Heads.RANDOM):
        arms += with_heads(heads, stories[:2], n_tokens)
    return Report(told, tuple(arms), judge(arms))


def with_heads(heads: Heads, prompts: tuple[str, ...], n_tokens: int) -> list[Arm]:
    """A model of 170 MB, with its heads and without."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "heads.gguf"
        write_with_heads(path, "glm4moe", heads=heads, n_trunk=16, n_embd=384, n_ff=768)
        engines = [
            Timed(f"without {heads.name.lower()} heads", loaded(path, speculation="off")),
            Timed(f"mtp: {heads.name.lower()} heads", loaded(path, speculation="mtp")),
        ]
        found = compare("heads", engines, prompts, GREEDY, n_tokens)
        for timed in engines:
            timed.model.close()
    return found


def show(report: Report) -> None:
    print(f"speculative decoding: {report.engine}, starter model")
    print("text      way                        tokens/s   of without   drafted   right")
    for arm in report.arms:
        right = f"{arm.accepted / arm.drafted:6.0%}" if arm.drafted else "     -"
        print(f"{arm.text:9} {arm.way:24} {arm.tokens_per_s:10.1f} {arm.of_plain:12.3f} {arm.drafted:9} {right}")


def main() -> int:
    return run_part("tests.bench.speculation", __doc__, "a third of the tokens, fewer stories", run, show)


if __name__ == "__main__":
    sys.exit(main())
