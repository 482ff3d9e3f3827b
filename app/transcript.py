"""A conversation in memory: a tree of messages, of which one path is shown. No Qt here."""

from dataclasses import dataclass
from typing import Literal

from runtime.errors import Failure
from runtime.messages.shared import FinishReason, Role

MessageState = Literal["done", "queued", "reading", "generating", "failed", "stopped", "interrupted"]
"""`queued`: waits for the model or its turn; `reading`: the prompt is being read; `generating`: text comes;
`stopped`: the person stopped it; `interrupted`: the program ended while it was made, what came before is there."""

BUSY_STATES: frozenset[MessageState] = frozenset({"queued", "reading", "generating"})


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """Figures of one answer. Missing ones are `None` (still running, or the answer was cut off).

    Attributes:
        n_tokens: generated tokens.
        generation_tps: generated tokens a second, first to last.
        time_to_first_token_s: from sending to the first token.
        prompt_tokens: tokens of the prompt, cached ones included.
        cached_tokens: prompt tokens that did not have to be read again.
        prompt_tps: prompt tokens a second, without the cached ones.
        queue_s: time waited for a turn.
        total_s: from the first to the last token.
        reason: why it ended.
        model: id of the model that answered.
    """

    n_tokens: int = 0
    generation_tps: float | None = None
    time_to_first_token_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tps: float | None = None
    queue_s: float | None = None
    total_s: float | None = None
    reason: FinishReason | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message as shown.

    Attributes:
        id: the message.
        role: "user" or "assistant".
        text: content so far.
        reasoning: what the model thought before it, so far.
        reasoning_s: seconds spent on the reasoning; `None` while it lasts or when there is none.
        state: see `MessageState`.
        stats: figures of an answer; `None` for questions and before the first figure.
        branch_index: which sibling this is, from 0.
        branch_count: number of siblings, itself included.
        notice: a sentence about this answer ("3 oldest turns were left out"), or empty.
        error: why it failed.
        progress: share of the prompt read, 0..1, in state "reading"; else `None`.
        queue_position: place in the queue from 1, in state "queued" where known; else `None`.
        can_continue: whether `continue_answer` makes sense (last message, an answer with text, not busy).
        created_s: wall clock.
    """

    id: str
    role: Role
    text: str
    reasoning: str = ""
    reasoning_s: float | None = None
    state: MessageState = "done"
    stats: AnswerStats | None = None
    branch_index: int = 0
    branch_count: int = 1
    notice: str = ""
    error: Failure | None = None
    progress: float | None = None
    queue_position: int | None = None
    can_continue: bool = False
    created_s: float = 0.0
