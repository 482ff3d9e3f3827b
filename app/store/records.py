"""What the store keeps, as values."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from runtime.errors import Failure
from runtime.messages.shared import AnswerShape, FinishReason, Role, ToolCall
from runtime.options import GenerateOptions

MessageState = Literal["done", "queued", "reading", "generating", "failed", "stopped", "interrupted"]
"""`queued`: waits for the model or its turn; `reading`: the prompt is being read; `generating`: text comes;
`stopped`: the person stopped it; `interrupted`: the program ended while it was made, what came before is there."""

AttachmentKind = Literal["image", "audio", "text"]

MAX_ATTACHMENT_BYTES = 16 * 1024 * 1024
"""One picture, sound or text file, as it is kept and sent. The host takes 20 MiB."""

MAX_ATTACHMENTS = 16
"""Files of one message."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""All files of one message; in base64 they fit the host's 32 MiB for a request."""

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
        form: what the answer had to be: "json", "schema" (JSON that fits one), "grammar", or empty for free text.
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
    form: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture, sound or text file that belongs to a message. Its bytes are kept once, by their hash.

    Attributes:
        sha256: of the bytes, in hexadecimal.
        kind: what a model does with it; the text of a text file is part of the question.
        mime: media type.
        name: what the person called it; may be empty (pasted).
        size_bytes: length of the bytes.
        width_px: of a picture, 0 where not known.
        height_px: of a picture, 0 where not known.
    """

    sha256: str
    kind: AttachmentKind
    mime: str
    name: str
    size_bytes: int
    width_px: int = 0
    height_px: int = 0


class ToolSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which tools a conversation uses.

    Attributes:
        servers: names of the tool servers that are on.
        off: tools of them that are off, as (server, tool).
        must_call: the first answer to a question must call a tool; for small models, which rarely do by themselves.
        allowed: tools that need no question here, as (server, tool, fingerprint).
    """

    servers: tuple[str, ...] = ()
    off: tuple[tuple[str, str], ...] = ()
    must_call: bool = False
    allowed: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A conversation without its messages.

    `system_prompt`, `options` and `shape` are `None` where the preset's hold. `active_child_id` is the first message
    of the shown branch. `draft_attachments` wait in the composer. `tools` is `None` where the default holds. Times are
    wall clock seconds.
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
    shape: AnswerShape | None = None
    draft_attachments: tuple[Attachment, ...] = ()
    tools: ToolSetup | None = None


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
    shape: AnswerShape | msgspec.UnsetType | None = msgspec.UNSET
    draft_attachments: tuple[Attachment, ...] | msgspec.UnsetType = msgspec.UNSET
    tools: ToolSetup | msgspec.UnsetType | None = msgspec.UNSET

    def merged(self, newer: "ConversationChange") -> "ConversationChange":
        """Both; where both set a field, `newer` wins."""
        fields = {name: getattr(newer, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            self, **{name: value for name, value in fields.items() if value is not msgspec.UNSET}
        )


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message. `parent_id` is empty for a first one; `active_child_id` is the shown answer to it.

    `tool_calls` are those an answer asked for, complete and in order. A message of the role "tool" holds the result of
    the call `tool_call_id` of the tool `tool_name`: whether it `is_error` and how long it took (`duration_s`).
    """

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
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    duration_s: float | None = None
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Preset:
    """A named system prompt, generate options and shape of answers. `id` is empty only for "no preset"."""

    id: str
    name: str
    system_prompt: str = ""
    options: GenerateOptions = field(default_factory=GenerateOptions)
    shape: AnswerShape = field(default_factory=AnswerShape)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A conversation in the list. `snippet` marks words found with `HIT_BEGIN` and `HIT_END`."""

    id: str
    title: str
    updated_s: float
    pinned: bool
    snippet: str


HIT_BEGIN, HIT_END = "\x02", "\x03"
