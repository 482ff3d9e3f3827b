"""Streams and clients that leave or do not read."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.types import Message, Send

from runtime.host.api.http import COMMENT, EventStream, WatchedResponse, with_comments

Sent = list[MutableMapping[str, Any]]


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def keeping(sent: Sent) -> Send:
    async def send(message: Message) -> None:
        sent.append(message)

    return send


def test_when_the_client_leaves_then_the_work_is_cancelled() -> None:
    ended: list[str] = []

    async def work(_send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def leaving() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(WatchedResponse(work)({}, leaving, keeping([])))
    assert ended == ["cancelled"]


def test_when_the_client_reads_nothing_then_it_counts_as_gone() -> None:
    ended: list[str] = []

    async def stuck(_message: Message) -> None:
        await asyncio.Event().wait()

    async def work(send: Send) -> None:
        try:
            await EventStream(send).write(b"data: 1\n\n")
        finally:
            ended.append("cancelled")

    asyncio.run(WatchedResponse(work, slow_reader_s=0.01)({}, never, stuck))
    assert ended == ["cancelled"]


def test_when_the_work_fails_then_the_error_comes_out() -> None:
    async def work(_send: Send) -> None:
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        asyncio.run(WatchedResponse(work)({}, never, keeping([])))


def test_when_waiting_is_long_then_comments_are_sent() -> None:
    sent: Sent = []

    async def run() -> int:
        enough = asyncio.Event()

        async def send(message: Message) -> None:
            sent.append(message)
            if len(sent) == 4:
                enough.set()

        stream = EventStream(send, {"x-request-id": "r"})
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            return await done

        waiting = asyncio.create_task(with_comments(work(), stream, every_s=0.01))
        await enough.wait()
        done.set_result(5)
        return await waiting

    assert asyncio.run(run()) == 5
    assert sent[0]["status"] == 200
    assert (b"x-request-id", b"r") in sent[0]["headers"]
    assert sent[1]["body"] == COMMENT


def test_when_a_wait_is_cancelled_then_what_it_waits_for_is_too() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def run() -> None:
        waiting = asyncio.create_task(with_comments(work(), EventStream(keeping([]))))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert ended == ["cancelled"]
