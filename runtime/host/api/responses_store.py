"""Answers that a later request may go on with by their id.

In memory alone: what programs say is written to no disk unasked. The oldest go first; after that, or after the host
ended, a program that names one is told so, and sends the conversation itself.
"""

from collections import OrderedDict
from dataclasses import dataclass

from runtime.host.api.responses_items import OutputItem
from runtime.messages.shared import Message, PicturePart, TextPart

MAX_RESPONSES = 1000
MAX_STORED_BYTES = 64 * 1024 * 1024
"""Of all conversations together; messages that several share count once."""

_OVERHEAD_BYTES = 500
"""About what a message takes beside its text."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer as JSON, its items (their texts are the messages'), and the conversation, without instructions."""

    response_id: str
    encoded: bytes
    output: tuple[OutputItem, ...]
    messages: tuple[Message, ...]
    n_answer: int = 0
    """How many of the messages, the last ones, are the answer."""
    is_background: bool = False

    def own_bytes(self) -> int:
        """About what it takes beside the messages."""
        return len(self.encoded) + _OVERHEAD_BYTES * (1 + len(self.output))


class ResponseStore:
    """Home: the event loop."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_STORED_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._items: dict[str, OutputItem] = {}
        self._shares: dict[int, int] = {}
        """How many conversations hold a message, by its identity: they keep it alive, so no other gets its number."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, stored: Stored) -> None:
        """Keep an answer, and let old ones go; one that is larger than everything allowed goes at once."""
        self.remove(stored.response_id)
        self._kept[stored.response_id] = stored
        self._items.update((item.id, item) for item in stored.output)
        self.size_bytes += stored.own_bytes()
        for message in stored.messages:
            shares = self._shares.get(id(message), 0)
            self._shares[id(message)] = shares + 1
            if not shares:
                self.size_bytes += _message_bytes(message)
        while len(self._kept) > self._max_responses or self.size_bytes > self._max_bytes:
            self.remove(next(iter(self._kept)))

    def get(self, response_id: str) -> Stored | None:
        """An answer by its id; asked for, it counts as young again."""
        found = self._kept.get(response_id)
        if found is not None:
            self._kept.move_to_end(response_id)
        return found

    def conversation(self, response_id: str) -> tuple[Message, ...] | None:
        """The conversation up to an answer's end."""
        found = self.get(response_id)
        return found.messages if found is not None else None

    def item(self, item_id: str) -> OutputItem | None:
        """An item of an answer that is kept."""
        return self._items.get(item_id)

    def remove(self, response_id: str) -> bool:
        """Forget an answer; false where it was not kept."""
        stored = self._kept.pop(response_id, None)
        if stored is None:
            return False
        self.size_bytes -= stored.own_bytes()
        for item in stored.output:
            self._items.pop(item.id, None)
        for message in stored.messages:
            self._shares[id(message)] -= 1
            if not self._shares[id(message)]:
                del self._shares[id(message)]
                self.size_bytes -= _message_bytes(message)
        return True


def _message_bytes(message: Message) -> int:
    """About what a message takes; text counts four bytes a character, as wide ones do."""
    chars = len(message.content) + len(message.reasoning) + sum(len(call.arguments) for call in message.tool_calls)
    media = 0
    for part in message.parts:
        if isinstance(part, PicturePart):
            media += len(part.media.data)
        elif isinstance(part, TextPart):
            chars += len(part.text)
    return _OVERHEAD_BYTES * (1 + len(message.parts) + len(message.tool_calls)) + 4 * chars + media
