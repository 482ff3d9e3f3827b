"""What waits to be sent to the host: the one hand-off between all threads of a worker and its writer.

Nobody who puts something in ever waits for the host. When it reads slowly, entries pile up only until
`MAX_LOOSE`; then texts of the same answer are joined and progress is reduced to its latest word. So what is held
is bounded by the live requests, each with no more text than its context has tokens, and nothing is lost.
"""

import threading
from collections.abc import Iterable

from runtime.messages.ipc import (
    Counted,
    Embedded,
    Failed,
    Finished,
    Health,
    LoadFailed,
    LoadProgress,
    Ready,
    Rendered,
    Reranked,
    Tokenized,
)
from runtime.scheduler.types import EngineOutput, PromptRead, Text, Waiting

MAX_LOOSE = 4096
"""Entries held as they came; 32 sequences fill this in about a second on the fastest cards."""

MAX_LOGPROBS = 1024
"""Positions with log probabilities in one joined text; with twenty alternatives each, about half a megabyte."""

Answer = Finished | Failed | Embedded | Counted | Reranked | Tokenized | Rendered
Item = EngineOutput | LoadProgress | Ready | LoadFailed | Answer | Health


class Outbox:
    """Many threads put, the writer thread takes."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._items: list[Item] = []
        self._health: Health | None = None
        self._compact_at = MAX_LOOSE
        self._is_closed = False

    def put(self, items: Iterable[Item]) -> None:
        """Add items in order; never waits. After `close` they are dropped."""
        with self._condition:
            if self._is_closed:
                return
            self._items.extend(items)
            if len(self._items) > self._compact_at:
                self._items = compact(self._items)
                self._compact_at = max(MAX_LOOSE, 2 * len(self._items))
            self._condition.notify()

    def put_health(self, health: Health) -> None:
        """Add a reading; one that was not sent yet is replaced."""
        with self._condition:
            self._health = health
            self._condition.notify()

    def take(self) -> list[Item] | None:
        """Wait for items and take all; `None` once closed and empty."""
        with self._condition:
            while not self._items and self._health is None and not self._is_closed:
                self._condition.wait()
            items, self._items = self._items, []
            if self._health is not None:
                items.append(self._health)
                self._health = None
            self._compact_at = MAX_LOOSE
            return items or None

    def close(self) -> None:
        """Take no more; what is in is still given out."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()


def compact(items: list[Item]) -> list[Item]:
    """Join the texts of each answer at the place of its first, and keep only the latest progress of each request."""
    texts: dict[tuple[str, int], list[Text]] = {}
    latest: dict[tuple[type, str], Item] = {}
    for item in items:
        if isinstance(item, Text):
            texts.setdefault((item.request_id, item.choice), []).append(item)
        elif isinstance(item, PromptRead | Waiting):
            latest[type(item), item.request_id] = item
        elif isinstance(item, LoadProgress):
            latest[type(item), ""] = item
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Text):
            parts = texts.pop((item.request_id, item.choice), None)
            if parts is not None:
                kept += _joined(parts)
        elif isinstance(item, PromptRead | Waiting | LoadProgress):
            last = latest.pop((type(item), "" if isinstance(item, LoadProgress) else item.request_id), None)
            if last is not None:
                kept.append(last)
        else:
            kept.append(item)
    return kept


def _joined(parts: list[Text]) -> list[Text]:
    """One text out of many; a new one begins where the log probabilities would be more than one message carries."""
    joined: list[Text] = []
    group: list[Text] = []
    n_logprobs = 0
    for part in parts:
        if group and n_logprobs + len(part.logprobs) > MAX_LOGPROBS:
            joined.append(_one(group))
            group, n_logprobs = [], 0
        group.append(part)
        n_logprobs += len(part.logprobs)
    return [*joined, _one(group)]


def _one(parts: list[Text]) -> Text:
    if len(parts) == 1:
        return parts[0]
    return Text(
        request_id=parts[0].request_id,
        choice=parts[0].choice,
        text="".join([part.text for part in parts]),
        n_tokens=sum(part.n_tokens for part in parts),
        logprobs=tuple(position for part in parts for position in part.logprobs),
    )
