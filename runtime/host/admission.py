"""Who goes next to a model: a queue before the worker's own, so that no client can fill that one.

The worker answers as many requests at once as it has slots, and takes more in order of arrival. Here it is only given
as many as keep its slots full, and each time a slot is free the client goes next that has the fewest of them; among
equals, the one whose last turn was longest ago. So a client with a hundred requests takes what others leave, and
another's first request waits for about one answer. What the person asks goes at once: the worker keeps a place for it.

A worker that dies fails what it had; what waits here goes to the one that is started after it.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from runtime.errors import Busy, Failure, RuntimeFault, to_failure
from runtime.host.caller import Caller
from runtime.host.mailbox import Mailbox
from runtime.messages.ipc import Count, Embed, Failed, Finished, Generate, Queued, Rerank, TextAsk
from runtime.messages.shared import FinishReason, Timings, Usage

Ask = Generate | Embed | Count | Rerank | TextAsk

MAX_CLIENTS = 64
"""Clients that may wait for one model. A client may have its share of the queue even when others have filled it, so
the whole is bounded by the queue's length times 1 + 1/2 + ... + 1/64, or 4.7."""

TELL_EVERY_S = 0.25
"""Places in the queue are told at most so often."""

MAX_RETRY_AFTER_S = 600
_FIRST_GUESS_S = 5.0
"""What a request takes, as long as none has ended."""
_SMOOTHING = 0.2


class Link(Protocol):
    """The worker's end (`runtime.host.worker_link`)."""

    @property
    def takes(self) -> bool:
        """False once it can answer nothing more."""
        ...

    def submit(self, message: Ask, mailbox: Mailbox) -> None:
        """Send a request; raises `RuntimeFault`."""
        ...

    def cancel(self, request_id: str) -> None:
        """Cancel, and hear no more of it."""
        ...

    def request_end(self, request_id: str) -> None:
        """Cancel, and hear how it ended."""
        ...


@dataclass(slots=True, eq=False)
class _Entry:
    """A request, waiting or with the worker. `n_slots` is how many slots it takes at most."""

    ask: Ask
    mailbox: Mailbox
    client: "_Client"
    n_slots: int
    begun_at: float = 0.0
    place_told: int = 0


@dataclass(slots=True, eq=False)
class _Client:
    """`turn` is the number of its last turn; `n_slots` what it has in the worker."""

    name: str
    is_person: bool
    waiting: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    n_slots: int = 0
    turn: int = 0


class Admission:
    """The queue of one model. Home: the event loop."""

    def __init__(self, max_waiting: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`max_waiting` requests may wait, those in the worker's own queue included."""
        self._max_waiting = max_waiting
        self._clock = clock
        self._link: Link | None = None
        self._n_parallel = 1
        self._n_ahead = 0
        self._clients: dict[str, _Client] = {}
        self._with_worker: dict[str, _Entry] = {}
        self._n_slots = 0
        self._n_waiting = 0
        self._n_turns = 0
        self._service_s = 0.0
        self._telling: asyncio.TimerHandle | None = None

    @property
    def n_waiting(self) -> int:
        """Requests that wait here; the worker counts its own."""
        return self._n_waiting

    # --- the worker comes and goes ------------------------------------------------------------------------

    def open(self, link: Link, n_parallel: int) -> None:
        """A worker is ready, with so many slots."""
        self._link = link
        self._n_parallel = max(1, n_parallel)
        # One slot in four may become free in a step and find its next request already there.
        self._n_ahead = min(max(1, n_parallel // 4), self._max_waiting)
        self._fill()

    def pause(self) -> None:
        """The worker is gone, and what it had has failed; the others wait for the next."""
        self._link = None
        for entry in tuple(self._with_worker.values()):
            self._leave_worker(entry)

    def fail_all(self, failure: Failure) -> None:
        """No worker will come: end all that wait."""
        for client in tuple(self._clients.values()):
            for request_id, entry in tuple(client.waiting.items()):
                self._leave_queue(entry)
                entry.mailbox.put(Failed(request_id, failure))

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, ask: Ask, mailbox: Mailbox, caller: Caller, *, is_first: bool = True) -> None:
        """Send a request to the worker now, or when it is its turn; what comes of it goes to `mailbox`.

        Args:
            ask: what is asked; questions that take no slot (counting, tokens) go at once.
            mailbox: gets `Queued` with the place in the queue while it waits.
            caller: whose turn it is.
            is_first: false for further parts of a request that was taken; they are never refused.

        Raises:
            Busy: the queue is full, or this client's share of it; says when to come back.
        """
        n_slots = _slots_of(ask, self._n_parallel)
        if not n_slots and self._link is not None and self._link.takes:
            self._link.submit(ask, mailbox)
            return
        client = self._clients.get(caller.client)
        if client is None:
            client = _Client(caller.client, caller.is_person)
        if is_first and not caller.is_person:
            self._check_room(client)
        self._clients[client.name] = client
        entry = _Entry(ask, mailbox, client, n_slots)
        client.waiting[ask.request_id] = entry
        self._n_waiting += 1
        self._fill()
        self._tell_later()

    def cancel(self, request_id: str) -> None:
        """Forget a request, waiting or running; an unknown one is no error."""
        entry = self._waiting_entry(request_id)
        if entry is not None:
            self._leave_queue(entry)
            self._tell_later()
        elif self._link is not None:
            self._link.cancel(request_id)

    def request_end(self, request_id: str) -> None:
        """End a request as cancelled; its mailbox hears how it ended."""
        entry = self._waiting_entry(request_id)
        if entry is None:
            if self._link is not None:
                self._link.request_end(request_id)
            return
        self._leave_queue(entry)
        self._tell_later()
        entry.mailbox.put(cancelled(entry.ask))

    def ended(self, request_id: str) -> None:
        """The worker is done with a request, or was told to be."""
        entry = self._with_worker.get(request_id)
        if entry is None:
            return
        took_s = self._clock() - entry.begun_at
        self._service_s += (took_s - self._service_s) * (_SMOOTHING if self._service_s else 1.0)
        self._leave_worker(entry)
        self._fill()

    def _waiting_entry(self, request_id: str) -> _Entry | None:
        if not self._n_waiting or request_id in self._with_worker:
            return None
        return next(
            (client.waiting[request_id] for client in self._clients.values() if request_id in client.waiting), None
        )

    # --- bounds -------------------------------------------------------------------------------------------

    def _check_room(self, client: _Client) -> None:
        n_full = self._n_waiting + max(0, self._n_slots - self._n_parallel)
        is_free = self._link is not None and not self._n_waiting and self._n_slots < self._n_parallel
        if is_free or n_full < self._max_waiting:
            return
        waiting = [other for other in self._clients.values() if other.waiting and not other.is_person]
        n_clients = len(waiting) + (not client.waiting)
        share = max(1, self._max_waiting // n_clients) if self._max_waiting else 0
        is_new = share > 0 and not (client.waiting or client.n_slots)
        if n_clients <= MAX_CLIENTS and (is_new or (n_clients > 1 and len(client.waiting) < share)):
            return
        each_s = self._service_s or _FIRST_GUESS_S
        # A place is free when one of this client's gets its turn: it has a share of the slots.
        retry_after_s = max(1, min(MAX_RETRY_AFTER_S, math.ceil(each_s * n_clients / self._n_parallel)))
        raise Busy(
            f"{n_full} requests are waiting already, {len(client.waiting)} of them yours.",
            hint=f"Try again in {retry_after_s} s, or load the model with more parallel slots.",
            retry_after_s=retry_after_s,
            waiting=n_full,
        )

    # --- turns --------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        while self._n_waiting and self._link is not None and self._link.takes:
            client = self._next_client()
            if client is None:
                return
            entry = next(iter(client.waiting.values()))
            self._leave_queue(entry)
            self._begin(entry, self._link)
            self._tell_later()

    def _next_client(self) -> _Client | None:
        best: _Client | None = None
        for client in self._clients.values():
            if not client.waiting:
                continue
            if client.is_person:
                return client
            if best is None or (client.n_slots, client.turn) < (best.n_slots, best.turn):
                best = client
        return best if self._n_slots < self._n_parallel + self._n_ahead else None

    def _begin(self, entry: _Entry, link: Link) -> None:
        request_id = entry.ask.request_id
        client = self._clients.setdefault(entry.client.name, entry.client)
        self._n_turns += 1
        client.turn = self._n_turns
        client.n_slots += entry.n_slots
        self._n_slots += entry.n_slots
        entry.begun_at = self._clock()
        self._with_worker[request_id] = entry
        try:
            link.submit(entry.ask, entry.mailbox)
        except RuntimeFault as error:
            self._leave_worker(entry)
            entry.mailbox.put(Failed(request_id, to_failure(error)))

    def _leave_queue(self, entry: _Entry) -> None:
        del entry.client.waiting[entry.ask.request_id]
        self._n_waiting -= 1
        self._forget(entry.client)

    def _leave_worker(self, entry: _Entry) -> None:
        if self._with_worker.pop(entry.ask.request_id, None) is not None:
            self._n_slots -= entry.n_slots
            entry.client.n_slots -= entry.n_slots
            self._forget(entry.client)

    def _forget(self, client: _Client) -> None:
        """Keep no client that has nothing here: their number is bounded by their requests."""
        if not client.waiting and not client.n_slots:
            self._clients.pop(client.name, None)

    # --- places -------------------------------------------------------------------------------------------

    def _tell_later(self) -> None:
        if self._telling is None and self._n_waiting:
            self._telling = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell_places)

    def _tell_places(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        for place, entry in enumerate(self._in_turn(), 1 + max(0, self._n_slots - self._n_parallel)):
            if entry.place_told != place:
                entry.place_told = place
                entry.mailbox.put(Queued(entry.ask.request_id, place))

    def _in_turn(self) -> Iterator[_Entry]:
        """What waits, in about the order in which it will go."""
        clients = [client for client in self._clients.values() if client.waiting]
        clients.sort(key=lambda client: (not client.is_person, client.n_slots, client.turn))
        lines = [iter(client.waiting.values()) for client in clients]
        while lines:
            still: list[Iterator[_Entry]] = []
            for line in lines:
                entry = next(line, None)
                if entry is not None:
                    yield entry
                    still.append(line)
            lines = still


def cancelled(ask: Ask) -> Finished:
    """The end of a request that was cancelled before the worker had it."""
    n_choices = ask.options.n if isinstance(ask, Generate) else 1
    reason: FinishReason = "cancelled"
    return Finished(ask.request_id, (reason,) * n_choices, Usage(), Timings(), ("",) * n_choices)


def _slots_of(ask: Ask, n_parallel: int) -> int:
    """Slots of the model that a request takes at most; none for what is answered beside them."""
    match ask:
        case Generate(options=options):
            return min(options.n, n_parallel)
        case Embed(inputs=inputs):
            return min(len(inputs), n_parallel)
        case Rerank(documents=documents):
            return min(len(documents), n_parallel)
        case _:
            return 0
