"""Between two answers: the calls a model asked for are shown, allowed by the person, run, and answered."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from PySide6.QtCore import QCoreApplication, QObject, Slot

from app.answering import Answering
from app.link import HostLink
from app.opened import Opened
from app.saver import Saver
from app.store import new_id
from app.store.records import MessageRecord, MessageState, ToolSetup
from app.tool_book import Found
from app.tool_results import Made, PictureMaker, kept_of, pictures_of, pixels_for, problem_with, text_of
from app.tool_run import ToolRun
from app.transcript import Node, TextBuffer, Transcript
from app.turns import Turns
from runtime import units
from runtime.errors import Failure
from runtime.messages.shared import ToolCall
from runtime.messages.tools import ToolCallRequest, ToolProgress, ToolResult

MAX_ROUNDS = 10
"""Answers in a row that call tools; past it the person says whether to go on."""

MAX_CALLS = 32
"""Calls of one answer that are run; the others are answered with an error."""

REFUSED = "The person refused this call."
STOPPED = "The person stopped this call."


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("ToolRounds", text)


@dataclass
class _Waiting:
    """A call that has no result yet: it asks, or it runs."""

    node: Node
    call: ToolCall
    found: Found
    run: ToolRun | None = None
    has_returned: bool = False
    """Whether the result is here; its pictures may still be made."""


@dataclass
class _Round:
    """The calls of one answer."""

    opened: Opened
    last_id: str
    waiting: dict[str, _Waiting] = field(default_factory=dict)
    is_open: bool = False
    """Whether all calls were looked at: the next answer waits for that."""


class ToolRounds(QObject):
    """Home thread: main. The message of a call is "queued" while it asks and "generating" while it runs."""

    def __init__(
        self,
        link: HostLink,
        turns: Turns,
        answering: Answering,
        saver: Saver,
        opened: Callable[[], Opened],
        parent: QObject | None = None,
    ) -> None:
        """`opened` tells which conversation is open."""
        super().__init__(parent)
        self._link = link
        self._turns = turns
        self._answering = answering
        self._book = answering.tools
        self._saver = saver
        self._opened = opened
        self._rounds: dict[str, _Round] = {}
        self._pictures: PictureMaker | None = None
        answering.ended.connect(self._answered)
        answering.stop_wanted.connect(self._stop)

    def set_picture_maker(self, maker: PictureMaker) -> None:
        """Pictures that tools return are made by this one; without, they are kept as they came and only named."""
        self._pictures = maker

    # --- which tools the open conversation uses

    @property
    def setup(self) -> ToolSetup:
        """Its own choice, or the default."""
        return self._book.setup(self._opened())

    @property
    def n_offered(self) -> int:
        """How many tools the model is told of here."""
        return len(self._book.offered(self._opened()))

    def set_setup(self, setup: ToolSetup) -> None:
        """Choose for the open conversation, from the next question on."""
        opened = self._opened()
        if setup != self._book.setup(opened):
            self._turns.adopt_preset(opened)
            self._book.set_setup(opened, setup)

    # --- what a person says

    def allow(self, message_id: str, scope: str) -> None:
        """Let a call run: "once", "here" (this tool in this conversation, from now on) or "always"."""
        found = self._waiting(message_id)
        if found is None:
            return
        round_, waiting = found
        if waiting.run is not None:
            return
        if scope == "here":
            self._book.allow_here(round_.opened, waiting.found)
        elif scope == "always":
            self._book.allow_always(waiting.found)
        self._run(round_, waiting)
        if scope != "once":
            self._run_allowed()

    def deny(self, message_id: str) -> None:
        """The model is told that the person refused."""
        found = self._waiting(message_id)
        if found is not None and found[1].run is None:
            self._settle(*found, REFUSED, "stopped")

    def go_on(self, opened: Opened, message_id: str) -> None:
        """Go on where it stopped: run the calls of an answer that have no result, or let the model read the results."""
        node = opened.transcript.get(message_id)
        if node is None or self._answering.opened(opened.id) is not None or self._answering.is_full:
            return
        node.notice = ""
        if node.role == "assistant" and node.tool_calls and not node.child_ids:
            self._begin(opened, node)
        elif node.role == "tool" and not node.child_ids:
            self._turns.answer(opened, node.id)

    # --- a round

    @Slot(object, object)
    def _answered(self, opened: Opened, node: Node) -> None:
        if node.state != "done" or not node.tool_calls:
            return
        if _rounds_before(opened.transcript, node) >= MAX_ROUNDS:
            node.notice = tr("The model called tools {count} times in a row.").format(count=MAX_ROUNDS)
            self._tell(opened, node)
            return
        self._begin(opened, node)

    def _begin(self, opened: Opened, node: Node) -> None:
        self._answering.hold(opened)
        nodes = [self._add(opened, node, call) for call in node.tool_calls]
        self._turns.path_changed.emit(opened.id)
        round_ = _Round(opened, nodes[-1].id)
        self._rounds[opened.id] = round_
        for at, (made, call) in enumerate(zip(nodes, node.tool_calls, strict=True)):
            self._look(round_, made, call, at)
        round_.is_open = True
        self._go_on_when_done(round_)

    def _add(self, opened: Opened, node: Node, call: ToolCall) -> Node:
        last = opened.transcript.last()
        return self._turns.add(
            opened,
            MessageRecord(
                id=new_id(),
                conversation_id=opened.id,
                parent_id=last.id if last is not None and last.role == "tool" else node.id,
                role="tool",
                state="queued",
                created_s=units.now(),
                tool_call_id=call.id,
                tool_name=call.name,
            ),
        )

    def _look(self, round_: _Round, node: Node, call: ToolCall, at: int) -> None:
        """Run a call, ask for it, or answer it at once where it cannot be run."""
        offered = self._book.offered(round_.opened)
        found = next((one for one in offered if one.tool.call_name == call.name), None)
        problem = problem_with(call.arguments)
        if at >= MAX_CALLS:
            problem = f"An answer may call {MAX_CALLS} tools at most."
        elif found is None:
            problem = f"There is no tool named {call.name}."
        if problem or found is None:
            self._finish(round_, node, problem, "failed", is_error=True)
            return
        waiting = round_.waiting[node.id] = _Waiting(node, call, found)
        if self._book.may_run(round_.opened, found):
            self._run(round_, waiting)

    def _run(self, round_: _Round, waiting: _Waiting) -> None:
        node = waiting.node
        node.state = "generating"
        node.started_s = time.monotonic()
        server, tool, _ = waiting.found.permission
        run = self._link.call_tool(ToolCallRequest(server, tool, waiting.call.arguments, waiting.call.id[:128]))
        waiting.run = run
        run.progressed.connect(lambda progress: self._progressed(waiting, progress))
        run.returned.connect(lambda result: self._returned(round_, waiting, result))
        run.failed.connect(lambda failure: self._failed(round_, waiting, failure))
        self._tell(round_.opened, node)

    def _run_allowed(self) -> None:
        """A permission was given: other calls may wait for the same."""
        for round_ in tuple(self._rounds.values()):
            for waiting in tuple(round_.waiting.values()):
                if waiting.run is None and self._book.may_run(round_.opened, waiting.found):
                    self._run(round_, waiting)

    def _progressed(self, waiting: _Waiting, progress: ToolProgress) -> None:
        percent = "" if progress.fraction is None else f"{round(progress.fraction * 100)} %"
        waiting.node.notice = " · ".join(part for part in (percent, progress.text) if part)
        self._answering.changed.emit(waiting.node.id)

    def _returned(self, round_: _Round, waiting: _Waiting, result: ToolResult) -> None:
        waiting.has_returned = True
        waiting.node.duration_s = result.duration_s
        pictures = pictures_of(result)
        if self._pictures is None or not pictures:
            self._keep(round_, waiting, result, list(pictures))
            return
        n_ctx = self._answering.choice(round_.opened).n_ctx
        self._pictures.make(
            [data for _, data in pictures],
            pixels_for(len(pictures), n_ctx),
            lambda made: self._keep(round_, waiting, result, made),
        )

    def _keep(self, round_: _Round, waiting: _Waiting, result: ToolResult, made: list[Made]) -> None:
        """A result is whole: its pictures are made."""
        if waiting.node.id not in round_.waiting:
            return  # stopped meanwhile
        files, sentences = kept_of(made)
        for attachment, data in files:
            self._answering.media.hold(attachment.sha256, data)
        waiting.node.attachments = tuple(attachment for attachment, _ in files)
        state: MessageState = "failed" if result.is_error else "done"
        text = text_of(result, self._answering.choice(round_.opened).n_ctx, sentences)
        self._settle(round_, waiting, text, state, is_error=result.is_error)

    def _failed(self, round_: _Round, waiting: _Waiting, failure: Failure) -> None:
        self._settle(round_, waiting, f"{failure.message} {failure.hint}".strip(), "failed", is_error=True)

    # --- ends

    def _settle(
        self, round_: _Round, waiting: _Waiting, text: str, state: MessageState, *, is_error: bool = False
    ) -> None:
        """A call has its result; with the last one the model goes on."""
        if round_.waiting.pop(waiting.node.id, None) is None:
            return
        self._finish(round_, waiting.node, text, state, is_error=is_error)
        self._go_on_when_done(round_)

    def _finish(self, round_: _Round, node: Node, text: str, state: MessageState, *, is_error: bool) -> None:
        node.content = TextBuffer(text)
        node.state = state
        node.is_error = is_error
        node.notice = ""
        if node.started_s is not None and node.duration_s is None:
            node.duration_s = time.monotonic() - node.started_s
        node.started_s = None
        self._tell(round_.opened, node)

    def _go_on_when_done(self, round_: _Round) -> None:
        opened = round_.opened
        if not round_.is_open or round_.waiting or self._rounds.get(opened.id) is not round_:
            return
        del self._rounds[opened.id]
        if opened.transcript.get(round_.last_id) is None:
            self._answering.release(opened.id)
        else:
            self._turns.answer(opened, round_.last_id)

    @Slot(str)
    def _stop(self, conversation_id: str) -> None:
        round_ = self._rounds.pop(conversation_id, None)
        if round_ is not None:
            for waiting in round_.waiting.values():
                if waiting.run is not None and not waiting.has_returned:
                    waiting.run.cancel()
                self._finish(round_, waiting.node, STOPPED, "stopped", is_error=False)
            round_.waiting.clear()
        self._answering.release(conversation_id)

    def _waiting(self, message_id: str) -> tuple[_Round, _Waiting] | None:
        for round_ in self._rounds.values():
            waiting = round_.waiting.get(message_id)
            if waiting is not None:
                return round_, waiting
        return None

    def _tell(self, opened: Opened, node: Node) -> None:
        self._saver.put(node.record(opened.id))
        self._answering.changed.emit(node.id)


def _rounds_before(transcript: Transcript, node: Node) -> int:
    """Answers that called tools since the question that this one belongs to."""
    count = 0
    for above in reversed(transcript.path_to(node.parent_id)):
        if above.role == "user":
            break
        count += above.role == "assistant" and bool(above.tool_calls)
    return count
