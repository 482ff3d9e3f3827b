"""Fuzzing of everything that reads a GGUF header: `python -m tests.fuzz.gguf --minutes 60`.

Inputs are made in two ways: from parts, so that counts, types and names stay readable far into the header (`inputs`),
and by damaging the bytes of seeds (`corpus/`, and what was found on the way). An input that ends in a place of the code
where none ended before becomes a seed for this run. A finding is an exception that is not one of the errors the reader
promises, an input that takes too long, memory over the limit, or a remote reading that differs from the local one; it
is written to the findings folder, to become a test.

The last line of the output says whether there were findings; the exit code is their number.
"""

import argparse
import hashlib
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.errors import ModelLoadFailed
from runtime.gguf import header as header_module
from runtime.gguf.architecture import scaled_to, shape_of
from runtime.gguf.attention import memory_of
from runtime.gguf.facts import facts_of, read_special_tokens
from runtime.gguf.header import ArrayRef, GgufHeader, iterate_strings, read_header, read_numbers
from runtime.gguf.quality import quality_of
from runtime.gguf.remote import RangeSource, read_remote_header
from runtime.gguf.source import MemorySource
from tests.fuzz.inputs import MAX_INPUT_BYTES, Maker

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 5.0
HANG_S = 60
MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024
MAX_SEEDS = 600
MAX_FINDINGS = 50
REPORT_S = 60.0


_LIMITS = {
    name: getattr(header_module, name)
    for name in ("MAX_HEADER_BYTES", "MAX_KEPT_BYTES", "MAX_KEPT_TOTAL", "MAX_LISTS", "MAX_SKIPPED_STRINGS")
} | {"_WINDOW_BYTES": header_module._WINDOW_BYTES}


class TooLongError(Exception):
    """An input did not come to an end."""


def read_everything(data: bytes, size_bytes: int, first_bytes: int) -> str:
    """Put one input through all that reads headers; returns what became of it.

    Raises:
        Exception: whatever is not one of the promised errors.
    """
    source = MemorySource(data, name="fuzzed.gguf", size_bytes=size_bytes)
    local = _outcome(lambda: read_header(source))
    remote = RangeSource("fuzzed.gguf", len(data), lambda offset, n: data[offset : offset + n], first_bytes=first_bytes)
    fetched = _outcome(lambda: read_remote_header(remote)[0])
    if isinstance(local, GgufHeader) != isinstance(fetched, GgufHeader):
        raise AssertionError(f"local and remote differ: {local!r:.200} and {fetched!r:.200}")
    if not isinstance(local, GgufHeader):
        return local
    assert isinstance(fetched, GgufHeader)
    assert (fetched.metadata.keys(), fetched.tensors) == (local.metadata.keys(), local.tensors)
    return _use(source, local)


def _outcome(action: Callable[[], GgufHeader]) -> GgufHeader | str:
    try:
        return action()
    except ModelLoadFailed as error:
        return _checked(error)


def _checked(error: ModelLoadFailed) -> str:
    """The error must be one for people: a sentence, not the file's own bytes."""
    assert error.message
    assert error.message.isprintable()
    assert len(error.message) < 1000
    return _place(error)


def _use(source: MemorySource, header: GgufHeader) -> str:
    facts = facts_of(header, "fuzzed-Q4_K_M.gguf")
    assert facts.n_params >= 0
    assert facts.needed_bytes >= 0
    quality_of(facts.quantization)
    marks = [str(facts.kind), str(facts.attention is not None), str(facts.projector)]
    for action in (
        facts.check_whole,
        lambda: memory_of(header),
        lambda: _shape(header),
        lambda: read_special_tokens(source, header),
        lambda: _read_lists(source, header),
    ):
        try:
            action()
        except ModelLoadFailed as error:
            marks.append(_checked(error))
    return " ".join(marks)


def _shape(header: GgufHeader) -> None:
    shape = shape_of([header])
    numbers = (shape.input_bytes, shape.output_bytes, shape.layers_bytes, shape.n_params_active, shape.size_bytes)
    assert all(number >= 0 for number in numbers)
    assert shape.n_layer == len(shape.layers)
    assert all(layer.k_width >= 0 and layer.v_width >= 0 and layer.state_bytes >= 0 for layer in shape.layers)
    assert all(layer.expert_bytes <= layer.weight_bytes for layer in shape.layers)
    if shape.size_bytes:
        scaled_to(shape, 1 << 30)


def _read_lists(source: MemorySource, header: GgufHeader) -> None:
    for key, value in header.metadata.items():
        if isinstance(value, ArrayRef):
            for index, _ in enumerate(iterate_strings(source, header, key)):
                if index > 5000:
                    break
            read_numbers(source, header, key)


def _place(error: BaseException) -> str:
    """Where in the code an error came from, and which one it was."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = "/".join(f"{Path(frame.filename).stem}:{frame.lineno}" for frame in frames[1:])
    return f"{type(error).__name__} {lines} {re.sub(r'[0-9]+', '#', str(error))[:60]}"


class Run:
    """One run: its seeds, what it found, and its figures."""

    def __init__(self, seed: int, findings: Path) -> None:
        self.chance = random.Random(seed)
        self.maker = Maker(self.chance)
        self.findings = findings
        self.seeds: list[bytes] = [path.read_bytes() for path in sorted(CORPUS.glob("*.gguf"))]
        self.seen: set[str] = set()
        self.found: set[str] = set()
        self.n_inputs = 0
        self.slowest_s = 0.0

    def step(self) -> None:
        """One input."""
        if self.seeds and self.chance.random() < 0.6:
            base, other = self.chance.choice(self.seeds), self.chance.choice(self.seeds)
            data = self.maker.mutated(base, other)
        else:
            data = self.maker.model().pack()[:MAX_INPUT_BYTES]
        self.n_inputs += 1
        started = time.process_time()  # other programs may hold the processor
        try:
            outcome = self.one(data)
        except Exception as error:  # noqa: BLE001 - every other error is what is looked for
            self.note(data, _place(error), traceback.format_exc())
            return
        took_s = time.process_time() - started
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > SLOW_S:
            self.note(data, f"slow {outcome}", f"took {took_s:.1f} s")
        if outcome not in self.seen:
            self.seen.add(outcome)
            if len(self.seeds) < MAX_SEEDS:
                self.seeds.append(data)
            else:
                self.seeds[self.chance.randrange(MAX_SEEDS)] = data

    def one(self, data: bytes) -> str:
        """Read an input, with an end to it."""
        size_bytes = len(data) + self.chance.choice((0, 0, 0, 1, 4096, 1 << 40))
        first_bytes = self.chance.choice((1, 7, 100, 4096, 1 << 20))
        # Small windows and limits, so that short inputs cross them too.
        header_module._WINDOW_BYTES = self.chance.choice((1, 16, 100, 4096, 1 << 20))
        for name in sorted(_LIMITS.keys() - {"_WINDOW_BYTES"}):
            if self.chance.random() < 0.1:
                setattr(header_module, name, self.chance.choice((20, 300, 3000)))
        _alarm(HANG_S)
        try:
            return read_everything(data, size_bytes, first_bytes)
        finally:
            _alarm(0)
            for name, usual in _LIMITS.items():
                setattr(header_module, name, usual)

    def note(self, data: bytes, signature: str, text: str) -> None:
        """Keep a finding, once for each place in the code."""
        if signature in self.found or len(self.found) >= MAX_FINDINGS:
            return
        self.found.add(signature)
        path = self.findings / f"{hashlib.sha256(data).hexdigest()[:16]}.gguf"
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{signature}\n\n{text}", encoding="utf-8")
        _say(f"FINDING {path}: {signature}")


def _alarm(seconds: int) -> None:
    if hasattr(signal, "SIGALRM"):
        signal.alarm(seconds)


def _on_alarm(_number: int, _frame: object) -> None:
    raise TooLongError


def _limit_memory() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


def _peak_bytes() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for a while; returns the number of findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run")
    parser.add_argument("--findings", type=Path, default=None, help="folder for inputs that fail")
    parser.add_argument("inputs", nargs="*", type=Path, help="read these files once instead")
    asked = parser.parse_args(arguments)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1 << 32)
    findings = asked.findings or Path(tempfile.mkdtemp(prefix="fuzz-gguf-"))
    findings.mkdir(parents=True, exist_ok=True)
    _limit_memory()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _on_alarm)
    run = Run(seed, findings)
    if asked.inputs:
        for path in asked.inputs:
            _say(f"{path}: {run.one(path.read_bytes())}")
        return 0
    _say(f"seed {seed}, findings go to {findings}, {len(run.seeds)} seeds")
    started = reported = time.monotonic()
    while time.monotonic() - started < asked.minutes * 60:
        run.step()
        now = time.monotonic()
        if now - reported > REPORT_S:
            reported = now
            _say(_figures(run, now - started))
    _say(_figures(run, time.monotonic() - started))
    _say("no findings" if not run.found else f"{len(run.found)} findings in {findings}")
    return len(run.found)


def _figures(run: Run, passed_s: float) -> str:
    return (
        f"{passed_s / 60:.1f} min: {run.n_inputs} inputs ({run.n_inputs / passed_s:.0f}/s), {len(run.seen)} outcomes, "
        f"{len(run.seeds)} seeds, slowest {run.slowest_s:.2f} s, peak {_peak_bytes() / 1e6:.0f} MB, "
        f"{len(run.found)} findings"
    )


if __name__ == "__main__":
    sys.exit(main())
