"""Jobs in the terminal: what Ctrl-C reaches."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime.cli.models_files import follow_job
from runtime.cli.terminal import Terminal
from runtime.messages.library import Job


class Client:
    """A host that is slow to begin."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.cancelled: list[str] = []

    async def begin(self) -> Job:
        self.asked.set()
        await self.may_answer.wait()
        return Job("j1", "quantize", "m", "Making it", "running")

    async def cancel_job(self, job_id: str) -> None:
        self.cancelled.append(job_id)


class InterruptedLink:
    """Cancels what it runs while the host is asked to begin, as Ctrl-C does."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def follow(self, begin: Callable[[Client], Coroutine[Any, Any, Job]], _step: object) -> Job:
        async def run() -> Job:
            work = asyncio.create_task(begin(self._client))
            await self._client.asked.wait()
            work.cancel()
            asyncio.get_running_loop().call_soon(self._client.may_answer.set)
            return await work

        try:
            return asyncio.run(run())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def call(self, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(work(self._client))


def test_when_interrupted_while_the_job_is_being_begun_then_it_is_cancelled_all_the_same() -> None:
    client = Client()
    with pytest.raises(KeyboardInterrupt):
        follow_job(InterruptedLink(client), lambda one: one.begin(), Terminal())  # type: ignore[arg-type, attr-defined]
    assert client.cancelled == ["j1"]
