"""HTTP to one host: calls, event streams, and errors as the classes they were raised as."""

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from runtime.errors import BugFault, Failure, HostUnreachable, RuntimeFault, from_failure
from runtime.messages.api import HostFile
from runtime.paths import DataFolder
from runtime.unreadable import UNREADABLE

ANSWER_TIMEOUT_S = 60.0
"""For calls that are answered at once; unloading waits for a process to end."""

SILENCE_TIMEOUT_S = 40.0
"""The host sends a comment into a silent stream every 10 s."""

MAX_EVENT_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class HostConnection:
    """A connection to one host; an async context manager. Home: one event loop."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        # trust_env off: a proxy of the surroundings has no business between a person and their own machine.
        self._http = httpx.AsyncClient(
            base_url=address,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=5.0),
            trust_env=False,
        )

    @classmethod
    def from_data_folder(cls, data: DataFolder) -> Self:
        """A client of the host that runs on this data folder.

        Raises:
            HostUnreachable: none says that it runs.
        """
        try:
            told = msgspec.json.decode(data.host_file.read_bytes(), type=HostFile)
        except (OSError, *UNREADABLE):
            raise HostUnreachable(
                "No Deskside host runs on this data folder.", hint="Start it: deskside serve.", address=""
            ) from None
        return cls(told.address, told.token)

    async def __aenter__(self) -> Self:
        """Connections are made on first use."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; streams that are open end."""
        await self._http.aclose()

    # --- HTTP --------------------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:
        content = await self._tell(method, path, body, timeout_s=timeout_s)
        try:
            return msgspec.json.decode(content, type=answer)
        except UNREADABLE as error:
            raise BugFault(f"The host's answer cannot be read ({error}).") from error

    async def _tell(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> bytes:
        content = msgspec.json.encode(body) if body is not None else None
        timeout = httpx.Timeout(timeout_s, connect=5.0)
        try:
            response = await self._http.request(method, path, content=content, timeout=timeout)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise _fault_of(response.content, response.status_code)
        return response.content

    @contextlib.asynccontextmanager
    async def _stream(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None,
        kind: Any,  # noqa: ANN401 - a union, as msgspec takes it
    ) -> AsyncIterator[AsyncIterator[Any]]:
        content = msgspec.json.encode(body) if body is not None else None
        # Until the first byte the host may be loading a model, which takes as long as it takes.
        timeout = httpx.Timeout(SILENCE_TIMEOUT_S, connect=5.0, read=None)
        try:
            async with self._http.stream(method, path, content=content, timeout=timeout) as response:
                if response.is_error:
                    raise _fault_of(await response.aread(), response.status_code)
                yield self._events(response, kind)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    async def _events(self, response: httpx.Response, kind: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        decoder = msgspec.json.Decoder(kind)
        rest = b""
        try:
            async for chunk in response.aiter_raw():
                *blocks, rest = (rest + chunk).split(b"\n\n")
                if len(rest) > MAX_EVENT_BYTES:
                    raise BugFault("The host sent an event without an end.")
                for block in blocks:
                    if block.startswith(b"data: "):
                        yield decoder.decode(block[6:])
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        except UNREADABLE as error:
            raise BugFault(f"The host sent an event that cannot be read ({error}).") from error

    def _unreachable(self, error: Exception) -> HostUnreachable:
        reason = str(error) or type(error).__name__
        return HostUnreachable(
            f"The Deskside host at {self._address} does not answer ({reason}).",
            hint="Start it again: deskside serve.",
            address=self._address,
        )


def _fault_of(content: bytes, status: int) -> RuntimeFault:
    try:
        return from_failure(msgspec.json.decode(content, type=Failure))
    except UNREADABLE:
        return BugFault(f"The host answered {status} without saying why.")
