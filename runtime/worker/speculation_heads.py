"""A model's own multi-token heads (MTP): a layer that guesses the next token but one from what the model just computed.

llama.cpp runs it in a second context of the same model. A row of it is a token together with the hidden row that the
model came to at the token before, and its cache is its own: it has to be fed what the model decodes. A guess is checked
by the model in any case, so the heads may know less than the model does: after a picture, or behind what came while
nothing might be guessed, they begin there and see what came since. What is shared between sequences is shared in their
cache too, and what they know of one is saved with the model's state of it.

Rows of a prompt are fed at once, those of single tokens are kept until a guess is wanted, which takes them in the same
step. Nothing here may fail a request: where the heads cannot go on, they guess nothing.
"""

import ctypes
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.speculation import Wish
from runtime.scheduler.unit import Unit
from runtime.worker import native
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel
from runtime.worker.logits import LogitRows
from runtime.worker.speculation_rest import Rest

Row = NDArray[np.float32]

KEPT_ROWS = 32
"""Rows of one sequence that wait for a guess; more of them are fed without one."""
_SMOOTHING = 0.1
_FEW_ROWS = 8
"""A step that has more to feed says nothing about the time a guess takes."""
_NO_ROOM = 1  # llama_decode

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """How far the heads are with one sequence.

    Attributes:
        end: positions the model has decoded.
        fed: positions in the heads' cache; one more than `end` when they guessed behind the model's next row.
        tokens: those of positions `fed` to `end`.
        hidden: the model's rows at `fed - 1` to `end - 1`, None where it is not known; none when `fed` is beyond `end`.
        ahead: the token at `end` and the hidden row it was fed with, when `fed` is beyond `end`.
    """

    end: int = 0
    fed: int = 0
    tokens: list[int] = field(default_factory=list)
    hidden: list[Row | None] = field(default_factory=lambda: [None])
    ahead: tuple[int, Row | None] | None = None


class HeadsDrafter:
    """Guesses by a model's own heads. Home thread: engine.

    Args:
        model: loaded with its heads (`LlamaModel.heads`).
        p_min: a guess ends at a token the heads give less than this probability.
    """

    def __init__(self, model: LlamaModel, *, p_min: float) -> None:
        resolved = model.resolved
        self.token_s = 0.0
        self._decode_s = 0.0
        self._main = model.context
        self._context = model.heads
        self._memory: int = native.get_memory(model.heads) or 0
        self._n_embd: int = native.model_n_embd_out(model.model)
        self._arrays = BatchArrays(min(resolved.n_batch, int(native.n_batch(model.heads))))
        self._rows: Row = np.zeros((self._arrays.n_rows_max, self._n_embd), dtype=np.float32)
        self._arrays.batch.embd = self._rows.ctypes.data
        self._logits = LogitRows(model.vocab.n_tokens, resolved.n_seq_max)
        self._gives_output_rows = model.gives_output_rows
        self._n_ctx = resolved.n_ctx
        self._p_min = p_min
        self._followed = [_Followed() for _ in range(resolved.n_seq_max)]
        self._is_broken = False
        self._rest = Rest()
        native.memory_clear(self._memory, False)

    def take_decode_s(self) -> float:
        """Seconds inside llama.cpp for guesses since it was last asked."""
        taken, self._decode_s = self._decode_s, 0.0
        return taken

    # --- what happens to the model's memory ---

    def decoded(self, plan: BatchPlan) -> None:
        """The model decoded these rows."""
        if self._is_broken or plan.media is not None:
            return  # what stands behind a picture begins anew
        address: int = native.get_embeddings_nextn(self._main) or 0
        if not address:
            return
        n_rows = len(plan.tokens)
        whole = (ctypes.c_float * (n_rows * self._n_embd)).from_address(address)
        computed = np.ctypeslib.as_array(whole).reshape(n_rows, self._n_embd)
        first = 0
        waiting: list[int] = []
        for unit, count in plan.chunks:
            behind = first + count
            if unit.may_draft:
                self._take(unit.seq_id, plan.positions[first], plan.tokens[first:behind], computed[first:behind].copy())
                if len(self._followed[unit.seq_id].tokens) > KEPT_ROWS:
                    waiting.append(unit.seq_id)
            first = behind
        while waiting:
            waiting = self._feed(waiting)

    def _take(self, seq_id: int, position: int, tokens: list[int], hidden: Row) -> None:
        held = self._followed[seq_id]
        if position < held.end:
            self.cut(seq_id, position)
        elif position > held.end:
            self._begin(seq_id, position)
        if held.ahead is not None:
            if held.ahead[0] == tokens[0]:
                held.ahead = None
                tokens = tokens[1:]
                held.end += 1
                held.hidden = [hidden[0]]
                hidden = hidden[1:]
            else:
                self.cut(seq_id, position)
        held.tokens += tokens
        held.hidden += list(hidden)
        held.end += len(tokens)

    def cut(self, seq_id: int, position: int) -> None:
        """The sequence holds nothing from this position on any more."""
        held = self._followed[seq_id]
        if position > held.end or (position == held.end and held.ahead is None):
            return
        if held.ahead is None and position >= held.fed:
            del held.tokens[position - held.fed :]
            del held.hidden[position - held.fed + 1 :]
            held.end = position
            return
        before = held.ahead[1] if held.ahead is not None and position == held.end else None
        if not native.memory_seq_rm(self._memory, seq_id, position, -1):
            native.memory_seq_rm(self._memory, seq_id, -1, -1)
        held.end = held.fed = position
        held.tokens, held.hidden, held.ahead = [], [before], None

    def _begin(self, seq_id: int, position: int) -> None:
        """Follow a sequence from here on; what stands before is not known."""
        native.memory_seq_rm(self._memory, seq_id, -1, -1)
        held = self._followed[seq_id]
        held.end = held.fed = position
        held.tokens, held.hidden, held.ahead = [], [None], None

    def forget(self, seq_id: int) -> None:
        """The sequence is empty."""
        self._begin(seq_id, 0)

    def clear(self) -> None:
        """All sequences are empty."""
        native.memory_clear(self._memory, False)
        self._followed = [_Followed() for _ in self._followed]

    def copy(self, source: int, target: int, end: int) -> None:
        """An empty sequence now holds another one's positions up to this one; below 0 all of them."""
        self.forget(target)
        known, held = self._followed[source], self._followed[target]
        stop = known.end if end < 0 else min(end, known.end)
        if known.fed > stop:
            held.fed = stop
            is_last = known.ahead is not None and stop == known.end
            held.hidden = [known.ahead[1] if is_last and known.ahead is not None else None]
        else:
            held.fed = known.fed
            held.tokens = known.tokens[: stop - known.fed]
            held.hidden = known.hidden[: stop - known.fed + 1]
        held.end = stop
        native.memory_seq_cp(self._memory, source, target, 0, held.fed)

    # --- states ---

    def save(self, seq_id: int) -> bytes:
        """What the heads know of a sequence, to go with the model's state of it; empty where that is nothing."""
        held = self._followed[seq_id]
        if held.ahead is not None:
            self.cut(seq_id, held.end)
        if held.tokens:
            self._feed([seq_id])
        size: int = native.state_seq_get_size(self._context, seq_id) if held.fed == held.end > 0 else 0
        if not size:
            return b""
        state = np.empty(size, dtype=np.uint8)
        if native.state_seq_get_data(self._context, state.ctypes.data, size, seq_id) != size:
            return b""
        last = held.hidden[0]
        return (np.zeros(self._n_embd, dtype=np.float32) if last is None else last).tobytes() + state.tobytes()

    def restore(self, seq_id: int, end: int, state: memoryview) -> None:
        """The model's state of a sequence of so many positions was put back; `state` is what was saved with it."""
        self._begin(seq_id, end)
        row_bytes = 4 * self._n_embd
        if len(state) <= row_bytes:
            return
        kept = np.frombuffer(state[row_bytes:], dtype=np.uint8)
        if native.state_seq_set_data(self._context, kept.ctypes.data, len(kept), seq_id):
            self._followed[seq_id].hidden = [np.frombuffer(state[:row_bytes], dtype=np.float32)]
        else:
            self._begin(seq_id, end)

    # --- feeding ---

    def _feed(self, seq_ids: Sequence[int]) -> list[int]:
        """Put rows that wait into the heads' cache; returns whose do not fit into this step."""
        plan = BatchPlan()
        taken: list[tuple[_Followed, int]] = []
        for seq_id in seq_ids:
            held = self._followed[seq_id]
            n_rows = min(len(held.tokens), self._arrays.n_rows_max - len(plan.tokens))
            if n_rows:
                self._add(plan, seq_id, held.fed, held.tokens[:n_rows], held.hidden[:n_rows])
                taken.append((held, n_rows))
        if not plan.tokens or not self._decode(plan):
            return []
        for held, n_rows in taken:
            _are_fed(held, n_rows)
        return [seq_id for seq_id in seq_ids if self._followed[seq_id].tokens]

    def _add(
        self, plan: BatchPlan, seq_id: int, position: int, tokens: Sequence[int], hidden: Sequence[Row | None]
    ) -> None:
        first = len(plan.tokens)
        for row, values in enumerate(hidden, first):
            self._rows[row] = 0.0 if values is None else values
        plan.tokens.extend(tokens)
        plan.positions.extend(range(position, position + len(tokens)))
        plan.seq_ids.extend([seq_id] * len(tokens))

    def _decode(self, plan: BatchPlan) -> bool:
        self._arrays.fill(plan)
        code: int = native.decode(self._context, self._arrays.batch)
        if code == 0:
            if plan.output_rows:
                self._logits.bind(native.get_logits(self._context))
            return True
        for seq_id, held in enumerate(self._followed):
            self._begin(seq_id, held.end)
        self._rest.begin()
        if code != _NO_ROOM:
            _log.error("the multi-token heads cannot go on (llama_decode returned %d): they guess no more", code)
            self._is_broken = True
        return False

    # --- guessing ---

    def look(self, unit: Unit) -> int:
        """See `Drafter.look`: all its guesses are of one kind."""
        if self._rest.passes():
            return -1
        return -1 if self._is_broken or not 0 <= unit.seq_id < len(self._followed) else 0

    def draft(self, wishes: Sequence[Wish]) -> None:
        """See `Drafter.draft`."""
        began_s = time.perf_counter()
        plan = BatchPlan()
        going: list[Wish] = []
        for wish in wishes:
            unit = wish.unit
            position = unit.layout.position(unit.n_held)
            held = self._followed[unit.seq_id]
            if held.end != position:
                self._begin(unit.seq_id, position)
            elif held.ahead is not None:
                self.cut(unit.seq_id, position)  # it was not decoded: its guess is made again
            if len(plan.tokens) + len(held.tokens) < self._arrays.n_rows_max:
                self._add(plan, unit.seq_id, held.fed, [*held.tokens, unit.tokens[-1]], held.hidden)
                plan.output_rows.append(len(plan.tokens) - 1)
                going.append(wish)
        if not going:
            return
        at = list(plan.output_rows)
        n_fed = len(plan.tokens) - len(going)
        before_s = time.perf_counter()
        is_done = self._decode(plan)
        if is_done:
            for wish in going:
                held = self._followed[wish.unit.seq_id]
                _are_fed(held, len(held.tokens))
                held.ahead, held.hidden = (wish.unit.tokens[-1], held.hidden[0]), []
                held.fed += 1
            self._guess(going, at)
        after_s = time.perf_counter()
        self._decode_s += after_s - before_s
        n_guessed = sum(len(wish.tokens) for wish in going)
        if n_guessed:
            self._rest.forget()
        if n_guessed and n_fed <= _FEW_ROWS * len(going):
            each_s = (after_s - began_s) / n_guessed
            self.token_s += (_SMOOTHING if self.token_s else 1.0) * (each_s - self.token_s)

    def _guess(self, going: Sequence[Wish], at: Sequence[int]) -> None:
        """Guess token by token; what the heads keep of their own guesses is taken out again.

        Args:
            going: for whom the last decode had a row that is wanted.
            at: where those rows stood in it.
        """
        guessed: set[int] = set()
        further = list(going)
        while further:
            plan = BatchPlan()
            hidden = self._hidden_rows(at)
            going, further = further, []
            for row, wish in enumerate(going):
                token = self._logits.argmax(row)
                if self._p_min > 0 and self._probability(row, token) < self._p_min:
                    continue
                wish.tokens.append(token)
                seq_id = wish.unit.seq_id
                position = self._followed[seq_id].fed + len(wish.tokens) - 1
                if len(wish.tokens) < wish.n_max and position < self._n_ctx:
                    self._add(plan, seq_id, position, [token], [hidden[row]])
                    plan.output_rows.append(len(plan.tokens) - 1)
                    guessed.add(seq_id)
                    further.append(wish)
            if further and not self._decode(plan):
                return
            at = plan.output_rows
        for seq_id in guessed:
            native.memory_seq_rm(self._memory, seq_id, self._followed[seq_id].fed, -1)

    def _hidden_rows(self, at: Sequence[int]) -> Row:
        """A copy of the heads' own rows at these places of the last decode."""
        address: int = native.get_embeddings_nextn(self._context) or 0
        places = list(range(len(at))) if self._gives_output_rows else list(at)
        whole = (ctypes.c_float * ((places[-1] + 1) * self._n_embd)).from_address(address)
        computed: Row = np.ctypeslib.as_array(whole).reshape(-1, self._n_embd)[places]
        return computed

    def _probability(self, row: int, token: int) -> float:
        logits = self._logits.row(row)
        return float(1.0 / np.exp(logits - logits[token]).sum())


def _are_fed(held: _Followed, n_rows: int) -> None:
    held.fed += n_rows
    del held.tokens[:n_rows]
    del held.hidden[:n_rows]
