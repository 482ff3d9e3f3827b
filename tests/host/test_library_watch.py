"""Models that appear on disk are told."""

import asyncio

from runtime.errors import StorageFault
from runtime.host.events import EventHub
from runtime.host.library_watch import LibraryWatch
from runtime.messages.api import HostEvent, InstalledChanged, InstalledModel
from tests.host.test_events import snapshot

ONE = (InstalledModel("a", "a", "/a.gguf", 1),)
TWO = (*ONE, InstalledModel("b", "b", "/b.gguf", 1))


def test_when_a_model_appears_then_listeners_are_told_once() -> None:
    answers: list[tuple[InstalledModel, ...] | StorageFault] = [ONE, ONE, StorageFault("disk"), TWO, TWO, TWO]
    events: list[HostEvent] = []

    async def run() -> None:
        done = asyncio.Event()

        async def installed() -> tuple[InstalledModel, ...]:
            answer = answers.pop(0)
            if not answers:
                done.set()
                await asyncio.Event().wait()
            if isinstance(answer, StorageFault):
                raise answer
            return answer

        hub = EventHub()
        hub.observe(events.append)
        assert hub.subscribe(snapshot) is not None
        watch = LibraryWatch(installed, hub, period_s=0.0)
        watch.start()
        await done.wait()
        await watch.close()

    asyncio.run(run())
    assert events == [InstalledChanged(ONE), InstalledChanged(TWO)]


def test_when_a_model_came_between_the_snapshot_and_the_first_look_then_listeners_are_told() -> None:
    events: list[HostEvent] = []

    async def run() -> None:
        told = asyncio.Event()

        async def installed() -> tuple[InstalledModel, ...]:
            return TWO

        def take(event: HostEvent) -> None:
            events.append(event)
            told.set()

        hub = EventHub()
        hub.observe(take)
        assert hub.subscribe(snapshot) is not None  # tells of ONE
        watch = LibraryWatch(installed, hub, period_s=0.0)
        watch.start()
        await told.wait()
        await watch.close()

    asyncio.run(run())
    assert events == [InstalledChanged(TWO)]


def test_when_nobody_listens_then_the_disk_is_left_alone() -> None:
    async def run() -> None:
        async def installed() -> tuple[InstalledModel, ...]:
            raise AssertionError("looked")

        watch = LibraryWatch(installed, EventHub(), period_s=0.0)
        watch.start()
        for _ in range(10):
            await asyncio.sleep(0)
        assert watch._task is not None
        assert not watch._task.done()
        await watch.close()

    asyncio.run(run())
