"""Columns that hold JSON. A value that no longer reads (written by another version) is left out, not fatal."""

import logging
from typing import TypeVar

import msgspec

from app.store.records import AnswerStats, ToolSetup
from runtime.errors import Failure
from runtime.messages.shared import AnswerShape, ToolCall
from runtime.options import GenerateOptions

V = TypeVar("V")

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


def _decode(raw: str | None, decoder: "msgspec.json.Decoder[V]") -> V | None:
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except msgspec.MsgspecError as error:
        _log.warning("a stored value was left out: %s", error)
        return None
