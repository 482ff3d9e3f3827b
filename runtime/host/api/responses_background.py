"""Answers of the Responses API that need no connection (`background`): looked at, followed, cancelled by their id.

Bounded: so many run, each for so long; the events of those that ended lately are kept for who lost the connection,
and what they ended with is kept as any other answer (`responses_store`).
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from runtime.errors import BadRequest, BugFault, Busy, RuntimeFault, WorldFault, to_failure
from runtime.host.api.answering import BuildAsks, said
from runtime.host.api.http import KEEP_ALIVE_S, EventStream
from runtime.host.api.responses_answer import ResponseAnswer, ResponseMaker, error_bytes
from runtime.host.api.responses_request import ResponsesAsk
from runtime.host.caller import Caller
from runtime.host.desk import Desk, Ticket
from runtime.messages.ipc import Delta, Finished

MAX_RUNNING = 32
RUN_WITHIN_S = 3600.0
"""An answer that nobody waits for must not run for ever."""
MAX_ENDED = 64
"""Ended answers whose events are kept."""
MAX_EVENTS_BYTES = 2 * 1024 * 1024
"""Events kept of one answer; the first ones go first."""
MAX_ENDED_BYTES = 16 * 1024 * 1024
"""Events kept of all that ended."""
_RETRY_AFTER_S = 10

log = logging.getLogger(__name__)

Keep = Callable[[ResponsesAsk, ResponseMaker], ResponseAnswer]
Build = Callable[[Ticket, ResponsesAsk], BuildAsks]


class BackgroundRun:
    """One answer, from its place in the line to some time after its end. Home: the event loop."""

    def __init__(self, ask: ResponsesAsk) -> None:
        self.ask = ask
        self.ticket: Ticket | None = None
        self.maker: ResponseMaker | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_ended = False
        self.size_bytes = 0
        self._events: deque[bytes] = deque()
        self._n_dropped = 0
        self._news = asyncio.Event()

    @property
    def response_id(self) -> str:
        """What a program calls it."""
        return self._made().response_id

    def shown(self) -> ResponseAnswer:
        """The answer as it is now."""
        maker = self._made()
        if maker.answer is not None:
            return maker.answer
        is_waiting = self.ticket is None or self.ticket.info().state in ("loading", "queued")
        return maker.shown("queued" if is_waiting else "in_progress")

    def add(self, data: bytes) -> None:
        """Keep events, and wake who follows them."""
        for event in data.split(b"\n\n"):
            if event:
                self._events.append(event + b"\n\n")
                self.size_bytes += len(event) + 2
        while self.size_bytes > MAX_EVENTS_BYTES:
            self.size_bytes -= len(self._events.popleft())
            self._n_dropped += 1
        self.wake()

    def wake(self) -> None:
        """Let those who follow look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def events_from(self, number: int) -> Sequence[bytes]:
        """The events from this number on.

        Raises:
            BadRequest: some of them are not kept any more.
        """
        if number < self._n_dropped:
            raise BadRequest(
                f"The events before number {self._n_dropped} of {self.response_id!r} are not kept any more.",
                hint="Get the answer without `stream`.",
                param="starting_after",
            )
        return [event for index, event in enumerate(self._events, self._n_dropped) if index >= number]

    async def follow(self, after: int, stream: EventStream) -> None:
        """Send the events after this number, those that are kept and those to come, to the end of the answer.

        Raises:
            BadRequest: some are not kept any more, and nothing was sent yet.
            ClientGone: the program left, which the answer does not mind.
        """
        number = after + 1
        while True:
            news = self._news
            try:
                events = self.events_from(number)
            except BadRequest as error:
                if not stream.has_begun:
                    raise
                await stream.end(error_bytes(error, number))
                return
            if events:
                number += len(events)
                await stream.write(b"".join(events))
            elif self.has_ended:
                await stream.end()
                return
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE_S / 2)
                await stream.beat()

    def _made(self) -> ResponseMaker:
        if self.maker is None:
            raise BugFault("An answer in the background was read before it was begun.")
        return self.maker


class Background:
    """Those that run, and those that ended lately. Home: the event loop."""

    def __init__(self, desk: Desk, build: Build, keep: Keep, route: str) -> None:
        self._desk = desk
        self._build = build
        self._keep = keep
        self._route = route
        self._running: dict[str, BackgroundRun] = {}
        self._ended: OrderedDict[str, BackgroundRun] = OrderedDict()
        self._n_beginning = 0

    def running(self, response_id: str) -> BackgroundRun | None:
        """One that has not ended."""
        return self._running.get(response_id)

    def followed(self, response_id: str) -> BackgroundRun | None:
        """One whose events are kept."""
        return self._running.get(response_id) or self._ended.get(response_id)

    def forget(self, response_id: str) -> None:
        """Drop the events of one that ended."""
        self._ended.pop(response_id, None)

    async def start(self, ask: ResponsesAsk, caller: Caller) -> BackgroundRun:
        """Begin an answer; it stands in the line when this returns.

        Raises:
            Busy: too many run, or the caller's key has taken what it may.
            RuntimeFault: there is no such model.
        """
        if len(self._running) + self._n_beginning >= MAX_RUNNING:
            raise Busy(
                f"{MAX_RUNNING} answers run in the background already.",
                hint="Wait until one has ended, or cancel one.",
                retry_after_s=_RETRY_AFTER_S,
                waiting=MAX_RUNNING,
            )
        self._n_beginning += 1
        try:
            await self._desk.check(ask.body.model)
            run = BackgroundRun(ask)
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            run.task = asyncio.create_task(self._run(run, caller, begun), name="answer in the background")
            await begun
        finally:
            self._n_beginning -= 1
        return run

    async def cancel(self, run: BackgroundRun) -> None:
        """End one; what it has written so far is kept."""
        if run.task is not None:
            run.task.cancel()
            await asyncio.wait({run.task})

    # --- one answer ---------------------------------------------------------------------------------------

    async def _run(self, run: BackgroundRun, caller: Caller, begun: asyncio.Future[None]) -> None:
        try:
            async with self._desk.ticket(self._route, caller, run.ask.body.model) as ticket:
                run.ticket = ticket
                run.maker = maker = ResponseMaker(run.ask, ticket)
                self._running[run.response_id] = run
                run.add(maker.queued())
                if not begun.done():
                    begun.set_result(None)
                await self._answer(run, ticket, maker)
        except Exception as error:  # top of a task
            if not begun.done():
                begun.set_exception(error)
            elif not isinstance(error, RuntimeFault):
                log.exception("an answer in the background stopped")
        finally:
            begun.cancel()

    async def _answer(self, run: BackgroundRun, ticket: Ticket, maker: ResponseMaker) -> None:
        """Have it written, and keep what came of it; a failure ends the ticket as one."""
        try:
            async with asyncio.timeout(RUN_WITHIN_S):
                await self._hear(run, ticket, maker)
        except TimeoutError:
            error = WorldFault(f"The answer took longer than {RUN_WITHIN_S:,.0f} s.", hint="Ask for a shorter one.")
            self._end(run, maker, maker.failed(error))
            raise error from None
        except RuntimeFault as error:
            self._end(run, maker, maker.failed(error))
            raise
        except asyncio.CancelledError:
            # Asked for by a program, or the host ends; who asked sees it in the answer.
            self._end(run, maker, maker.cancelled())
        except Exception as error:
            failure = to_failure(error)
            self._end(run, maker, maker.failed(BugFault(failure.message, hint=failure.hint)))
            raise

    async def _hear(self, run: BackgroundRun, ticket: Ticket, maker: ResponseMaker) -> None:
        async with contextlib.aclosing(said(self._desk, ticket, self._build(ticket, run.ask))) as batches:
            async for batch in batches:
                for message in batch:
                    if isinstance(message, Delta):
                        run.add(maker.delta(message))
                    elif isinstance(message, Finished):
                        self._end(run, maker, maker.end(message))

    def _end(self, run: BackgroundRun, maker: ResponseMaker, last: bytes) -> None:
        if run.has_ended:
            return
        self._keep(run.ask, maker)
        run.has_ended = True
        self._running.pop(run.response_id, None)
        self._ended[run.response_id] = run
        run.add(last)
        while len(self._ended) > MAX_ENDED or sum(one.size_bytes for one in self._ended.values()) > MAX_ENDED_BYTES:
            self._ended.popitem(last=False)
