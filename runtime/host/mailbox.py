"""What a worker says about a request, kept until the one who asked takes it.

Bounded: when `MAX_WAITING` messages wait, neighbouring texts of a choice are merged, so nothing is lost and a slow
reader costs memory only for the text itself, which the model's context bounds.
"""

import asyncio
from collections import deque

from runtime.messages.ipc import (
    Counted,
    Delta,
    Embedded,
    Failed,
    Finished,
    PromptProgress,
    Queued,
    Rendered,
    Reranked,
    Tokenized,
)

MAX_WAITING = 1024
_TICKS_OF_SILENCE = 2

Ending = Finished | Failed | Embedded | Counted | Reranked | Tokenized | Rendered
RequestMessage = Queued | PromptProgress | Delta | Ending
_ENDS = (Finished, Failed, Embedded, Counted, Reranked, Tokenized, Rendered)


class Mailbox:
    """Messages of one or more requests, in order. One writer and one reader, both in the event loop."""

    def __init__(self, n_requests: int = 1) -> None:
        self._messages: deque[RequestMessage] = deque()
        self._arrived = asyncio.Event()
        self._n_open = n_requests
        self._silent_ticks = 0
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """True once every request's last message is in."""
        return self._n_open == 0

    def put(self, message: RequestMessage) -> None:
        """Add a message; the writer sends no more for a request after its last one."""
        if self._n_open == 0:
            return
        if len(self._messages) >= MAX_WAITING:
            self._merge()
        self._messages.append(message)
        if isinstance(message, _ENDS):
            self._n_open -= 1
        self._arrived.set()

    async def take(self, patience_s: float | None = None) -> list[RequestMessage]:
        """All that has come; waits for it. Empty after a silence of `patience_s` (up to half as long again).

        A timer for each wait would cost more than the message: one ticks on, and counts.
        """
        while not self._messages:
            if self._silent_ticks >= _TICKS_OF_SILENCE:
                self._silent_ticks = 0
                return []
            if patience_s is not None and self._ticking is None:
                self._tick_later(patience_s)
            self._arrived.clear()
            await self._arrived.wait()
        self._silent_ticks = 0
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def _tick_later(self, patience_s: float) -> None:
        delay_s = patience_s / _TICKS_OF_SILENCE
        self._ticking = asyncio.get_running_loop().call_later(delay_s, self._tick, patience_s)

    def _tick(self, patience_s: float) -> None:
        self._ticking = None
        self._silent_ticks += 1
        if self._silent_ticks >= _TICKS_OF_SILENCE:
            self._arrived.set()
        elif self._n_open:
            self._tick_later(patience_s)

    def __len__(self) -> int:
        return len(self._messages)

    def _merge(self) -> None:
        """Join the texts of each choice and keep only the newest progress."""
        progress: dict[str, RequestMessage] = {}
        ends: list[RequestMessage] = []
        merged: list[RequestMessage] = []
        runs: dict[tuple[str, int], list[Delta]] = {}
        for message in self._messages:
            if isinstance(message, Queued | PromptProgress):
                progress[message.request_id] = message
            elif isinstance(message, Delta):
                run = runs.setdefault((message.request_id, message.choice), [])
                if run and (run[-1].kind, run[-1].tool_call) != (message.kind, message.tool_call):
                    merged.append(_joined(run))
                    run.clear()
                run.append(message)
            else:
                ends.append(message)
        merged.extend(_joined(run) for run in runs.values() if run)
        self._messages = deque([*progress.values(), *merged, *ends])


def _joined(run: list[Delta]) -> Delta:
    first = run[0]
    return Delta(
        first.request_id,
        first.choice,
        first.kind,
        "".join(delta.text for delta in run),
        sum(delta.n_tokens for delta in run),
        tuple(position for delta in run for position in delta.logprobs),
        first.tool_call,
    )
