"""Events to everyone who listens: windows, terminals, `deskside serve`.

Every event but a notice carries the whole state of one thing, so a newer one replaces an older one of the same
thing that a slow listener has not read yet. That bounds each queue without losing state.
"""

import asyncio
from collections.abc import Callable

from runtime.messages.api import (
    ApiChanged,
    DownloadsChanged,
    HardwareChanged,
    HostEvent,
    InstalledChanged,
    JobChanged,
    ModelChanged,
    ModelGone,
    NodesChanged,
    Notice,
    Snapshot,
    ToolsChanged,
)

MAX_UNREAD = 256
"""Things whose state waits for one listener; past it the oldest notice goes, then the listener is sent a snapshot."""

MAX_SUBSCRIBERS = 64


_ONE_OF_A_KIND = {
    HardwareChanged: "hardware",
    ApiChanged: "api",
    InstalledChanged: "installed",
    DownloadsChanged: "downloads",
    NodesChanged: "nodes",
    ToolsChanged: "tools",
    Snapshot: "snapshot",
}


def _key(event: HostEvent, serial: int) -> str:
    match event:
        case ModelChanged(model):
            return f"model {model.id}"
        case ModelGone(id=model_id):
            return f"model {model_id}"
        case JobChanged(job):
            return f"job {job.id}"
        case Notice():
            return f"notice {serial}"
        case _:
            return _ONE_OF_A_KIND[type(event)]


class Subscription:
    """One listener's unread events. Home: the event loop."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._unread: dict[str, HostEvent] = {"snapshot": snapshot()}
        self._arrived = asyncio.Event()
        self._arrived.set()
        self._serial = 0
        self.is_closed = False

    def put(self, event: HostEvent) -> None:
        """Add an event, in the place of an unread one about the same thing."""
        self._serial += 1
        self._unread[_key(event, self._serial)] = event
        if len(self._unread) > MAX_UNREAD:
            self._shrink()
        self._arrived.set()

    def close(self) -> None:
        """End the stream once all is read."""
        self.is_closed = True
        self._arrived.set()

    async def take(self, patience_s: float | None = None) -> list[HostEvent]:
        """All unread events, oldest first; waits for one, at most `patience_s`. Empty when none came or at the end."""
        while not self._unread and not self.is_closed:
            self._arrived.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._arrived.wait()
            except TimeoutError:
                return []
        events = list(self._unread.values())
        self._unread.clear()
        return events

    def _shrink(self) -> None:
        for key in self._unread:
            if key.startswith("notice "):
                del self._unread[key]
                return
        self._unread = {"snapshot": self._snapshot()}


class EventHub:
    """Hands each event to every listener; never blocks and never waits for one."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._observers: list[Callable[[HostEvent], None]] = []
        self._is_closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether anyone subscribed."""
        return bool(self._subscriptions)

    def observe(self, observer: Callable[[HostEvent], None]) -> None:
        """Call `observer` with each event at once; it must not block."""
        self._observers.append(observer)

    def subscribe(self, snapshot: Callable[[], Snapshot]) -> Subscription | None:
        """A new listener, which begins with a snapshot; `None` when there are `MAX_SUBSCRIBERS`."""
        if len(self._subscriptions) >= MAX_SUBSCRIBERS or self._is_closed:
            return None
        subscription = Subscription(snapshot)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a listener."""
        self._subscriptions.discard(subscription)

    def send(self, event: HostEvent) -> None:
        """Tell everyone."""
        for observer in self._observers:
            observer(event)
        for subscription in self._subscriptions:
            subscription.put(event)

    def close(self) -> None:
        """End every stream."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.close()
