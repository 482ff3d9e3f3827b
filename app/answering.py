"""All answers in the making, of the open conversation and of those left in the background."""

from collections.abc import Mapping

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot

from app.answer import Answer
from app.link import HostLink
from app.media import Media
from app.model_choice import Choice, choose_model
from app.opened import Opened
from app.presets import Presets
from app.request import hashes_of, needed_sense, turns_of
from app.saver import Saver
from app.speed import Speed
from app.store.records import ConversationChange
from app.tool_book import ToolBook
from app.transcript import Node
from runtime import units
from runtime.errors import BadRequest, Failure, to_failure
from runtime.messages.api import ChatRequest, LoadedModel

MAX_RUNNING = 4
"""Conversations of this window that may have an answer in the making at once; also keeps the link's streams within
the six connections Qt opens."""


class Answering(QObject):
    """At most one answer a conversation. Home thread: main.

    An answer begins when a model is ready; until then it waits, and fails when none will come.
    """

    appended = Signal(str, str, str)
    """Message id, new reasoning, new content."""

    changed = Signal(str)
    """Message id: its state, figures, progress or notice changed."""

    context_used = Signal(str, int)
    """Message id, tokens of prompt and answer so far."""

    speed_changed = Signal(str, object)
    """Message id and `float | None`."""

    busy_changed = Signal(str, bool)
    """Conversation id: an answer began there, or it ended and nothing follows by itself."""

    ended = Signal(object, object)
    """`Opened` and `Node`: an answer is complete, stopped or failed. Whoever has something to do before the next one
    holds the conversation at once."""

    stop_wanted = Signal(str)
    """Conversation id that is held: stop what is done there."""

    def __init__(
        self,
        link: HostLink,
        presets: Presets,
        saver: Saver,
        media: Media,
        tools: ToolBook,
        speed: Speed,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._link = link
        self._presets = presets
        self._saver = saver
        self.media = media
        self.tools = tools
        self._speed = speed
        self._held: dict[str, Opened] = {}
        self._running: dict[str, tuple[Answer, Opened]] = {}
        self._is_model_expected = False

    @property
    def is_full(self) -> bool:
        """Whether `MAX_RUNNING` are in the making."""
        return len(self._running) + len(self._held) >= MAX_RUNNING

    def opened(self, conversation_id: str) -> Opened | None:
        """The conversation an answer is being made in, or that is held between two answers."""
        running = self._running.get(conversation_id)
        return running[1] if running else self._held.get(conversation_id)

    def answer(self, conversation_id: str) -> Answer | None:
        """The answer in the making in this conversation."""
        running = self._running.get(conversation_id)
        return running[0] if running else None

    def choice(self, opened: Opened) -> Choice:
        """Which model would answer there."""
        return choose_model(self._link, opened.model, is_expected=self._is_model_expected)

    def hold(self, opened: Opened) -> None:
        """Keep a conversation busy after its answer: tools run before the next one. Ends with `begin` or `release`."""
        was_busy = self.opened(opened.id) is not None
        self._held[opened.id] = opened
        if not was_busy:
            self.busy_changed.emit(opened.id, True)

    def release(self, conversation_id: str) -> None:
        """No answer follows."""
        if self._held.pop(conversation_id, None) is not None and conversation_id not in self._running:
            self.busy_changed.emit(conversation_id, False)

    def begin(self, opened: Opened, node: Node) -> None:
        """Have this node written. The conversation must not have a running answer."""
        answer = Answer(opened.transcript, node, self._saver, self._speed, self)
        self._running[opened.id] = (answer, opened)
        answer.appended.connect(self.appended)
        answer.changed.connect(self.changed)
        answer.context_used.connect(self.context_used)
        answer.speed_changed.connect(self.speed_changed)
        answer.finished.connect(self._finished)
        self._saver.change(opened.id, ConversationChange(updated_s=units.now()))
        self._saver.put(node.record(opened.id))
        if self._held.pop(opened.id, None) is None:
            self.busy_changed.emit(opened.id, True)
        self._try(answer, opened)
        self.changed.emit(node.id)

    def stop(self, conversation_id: str) -> None:
        """Stop the answer there, if any; what came stays."""
        answer = self.answer(conversation_id)
        if answer is not None:
            answer.stop()
        elif conversation_id in self._held:
            self.stop_wanted.emit(conversation_id)

    def drop(self, conversation_id: str) -> None:
        """Stop the answer there at once: its message or the window goes away."""
        answer = self.answer(conversation_id)
        if answer is not None:
            answer.finish_now()
        elif conversation_id in self._held:
            self.stop_wanted.emit(conversation_id)

    def drop_all(self) -> None:
        """The window closes."""
        for conversation_id in (*self._running, *self._held):
            self.drop(conversation_id)

    def set_model_expected(self, expected: bool) -> None:
        """Whether a model is about to be loaded: answers then wait instead of failing."""
        self._is_model_expected = expected
        self.start_waiting()

    def models_changed(self) -> None:
        """The link's models changed."""
        if self._link.loaded:
            self._is_model_expected = False
        self.start_waiting()

    def start_waiting(self) -> None:
        """Look again whether answers that wait for a model can begin."""
        for answer, opened in tuple(self._running.values()):
            if answer.is_waiting:
                self._try(answer, opened)

    def fail_waiting(self, failure: Failure) -> None:
        """No model will come: answers that wait for one fail with this."""
        for answer, _ in tuple(self._running.values()):
            if answer.is_waiting:
                answer.fail(failure)

    def _try(self, answer: Answer, opened: Opened) -> None:
        choice = self.choice(opened)
        if choice.ready is not None:
            path = opened.transcript.path_to(_last_id(answer))
            self.media.fetch(hashes_of(path), lambda data: self._ask(answer, opened, data))
        elif choice.failure is not None:
            answer.fail(choice.failure)
        else:
            answer.wait(choice.waits_for)

    def _ask(self, answer: Answer, opened: Opened, data: Mapping[str, bytes]) -> None:
        """The files are read: ask the model, unless something else happened meanwhile."""
        if not answer.is_waiting or self.answer(opened.id) is not answer:
            return
        model = self.choice(opened).ready
        if model is None:
            self._try(answer, opened)
            return
        path = opened.transcript.path_to(_last_id(answer))
        question = next((node for node in reversed(path) if node.role == "user"), None)
        lacking = needed_sense(question.attachments if question else (), model.facts)
        if lacking:
            answer.fail(cannot_sense(model, lacking))
            return
        preset = opened.preset(self._presets)
        turns = turns_of(opened.system_prompt(preset), path, data, model.facts)
        request = ChatRequest(
            model.id,
            turns.messages,
            opened.options(preset),
            continue_last=answer.continues,
            shape=self.tools.shape(opened, opened.shape(preset), follows_tools=path[-1].role == "tool"),
        )
        answer.begin(self._link, request)
        if turns.left_out:
            answer.note(_left_out(turns.left_out))

    @Slot()
    def _finished(self) -> None:
        answer = self.sender()
        if isinstance(answer, Answer):
            conversation_id = answer.transcript.conversation_id
            _, opened = self._running.pop(conversation_id)
            self._saver.change(conversation_id, ConversationChange(updated_s=units.now()))
            self.ended.emit(opened, answer.node)
            if conversation_id not in self._held:
                self.busy_changed.emit(conversation_id, False)


def cannot_sense(model: LoadedModel, kind: str) -> Failure:
    """Why this model cannot answer a question with a picture ("image") or a sound ("audio")."""
    if kind == "image":
        text = QCoreApplication.translate("Answering", "{model} cannot see pictures.")
        hint = QCoreApplication.translate("Answering", "Choose a vision model, or ask again without the picture.")
    else:
        text = QCoreApplication.translate("Answering", "{model} cannot hear sounds.")
        hint = QCoreApplication.translate("Answering", "Choose a model for sounds, or ask again without the sound.")
    return to_failure(BadRequest(text.format(model=model.name), hint=hint, param="attachments", needs=kind))


def _last_id(answer: Answer) -> str:
    """The last message that the model reads."""
    return answer.node.id if answer.continues else answer.node.parent_id


def _left_out(count: int) -> str:
    if count == 1:
        return QCoreApplication.translate("Answering", "A picture or sound of an earlier turn was not sent.")
    text = QCoreApplication.translate("Answering", "{count} pictures and sounds of earlier turns were not sent.")
    return text.format(count=count)
