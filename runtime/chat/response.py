"""Tells reasoning from answer while the text streams in.

How a family of models marks its reasoning is said by a response spec (`assets/response_specs`), chosen by what the
model's template mentions. There are two kinds. Most models write their thought between two tags at the start of
the answer, or the template has already opened the first tag; that is `TagSpec`, and `ReasoningParser` here reads it:
after the closing tag, text passes through untouched and unlooked at, also when it speaks about tags. Answers in
several named regions are a `RegionSpec`, read by `runtime.chat.regions`. Models without a spec need no parser.

Tags may be split over tokens at any place, so what may still become one is held back. White space around a thought
belongs to neither part. A thought that never closes stays a thought; a tag that never completes is text.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from runtime.errors import StorageFault
from runtime.messages.shared import DeltaKind

Piece = tuple[DeltaKind, str]


class ResponseSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer and what it is made of: the contract of a spec. `answer_start` is what the template wrote."""

    text: str
    reasoning: str
    content: str
    answer_start: str = ""


class TagSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="tags"):
    """A thought between two tags at the start of the answer.

    Attributes:
        name: the spec's name, that of its file.
        families: models known to answer so; for people.
        template_marks: the template of such a model contains at least one of these.
        open, close: the tags.
        samples: answers that a test cuts at every place.
    """

    name: str
    families: tuple[str, ...]
    template_marks: tuple[str, ...]
    open: str
    close: str
    samples: tuple[ResponseSample, ...]


class RegionSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="regions"):
    """An answer in regions, each opened and closed by marks of its own.

    Attributes:
        name, families, template_marks, samples: as in `TagSpec`.
        shown_as: for each region of the grammar, what its text is.
        grammar: `response_template` of transformers' `ResponseParser`.
        thought_open, thought_close: marks around the region of a thought.
        after_thought: what opens a further region behind it ("" if nothing has to).
        content_open, content_close: marks around the region of the answer.
    """

    name: str
    families: tuple[str, ...]
    template_marks: tuple[str, ...]
    shown_as: Mapping[str, DeltaKind]
    grammar: dict[str, object]
    samples: tuple[ResponseSample, ...]
    thought_open: str = ""
    thought_close: str = ""
    after_thought: str = ""
    content_open: str = ""
    content_close: str = ""


ResponseSpec = TagSpec | RegionSpec


class AnswerParser(Protocol):
    """Splits one answer; one object for each choice. Home thread: the one that feeds it."""

    reasoning_tokens: int

    @property
    def is_plain(self) -> bool:
        """Whether all that follows is content, so that nothing need be fed any more."""

    @property
    def in_reasoning(self) -> bool:
        """Whether a thought is open."""

    def feed(self, text: str, n_tokens: int) -> list[Piece]:
        """Take the next text, made of `n_tokens` tokens, and give what is certain by now."""

    def finish(self) -> list[Piece]:
        """Give what was held back; the answer is at its end."""


def specs_folder() -> Path:
    """Where the specs that come with the program are."""
    base = Path(__file__).resolve().parents[2]
    # In the source tree the assets stand beside the packages, in an installed program inside `app`.
    folder = next((path for path in (base / "assets", base / "app" / "assets") if path.is_dir()), base / "assets")
    return folder / "response_specs"


@cache
def load_specs() -> tuple[ResponseSpec, ...]:
    """The specs that come with the program, by name.

    Raises:
        StorageFault: if the program's files are damaged or missing.
    """
    folder = specs_folder()
    try:
        files = sorted(folder.glob("*.json"))
        specs = tuple(msgspec.json.decode(file.read_bytes(), type=ResponseSpec) for file in files)
    except (OSError, msgspec.DecodeError) as error:
        raise StorageFault(f"A response spec of the program cannot be read: {error}", path=str(folder)) from error
    if not specs:
        raise StorageFault("The program's response specs are missing; install it anew.", path=str(folder))
    return specs


def choose_spec(
    template_text: str, specs: Iterable[ResponseSpec], special_texts: Iterable[str] = ()
) -> ResponseSpec | None:
    """The spec for a model; `None` if it does not reason in a known way.

    Args:
        template_text: its chat template; what that mentions decides.
        specs: all there are.
        special_texts: its special tokens; decide where the template is silent (MiniMax M1 writes its tags unasked).
    """
    specs = tuple(specs)
    by_template = (spec for spec in specs if any(mark in template_text for mark in spec.template_marks))
    known = frozenset(special_texts)
    by_token = (spec for spec in specs if isinstance(spec, TagSpec) and {spec.open, spec.close} <= known)
    return next(by_template, None) or next(by_token, None)


class _State(Enum):
    START = auto()
    REASONING = auto()
    AFTER = auto()
    PLAIN = auto()


class ReasoningParser:
    """The `AnswerParser` of a `TagSpec`.

    Args:
        spec: the tags.
        answer_start: what of the answer is already written before the first text is fed.
        is_continued: the answer goes on where its content was broken off.
    """

    def __init__(self, spec: TagSpec, answer_start: str = "", *, is_continued: bool = False) -> None:
        self._open = spec.open
        self._close = spec.close
        self._held = ""
        self._has_reasoning = False
        self._pending_tokens = 0
        self.reasoning_tokens = 0
        opened, closed = answer_start.rfind(spec.open), answer_start.rfind(spec.close)
        if opened > closed:
            self._state = _State.REASONING
            self._has_reasoning = bool(answer_start[opened + len(spec.open) :].strip())
        elif is_continued:
            self._state = _State.PLAIN
        else:
            self._state = _State.AFTER if closed >= 0 else _State.START

    @property
    def is_plain(self) -> bool:
        """Whether all that follows is content, so that nothing need be fed any more."""
        return self._state is _State.PLAIN

    @property
    def in_reasoning(self) -> bool:
        """Whether a thought is open."""
        return self._state is _State.REASONING

    def feed(self, text: str, n_tokens: int) -> list[Piece]:
        """Take the next text, made of `n_tokens` tokens, and give what is certain by now."""
        before = self._state
        pieces: list[Piece] = []
        data, self._held = self._held + text, ""
        while data and self._state is not _State.PLAIN:
            data = self._step(data, pieces)
        if data:
            pieces.append(("content", data))
        self._pending_tokens += n_tokens
        if _State.REASONING in (before, self._state) or any(kind == "reasoning" for kind, _ in pieces):
            self.reasoning_tokens += self._pending_tokens
            self._pending_tokens = 0
        elif self._state is not _State.START:
            self._pending_tokens = 0
        return pieces

    def finish(self) -> list[Piece]:
        """Give what was held back; the answer is at its end."""
        held, self._held = self._held, ""
        if self._state is _State.START:
            return [("content", held)] if held else []
        if self._state is _State.REASONING:
            held = held.rstrip() if self._has_reasoning else held.strip()
            return [("reasoning", held)] if held else []
        return []

    def _step(self, data: str, pieces: list[Piece]) -> str:
        """Use up `data` in the present state; what is returned belongs to the next one."""
        if self._state is _State.START:
            return self._at_start(data)
        if self._state is _State.REASONING:
            return self._in_reasoning(data, pieces)
        data = data.lstrip()
        if data:
            self._state = _State.PLAIN
        return data

    def _at_start(self, data: str) -> str:
        text = data.lstrip()
        if text.startswith(self._open):
            self._state = _State.REASONING
            return text[len(self._open) :]
        if self._open.startswith(text):
            self._held = data
            return ""
        self._state = _State.PLAIN
        return data

    def _in_reasoning(self, data: str, pieces: list[Piece]) -> str:
        if not self._has_reasoning:
            data = data.lstrip()
        thought, closed, rest = data.partition(self._close)
        if closed:
            thought = thought.rstrip()
            self._state = _State.AFTER
        else:
            # What may be the beginning of the tag waits, and so does the white space before it.
            n_partial = self._partial_close(data)
            thought = data[: len(data) - n_partial].rstrip()
            self._held = data[len(thought) :]
        if thought:
            self._has_reasoning = True
            pieces.append(("reasoning", thought))
        return rest

    def _partial_close(self, data: str) -> int:
        """How many characters at the end may be the beginning of the closing tag."""
        tail = data[1 - len(self._close) :]
        at = tail.find(self._close[0])
        while at >= 0:
            if self._close.startswith(tail[at:]):
                return len(tail) - at
            at = tail.find(self._close[0], at + 1)
        return 0
