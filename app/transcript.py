"""A conversation in memory: a tree of messages, of which one path is shown. No Qt here.

Appending text costs the same whether an answer has ten tokens or twenty thousand: pieces are kept in a list and
joined when somebody asks for the whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.store.records import BUSY_STATES, AnswerStats, Attachment, MessageRecord, MessageState
from runtime.errors import Failure
from runtime.messages.shared import Role, ToolCall

__all__ = ["BUSY_STATES", "AnswerStats", "MessageState", "MessageView", "Node", "TextBuffer", "Transcript"]


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message as shown.

    Attributes:
        id: the message.
        role: "user", "assistant" or "tool".
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
        attachments: files of a question.
        tool_calls: calls this answer asked for.
        tool_call_id: of a tool's message, the call it answers.
        tool_name: of a tool's message, the tool.
        is_error: whether the tool failed.
        duration_s: how long the tool took; `None` where not known.
        call: of a tool's message, the call it answers.
        started_s: of a tool that runs, when it began (monotonic clock).
        is_last: whether nothing follows it in any branch.
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
    attachments: tuple[Attachment, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    duration_s: float | None = None
    call: ToolCall | None = None
    started_s: float | None = None
    is_last: bool = True


class TextBuffer:
    """Text that grows: `append` is O(1), `text` joins once and remembers."""

    __slots__ = ("_n_chars", "_pieces")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self._n_chars = len(text)

    def append(self, text: str) -> None:
        """Add at the end."""
        if text:
            self._pieces.append(text)
            self._n_chars += len(text)

    @property
    def text(self) -> str:
        """The whole."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __len__(self) -> int:
        return self._n_chars


class Node:
    """One message of the tree. Changed only by its transcript and the answer that writes it."""

    def __init__(self, record: MessageRecord) -> None:
        self.id = record.id
        self.parent_id = record.parent_id
        self.role: Role = record.role
        self.content = TextBuffer(record.content)
        self.reasoning = TextBuffer(record.reasoning)
        self.reasoning_s = record.reasoning_s
        self.state: MessageState = record.state
        self.notice = record.notice
        self.failure = record.failure
        self.stats = record.stats
        self.created_s = record.created_s
        self.active_child_id = record.active_child_id
        self.attachments = record.attachments
        self.tool_calls = record.tool_calls
        self.tool_call_id = record.tool_call_id
        self.tool_name = record.tool_name
        self.is_error = record.is_error
        self.duration_s = record.duration_s
        self.child_ids: list[str] = []
        self.started_s: float | None = None
        self.progress: float | None = None
        self.queue_position: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it is still being written."""
        return self.state in BUSY_STATES

    def record(self, conversation_id: str) -> MessageRecord:
        """As kept on disk."""
        return MessageRecord(
            id=self.id,
            conversation_id=conversation_id,
            parent_id=self.parent_id,
            role=self.role,
            content=self.content.text,
            reasoning=self.reasoning.text,
            reasoning_s=self.reasoning_s,
            state=self.state,
            notice=self.notice,
            failure=self.failure,
            stats=self.stats,
            created_s=self.created_s,
            active_child_id=self.active_child_id,
            attachments=self.attachments,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            is_error=self.is_error,
            duration_s=self.duration_s,
        )


class Transcript:
    """The tree. Ids of first messages hang on the empty id."""

    def __init__(
        self, conversation_id: str, records: Iterable[MessageRecord] = (), *, active_child_id: str = ""
    ) -> None:
        """`records` of the store, parents before children. An unfinished answer nobody writes shows as interrupted."""
        self.conversation_id = conversation_id
        self._nodes: dict[str, Node] = {}
        self._root_ids: list[str] = []
        self.active_child_id = active_child_id
        for record in records:
            node = Node(record)
            if node.is_busy:
                node.state = "interrupted"
            if node.parent_id and node.parent_id not in self._nodes:
                node.parent_id = ""  # its parent was lost with a damaged file
            self._nodes[node.id] = node
            self._siblings(node).append(node.id)

    # --- reading

    def get(self, message_id: str) -> Node | None:
        """A message of any branch."""
        return self._nodes.get(message_id)

    def path(self) -> list[Node]:
        """The shown branch, oldest first."""
        return list(self._walk())

    def path_to(self, message_id: str) -> list[Node]:
        """The messages from the first one to this one."""
        found = []
        node = self._nodes.get(message_id)
        while node is not None:
            found.append(node)
            node = self._nodes.get(node.parent_id)
        return found[::-1]

    def last(self) -> Node | None:
        """The end of the shown branch."""
        node = None
        for node in self._walk():  # noqa: B007 - the last one is what is asked for
            pass
        return node

    def subtree(self, message_id: str) -> list[str]:
        """The message and everything below it in all branches, parents first."""
        found = [message_id]
        for one in found:  # grows while it is walked
            found.extend(self._nodes[one].child_ids)
        return found

    def view(self, node: Node) -> MessageView:
        """One message as shown."""
        siblings = self._siblings(node)
        is_last = not node.child_ids
        return MessageView(
            id=node.id,
            role=node.role,
            text=node.content.text,
            reasoning=node.reasoning.text,
            reasoning_s=node.reasoning_s,
            state=node.state,
            stats=node.stats,
            branch_index=siblings.index(node.id),
            branch_count=len(siblings),
            notice=node.notice,
            error=node.failure,
            progress=node.progress if node.state == "reading" else None,
            queue_position=node.queue_position if node.state == "queued" else None,
            can_continue=is_last
            and node.role == "assistant"
            and not node.is_busy
            and not node.tool_calls
            and len(node.content) > 0,
            created_s=node.created_s,
            attachments=node.attachments,
            tool_calls=node.tool_calls,
            tool_call_id=node.tool_call_id,
            tool_name=node.tool_name,
            is_error=node.is_error,
            duration_s=node.duration_s,
            call=self.call_of(node),
            started_s=node.started_s,
            is_last=is_last,
        )

    def call_of(self, node: Node) -> ToolCall | None:
        """The call that a tool's message answers."""
        above = node if node.role == "tool" else None
        while above is not None and above.role == "tool":
            above = self._nodes.get(above.parent_id)
        calls = above.tool_calls if above is not None else ()
        return next((call for call in calls if call.id == node.tool_call_id), None)

    # --- changing; returns the nodes whose records changed beside the new one

    def add(self, record: MessageRecord) -> Node:
        """Add a message below its parent and show it."""
        node = Node(record)
        self._nodes[node.id] = node
        self._siblings(node).append(node.id)
        self.show(node.id)
        return node

    def show(self, message_id: str) -> None:
        """Make this sibling the shown one at its place."""
        node = self._nodes[message_id]
        parent = self._nodes.get(node.parent_id)
        if parent is None:
            self.active_child_id = message_id
        else:
            parent.active_child_id = message_id

    def sibling(self, message_id: str, index: int) -> str | None:
        """Id of the sibling at this place, from 0."""
        node = self._nodes.get(message_id)
        siblings = self._siblings(node) if node is not None else []
        return siblings[index] if 0 <= index < len(siblings) else None

    def remove(self, message_id: str) -> list[Node]:
        """Take a message and everything below it out; the nearest sibling is shown instead.

        Returns:
            The nodes taken out, parents first, to hand to `put_back`.
        """
        removed = [self._nodes[one] for one in self.subtree(message_id)]
        top = removed[0]
        siblings = self._siblings(top)
        at = siblings.index(message_id)
        siblings.remove(message_id)
        for node in removed:
            del self._nodes[node.id]
        shown = siblings[min(at, len(siblings) - 1)] if siblings else ""
        parent = self._nodes.get(top.parent_id)
        if parent is not None:
            parent.active_child_id = shown if parent.active_child_id == message_id else parent.active_child_id
        elif self.active_child_id == message_id:
            self.active_child_id = shown
        return removed

    def put_back(self, removed: list[Node]) -> bool:
        """Undo `remove`. False when the place is gone (its parent was removed meanwhile)."""
        top = removed[0]
        if top.parent_id and top.parent_id not in self._nodes:
            return False
        for node in removed:
            self._nodes[node.id] = node
        siblings = self._siblings(top)
        siblings.append(top.id)
        siblings.sort(key=lambda one: self._nodes[one].created_s)
        self.show(top.id)
        return True

    def _siblings(self, node: Node) -> list[str]:
        parent = self._nodes.get(node.parent_id)
        return self._root_ids if parent is None else parent.child_ids

    def _walk(self) -> Iterator[Node]:
        child_ids, active = self._root_ids, self.active_child_id
        while child_ids:
            node = self._nodes[active if active in child_ids else child_ids[-1]]
            yield node
            child_ids, active = node.child_ids, node.active_child_id
