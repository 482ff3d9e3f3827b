"""A scheduler with a fake backend, stepped by hand: what the engine does, without threads or llama.cpp."""

import zlib
from collections import defaultdict
from collections.abc import Sequence

from runtime.options import GenerateOptions
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.limits import Limits
from runtime.scheduler.media import MediaSpan
from runtime.scheduler.plan import NOT_SAMPLED, BatchPlan, BatchResult
from runtime.scheduler.scheduler import Scheduler
from runtime.scheduler.speculation import Speculation, Wish
from runtime.scheduler.statestore import StateStore
from runtime.scheduler.types import Done, Ended, EngineOutput, EngineRequest, PromptRead, Text, Waiting
from runtime.scheduler.unit import Unit
from tests.fakes.fake_backend import FakeBackend, FakeMemory

EOG = 0
N_VOCAB = 96


def next_token(tokens: Sequence[int], choice: int) -> int:
    """The fake model: any token may follow, decided by all tokens before it."""
    value = zlib.crc32(bytes(token % 251 for token in tokens) + bytes([choice]))
    return EOG if value % 23 == 0 else value % (N_VOCAB - 1) + 1


def piece(token: int) -> bytes:
    """Every token is one letter."""
    return chr(token + 32).encode()


def alone(prompt: Sequence[int], n_tokens: int, choice: int = 0, *, n_ctx: int = 1_000) -> str:
    """The text a request gives when nothing else runs."""
    tokens = list(prompt)
    text = ""
    for _ in range(n_tokens):
        token = next_token(tokens, choice)
        if token == EOG:
            break
        tokens.append(token)
        text += piece(token).decode()
        if len(tokens) >= n_ctx:
            break
    return text


class ScriptedDrafter:
    """Guesses as its script says, one entry a guess: so many right tokens, and then these."""

    token_s = 0.0

    def __init__(self, script: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        self._script = list(script)
        self._at = 0
        self.n_asked = 0

    def look(self, unit: Unit) -> int:
        return len(unit.tokens) % 2

    def draft(self, wishes: Sequence[Wish]) -> None:
        for wish in wishes:
            self.n_asked += 1
            n_right, rest = self._script[self._at % len(self._script)]
            self._at += 1
            tokens = list(wish.unit.tokens)
            for _ in range(n_right):
                tokens.append(next_token(tokens, choice_of(wish.unit)))
            wish.tokens = tokens[len(wish.unit.tokens) :] + list(rest)


def choice_of(unit: Unit) -> int:
    assert isinstance(unit.sampler, int)
    return unit.sampler


class Rig:
    """Steps a scheduler and collects what it says."""

    def __init__(
        self,
        *,
        kind: FakeMemory | None = None,
        n_ctx: int = 200,
        n_cells: int = 400,
        n_parallel: int = 4,
        n_seq_max: int = 6,
        n_batch: int = 64,
        n_ubatch: int = 32,
        host_cache_bytes: int = 0,
        reads_all_cells: bool = False,
        store: StateStore | None = None,
        drafter: ScriptedDrafter | None = None,
        n_draft_max: int = 4,
        n_draft_rows: int = 8,
        decode_s: float = 0.5,
    ) -> None:
        self.memory = kind or FakeMemory()
        self.memory.n_seq_max = n_seq_max
        self.memory.n_cells = n_cells
        n_outputs_max = n_seq_max + (n_draft_rows if drafter else 0)
        self.backend = FakeBackend(self.memory, n_batch=n_batch, n_outputs_max=n_outputs_max, n_ubatch=n_ubatch)
        self.limits = Limits(n_ctx, n_cells, n_parallel, n_seq_max, n_batch, n_ubatch, n_outputs_max, reads_all_cells)
        eog_ids = frozenset({EOG})
        speculation = None
        if drafter is not None:
            speculation = Speculation(drafter, n_draft_max=n_draft_max, n_vocab=N_VOCAB, eog_ids=eog_ids)
        self.scheduler = Scheduler(
            self.memory,
            self.limits,
            piece=piece,
            eog_ids=eog_ids,
            host_cache_bytes=host_cache_bytes,
            store=store,
            speculation=speculation,
        )
        self.decode_s = decode_s
        self.now_s = 0.0
        self.outputs: list[EngineOutput] = []
        self.texts: dict[tuple[str, int], str] = defaultdict(str)
        self.counted: dict[tuple[str, int], int] = defaultdict(int)
        self.ends: dict[str, list[Done | Ended]] = defaultdict(list)
        self.rows_by_request: dict[str, int] = defaultdict(int)

    def submit(self, name: str, prompt: Sequence[int], **options: object) -> None:
        from_window = bool(options.pop("from_window", False))
        save_points = options.pop("save_points", ())
        media: tuple[MediaSpan, ...] = options.pop("media", ())  # type: ignore[assignment]
        adapters: AdapterSet | None = options.pop("adapters", None)  # type: ignore[assignment]
        chosen = GenerateOptions(**{"max_tokens": 8, **options})  # type: ignore[arg-type]
        request = EngineRequest(name, tuple(prompt), chosen, from_window, save_points, media=media, adapters=adapters)  # type: ignore[arg-type]
        self.scheduler.submit(request, tuple(range(chosen.n)), self.now_s)

    def plan(self) -> BatchPlan | None:
        return self.scheduler.plan(self.now_s)

    def finish_step(self, plan: BatchPlan) -> None:
        code = self.backend.decode(plan)
        for unit, count in plan.chunks:
            self.rows_by_request[unit.job.request.request_id] += count if code == 0 else 0
        tokens: list[int] = []
        if code == 0:
            last: Unit | None = None
            for index, (row, unit) in enumerate(plan.samples):
                if index < plan.n_decode and unit is last and tokens[-1] != plan.tokens[index]:
                    tokens.append(NOT_SAMPLED)
                else:
                    tokens.append(next_token(self.backend.seen[row], choice_of(unit)))
                last = unit
        self.now_s += 1.0
        self.scheduler.apply(plan, BatchResult(code, tokens, [], self.decode_s), self.now_s)
        self.collect()

    def collect(self) -> None:
        for output in self.scheduler.take_outputs():
            self.outputs.append(output)
            if isinstance(output, Text):
                self.texts[output.request_id, output.choice] += output.text
                self.counted[output.request_id, output.choice] += output.n_tokens
            elif isinstance(output, Done | Ended):
                self.ends[output.request_id].append(output)

    def step(self) -> bool:
        plan = self.plan()
        if plan is None:
            self.collect()
            return False
        self.finish_step(plan)
        return True

    def run(self, limit: int = 2_000) -> None:
        for _ in range(limit):
            if not self.step() and self.scheduler.is_idle:
                self.check_books()
                return
        raise AssertionError(f"still busy after {limit} steps")

    def cancel(self, name: str) -> None:
        self.scheduler.cancel(name, self.now_s)
        self.collect()

    def done(self, name: str) -> Done:
        (end,) = self.ends[name]
        assert isinstance(end, Done), end
        return end

    def ended(self, name: str) -> Ended:
        (end,) = self.ends[name]
        assert isinstance(end, Ended), end
        return end

    def of(self, kind: type[Waiting] | type[PromptRead], name: str) -> list[Waiting | PromptRead]:
        return [output for output in self.outputs if isinstance(output, kind) and output.request_id == name]

    def check_books(self) -> None:
        """What the scheduler believes of idle memory is what the memory holds."""
        tree = self.scheduler.placement.tree
        for seq_id in range(self.limits.n_seq_max):
            assert tuple(tree.tokens(seq_id)) == self.memory.tokens(seq_id)
