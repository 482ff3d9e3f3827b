"""Where requests to models are taken: gives each a model, a mailbox and a row in the table, and counts it.

The dialects in `runtime.host.api` say what to ask and shape what comes back; nothing else talks to a worker about
a request.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from runtime.errors import BugFault, RuntimeFault, from_failure, to_failure
from runtime.host.adapters import with_scales
from runtime.host.admission import Ask, cancelled
from runtime.host.caller import Caller
from runtime.host.mailbox import Mailbox, RequestMessage
from runtime.host.model_slot import ModelSlot
from runtime.host.request_log import Conversation, LoggedRequest, RequestLog, time_of
from runtime.host.supervisor import Lease, Supervisor
from runtime.messages.api import RequestInfo, RequestState
from runtime.messages.ipc import (
    Counted,
    Delta,
    Embedded,
    Failed,
    Finished,
    Generate,
    PromptProgress,
    Queued,
    Rendered,
    Reranked,
    Tokenized,
)
from runtime.messages.shared import Timings, Usage
from runtime.units import now

log = logging.getLogger(__name__)

MAX_FINISHED_ROWS = 200
"""Finished requests that stay in the table; the running ones are bounded by the queues of the models."""

_ID_PREFIXES = {"/v1/chat/completions": "chatcmpl", "/v1/completions": "cmpl", "/v1/embeddings": "embd"}


class Counters(Protocol):
    """What is told about each request; `runtime.host.metrics` keeps it."""

    def request_ended(self, route: str, model: str, state: RequestState, usage: Usage) -> None:
        """A request ended, one way or another."""
        ...

    def first_token(self, model: str, after_s: float) -> None:
        """The first text of a request came so long after it arrived."""
        ...


_STATUS = {"cancelled": 499, "failed": 500}


class Meter(Protocol):
    """What bounds the use of API keys; `runtime.host.key_book` keeps it."""

    def begin(self, name: str) -> None:
        """A request with the key of this name begins; raises `LimitReached`."""
        ...

    def end(self, name: str, n_tokens: int) -> None:
        """It is over, having read and written so many tokens."""
        ...


class Ticket:
    """One request to a model, from arrival to end. Home: the event loop."""

    def __init__(self, route: str, caller: Caller, model: str, counters: Counters, *, is_passing: bool = False) -> None:
        self.is_passing = is_passing
        self.request_id = f"{_ID_PREFIXES.get(route, 'req')}-{secrets.token_hex(12)}"
        self.route = route
        self.caller = caller
        self.model = model
        self.usage = Usage()
        self.created_s = int(now())
        self._arrived_at = time.monotonic()
        self._started_s = now()
        self._state: RequestState = "loading"
        self._ttft_s = 0.0
        self._has_begun = False
        self._tps = 0.0
        self._generated = 0
        self._prompt_read = 0
        self._problem = ""
        self._error: RuntimeFault | None = None
        self._counters = counters
        self.conversation: Conversation | None = None
        """What is said, where the log wants it."""
        self._mailbox: Mailbox | None = None
        self._lease: Lease | None = None
        self._ids: list[str] = []
        self._unsent: deque[Ask] = deque()
        self._cancel_wanted = False
        self._ended_by: RuntimeFault | None = None
        self._waiting: asyncio.Future[Lease] | None = None
        self._is_single = False
        self.timings: Timings | None = None
        """The model's own figures, once it has given the one answer that was asked for."""

    def send(self, lease: Lease, asks: Sequence[Ask]) -> None:
        """Send the request, which may have several parts, to the model.

        No more parts are with the model at once than it has slots; the next goes when one ends. So one request of
        many parts neither overflows the model's queue nor fills it for everyone.

        Raises:
            Busy: the model's queue is full.
            RuntimeFault: what the request was ended with meanwhile.
        """
        if self._ended_by is not None:
            raise self._ended_by
        self._lease = lease
        self.model = lease.model_id
        self._mailbox = Mailbox(len(asks))
        only = asks[0] if len(asks) == 1 else None
        self._is_single = isinstance(only, Generate) and only.options.n == 1
        self._state = "queued"
        self._unsent.extend(asks)
        for _ in range(lease.slot.facts.n_parallel if lease.slot.facts is not None else 1):
            self._send_next(lease)
        if self._cancel_wanted:
            self.cancel()

    def _send_next(self, lease: Lease) -> None:
        if self._unsent and self._mailbox is not None:
            ask = self._unsent.popleft()
            ask = with_scales(ask, lease.slot.adapter_scales)
            if self.conversation is not None and isinstance(ask, Generate):
                self.conversation.ask(ask.messages, ask.prompt)
            lease.slot.admission.submit(ask, self._mailbox, self.caller, is_first=not self._ids)
            self._ids.append(ask.request_id)

    async def take(self, patience_s: float | None = None) -> list[RequestMessage]:
        """What the model says, as it comes; empty after `patience_s` of silence.

        Raises:
            RuntimeFault: the request failed; what came before in the same batch is handed out first.
        """
        if self._mailbox is None:
            raise BugFault("A request was read before it was sent.")
        if self._error is not None:
            raise self._error
        batch = await self._mailbox.take(patience_s)
        for index, message in enumerate(batch):
            if isinstance(message, Failed):
                self._state = "failed"
                self._problem = message.failure.message
                self._error = from_failure(message.failure)
                if index == 0:
                    raise self._error
                return batch[:index]
            self._note(message)
            if isinstance(message, Finished) and self._lease is not None:
                self._send_next(self._lease)
        return batch

    @property
    def has_ended(self) -> bool:
        """True once the last message has been taken."""
        return self._mailbox is not None and self._mailbox.has_ended and not len(self._mailbox) and self._error is None

    async def ask_aside(self, lease: Lease, ask: Ask) -> RequestMessage:
        """Ask something that is answered at once and that the request itself needs (tokens of its prompt).

        Raises:
            RuntimeFault: as `take`.
        """
        mailbox = Mailbox(1)
        lease.link.submit(ask, mailbox)
        try:
            while True:
                for message in await mailbox.take():
                    if isinstance(message, Failed):
                        raise from_failure(message.failure)
                    if not isinstance(message, Queued | PromptProgress):
                        return message
        finally:
            lease.link.cancel(ask.request_id)

    def cancel(self) -> None:
        """Ask the model to stop; the reader sees how it ended."""
        self._cancel_wanted = True
        if self._lease is not None:
            for request_id in self._ids:
                self._lease.slot.admission.request_end(request_id)
        while self._unsent and self._mailbox is not None:
            self._mailbox.put(cancelled(self._unsent.popleft()))

    def end_with(self, error: RuntimeFault) -> None:
        """End the request with an error, wherever it stands: its reader gets it after what came before."""
        if self._ended_by is not None:
            return
        self._ended_by = error
        if self._waiting is not None:
            self._waiting.cancel()
        self._unsent.clear()
        if self._mailbox is None or self._lease is None:
            return
        for request_id in self._ids:
            self._lease.slot.admission.cancel(request_id)
        self._mailbox.put(Failed(self.request_id, to_failure(error)))

    async def wait_for(self, leasing: Awaitable[Lease]) -> Lease:
        """Wait for the model, unless the request is ended meanwhile.

        Raises:
            RuntimeFault: what it was ended with, or as `Supervisor.use`.
        """
        if self._ended_by is not None:
            raise self._ended_by
        self._waiting = asyncio.ensure_future(leasing)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            if self._ended_by is not None:
                raise self._ended_by from None
            raise
        finally:
            self._waiting = None

    def close(self, error: BaseException | None) -> None:
        """The request is over, for whatever reason; one that still runs is cancelled."""
        if self._lease is not None:
            for request_id in self._ids:
                self._lease.slot.admission.cancel(request_id)
        if self._error is None and isinstance(error, RuntimeFault):
            self._error = error
            self._state = "failed"
            self._problem = error.message
        elif self._state not in ("finished", "cancelled", "failed"):
            self._state = "cancelled"
        # A name that no model has must not become a label: anyone could make up thousands.
        self._counters.request_ended(self.route, self.model if self._lease else "none", self._state, self.usage)

    @property
    def n_tokens(self) -> int:
        """Read and written, also by a request that was left before its end."""
        prompt_tokens = self.usage.prompt_tokens or self._prompt_read
        return prompt_tokens + max(self.usage.completion_tokens, self._generated)

    def logged(self, refused: RuntimeFault | None = None) -> LoggedRequest:
        """The line of the log; `refused` is why it never began."""
        row = self.info()
        error = refused or self._error or self._ended_by
        status = error.status if error is not None else _STATUS.get(row.state, 200)
        at, duration_s = time_of(self._started_s)
        return LoggedRequest(
            time=at,
            request_id=row.request_id,
            client=row.client,
            route=row.route,
            model=row.model,
            status=status,
            duration_s=duration_s,
            key=row.key,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            generated_tokens=row.generated_tokens,
            time_to_first_token_s=row.time_to_first_token_s,
            generation_tps=row.generation_tps,
            problem=error.message if error is not None else row.problem,
            asked=self.conversation.asked if self.conversation is not None else "",
            answered=self.conversation.answered if self.conversation is not None else "",
        )

    def info(self) -> RequestInfo:
        """The row of the table."""
        return RequestInfo(
            request_id=self.request_id,
            route=self.route,
            model=self.model,
            client=self.caller.address,
            state=self._state,
            started_s=self._started_s,
            prompt_tokens=self.usage.prompt_tokens,
            generated_tokens=self.usage.completion_tokens or self._generated,
            time_to_first_token_s=round(self._ttft_s, 4),
            generation_tps=round(self._tps, 2),
            problem=self._problem,
            key=self.caller.key,
        )

    def _note(self, message: RequestMessage) -> None:
        match message:
            case Delta():
                self._state = "generating"
                if self.conversation is not None:
                    self.conversation.add(message.text)
                if not self._has_begun:  # once, also where several parts begin one after the other
                    self._has_begun = True
                    self._ttft_s = time.monotonic() - self._arrived_at
                    self._counters.first_token(self.model, self._ttft_s)
                self._generated += message.n_tokens
            case Queued():
                self._state = "generating" if self._has_begun else "queued"
            case PromptProgress(done=done):
                self._prompt_read = done
                self._state = "generating" if self._has_begun else "prompt"
            case Finished(usage=usage, reasons=reasons, timings=timings):
                self._add_usage(usage)
                self._tps = timings.generation_tps
                if self._is_single and "cancelled" not in reasons:
                    self.timings = timings
                if self._mailbox is not None and self._mailbox.has_ended:
                    self._state = "cancelled" if "cancelled" in reasons else "finished"
            case Embedded(usage=usage) | Reranked(usage=usage):
                self._add_usage(usage)
                self._state = "finished"
            case Counted() | Tokenized() | Rendered():
                self._state = "finished"
            case Failed():
                pass

    def _add_usage(self, usage: Usage) -> None:
        mine = self.usage
        self.usage = Usage(
            mine.prompt_tokens + usage.prompt_tokens,
            mine.cached_tokens + usage.cached_tokens,
            mine.completion_tokens + usage.completion_tokens,
            mine.reasoning_tokens + usage.reasoning_tokens,
        )


class Desk:
    """All requests of this host, running and lately finished."""

    def __init__(
        self,
        supervisor: Supervisor,
        counters: Counters,
        meter: Meter,
        request_log: RequestLog,
        on_alone: Callable[[ModelSlot, Usage, Timings], None] = lambda _slot, _usage, _timings: None,
        meant_by: Callable[[str], str] = lambda name: name,
    ) -> None:
        """`on_alone` is told of each answer that was given while no model did anything else.

        `meant_by` gives the id that a further name of a model stands for.
        """
        self._meant_by = meant_by
        self._supervisor = supervisor
        self._on_alone = on_alone
        self._counters = counters
        self._meter = meter
        self._log = request_log
        self._running: dict[str, Ticket] = {}
        self._finished: deque[RequestInfo] = deque(maxlen=MAX_FINISHED_ROWS)

    @contextlib.asynccontextmanager
    async def ticket(
        self, route: str, caller: Caller, model: str, *, is_passing: bool = False
    ) -> AsyncIterator[Ticket]:
        """A row for one request; leaving the block ends the request, also in the worker.

        A passing one (counting tokens while a person types) loads no model and leaves no row.

        Raises:
            LimitReached: the caller's key has taken what it may.
        """
        ticket = Ticket(route, caller, model, self._counters, is_passing=is_passing)
        is_logged = caller.listener != 0 and self._log.is_on
        try:
            self._meter.begin(caller.key)
        except RuntimeFault as refused:
            if is_logged:
                self._log.add(ticket.logged(refused))
            raise
        if is_logged and self._log.wants_text:
            ticket.conversation = Conversation()
        self._running[ticket.request_id] = ticket
        error: BaseException | None = None
        try:
            yield ticket
        except BaseException as raised:
            error = raised
            raise
        finally:
            ticket.close(error)
            del self._running[ticket.request_id]
            self._meter.end(caller.key, ticket.n_tokens)
            if is_logged:
                self._log.add(ticket.logged())
            if not is_passing:
                self._keep_row(ticket.info())

    def _keep_row(self, row: RequestInfo) -> None:
        self._finished.append(row)
        log.info(
            "%s %s for %s with %s: %s, %d + %d tokens, first after %.3f s%s",
            row.request_id,
            row.route,
            row.client,
            row.model,
            row.state,
            row.prompt_tokens,
            row.generated_tokens,
            row.time_to_first_token_s,
            f" ({row.problem})" if row.problem else "",
        )

    async def check(self, name: str) -> None:
        """Raise at once what a request to a model of this name would raise, as `Supervisor.check`."""
        await self._supervisor.check(self._meant_by(name))

    @contextlib.asynccontextmanager
    async def lease(self, ticket: Ticket) -> AsyncIterator[Lease]:
        """The ticket's model, loaded where needed; unless the ticket is a passing one.

        Raises:
            RuntimeFault: no such model, or it cannot be loaded.
        """
        by_person = ticket.caller.is_person
        name = self._meant_by(ticket.model)
        async with contextlib.AsyncExitStack() as stack:
            using = self._supervisor.use(name, load=not ticket.is_passing, by_person=by_person)
            lease = await ticket.wait_for(stack.enter_async_context(using))
            mark = self._supervisor.quiet_mark()
            yield lease
            if ticket.timings is not None and mark is not None and self._supervisor.quiet_mark() == mark:
                self._on_alone(lease.slot, ticket.usage, ticket.timings)

    def rows(self) -> tuple[RequestInfo, ...]:
        """Finished ones, then running ones, oldest first."""
        return (*self._finished, *(ticket.info() for ticket in self._running.values() if not ticket.is_passing))

    @property
    def n_running(self) -> int:
        """Requests that have not ended."""
        return len(self._running)

    def cancel(self, request_id: str) -> None:
        """Cancel a running request; an unknown one is no error."""
        ticket = self._running.get(request_id)
        if ticket is not None:
            ticket.cancel()

    def end_where(self, is_meant: Callable[[Caller], bool], error: RuntimeFault) -> None:
        """End the running requests of some callers with an error."""
        for ticket in tuple(self._running.values()):
            if is_meant(ticket.caller):
                ticket.end_with(error)


async def ask_once(desk: Desk, ticket: Ticket, build: Callable[[str], Ask]) -> RequestMessage:
    """Send a request that is answered by one message, and wait for it.

    Raises:
        RuntimeFault: as `Desk.lease` and `Ticket.take`.
    """
    async with desk.lease(ticket) as lease:
        ticket.send(lease, [build(ticket.request_id)])
        while True:
            for message in await ticket.take():
                if isinstance(message, Embedded | Counted | Reranked | Tokenized | Rendered | Finished):
                    return message
