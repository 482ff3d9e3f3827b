"""Events to listeners: bounded, and no state lost."""

import asyncio

from runtime.host.events import MAX_SUBSCRIBERS, MAX_UNREAD, EventHub
from runtime.messages.api import (
    ApiState,
    HardwareChanged,
    LoadedModel,
    ModelChanged,
    ModelGone,
    Notice,
    Snapshot,
    Status,
)
from runtime.messages.hardware import CpuSample, HardwareSample, MemorySample
from runtime.options import ApiOptions


def snapshot() -> Snapshot:
    return Snapshot(Status("1", 1, 0.0, "", (), ApiState(ApiOptions(), running=False)), ())


def reading(at_s: float) -> HardwareChanged:
    return HardwareChanged(HardwareSample(at_s, CpuSample(), MemorySample()))


def changed(model_id: str, fraction: float) -> ModelChanged:
    return ModelChanged(LoadedModel(model_id, model_id, "loading", fraction))


def test_when_subscribed_then_a_snapshot_comes_first() -> None:
    async def run() -> None:
        hub = EventHub()
        subscription = hub.subscribe(snapshot)
        assert subscription is not None
        hub.send(Notice("info", "hello"))
        assert await subscription.take() == [snapshot(), Notice("info", "hello")]
        assert await subscription.take(0.01) == []

    asyncio.run(run())


def test_when_a_listener_is_slow_then_it_gets_the_newest_state_of_each_thing() -> None:
    async def run() -> None:
        hub = EventHub()
        subscription = hub.subscribe(snapshot)
        assert subscription is not None
        await subscription.take()
        for number in range(1000):
            hub.send(reading(number))
            hub.send(changed("a", number / 1000))
            hub.send(changed("b", number / 1000))
        hub.send(ModelGone("b"))
        hub.send(Notice("info", "one"))
        hub.send(Notice("info", "two"))
        assert await subscription.take() == [
            reading(999),
            changed("a", 0.999),
            ModelGone("b"),
            Notice("info", "one"),
            Notice("info", "two"),
        ]

    asyncio.run(run())


def test_when_notices_flood_then_the_oldest_go_and_state_stays() -> None:
    async def run() -> None:
        hub = EventHub()
        subscription = hub.subscribe(snapshot)
        assert subscription is not None
        hub.send(changed("a", 0.5))
        for number in range(MAX_UNREAD * 2):
            hub.send(Notice("info", str(number)))
        events = await subscription.take()
        assert len(events) == MAX_UNREAD
        assert events[:2] == [snapshot(), changed("a", 0.5)]
        assert events[-1] == Notice("info", str(MAX_UNREAD * 2 - 1))

    asyncio.run(run())


def test_when_too_many_things_wait_then_a_snapshot_stands_for_all() -> None:
    async def run() -> None:
        hub = EventHub()
        subscription = hub.subscribe(snapshot)
        assert subscription is not None
        for number in range(MAX_UNREAD + 10):
            hub.send(changed(f"m{number}", 0.5))
        events = await subscription.take()
        assert isinstance(events[0], Snapshot)
        assert len(events) <= MAX_UNREAD

    asyncio.run(run())


def test_when_closed_then_streams_end_and_none_begins() -> None:
    async def run() -> None:
        hub = EventHub()
        subscription = hub.subscribe(snapshot)
        assert subscription is not None
        await subscription.take()
        hub.close()
        assert await subscription.take() == []
        assert subscription.is_closed
        assert hub.subscribe(snapshot) is None

    asyncio.run(run())


def test_when_there_are_enough_listeners_then_one_more_is_refused() -> None:
    async def run() -> None:
        hub = EventHub()
        first = [hub.subscribe(snapshot) for _ in range(MAX_SUBSCRIBERS)]
        assert None not in first
        assert hub.subscribe(snapshot) is None
        assert first[0] is not None
        hub.unsubscribe(first[0])
        assert hub.subscribe(snapshot) is not None

    asyncio.run(run())
