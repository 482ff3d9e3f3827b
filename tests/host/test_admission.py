"""Turns: which client's request goes to the model next."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runtime.errors import Busy, Failure, GenerationFailed
from runtime.host.admission import Admission, Ask
from runtime.host.caller import WINDOW, Caller
from runtime.host.mailbox import Mailbox, RequestMessage
from runtime.messages.ipc import Count, Embed, Failed, Finished, Generate, Queued
from runtime.messages.shared import Timings, Usage
from runtime.options import GenerateOptions

A, B, C = Caller("10.0.0.1"), Caller("10.0.0.2"), Caller("10.0.0.3", key="editor")


class FakeLink:
    """A worker that answers when it is told to."""

    def __init__(self, rig: "Rig") -> None:
        self._rig = rig
        self.takes = True
        self.open: dict[str, Mailbox] = {}
        self.begun: list[str] = []

    def submit(self, message: Ask, mailbox: Mailbox) -> None:
        if message.request_id.startswith("refused"):
            raise GenerationFailed("No.")
        assert self.takes
        self.open[message.request_id] = mailbox
        self.begun.append(message.request_id)

    def cancel(self, request_id: str) -> None:
        if self.open.pop(request_id, None) is not None:
            self._rig.admission.ended(request_id)

    def request_end(self, request_id: str) -> None:
        self.finish(request_id)

    def finish(self, request_id: str) -> None:
        self.open.pop(request_id).put(Finished(request_id, ("stop",), Usage(), Timings(), ("",)))
        self._rig.admission.ended(request_id)


class Rig:
    """A queue, and what each request was told."""

    def __init__(self, max_waiting: int = 32, n_parallel: int = 2) -> None:
        self.at_s = 0.0
        self.admission = Admission(max_waiting, clock=lambda: self.at_s)
        self.link = FakeLink(self)
        self.n_parallel = n_parallel
        self.mailboxes: dict[str, Mailbox] = {}
        self.admission.open(self.link, n_parallel)

    def submit(self, name: str, caller: Caller, *, n: int = 1, is_first: bool = True) -> None:
        mailbox = Mailbox()
        ask = Generate(name, prompt="x", options=GenerateOptions(n=n))
        self.admission.submit(ask, mailbox, caller, is_first=is_first)
        self.mailboxes[name] = mailbox

    def flood(self, letter: str, caller: Caller, count: int) -> None:
        for number in range(count):
            self.submit(f"{letter}{number}", caller)

    def run_down(self) -> list[str]:
        """Finish everything, the oldest first; the order in which it began."""
        while self.link.open:
            self.at_s += 1.0
            self.link.finish(next(iter(self.link.open)))
        return self.link.begun

    async def told(self, name: str) -> list[RequestMessage]:
        return await self.mailboxes[name].take()


def within_loop(body: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await body()

    asyncio.run(run())


def test_when_one_client_asks_then_slots_and_one_more_are_kept_full() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=2)
        rig.flood("a", A, 6)
        assert rig.link.begun == ["a0", "a1", "a2"]
        rig.link.finish("a1")
        assert rig.link.begun == ["a0", "a1", "a2", "a3"]
        assert rig.run_down() == [f"a{number}" for number in range(6)]
        assert rig.admission.n_waiting == 0

    within_loop(body)


def test_when_one_client_floods_then_the_first_request_of_another_goes_next() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=100)
        rig.flood("a", A, 100)
        rig.submit("b0", B)
        rig.link.finish("a0")
        assert rig.link.begun[-1] == "b0"

    within_loop(body)


def test_when_two_clients_flood_then_they_take_turns() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=100)
        rig.flood("a", A, 20)
        rig.flood("b", B, 20)
        begun = rig.run_down()
        first = begun[3:23]
        assert abs(sum(name[0] == "a" for name in first) - 10) <= 2
        assert sorted(begun) == sorted([f"a{n}" for n in range(20)] + [f"b{n}" for n in range(20)])

    within_loop(body)


def test_when_a_request_takes_many_slots_then_others_get_more_turns() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=100, n_parallel=4)
        for number in range(4):
            rig.submit(f"a{number}", A, n=4)
        assert rig.link.begun == ["a0", "a1"]  # the second fills the place ahead, and more
        rig.flood("b", B, 4)
        rig.link.finish("a0")
        assert rig.link.begun[2:] == ["b0"]
        rig.link.finish("a1")
        assert rig.link.begun[2:] == ["b0", "a2"]
        rig.link.finish("b0")
        assert rig.link.begun[2:] == ["b0", "a2", "b1"]

    within_loop(body)


def test_when_the_queue_is_full_then_the_next_is_refused_with_a_true_time_but_another_client_is_not() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=4, n_parallel=1)
        rig.flood("a", A, 1)
        rig.at_s += 8.0
        rig.link.finish("a0")
        rig.flood("b", B, 5)
        with pytest.raises(Busy) as told:
            rig.submit("b5", B)
        assert told.value.details["retry_after_s"] == 8
        assert told.value.details["waiting"] == 4
        rig.submit("more parts", B, is_first=False)
        for name in ("c0", "c1"):
            rig.submit(name, C)
        with pytest.raises(Busy):  # half of four are its share
            rig.submit("c2", C)
        rig.submit("person", WINDOW)

    within_loop(body)


def test_when_nothing_may_wait_then_only_free_slots_are_taken() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=0, n_parallel=2)
        rig.flood("a", A, 2)
        with pytest.raises(Busy):
            rig.submit("a2", A)
        with pytest.raises(Busy):
            rig.submit("b0", B)
        rig.link.finish("a0")
        rig.submit("b0", B)
        assert rig.link.begun == ["a0", "a1", "b0"]

    within_loop(body)


def test_when_the_person_asks_then_it_goes_at_once() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 20)
        rig.submit("person", WINDOW)
        assert rig.link.begun[-1] == "person"

    within_loop(body)


def test_when_a_question_takes_no_slot_then_it_does_not_wait() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 20)
        rig.admission.submit(Count("count", ()), Mailbox(), A)
        assert rig.link.begun[-1] == "count"
        rig.admission.submit(Embed("embed", ("a", "b")), Mailbox(), A)
        assert rig.link.begun[-1] == "count"

    within_loop(body)


def test_when_waiting_then_places_are_told_and_move_up() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 5)
        rig.submit("b0", B)
        assert await rig.told("b0") == [Queued("b0", 2)]
        assert await rig.told("a2") == [Queued("a2", 3)]
        assert await rig.told("a4") == [Queued("a4", 5)]
        rig.link.finish("a0")
        assert rig.link.begun[-1] == "b0"
        assert await rig.told("a4") == [Queued("a4", 4)]

    within_loop(body)


def test_when_cancelled_while_waiting_then_it_never_reaches_the_model() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 6)
        rig.admission.cancel("a3")
        rig.admission.request_end("a4")
        last = (await rig.told("a4"))[-1]
        assert isinstance(last, Finished)
        assert last.reasons == ("cancelled",)
        rig.admission.cancel("unknown")
        rig.admission.cancel("a1")  # with the worker already
        assert rig.run_down() == ["a0", "a1", "a2", "a5"]
        assert rig.admission.n_waiting == 0

    within_loop(body)


def test_when_the_worker_dies_then_what_waits_goes_to_the_next() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 4)
        rig.link.takes = False
        for name in ("a0", "a1"):
            rig.admission.ended(name)
        rig.admission.pause()
        rig.submit("a4", A)
        rig.link = FakeLink(rig)
        rig.admission.open(rig.link, 1)
        assert rig.run_down() == ["a2", "a3", "a4"]

    within_loop(body)


def test_when_no_worker_will_come_then_all_that_wait_fail() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.flood("a", A, 4)
        rig.admission.pause()
        failure = Failure("WorkerDied", "It is gone.")
        rig.admission.fail_all(failure)
        assert (await rig.told("a3"))[-1] == Failed("a3", failure)
        assert rig.admission.n_waiting == 0

    within_loop(body)


def test_when_the_link_refuses_then_that_request_fails_and_others_go_on() -> None:
    async def body() -> None:
        rig = Rig(n_parallel=1)
        rig.submit("refused", A)
        last = (await rig.told("refused"))[-1]
        assert isinstance(last, Failed)
        rig.flood("a", A, 2)
        assert rig.run_down() == ["a0", "a1"]

    within_loop(body)


def test_when_very_many_clients_come_then_their_number_is_bounded() -> None:
    async def body() -> None:
        rig = Rig(max_waiting=8, n_parallel=1)
        refused = 0
        for number in range(300):
            try:
                rig.submit(f"r{number}", Caller(f"10.0.1.{number}"))
            except Busy:
                refused += 1
        assert rig.admission.n_waiting <= 64
        assert refused >= 300 - 64 - 2

    within_loop(body)
