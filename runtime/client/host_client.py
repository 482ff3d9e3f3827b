"""The private API as typed calls, for asyncio programs: the terminal and tests.

Every error of the host comes back as the class it was raised as (`runtime.errors.from_failure`); a host that does
not answer is `HostUnreachable`.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from runtime.errors import BugFault, Failure, HostUnreachable, RuntimeFault, WorldFault, from_failure
from runtime.messages.api import (
    ApiState,
    CancelRequest,
    ChatEvent,
    ChatRequest,
    CountAnswer,
    CountRequest,
    HostEvent,
    HostFile,
    InstalledModel,
    LoadedModel,
    LoadRequest,
    ModelChanged,
    ModelGone,
    NewKey,
    NewKeyAnswer,
    RequestInfo,
    Status,
    UnloadRequest,
)
from runtime.messages.hardware import HardwareSample
from runtime.options import ApiOptions
from runtime.paths import DataFolder

ANSWER_TIMEOUT_S = 60.0
"""For calls that are answered at once; unloading waits for a process to end."""

SILENCE_TIMEOUT_S = 40.0
"""The host sends a comment into a silent stream every 10 s."""

MAX_EVENT_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class HostClient:
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
        except (OSError, msgspec.DecodeError):
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

    # --- facts --------------------------------------------------------------------------------------------

    async def status(self) -> Status:
        """The host at a glance."""
        return await self._ask("GET", "/admin/status", Status)

    async def models(self) -> tuple[InstalledModel, ...]:
        """What is on disk."""
        return await self._ask("GET", "/admin/models", tuple[InstalledModel, ...])

    async def hardware(self) -> HardwareSample:
        """A reading of the machine."""
        return await self._ask("GET", "/admin/hardware", HardwareSample)

    async def requests(self) -> tuple[RequestInfo, ...]:
        """Running and lately finished requests."""
        return await self._ask("GET", "/admin/requests", tuple[RequestInfo, ...])

    @contextlib.asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[HostEvent]]:
        """What happens, beginning with a `Snapshot`.

        Raises:
            HostUnreachable: the host does not answer, or it died while events were read.
        """
        async with self._stream("GET", "/admin/events", None, HostEvent) as events:
            yield events

    # --- models -------------------------------------------------------------------------------------------

    async def load(self, request: LoadRequest) -> LoadedModel:
        """Begin to load; progress comes as events.

        Raises:
            ModelNotFound: nothing of that name is on disk.
            ModelLoadFailed: its file cannot be loaded.
        """
        return await self._ask("POST", "/admin/models/load", LoadedModel, request)

    async def load_and_wait(
        self, request: LoadRequest, on_progress: Callable[[LoadedModel], None] | None = None
    ) -> LoadedModel:
        """Load, and wait until the model is ready.

        Raises:
            RuntimeFault: why it could not be loaded, in the engine's words.
        """
        async with self.events() as events:
            model = await self.load(request)
            async for event in events:
                if model.state == "ready":
                    return model
                if model.state == "failed" and model.failure is not None:
                    raise from_failure(model.failure)
                if isinstance(event, ModelGone) and event.id == model.id:
                    break
                if isinstance(event, ModelChanged) and event.model.id == model.id:
                    model = event.model
                    if on_progress is not None:
                        on_progress(model)
        raise WorldFault("The model was unloaded while it was being loaded.", hint="Try again.")

    async def unload(self, model_id: str) -> None:
        """Unload; returns when its process has ended."""
        await self._tell("POST", "/admin/models/unload", UnloadRequest(model_id))

    @contextlib.asynccontextmanager
    async def chat(self, request: ChatRequest) -> AsyncIterator[AsyncIterator[ChatEvent]]:
        """Stream an answer; leaving the block before its end cancels it.

        Raises:
            RuntimeFault: the host refused the request. A later failure is the event `ChatFailed`.
        """
        async with self._stream("POST", "/admin/chat", request, ChatEvent) as events:
            yield events

    async def count(self, request: CountRequest) -> CountAnswer:
        """Tokens of a conversation.

        Raises:
            ModelLoading: the model is not loaded; counting does not load it.
        """
        return await self._ask("POST", "/admin/count", CountAnswer, request)

    async def cancel(self, request_id: str) -> None:
        """Cancel a running request."""
        await self._tell("POST", "/admin/requests/cancel", CancelRequest(request_id))

    # --- the public API and the host itself ---------------------------------------------------------------

    async def api(self) -> ApiState:
        """The public API now."""
        return await self._ask("GET", "/admin/api", ApiState)

    async def set_api(self, options: ApiOptions) -> ApiState:
        """Start, stop or move the public API; `problem` says why it is not on."""
        return await self._ask("PUT", "/admin/api", ApiState, options)

    async def add_key(self, name: str) -> NewKeyAnswer:
        """Make an API key; it is told this once."""
        return await self._ask("POST", "/admin/keys", NewKeyAnswer, NewKey(name))

    async def delete_key(self, name: str) -> None:
        """Delete an API key."""
        await self._tell("DELETE", f"/admin/keys/{quote(name, safe='')}")

    async def shut_down(self) -> None:
        """End the host."""
        await self._tell("POST", "/admin/shutdown")

    # --- HTTP ---------------------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: msgspec.Struct | None = None,
    ) -> T:
        content = await self._tell(method, path, body)
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise BugFault(f"The host's answer cannot be read ({error}).") from error

    async def _tell(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None = None,
    ) -> bytes:
        content = msgspec.json.encode(body) if body is not None else None
        try:
            response = await self._http.request(method, path, content=content)
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
        except msgspec.DecodeError as error:
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
    except msgspec.DecodeError:
        return BugFault(f"The host answered {status} without saying why.")
