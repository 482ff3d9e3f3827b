"""The clients of the soak: each asks one request after the other, sometimes leaves in the midst, and judges its end.

A request ends well in five ways: answered whole; refused with 429 or 503 and a time to come back; failed with an error
that says what happened, while a worker was being killed; turned away with the status that a faulty request deserves; or
left by the client itself. Anything else is a problem.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import httpx
import msgspec

from tests.soak.asks import Ask, Asker, Ends

HANGS_S = 600.0
"""A request that has not ended by then hangs. The queue is bounded; on a machine that is busy otherwise, 32 answers can
still take minutes."""

MAX_PROBLEMS = 50

_LAST_EVENTS: dict[Ends, tuple[bytes, ...]] = {
    "chat": (b"data: [DONE]",),
    "messages": (b"event: message_stop",),
    "responses": (b"event: response.completed", b"event: response.incomplete"),
    "ollama": (b'"done":true',),
    "completion": (b'"stop":true',),
}
_ERRORS_IN_STREAMS: dict[Ends, tuple[bytes, ...]] = {
    "chat": (b'data: {"error":',),
    "messages": (b"event: error",),
    "responses": (b"event: error", b"event: response.failed"),
    "ollama": (b'{"error":',),
    "completion": (b'data: {"error":',),
}
_TAIL_BYTES = 4096
_REFUSED_S = 3.0
"""Pause after a refusal: sooner than was asked for, so that the queue stays full, but no flood."""


class Ledger:
    """How all requests ended. `was_killed_lately` tells whether an error of the server is to be expected."""

    def __init__(self, was_killed_lately: Callable[[], bool]) -> None:
        self._was_killed_lately = was_killed_lately
        self.ends: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.problems: list[str] = []
        self.n_problems = 0

    def note(self, ask: Ask, end: str) -> str:
        """A request ended well; the answer is how."""
        self.ends[end] += 1
        self.kinds[ask.name] += 1
        return end

    def blame(self, ask: Ask, what: str) -> str:
        """A request did not."""
        self.n_problems += 1
        self.kinds[ask.name] += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{ask.name}: {what}")
        return "a problem"

    def judge_status(self, ask: Ask, answer: httpx.Response, body: bytes) -> str:
        """An answer with an error status."""
        said = body[:300].decode("utf-8", "replace")
        status = answer.status_code
        if status in ask.statuses:
            return self.note(ask, f"deserved {status}")
        if not _says_something(body):
            return self.blame(ask, f"status {status} without a sentence: {said!r}")
        if status == httpx.codes.TOO_MANY_REQUESTS and "retry-after" in answer.headers:
            return self.note(ask, "refused 429")
        if status == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in answer.headers:
            if self._was_killed_lately():
                return self.note(ask, "refused 503")
            return self.blame(ask, f"503 though nothing was killed: {said}")
        return self.blame(ask, f"status {status}: {said}")

    def judge_body(self, ask: Ask, body: bytes) -> str:
        """A body that came to its end, after status 200."""
        if ask.ends == "json":
            try:
                msgspec.json.decode(body)
            except msgspec.DecodeError as error:
                return self.blame(ask, f"no JSON ({error}): {body[:200]!r}")
        elif ask.ends != "text":
            if any(mark in body for mark in _ERRORS_IN_STREAMS[ask.ends]):
                if b"are waiting already" in body:  # after a comment had begun the stream
                    return self.note(ask, "refused in the stream")
                said = body[-300:].decode("utf-8", "replace")
                if self._was_killed_lately():
                    return self.note(ask, "failed, and said so")
                return self.blame(ask, f"failed though nothing was killed: {said}")
            if not any(mark in body for mark in _LAST_EVENTS[ask.ends]):
                return self.blame(ask, f"the stream was cut: {body[-200:]!r}")
        return self.note(ask, "answered")


def _says_something(body: bytes) -> bool:
    """Whether an error tells, in whatever shape, more than a word."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message", "") if isinstance(error, dict) else error
    return isinstance(message, str) and " " in message


class Client:
    """One client of many, with a connection of its own."""

    def __init__(self, address: str, asker: Asker, ledger: Ledger) -> None:
        self._address = address
        self._http = self._connection()
        self._asker = asker
        self._ledger = ledger
        self.leaves = True

    def _connection(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1)
        return httpx.AsyncClient(base_url=self._address, timeout=httpx.Timeout(HANGS_S), limits=limits)

    async def close(self) -> None:
        """Close its connection."""
        await self._http.aclose()

    async def run(self, until_s: float) -> None:
        """Ask until that time of the monotonic clock; the last request is waited for."""
        try:
            while time.monotonic() < until_s:
                end = await self.ask(self._asker.next())
                pause_s = self._asker.draw.choice((0.0, 0.0, 0.05, 0.5))
                await asyncio.sleep(_REFUSED_S if end.startswith("refused") else pause_s)
        finally:
            await self.close()

    async def ask(self, ask: Ask) -> str:
        """Make one request, perhaps leaving it, and note how it ended; the answer is that."""
        draw = self._asker.draw
        leaves_after_s = draw.choice((0.0, 0.02, 0.3, 1.5)) if self.leaves and draw.random() < 0.12 else None
        try:
            async with asyncio.timeout(HANGS_S if leaves_after_s is None else leaves_after_s):
                return await self._whole(ask)
        except TimeoutError:
            if leaves_after_s is None:
                return self._ledger.blame(ask, f"hung for {HANGS_S:.0f} s")
            # httpx can lose a connection whose request was cancelled, and then waits for it for ever.
            await self.close()
            self._http = self._connection()
            return self._ledger.note(ask, "left by the client")
        except httpx.HTTPError as error:
            return self._ledger.blame(ask, f"the connection broke: {error!r}")

    async def _whole(self, ask: Ask) -> str:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        async with self._http.stream(ask.method, ask.path, content=ask.body, headers=headers) as answer:
            if answer.status_code != httpx.codes.OK:
                return self._ledger.judge_status(ask, answer, await answer.aread())
            is_whole = ask.ends in ("json", "text")
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if not is_whole and len(body) > 2 * _TAIL_BYTES:
                    del body[:-_TAIL_BYTES]
            self._remember(ask, bytes(body))
            return self._ledger.judge_body(ask, bytes(body))

    def _remember(self, ask: Ask, body: bytes) -> None:
        if ask.name == "responses" and ask.ends == "json" and b'"store":true' in body:
            value = msgspec.json.decode(body)
            self._asker.keep(value["id"])
