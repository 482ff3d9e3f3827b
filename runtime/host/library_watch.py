"""Tells those who listen when models appear on disk or go, without anyone asking.

Looks only while someone listens. What was seen last is kept for comparison alone: who wants to know what is on disk
asks the library.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.errors import RuntimeFault
from runtime.host.events import EventHub
from runtime.messages.api import InstalledChanged, InstalledModel

log = logging.getLogger(__name__)

PERIOD_S = 5.0
"""A scan of an unchanged folder costs one directory listing a folder; the library remembers file headers."""


class LibraryWatch:
    """Home: the event loop."""

    def __init__(
        self, installed: Callable[[], Awaitable[tuple[InstalledModel, ...]]], hub: EventHub, period_s: float = PERIOD_S
    ) -> None:
        self._installed = installed
        self._hub = hub
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="library watch")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        seen: tuple[InstalledModel, ...] | None = None
        while True:
            if self._hub.has_listeners:
                try:
                    found = await self._installed()
                except RuntimeFault as error:
                    log.warning("the models folder cannot be read: %s", error.message)
                else:
                    # The first look is told too: what came since the listeners' snapshot is not known here.
                    if found != seen:
                        self._hub.send(InstalledChanged(found))
                    seen = found
            await asyncio.sleep(self._period_s)
