"""How every dialect hears a model out: a beat in each silence, and no lease that outlives its request."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from runtime.errors import BadRequest
from runtime.host.admission import Ask
from runtime.host.api.answering import check_media, said
from runtime.host.desk import Desk, Ticket
from runtime.host.supervisor import Lease
from runtime.messages.ipc import Delta, Tokenize
from runtime.messages.shared import MediaPart, Message, PicturePart

BEAT_S = 0.01
ASK = Tokenize("r", "x")


class FakeDesk:
    """A model whose load ends when the test says so."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        self.n_leases = 0

    @contextlib.asynccontextmanager
    async def lease(self, _ticket: object) -> AsyncIterator[object]:
        self.n_leases += 1
        try:
            await self.loaded.wait()
            yield object()
        finally:
            self.n_leases -= 1


class FakeTicket:
    """Answers in the batches it is given; an empty one is a silence."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = deque(batches)
        self.sent: list[Ask] = []

    @property
    def has_ended(self) -> bool:
        return not self.batches

    def send(self, _lease: object, asks: Sequence[Ask]) -> None:
        self.sent.extend(asks)

    async def take(self, patience_s: float) -> list[Any]:
        assert patience_s == BEAT_S
        return self.batches.popleft()


async def build(_lease: Lease) -> list[Ask]:
    return [ASK]


def asked(desk: FakeDesk, ticket: FakeTicket, make: Any = build) -> Any:
    return contextlib.aclosing(said(cast("Desk", desk), cast("Ticket", ticket), make, BEAT_S))


def test_when_the_model_is_being_loaded_then_each_silence_is_told() -> None:
    async def run() -> None:
        desk, ticket = FakeDesk(), FakeTicket([Delta("r", 0, "content", "a")], [])
        async with asked(desk, ticket) as batches:
            assert [await anext(batches) for _ in range(3)] == [[], [], []]
            assert not ticket.sent
            desk.loaded.set()
            rest = [batch async for batch in batches]
        assert [batch for batch in rest if batch] == [[Delta("r", 0, "content", "a")]]
        assert rest[-1] == []
        assert ticket.sent == [ASK]
        assert desk.n_leases == 0

    asyncio.run(run())


def test_when_the_caller_leaves_while_it_is_loaded_then_nothing_is_held() -> None:
    async def run() -> None:
        desk = FakeDesk()
        async with asked(desk, FakeTicket()) as batches:
            await anext(batches)
            assert desk.n_leases == 1
        assert desk.n_leases == 0

    asyncio.run(run())


def test_when_the_request_does_not_suit_the_model_then_nothing_is_sent_or_held() -> None:
    async def refuse(_lease: Lease) -> list[Ask]:
        raise BadRequest("No.")

    async def run() -> None:
        desk, ticket = FakeDesk(), FakeTicket([])
        desk.loaded.set()
        with pytest.raises(BadRequest):
            async with asked(desk, ticket, refuse) as batches:
                await anext(batches)
        assert not ticket.sent
        assert desk.n_leases == 0

    asyncio.run(run())


class _Facts:
    can_see = True
    can_hear = False


class _Slot:
    facts = _Facts()


class _SeeingLease:
    model_id = "seer"
    slot = _Slot()


def test_when_a_model_sees_but_does_not_hear_then_only_sounds_are_refused() -> None:
    lease = cast("Lease", _SeeingLease())
    check_media(lease, [Message("user", parts=(PicturePart(MediaPart("image", b"x")),))])
    with pytest.raises(BadRequest, match="cannot hear"):
        check_media(lease, [Message("user", parts=(PicturePart(MediaPart("audio", b"x")),))])
