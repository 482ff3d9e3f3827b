"""The requests a worker has taken and not ended yet. Whoever takes one out of here sends its one ending."""

import threading
from dataclasses import dataclass, field
from typing import Literal

from runtime.chat.tool_parser import AnswerReader
from runtime.messages.ipc import Count, Embed, Generate, Rerank, TextAsk

Stage = Literal["waiting", "rendering", "encoding", "submitted"]


@dataclass(slots=True, eq=False)
class Live:
    """One request.

    `stage` and `is_cancelled` change under the registry's lock; the rest is written before the request is
    submitted and read by the writer thread after.

    Attributes:
        request: as it came.
        cost_bytes: its texts, counted against the bound of what waits.
        dropped_turns: left out by the context policy.
        echoes: by choice, text of the prompt that is still to be repeated in front of the answer.
        parsers: by choice; `None` once all that follows is content.
        carried_tokens: by choice, tokens whose text is held back.
        called: choices that made a tool call.
        reasoning_tokens: of all choices, as far as they are counted.
    """

    request: Generate | Embed | Count | Rerank | TextAsk
    cost_bytes: int
    stage: Stage = "waiting"
    is_cancelled: bool = False
    dropped_turns: int = 0
    echoes: dict[int, str] = field(default_factory=dict)
    parsers: dict[int, AnswerReader | None] = field(default_factory=dict)
    carried_tokens: dict[int, int] = field(default_factory=dict)
    called: set[int] = field(default_factory=set)
    reasoning_tokens: int = 0

    @property
    def request_id(self) -> str:
        """The host's name for it."""
        return self.request.request_id


class Registry:
    """All live requests by id. Home thread: any (locked)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, Live] = {}

    def add(self, live: Live) -> bool:
        """Add; False if a request of that name lives already."""
        with self._lock:
            if live.request_id in self._live:
                return False
            self._live[live.request_id] = live
            return True

    def get(self, request_id: str) -> Live | None:
        """Look up without taking."""
        return self._live.get(request_id)

    def take(self, request_id: str) -> Live | None:
        """Take out for its ending; `None` if someone else did."""
        with self._lock:
            return self._live.pop(request_id, None)

    def ids(self) -> list[str]:
        """Names of all."""
        with self._lock:
            return list(self._live)

    def cancel(self, request_id: str) -> Live | None:
        """Mark as cancelled; `None` if it is not live."""
        with self._lock:
            live = self._live.get(request_id)
            if live is not None:
                live.is_cancelled = True
            return live

    def advance(self, live: Live, stage: Stage) -> bool:
        """Move on to a stage unless it was cancelled or ended; says whether."""
        with self._lock:
            if live.is_cancelled or self._live.get(live.request_id) is not live:
                return False
            live.stage = stage
            return True
