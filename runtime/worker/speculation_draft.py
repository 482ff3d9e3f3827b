"""A draft model: a small model of the same vocabulary that writes a few tokens ahead of the large one.

It has a context of its own, with a sequence for each of the model's. A sequence catches up with what its unit has
come to: from their common beginning on, at most `n_batch` tokens in one step. Nothing here may fail a request: where
the draft model cannot go on, it guesses nothing.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime.errors import ModelLoadFailed
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.prefix import common_prefix
from runtime.scheduler.speculation import Wish
from runtime.scheduler.unit import Unit
from runtime.worker import native
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel
from runtime.worker.logits import LogitRows
from runtime.worker.speculation_rest import Rest

MAX_VOCAB_DIFFERENCE = 128
FIRST_COMPARED_TOKEN = 5
"""llama.cpp's rule for draft models (common/speculative.cpp): so many tokens may be missing at the end, the first few
may be called otherwise."""
_SMOOTHING = 0.1
_FEW_ROWS = 8
"""A step that has more to catch up with says nothing about the time a guess takes."""
_NO_ROOM = 1  # llama_decode

_log = logging.getLogger(__name__)


def check_vocabularies(model: LlamaModel, draft: LlamaModel, name: str) -> None:
    """Check that the draft model's tokens are the model's, as llama.cpp does. `name` is its file's.

    Raises:
        ModelLoadFailed: they are not, or wrong guesses cannot be taken out of its memory.
    """
    left, right = model.vocab, draft.vocab
    reason = ""
    if native.vocab_type(left.address) != native.vocab_type(right.address):
        reason = "their tokenizers are of different kinds"
    elif left.add_bos != right.add_bos or (left.add_bos and left.bos_id != right.bos_id):
        reason = "their start tokens differ"
    elif left.add_eos != right.add_eos or (left.add_eos and left.eos_id != right.eos_id):
        reason = "their end tokens differ"
    elif abs(left.n_tokens - right.n_tokens) > MAX_VOCAB_DIFFERENCE:
        reason = f"their vocabularies have {left.n_tokens:,} and {right.n_tokens:,} tokens"
    else:
        for token in range(FIRST_COMPARED_TOKEN, min(left.n_tokens, right.n_tokens)):
            if left.token_text(token) != right.token_text(token):
                reason = (
                    f"token {token} is {left.token_text(token)!r} in one and {right.token_text(token)!r} in the other"
                )
                break
    if not draft.has_memory:
        reason = "it only makes embeddings"
    elif not draft.can_roll_back:
        reason = "its memory cannot take back a wrong guess"
    if reason:
        raise ModelLoadFailed(
            f"{name} cannot draft for this model: {reason}.",
            hint="Choose a smaller model of the same family as the draft model, or none.",
            param="draft_model",
            reason=reason,
        )


@dataclass(slots=True)
class _Held:
    """What a sequence of the draft model holds: all its tokens, and how many of them are surely its unit's."""

    tokens: list[int] = field(default_factory=list)
    owner: Unit | None = None
    n_sure: int = 0


class DraftModelDrafter:
    """Guesses by a draft model. Home thread: engine.

    Args:
        draft: loaded with as many sequences and cells as the model.
        n_vocab: tokens of the model.
        p_min: a guess ends at a token the draft model gives less than this probability.
    """

    def __init__(self, draft: LlamaModel, *, n_vocab: int, p_min: float) -> None:
        resolved = draft.resolved
        self.token_s = 0.0
        self._decode_s = 0.0
        self._draft = draft
        self._memory: int = native.get_memory(draft.context) or 0
        # llama.cpp ends the process above its own bound, which a small context lowers.
        self._arrays = BatchArrays(min(resolved.n_batch, int(native.n_batch(draft.context))))
        self._logits = LogitRows(draft.vocab.n_tokens, resolved.n_outputs_max or resolved.n_seq_max)
        self._n_known = min(n_vocab, draft.vocab.n_tokens)
        self._n_ctx = resolved.n_ctx
        self._p_min = p_min
        self._held = [_Held() for _ in range(resolved.n_seq_max)]
        self._is_broken = False
        self._rest = Rest()
        native.memory_clear(self._memory, False)

    def take_decode_s(self) -> float:
        """Seconds inside llama.cpp since it was last asked."""
        taken, self._decode_s = self._decode_s, 0.0
        return taken

    def look(self, unit: Unit) -> int:
        """See `Drafter.look`: all its guesses are of one kind."""
        if self._rest.passes():
            return -1
        return -1 if self._is_broken or not 0 <= unit.seq_id < len(self._held) else 0

    def draft(self, wishes: Sequence[Wish]) -> None:
        """See `Drafter.draft`."""
        began_s = time.perf_counter()
        plan = BatchPlan()
        room = self._arrays.n_rows_max
        going: list[Wish] = []
        for wish in wishes:
            missing = self._missing(wish.unit)
            if not missing or room <= 0 or max(missing) >= self._n_known or min(missing) < 0:
                continue  # what the draft model has no token for (pictures too) it cannot follow
            rows = missing[:room]
            room -= len(rows)
            self._add(plan, wish.unit.seq_id, rows, is_last=len(rows) == len(missing))
            if len(rows) == len(missing):
                going.append(wish)
        n_caught_up = len(plan.tokens)
        n_guessed = 0
        while plan.tokens and self._decode(plan, wishes):
            plan, going, n_new = self._guess(going)
            n_guessed += n_new
        took_s = time.perf_counter() - began_s
        if n_guessed:
            self._rest.forget()
        if n_guessed and n_caught_up <= _FEW_ROWS * len(wishes):
            each_s = took_s / n_guessed
            self.token_s += (_SMOOTHING if self.token_s else 1.0) * (each_s - self.token_s)

    def _missing(self, unit: Unit) -> list[int]:
        """What a unit's sequence must still read, its last token at least; what is not its unit's is forgotten."""
        held = self._held[unit.seq_id]
        tokens = unit.tokens
        if held.owner is unit:
            same = held.n_sure
            most = min(len(held.tokens), len(tokens))
            while same < most and held.tokens[same] == tokens[same]:
                same += 1
        else:
            same = common_prefix(held.tokens, tokens)
        same = min(same, len(tokens) - 1)
        if same < len(held.tokens):
            # A window of attention has forgotten what stands far back.
            is_far = self._draft.memory_kind == "points" and len(held.tokens) - same > self._arrays.n_rows_max
            if is_far or not native.memory_seq_rm(self._memory, unit.seq_id, same, -1):
                self._forget(unit.seq_id)
                same = 0
            del held.tokens[same:]
        held.owner, held.n_sure = unit, same
        return tokens[same:]

    def _forget(self, seq_id: int) -> None:
        native.memory_seq_rm(self._memory, seq_id, -1, -1)
        self._held[seq_id] = _Held()

    def _add(self, plan: BatchPlan, seq_id: int, rows: Sequence[int], *, is_last: bool) -> None:
        held = self._held[seq_id].tokens
        plan.tokens.extend(rows)
        plan.positions.extend(range(len(held), len(held) + len(rows)))
        plan.seq_ids.extend([seq_id] * len(rows))
        held.extend(rows)
        if is_last:
            plan.output_rows.append(len(plan.tokens) - 1)

    def _decode(self, plan: BatchPlan, wishes: Sequence[Wish]) -> bool:
        self._arrays.fill(plan)
        before_s = time.perf_counter()
        code: int = native.decode(self._draft.context, self._arrays.batch)
        if code == _NO_ROOM:
            # Conversations that are not drafted for now give way; they are read again when they are.
            busy = {wish.unit.seq_id for wish in wishes}
            for seq_id, held in enumerate(self._held):
                if held.tokens and seq_id not in busy:
                    self._forget(seq_id)
            code = native.decode(self._draft.context, self._arrays.batch)
        if code == 0 and plan.output_rows:
            self._logits.bind(native.get_logits(self._draft.context))
        self._decode_s += time.perf_counter() - before_s
        if code == 0:
            return True
        native.memory_clear(self._memory, False)
        self._held = [_Held() for _ in self._held]
        self._rest.begin()
        if code != _NO_ROOM:
            _log.error("the draft model cannot go on (llama_decode returned %d): nothing is drafted any more", code)
            self._is_broken = True
        return False

    def _guess(self, going: Sequence[Wish]) -> tuple[BatchPlan, list[Wish], int]:
        """Take the likeliest token of each row; what is to be decoded for the next ones, and how many were taken."""
        plan = BatchPlan()
        further: list[Wish] = []
        n_taken = 0
        for row, wish in enumerate(going):
            token = self._logits.argmax(row)
            if token >= self._n_known or (self._p_min > 0 and self._probability(row, token) < self._p_min):
                continue
            wish.tokens.append(token)
            n_taken += 1
            seq_id = wish.unit.seq_id
            if len(wish.tokens) < wish.n_max and len(self._held[seq_id].tokens) < self._n_ctx:
                self._add(plan, seq_id, [token], is_last=True)
                further.append(wish)
        return plan, further, n_taken

    def _probability(self, row: int, token: int) -> float:
        logits = self._logits.row(row)
        return float(1.0 / np.exp(logits - logits[token]).sum())
