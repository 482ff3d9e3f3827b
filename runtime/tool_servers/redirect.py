"""Where the browser comes back to after a sign-in: one page on this machine's loopback address (RFC 8252)."""

import asyncio
import contextlib
import hmac
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

PATH = "/callback"
MAX_HEAD_BYTES = 16 * 1024
MAX_AT_ONCE = 16
"""Connections; a browser opens two or three."""

_READ_S = 10.0
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Deskside</title>'
    '<meta name="color-scheme" content="light dark">'
    "<style>body{{font:16px system-ui,sans-serif;margin:20vh auto;max-width:32em;padding:0 1em}}</style>"
    "<h1>{title}</h1><p>{text}</p></html>"
)
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class Came:
    """What the browser brought: a code, or the error that the authorization server named."""

    code: str = ""
    issuer: str = ""
    error: str = ""
    description: str = ""


class Redirect:
    """Home: the event loop. Answers requests of this machine alone, and takes only what names the right state."""

    def __init__(self) -> None:
        self._came: asyncio.Future[Came] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._port = 0
        self.state = ""
        """The secret of the sign-in that waits; nothing is taken while it is empty."""

    async def open(self, port: int = 0) -> None:
        """Listen, on this port where it is free.

        Raises:
            OSError: no port can be had.
        """
        for wanted in (port, 0):
            try:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", wanted, limit=MAX_HEAD_BYTES)
            except OSError:
                if not wanted:
                    raise
            else:
                break
        assert self._server is not None  # noqa: S101 - the second try raised otherwise
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    async def came(self) -> Came:
        """Wait for the browser."""
        return await asyncio.shield(self._came)

    async def close(self) -> None:
        """Listen no more; a page that is being sent is finished first."""
        if self._server is None:
            return
        self._server.close()
        for _ in range(3):  # a page is one write: a few turns of the loop
            if self._open:
                await asyncio.sleep(0.01)
        for writer in tuple(self._open):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_AT_ONCE:
            writer.close()
            return
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_READ_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    try:
                        status, title, text = self._answer(head)
                    except ValueError:  # of an address that is none
                        status, title, text = 400, "This is not for you", "This address is not understood."
                    writer.write(_page(status, title, text))
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, head: bytes) -> tuple[int, str, str]:
        line, *rest = head.decode("latin-1").split("\r\n")
        method, _, after = line.partition(" ")
        target = after.rsplit(" ", 1)[0]
        hosts = [value.strip() for name, _, value in (one.partition(":") for one in rest) if name.lower() == "host"]
        if hosts != [f"127.0.0.1:{self._port}"]:  # a page of the internet may point its own name at this machine
            return 400, "This is not for you", "This address belongs to Deskside."
        if method != "GET":
            return 405, "This is not for you", "This address only takes the answer of a sign-in."
        parts = urlsplit(target)
        if parts.path != PATH:
            return 404, "There is nothing here", "This address only takes the answer of a sign-in."
        given = {name: values[0] for name, values in parse_qs(parts.query, max_num_fields=50).items()}
        if not self.state or not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            return 400, "This sign-in is not known", "It may be an old one. Press Sign in again in Deskside."
        came = Came(
            given.get("code", ""),
            given.get("iss", ""),
            given.get("error", "")[:100],
            given.get("error_description", "")[:300],
        )
        if not self._came.done():
            self._came.set_result(came)
        if came.code and not came.error:
            return 200, "You can go back to Deskside", "It finishes the sign-in there. This page can be closed."
        return 200, "You are not signed in", "Deskside says why. This page can be closed."


def _page(status: int, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\r\n"
    )
    return head.encode() + body
