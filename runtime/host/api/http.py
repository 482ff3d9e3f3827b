"""What all dialects share: bounded bodies, JSON answers, event streams, and noticing a client that left."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from runtime.errors import BadEncoding, BadRequest, PayloadTooLarge

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A megatoken of text is about 4 MB; a frame to the worker holds 64 MiB."""

BODY_SILENCE_S = 60.0
BODY_WITHIN_S = 300.0
"""A body of the largest size comes within it at 110 kB/s; one that trickles in holds a connection no longer."""
KEEP_ALIVE_S = 10.0
"""An event stream that is silent for so long gets a comment, so that proxies and clients do not give up."""

SLOW_READER_S = 60.0
"""A client that takes nothing for so long is treated as gone."""

MAX_DEPTH_SENTENCE = "The JSON is nested too deeply."
_BEAT_S = 0.75 * KEEP_ALIVE_S
"""Silences are noticed between half of `KEEP_ALIVE_S` and all of it: with this, every second one at the latest."""
COMMENT = b": still working\n\n"

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client closed the connection or reads nothing."""


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer made from typed values."""
    return Response(_encoder.encode(value), status, dict(headers or {}), "application/json")


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read the body, counting as it comes.

    Raises:
        PayloadTooLarge: it is, or says it is, over `limit_bytes`; the rest is not read.
        BadRequest: it stopped coming.
        BadEncoding: it is compressed: a small one could unpack to gigabytes, and no client does so unasked.
        ClientGone: the client left.
    """
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise BadEncoding(
            f"The request body is compressed ({coding[:40]}), which is not read.",
            hint="Send it without a Content-Encoding.",
        )
    too_large = PayloadTooLarge(
        f"The request body is over the limit of {limit_bytes} bytes.", hint="Send less text.", limit_bytes=limit_bytes
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit_bytes:
        raise too_large
    parts: list[bytes] = []
    size_bytes = 0
    began_at = time.monotonic()
    while True:
        left_s = began_at + BODY_WITHIN_S - time.monotonic()
        try:
            message = await asyncio.wait_for(request.receive(), max(0.0, min(BODY_SILENCE_S, left_s)))
        except TimeoutError:
            raise BadRequest("The request body stopped coming.", hint="Send it whole.") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise too_large
        parts.append(chunk)
        if not message.get("more_body", False):
            return b"".join(parts)


def decode_json(body: bytes) -> dict[str, Any]:
    """Decode an object; the fields are for the caller to type at once.

    Raises:
        BadRequest: not JSON (with the position), not an object, or nested too deeply.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(
            f"The request body is not valid JSON: {_place(str(error), body)}.",
            hint="Check quotes, commas and brackets there.",
        ) from None
    except RecursionError:
        raise BadRequest(MAX_DEPTH_SENTENCE, hint="Send plain messages.") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request body is not UTF-8 (byte {error.start}).", hint="Send UTF-8.") from None
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.", hint='Begin with "{".')
    return value


async def read_struct(request: Request, kind: type[S], limit_bytes: int = MAX_BODY_BYTES) -> S:
    """Read and check the body of one of our own clients.

    Raises:
        BadRequest: it does not fit `kind`; `PayloadTooLarge` and `ClientGone` as `read_body`.
    """
    raw = decode_json(await read_body(request, limit_bytes))
    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request does not fit {kind.__name__}: {error}.") from None


def _place(text: str, body: bytes) -> str:
    """`JSON is malformed: invalid character (byte 12)` -> the same words with line and column."""
    text = text.removeprefix("JSON is malformed: ")
    words, bracket, tail = text.rpartition(" (byte ")
    if not bracket or not tail.rstrip(")").isdecimal():
        return text[:1].lower() + text[1:]
    offset = int(tail.rstrip(")"))
    line = body.count(b"\n", 0, offset) + 1
    column = offset - (body.rfind(b"\n", 0, offset) + 1) + 1
    return f"{words} at line {line}, column {column}"


class WatchedResponse(Response):
    """An answer that is made while the client may leave.

    `work` makes and sends it; when the client leaves first, it is cancelled wherever it stands, so its `finally`
    blocks tell the worker. A `RuntimeFault` before anything was sent becomes a plain error answer (the router's
    handlers do that).
    """

    def __init__(self, work: Callable[[Send], Awaitable[None]], *, slow_reader_s: float = SLOW_READER_S) -> None:
        super().__init__()
        self._work = work
        self._slow_reader_s = slow_reader_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve. Part of ASGI."""
        del scope
        patient = _PatientSend(send)
        working = asyncio.ensure_future(self._work(patient))
        watching = asyncio.create_task(_until_disconnect(receive), name="watch for disconnect")
        try:
            while not (working.done() or watching.done() or patient.waits_for_s() > self._slow_reader_s):
                await asyncio.wait(
                    {working, watching}, timeout=self._slow_reader_s / 4, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            watching.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        with contextlib.suppress(ClientGone, asyncio.CancelledError):
            working.result()


class _PatientSend:
    """Remembers since when a send has been waiting; a timer for each would cost more than the send."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._since: float | None = None

    def waits_for_s(self) -> float:
        return time.monotonic() - self._since if self._since is not None else 0.0

    async def __call__(self, message: Message) -> None:
        self._since = time.monotonic()
        try:
            await self._send(message)
        except OSError:
            raise ClientGone from None
        self._since = None


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event_bytes(event: msgspec.Struct) -> bytes:
    """One server-sent event, whose data is JSON."""
    return b"data: " + _encoder.encode(event) + b"\n\n"


class EventStream:
    """Server-sent events over ASGI, begun by the first thing that is sent."""

    def __init__(self, send: Send, headers: Mapping[str, str] | None = None) -> None:
        self._send = send
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # nginx would otherwise hold the events back
            **(headers or {}),
        }
        self.has_begun = False
        self._written_at = time.monotonic()

    async def beat(self, data: bytes = COMMENT, every_s: float = _BEAT_S) -> None:
        """Send something that says no more than "still here", where nothing was sent for `every_s`.

        Call it whenever nothing is to be told: a prompt that is being read, and a place in the queue that moves up,
        are signs of life for us, not for the client.

        Raises:
            ClientGone: the client left or reads nothing.
        """
        if time.monotonic() - self._written_at >= every_s:
            await self.write(data)

    async def write(self, data: bytes) -> None:
        """Send whole events or comments.

        Raises:
            ClientGone: the client left or reads nothing.
        """
        if not self.has_begun:
            self.has_begun = True
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        self._written_at = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes and end."""
        if not self.has_begun:
            await self.write(data)
            data = b""
        await self._send({"type": "http.response.body", "body": data, "more_body": False})


T = TypeVar("T")


async def with_comments(awaited: Awaitable[T], stream: EventStream, every_s: float = KEEP_ALIVE_S) -> T:
    """Await something while the stream gets a comment after each `every_s`.

    Raises:
        ClientGone: the client left or reads nothing.
    """
    waiting = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({waiting}, timeout=every_s))[0]:
            await stream.write(COMMENT)
        return waiting.result()
    finally:
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
