"""A conversation that is open, or that an answer is being written in: its transcript and its own settings."""

from dataclasses import dataclass, field

from app.presets import NO_PRESET, Preset, Presets
from app.store.records import Attachment, ConversationRecord, ToolSetup
from app.transcript import Node, Transcript
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions

MAX_UNDO = 20
"""Deletions of messages that can be taken back, newest first."""


@dataclass
class Opened:
    """Changed only by `app.session`, its setup and `app.turns`.

    Attributes:
        transcript: the tree of messages.
        title: its title; empty before the first question.
        titled_by_person: whether a person chose it.
        model: id of the model chosen here; empty for whichever is ready.
        preset_id: the preset chosen; empty for none.
        own_system_prompt: replaces the preset's unless `None`.
        own_options: replace the preset's unless `None`.
        own_shape: replaces the preset's unless `None`.
        tools: which tools are used; `None` for the default.
        draft: unsent text.
        draft_attachments: files that wait beside it.
        is_kept: whether the store knows it.
        is_loading: whether its messages are being read.
        removed: what `undo` brings back, newest last.
    """

    transcript: Transcript
    title: str = ""
    titled_by_person: bool = False
    model: str = ""
    preset_id: str = ""
    own_system_prompt: str | None = None
    own_options: GenerateOptions | None = None
    own_shape: AnswerShape | None = None
    tools: ToolSetup | None = None
    draft: str = ""
    draft_attachments: tuple[Attachment, ...] = ()
    is_kept: bool = False
    is_loading: bool = False
    removed: list[list[Node]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The conversation."""
        return self.transcript.conversation_id

    def take(self, record: ConversationRecord) -> None:
        """What the store knows."""
        self.title = record.title
        self.titled_by_person = record.titled_by_person
        self.model = record.model
        self.preset_id = record.preset_id
        self.own_system_prompt = record.system_prompt
        self.own_options = record.options
        self.own_shape = record.shape
        self.tools = record.tools
        self.draft = record.draft
        self.draft_attachments = record.draft_attachments
        self.is_kept = True

    def preset(self, presets: Presets) -> Preset:
        """The preset in force: the chosen one, or the default one while the conversation is new."""
        if self.preset_id:
            return presets.get(self.preset_id) or NO_PRESET
        return NO_PRESET if self.is_kept else presets.default

    def system_prompt(self, preset: Preset) -> str:
        """The one in force."""
        return preset.system_prompt if self.own_system_prompt is None else self.own_system_prompt

    def options(self, preset: Preset) -> GenerateOptions:
        """Those in force."""
        return preset.options if self.own_options is None else self.own_options

    def shape(self, preset: Preset) -> AnswerShape:
        """The one in force."""
        return preset.shape if self.own_shape is None else self.own_shape

    def push_removed(self, nodes: list[Node]) -> None:
        """Remember a deletion; the oldest is forgotten past `MAX_UNDO`."""
        self.removed.append(nodes)
        del self.removed[:-MAX_UNDO]
