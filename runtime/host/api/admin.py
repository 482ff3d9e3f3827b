"""The private admin API (`runtime.messages.api` has the table): for the window and the terminal."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from runtime.errors import BadRequest, Busy, RuntimeFault, WorldFault, to_failure
from runtime.host.api.answering import check_media
from runtime.host.api.http import (
    COMMENT,
    KEEP_ALIVE_S,
    EventStream,
    WatchedResponse,
    event_bytes,
    json_answer,
    read_struct,
)
from runtime.host.api_switch import ApiSwitch
from runtime.host.caller import WINDOW
from runtime.host.desk import Desk, Ticket, ask_once
from runtime.host.events import MAX_SUBSCRIBERS, EventHub
from runtime.host.mailbox import RequestMessage
from runtime.host.supervisor import Supervisor
from runtime.host.telemetry import Telemetry
from runtime.messages.api import (
    CancelRequest,
    ChatDelta,
    ChatEvent,
    ChatFailed,
    ChatFinished,
    ChatProgress,
    ChatQueued,
    ChatRequest,
    CountAnswer,
    CountRequest,
    InstalledModel,
    LoadRequest,
    NewKey,
    Snapshot,
    Status,
    UnloadRequest,
)
from runtime.messages.ipc import Count, Counted, Delta, Finished, Generate, PromptProgress, Queued
from runtime.options import ApiOptions, KeyLimits

CHAT_ROUTE = "/admin/chat"
COUNT_ROUTE = "/admin/count"


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the handlers work on."""

    desk: Desk
    supervisor: Supervisor
    hub: EventHub
    switch: ApiSwitch
    telemetry: Telemetry
    installed: Callable[[], Awaitable[tuple[InstalledModel, ...]]]
    snapshot: Callable[[tuple[InstalledModel, ...]], Snapshot]
    status: Callable[[], Status]
    end_host: Callable[[], None]


class AdminRoutes:
    """The dialect's handlers."""

    def __init__(self, parts: AdminParts) -> None:
        self._desk = parts.desk
        self._supervisor = parts.supervisor
        self._hub = parts.hub
        self._switch = parts.switch
        self._telemetry = parts.telemetry
        self._installed = parts.installed
        self._snapshot = parts.snapshot
        self._status = parts.status
        self._end_host = parts.end_host

    # --- reading ------------------------------------------------------------------------------------------

    async def status(self, _request: Request) -> Response:
        """GET /admin/status."""
        return json_answer(self._status())

    async def models(self, _request: Request) -> Response:
        """GET /admin/models."""
        return json_answer(await self._installed())

    async def hardware(self, _request: Request) -> Response:
        """GET /admin/hardware."""
        sample = await self._telemetry.sample()
        if sample is None:
            raise WorldFault("The machine has not been read yet.", hint="Try again in a second.")
        return json_answer(sample)

    async def requests(self, _request: Request) -> Response:
        """GET /admin/requests."""
        return json_answer(self._desk.rows())

    async def events(self, _request: Request) -> Response:
        """GET /admin/events: a snapshot, then what changes."""
        installed = await self._installed()

        subscription = self._hub.subscribe(lambda: self._snapshot(installed))
        if subscription is None:
            raise Busy(f"{MAX_SUBSCRIBERS} listeners are the most.", hint="Close one.", retry_after_s=5, waiting=0)

        async def work(send: Send) -> None:
            stream = EventStream(send)
            try:
                while True:
                    events = await subscription.take(KEEP_ALIVE_S)
                    if events:
                        await stream.write(b"".join(map(event_bytes, events)))
                    elif subscription.is_closed:
                        break
                    else:
                        await stream.write(COMMENT)
                await stream.end()
            finally:
                self._hub.unsubscribe(subscription)

        return WatchedResponse(work)

    # --- models -------------------------------------------------------------------------------------------

    async def load(self, request: Request) -> Response:
        """POST /admin/models/load: 202 at once, progress comes as events."""
        wanted = await read_struct(request, LoadRequest)
        slot = await self._supervisor.load(
            wanted.model, wanted.options, replace=wanted.replace, only=wanted.only, anyway=wanted.anyway
        )
        return json_answer(slot.public(), 202)

    async def unload(self, request: Request) -> Response:
        """POST /admin/models/unload: answers when the model's process has ended."""
        await self._supervisor.unload((await read_struct(request, UnloadRequest)).model)
        return Response(status_code=204)

    # --- the public API -----------------------------------------------------------------------------------

    async def api(self, request: Request) -> Response:
        """GET and PUT /admin/api."""
        if request.method == "PUT":
            return json_answer(await self._switch.set_options(await read_struct(request, ApiOptions)))
        return json_answer(self._switch.state())

    async def add_key(self, request: Request) -> Response:
        """POST /admin/keys."""
        wanted = await read_struct(request, NewKey)
        return json_answer(await self._switch.add_key(wanted.name, wanted.limits), 201)

    async def key(self, request: Request) -> Response:
        """PUT and DELETE /admin/keys/{name}."""
        name = request.path_params["name"]
        if request.method == "PUT":
            return json_answer(await self._switch.limit_key(name, await read_struct(request, KeyLimits)))
        return json_answer(await self._switch.delete_key(name))

    # --- asking a model -----------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """POST /admin/chat: a stream of `ChatEvent`."""
        ask = await read_struct(request, ChatRequest)
        if not ask.messages:
            raise BadRequest("`messages` is empty.", hint="Send at least one message.", param="messages")

        def build(request_id: str) -> Generate:
            return Generate(
                request_id,
                messages=ask.messages,
                options=ask.options,
                from_window=True,
                continue_last=ask.continue_last,
                shape=ask.shape,
            )

        async def work(send: Send) -> None:
            async with self._desk.ticket(CHAT_ROUTE, WINDOW, ask.model) as ticket:
                stream = EventStream(send, {"x-request-id": ticket.request_id})
                try:
                    async with self._desk.lease(ticket) as lease:
                        check_media(lease, ask.messages)
                        ticket.send(lease, [build(ticket.request_id)])
                        await _stream_chat(ticket, stream)
                except RuntimeFault as error:
                    if not stream.has_begun:
                        raise
                    await stream.end(event_bytes(ChatFailed(to_failure(error))))

        return WatchedResponse(work)

    async def count(self, request: Request) -> Response:
        """POST /admin/count; with a loaded model only, so that typing does not make another one give way."""
        ask = await read_struct(request, CountRequest)

        async def work(send: Send) -> None:
            async with self._desk.ticket(COUNT_ROUTE, WINDOW, ask.model, is_passing=True) as ticket:
                answer = await ask_once(
                    self._desk, ticket, lambda request_id: Count(request_id, ask.messages, ask.shape)
                )
                if not isinstance(answer, Counted):
                    raise TypeError(f"a worker answered a count with {type(answer).__name__}")
                response = json_answer(CountAnswer(answer.n_tokens, answer.n_ctx))
                await response(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def cancel(self, request: Request) -> Response:
        """POST /admin/requests/cancel."""
        self._desk.cancel((await read_struct(request, CancelRequest)).request_id)
        return Response(status_code=204)

    async def shutdown(self, _request: Request) -> Response:
        """POST /admin/shutdown."""
        self._end_host()
        return Response(status_code=204)


async def _stream_chat(ticket: Ticket, stream: EventStream) -> None:
    while not ticket.has_ended:
        batch = await ticket.take(KEEP_ALIVE_S)
        data = b"".join(event_bytes(event) for message in batch if (event := _chat_event(message, ticket.model)))
        await stream.write(data or COMMENT)
    await stream.end()


def _chat_event(message: RequestMessage, model: str) -> ChatEvent | None:
    match message:
        case Delta(choice=choice, kind=kind, text=text, n_tokens=n_tokens, tool_call=tool_call):
            return ChatDelta(kind, text, choice, n_tokens, tool_call)
        case Queued(position=position):
            return ChatQueued(position)
        case PromptProgress(done=done, total=total, cached=cached, dropped_turns=dropped_turns):
            return ChatProgress(done, total, cached, dropped_turns)
        case Finished(reasons=reasons, usage=usage, timings=timings):
            return ChatFinished(reasons, usage, timings, model)
        case _:
            return None
