"""Columns that hold JSON. A value that no longer reads (written by another version) is left out, not fatal."""

import logging
from typing import TypeVar, get_args

import msgspec

from app.store.records import AnswerStats, AttachmentKind, MessageState, ToolSetup
from runtime.errors import Failure
from runtime.messages.shared import AnswerShape, Role, ToolCall
from runtime.options import GenerateOptions
from runtime.unreadable import UNREADABLE

V = TypeVar("V")
L = TypeVar("L", bound=str)

_END_OF_TIME_S = 32_503_680_000.0
"""The year 3000."""

_log = logging.getLogger(__name__)
_options = msgspec.json.Decoder(GenerateOptions)
_failure = msgspec.json.Decoder(Failure)
_stats = msgspec.json.Decoder(AnswerStats)
_shape = msgspec.json.Decoder(AnswerShape)
_tool_setup = msgspec.json.Decoder(ToolSetup)
_tool_calls = msgspec.json.Decoder(tuple[ToolCall, ...])


def encode(value: object) -> str | None:
    """JSON text; `None` stays `None`."""
    return None if value is None else msgspec.json.encode(value).decode()


def decode_options(raw: str | None) -> GenerateOptions | None:
    """Options, or `None` where there are none that read."""
    return _decode(raw, _options)


def decode_failure(raw: str | None) -> Failure | None:
    """A failure, or `None`."""
    return _decode(raw, _failure)


def decode_stats(raw: str | None) -> AnswerStats | None:
    """Figures, or `None`."""
    return _decode(raw, _stats)


def decode_shape(raw: str | None) -> AnswerShape | None:
    """Shape of answers, or `None`."""
    return _decode(raw, _shape)


def decode_tool_setup(raw: str | None) -> ToolSetup | None:
    """Which tools a conversation uses, or `None`."""
    return _decode(raw, _tool_setup)


def decode_tool_calls(raw: str | None) -> tuple[ToolCall, ...]:
    """The calls an answer asked for."""
    return _decode(raw, _tool_calls) or ()


def role_of(raw: str) -> Role:
    """Who speaks; what no one knows is shown as an answer rather than hiding its conversation."""
    return _known(raw, get_args(Role), "assistant")


def state_of(raw: str) -> MessageState:
    """How far a message is."""
    return _known(raw, get_args(MessageState), "interrupted")


def kind_of(raw: str) -> AttachmentKind:
    """What kind of file it is; one that nobody knows is only named."""
    return _known(raw, get_args(AttachmentKind), "text")


def _known(raw: str, known: tuple[L, ...], otherwise: L) -> L:
    found = next((one for one in known if one == raw), None)
    if found is None:
        _log.warning("a stored value was taken for %r: %.40r", otherwise, raw)
        return otherwise
    return found


def sound_time(raw: float) -> float:
    """Wall clock seconds; 0 for what is no time of a calendar."""
    return raw if 0 <= raw < _END_OF_TIME_S else 0.0


def _decode(raw: str | None, decoder: "msgspec.json.Decoder[V]") -> V | None:
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        _log.warning("a stored value was left out: %s", error)
        return None
