"""The host's client for code that waits: each call blocks until it is done, and Ctrl-C ends it cleanly."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from runtime.client.host_client import HostClient
from runtime.errors import HostUnreachable
from runtime.messages.api import (
    ChatEvent,
    ChatRequest,
    HostEvent,
    HostFile,
    LoadedModel,
    LoadRequest,
    Status,
)

T = TypeVar("T")
R = TypeVar("R")


class Link:
    """A connection to a host, as a `with` block. Home thread: main, so that Ctrl-C reaches it."""

    def __init__(self, host: HostFile) -> None:
        self._host = host
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Connect on first use; nothing is sent yet."""
        self._runner.__enter__()
        self._client = HostClient(self._host.address, self._host.token)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        try:
            self._run(self._client.close())
        finally:
            self._runner.close()

    def status(self) -> Status:
        """The host at a glance.

        Raises:
            HostUnreachable: it does not answer.
        """
        return self._run(self._client.status())

    def load(self, request: LoadRequest, on_progress: Callable[[LoadedModel], None]) -> LoadedModel:
        """Load a model and wait until it is ready.

        Raises:
            RuntimeFault: it cannot be loaded.
        """
        return self._run(self._client.load_and_wait(request, on_progress))

    def call(self, ask: Callable[[HostClient], Coroutine[Any, Any, T]]) -> T:
        """Ask the host one thing and wait for the answer.

        Raises:
            RuntimeFault: what the host raised.
        """
        return self._run(ask(self._client))

    def follow(
        self, begin: Callable[[HostClient], Coroutine[Any, Any, T]], step: Callable[[T, HostEvent], R | None]
    ) -> R:
        """Begin something, then show each event to `step` until it returns what came of it.

        `step` first gets the snapshot, so that nothing that ended at once is missed.

        Raises:
            RuntimeFault: what the host or `step` raised.
            HostUnreachable: the host ended meanwhile.
        """
        return self._run(self._follow(begin, step))

    async def _follow(
        self, begin: Callable[[HostClient], Coroutine[Any, Any, T]], step: Callable[[T, HostEvent], R | None]
    ) -> R:
        begun = await begin(self._client)
        async with self._client.events() as events:
            async for event in events:
                outcome = step(begun, event)
                if outcome is not None:
                    return outcome
        raise HostUnreachable("Deskside ended in the middle of it.", hint="Start it again.", address="")

    def chat(self, request: ChatRequest, on_event: Callable[[ChatEvent], None]) -> None:
        """Stream an answer.

        Raises:
            RuntimeFault: the host refused the request.
            KeyboardInterrupt: Ctrl-C; the answer has been cancelled.
        """
        self._run(self._chat(request, on_event))

    async def _chat(self, request: ChatRequest, on_event: Callable[[ChatEvent], None]) -> None:
        async with self._client.chat(request) as events:
            async for event in events:
                on_event(event)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)
