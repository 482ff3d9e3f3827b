"""How much of the model's context the open conversation takes, with and without the draft."""

from collections.abc import Callable, Iterable, Mapping

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.answering import Answering
from app.link import HostLink
from app.media import Media
from app.opened import Opened
from app.presets import Presets
from app.request import hashes_of, turns_of
from app.store.records import Attachment
from runtime.errors import Failure
from runtime.messages.api import CountAnswer
from runtime.messages.shared import Message

COUNT_MS = 300
"""Pause after typing before tokens are counted."""


class ContextCount(QObject):
    """Exact where a number exists: an answer's own count, or one asked from the model. Home thread: main."""

    used_changed = Signal(int, int)
    """Tokens of the conversation and the model's context length (0 when no model is ready)."""

    draft_counted = Signal(int, int)
    """Tokens the conversation would be with the draft sent, and the context length."""

    def __init__(
        self, link: HostLink, presets: Presets, answering: Answering, media: Media, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._link = link
        self._presets = presets
        self._answering = answering
        self._media = media
        self._opened: Opened | None = None
        self._used = 0
        self._media_tokens: tuple[object, int] = (None, 0)  # of the pictures last counted
        self._limit = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(COUNT_MS)
        self._timer.timeout.connect(self._count)
        answering.tools.changed.connect(self.count_soon)

    @property
    def used(self) -> int:
        """Tokens of the conversation as last told."""
        return self._used

    @property
    def limit(self) -> int:
        """Context length of the model that would answer; 0 when none is ready."""
        return self._limit

    def follow(self, opened: Opened) -> None:
        """This conversation is open now."""
        self._opened = opened
        self._limit = self._answering.choice(opened).n_ctx
        self.tell()
        self.count_soon()

    def count_soon(self) -> None:
        """Something changed: count when it has been quiet for `COUNT_MS`."""
        self._timer.start()

    def note(self, used: int) -> None:
        """The running answer tells its own count."""
        self._used = used
        self.used_changed.emit(used, self._limit)

    def models_changed(self) -> None:
        """Another model may answer now."""
        limit = self._answering.choice(self._opened).n_ctx if self._opened else 0
        if limit != self._limit:
            self._limit = limit
            self.tell()
            self.count_soon()

    def tell(self) -> None:
        """Tell the count of the last answer on the shown path."""
        opened = self._opened
        if opened is None or self._answering.opened(opened.id) is not None:
            return
        used = 0
        for node in reversed(opened.transcript.path()):
            if node.stats is not None and node.stats.prompt_tokens:
                used = node.stats.prompt_tokens + node.stats.n_tokens
                break
        self.note(used)

    @Slot()
    def _count(self) -> None:
        opened = self._opened
        if opened is None or opened.is_loading or self._answering.opened(opened.id) is not None:
            return
        files = hashes_of(opened.transcript.path(), opened.draft_attachments)
        self._media.fetch(files, lambda data: self._ask(opened, data))

    def _ask(self, opened: Opened, data: Mapping[str, bytes]) -> None:
        model = self._answering.choice(opened).ready
        if opened is not self._opened or model is None or self._answering.opened(opened.id) is not None:
            return
        draft, files = opened.draft, opened.draft_attachments
        path = opened.transcript.path()
        preset = opened.preset(self._presets)

        def turns(known: Mapping[str, bytes]) -> tuple[Message, ...]:
            prompt = opened.system_prompt(preset)
            return turns_of(prompt, path, known, model.facts, draft=draft, draft_attachments=files).messages

        def tell(answer: CountAnswer, more: int = 0) -> None:
            if opened is not self._opened or (draft, files) != (opened.draft, opened.draft_attachments):
                return
            self._limit = answer.n_ctx
            self.draft_counted.emit(answer.n_tokens + more, answer.n_ctx)
            if not has_question and self._answering.opened(opened.id) is None:
                self.note(answer.n_tokens + more)

        has_question = bool(draft.strip() or files)
        follows_tools = not has_question and bool(path) and path[-1].role == "tool"
        shape = self._answering.tools.shape(opened, opened.shape(preset), follows_tools=follows_tools)

        def count(messages: tuple[Message, ...], then: Callable[[CountAnswer], None]) -> None:
            self._link.count_tokens(model.id, messages, then, shape=shape, failed=_ignore)

        messages = turns(data)
        if not messages:
            self.note(0)
            self.draft_counted.emit(0, self._limit)
            return
        if not any(message.parts for message in messages):
            count(messages, tell)
            return
        # Pictures are megabytes: they are counted once, and while a person types only what is beside them is.
        senses = tuple(one.sha256 for node in path for one in node.attachments if one.kind != "text")
        key = (model.id, self._limit, senses, tuple(one.sha256 for one in files if one.kind != "text"))
        beside = turns(_texts_only(data, [*(one for node in path for one in node.attachments), *files]))
        known_key, more = self._media_tokens
        if known_key == key:
            count(beside, lambda answer: tell(answer, more))
            return

        def counted_whole(whole: CountAnswer) -> None:
            tell(whole)
            count(beside, lambda plain: self._remember_media(key, whole.n_tokens - plain.n_tokens))

        count(messages, counted_whole)

    def _remember_media(self, key: object, n_tokens: int) -> None:
        self._media_tokens = (key, n_tokens)


def _texts_only(data: Mapping[str, bytes], files: Iterable[Attachment]) -> dict[str, bytes]:
    """The bytes of text files; pictures and sounds are then only named."""
    wanted = {one.sha256 for one in files if one.kind == "text"}
    return {sha256: raw for sha256, raw in data.items() if sha256 in wanted}


def _ignore(_: Failure) -> None:
    """The last count stays; sending will say what is wrong."""
