"""What the store keeps, as values."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from runtime.errors import Failure
from runtime.messages.shared import FinishReason, Role
from runtime.options import GenerateOptions

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
class ConversationRecord:
    """A conversation without its messages.

    `system_prompt` and `options` are `None` where the preset's hold. `active_child_id` is the first message of the
    shown branch. Times are wall clock seconds.
    """

    id: str
    title: str = ""
    titled_by_person: bool = False
    created_s: float = 0.0
    updated_s: float = 0.0
    pinned: bool = False
    model: str = ""
    preset_id: str = ""
    system_prompt: str | None = None
    options: GenerateOptions | None = None
    draft: str = ""
    active_child_id: str = ""


class ConversationChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of a conversation to write; those not given stay. `title` is an automatic one: a person's own stays."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    updated_s: float | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    preset_id: str | msgspec.UnsetType = msgspec.UNSET
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET
    options: GenerateOptions | msgspec.UnsetType | None = msgspec.UNSET
    draft: str | msgspec.UnsetType = msgspec.UNSET
    active_child_id: str | msgspec.UnsetType = msgspec.UNSET

    def merged(self, newer: "ConversationChange") -> "ConversationChange":
        """Both; where both set a field, `newer` wins."""
        fields = {name: getattr(newer, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            self, **{name: value for name, value in fields.items() if value is not msgspec.UNSET}
        )


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message. `parent_id` is empty for a first one; `active_child_id` is the shown answer to it."""

    id: str
    conversation_id: str
    parent_id: str
    role: Role
    content: str = ""
    reasoning: str = ""
    reasoning_s: float | None = None
    state: MessageState = "done"
    notice: str = ""
    failure: Failure | None = None
    stats: AnswerStats | None = None
    created_s: float = 0.0
    active_child_id: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named system prompt and generate options. `id` is empty only for "no preset"."""

    id: str
    name: str
    system_prompt: str = ""
    options: GenerateOptions = field(default_factory=GenerateOptions)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A conversation in the list. `snippet` marks words found with `HIT_BEGIN` and `HIT_END`."""

    id: str
    title: str
    updated_s: float
    pinned: bool
    snippet: str


HIT_BEGIN, HIT_END = "\x02", "\x03"
