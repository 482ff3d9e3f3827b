"""The private API as typed calls, for asyncio programs: the terminal and tests.

Every error of the host comes back as the class it was raised as (`runtime.errors.from_failure`); a host that does
not answer is `HostUnreachable`.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from runtime.client.models_client import ModelsClient
from runtime.client.tools_client import ToolsClient
from runtime.errors import WorldFault, from_failure
from runtime.messages.api import (
    ApiKeyInfo,
    ApiState,
    CancelRequest,
    ChatEvent,
    ChatRequest,
    CountAnswer,
    CountRequest,
    HostEvent,
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
from runtime.options import ApiOptions, KeyLimits


class HostClient(ModelsClient, ToolsClient):
    """A connection to one host; an async context manager. Home: one event loop."""

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

    async def keys(self) -> tuple[ApiKeyInfo, ...]:
        """The API keys, and how they were used."""
        return (await self.api()).keys

    async def add_key(self, name: str, limits: KeyLimits | None = None) -> NewKeyAnswer:
        """Make an API key; it is told this once."""
        return await self._ask("POST", "/admin/keys", NewKeyAnswer, NewKey(name, limits or KeyLimits()))

    async def limit_key(self, name: str, limits: KeyLimits) -> ApiKeyInfo:
        """Change what the holder of a key may take, from the next request on."""
        return await self._ask("PUT", f"/admin/keys/{quote(name, safe='')}", ApiKeyInfo, limits)

    async def delete_key(self, name: str) -> ApiState:
        """Delete an API key; `problem` of the answer says if the API is off without it."""
        return await self._ask("DELETE", f"/admin/keys/{quote(name, safe='')}", ApiState)

    async def shut_down(self) -> None:
        """End the host."""
        await self._tell("POST", "/admin/shutdown")
