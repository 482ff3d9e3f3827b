"""The connection to one running worker: requests out, answers sorted into mailboxes, health kept.

Ends by itself when the connection is lost; whoever owns it then fails what is still open (`fail_all`).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from runtime.errors import BugFault, Busy, Failure, WorkerDied
from runtime.host.mailbox import Mailbox
from runtime.host.rates import SlidingRate
from runtime.messages.frames import MAX_FRAME_BYTES, decode_from_worker, encode_frame, read_frame
from runtime.messages.ipc import (
    Cancel,
    Count,
    Counted,
    Embed,
    Embedded,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Health,
    Hello,
    Load,
    LoadFailed,
    LoadProgress,
    PromptProgress,
    Queued,
    Ready,
    Rendered,
    Rerank,
    Reranked,
    Shutdown,
    Step,
    TextAsk,
    Tokenized,
    ToWorker,
)

MAX_OPEN_REQUESTS = 16_384
"""Over the largest queue and batch the options allow (10,000 + 256): only a fault elsewhere reaches it."""

_FRAMES_A_TURN = 32
"""Reading frames that are already here never waits, so the others in the loop are given a turn after so many."""

LoadMessage = LoadProgress | Ready | LoadFailed


class WorkerLink:
    """Frames to and from one worker. Home: the event loop."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_load: Callable[[LoadMessage], None],
        on_health: Callable[[Health], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_load = on_load
        self._on_health = on_health
        self._open: dict[str, Mailbox] = {}
        self._is_over = False
        self.on_end: Callable[[str], None] = lambda _request_id: None
        """Told of each request that has ended here, in whatever way."""
        self.generation_rate = SlidingRate()
        self.health: Health | None = None
        self.last_heard_at = time.monotonic()

    @property
    def n_open(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    @property
    def takes(self) -> bool:
        """False once it can answer nothing more."""
        return not (self._is_over or self._writer.is_closing())

    def load(self, message: Load) -> None:
        """Send the one `Load`."""
        self._send(message)

    def submit(self, message: Generate | Embed | Count | Rerank | TextAsk, mailbox: Mailbox) -> None:
        """Send a request whose answers go to `mailbox`.

        Raises:
            Busy: if the worker does not take in what was sent before.
            WorkerDied: it is gone.
        """
        if not self.takes:
            raise WorkerDied("The model's process has just ended.", hint="Send the request again in a moment.")
        if message.request_id in self._open:
            raise BugFault("A request id was used twice.", request_id=message.request_id)
        waiting_bytes = self._writer.transport.get_write_buffer_size()
        if len(self._open) >= MAX_OPEN_REQUESTS or waiting_bytes > MAX_FRAME_BYTES:
            raise Busy(
                "The model's process does not keep up with the requests.",
                hint="Try again in a few seconds.",
                retry_after_s=5,
                waiting=len(self._open),
            )
        self._send(message)
        self._open[message.request_id] = mailbox

    def cancel(self, request_id: str) -> None:
        """Cancel; what the worker still says about it finds no mailbox."""
        if self._open.pop(request_id, None) is not None:
            self._send(Cancel(request_id))
            self.on_end(request_id)

    def request_end(self, request_id: str) -> None:
        """Cancel, but let the reader see how it ended."""
        if request_id in self._open:
            self._send(Cancel(request_id))

    def shut_down(self, drain_s: float) -> None:
        """Ask the worker to finish what runs for at most `drain_s` and to end."""
        self._send(Shutdown(drain_s))

    def fail_all(self, failure: Failure) -> None:
        """End every open request with this error."""
        self._is_over = True
        still_open = list(self._open.items())
        self._open.clear()
        for request_id, mailbox in still_open:
            mailbox.put(Failed(request_id, failure))
            self.on_end(request_id)

    async def run(self) -> str:
        """Read until the connection ends; the answer is "" for its end, else what was wrong with a frame.

        Cancelled, it leaves the connection open: a worker that loses it ends at once, and one that is asked to end may
        have something to store before.
        """
        problem = ""
        try:
            while True:
                for _ in range(_FRAMES_A_TURN):
                    body = await read_frame(self._reader)
                    self.last_heard_at = time.monotonic()
                    self._take(decode_from_worker(body))
                await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except msgspec.DecodeError as error:
            problem = f"It sent a message that cannot be read ({error})."
        except BugFault as error:
            problem = error.message
        self.close()
        return problem

    def close(self) -> None:
        """Close the connection; a worker that loses it ends itself."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()

    def _send(self, message: ToWorker) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_frame(message))

    def _take(self, message: FromWorker) -> None:
        match message:
            case Step(deltas):
                n_tokens = 0
                for delta in deltas:
                    n_tokens += delta.n_tokens
                    mailbox = self._open.get(delta.request_id)
                    if mailbox is not None:
                        mailbox.put(delta)
                self.generation_rate.add(n_tokens)
            case Queued() | PromptProgress():
                mailbox = self._open.get(message.request_id)
                if mailbox is not None:
                    mailbox.put(message)
            case Finished() | Failed() | Embedded() | Counted() | Reranked() | Tokenized() | Rendered():
                mailbox = self._open.pop(message.request_id, None)
                if mailbox is not None:
                    mailbox.put(message)
                    self.on_end(message.request_id)
            case Health():
                self.health = message
                self._on_health(message)
            case LoadProgress() | Ready() | LoadFailed():
                self._on_load(message)
            case Hello():
                raise BugFault("It said hello twice.")
