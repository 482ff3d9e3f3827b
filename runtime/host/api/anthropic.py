"""Anthropic's routes: messages, counting tokens, and models as that API lists them."""

import contextlib
import datetime
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import ModelNotFound, RuntimeFault
from runtime.host.admission import Ask
from runtime.host.api.answering import BuildAsks, check_media, said
from runtime.host.api.anthropic_answer import (
    PING,
    Events,
    Gathered,
    MessageAnswer,
    TokenCount,
    error_event,
    message_id,
    stop_of,
    usage_shape,
)
from runtime.host.api.anthropic_request import MessagesAsk, count_ask, messages_ask
from runtime.host.api.http import COMMENT, EventStream, WatchedResponse, decode_json, json_answer, read_body
from runtime.host.api.picture_fetch import PictureFetcher
from runtime.host.caller import caller_of
from runtime.host.desk import Desk, Ticket, ask_once
from runtime.host.supervisor import Lease, Supervisor
from runtime.messages.api import InstalledModel
from runtime.messages.ipc import Count, Counted, Delta, Finished, Generate, PromptProgress

MESSAGES_ROUTE = "/v1/messages"
COUNT_ROUTE = "/v1/messages/count_tokens"


class AnthropicModel(msgspec.Struct, frozen=True):
    """One entry of /v1/models, as callers of this dialect (they send `anthropic-version`) expect it."""

    id: str
    type: str
    display_name: str
    created_at: str
    lifecycle: str
    max_input_tokens: int | None


class AnthropicModelList(msgspec.Struct, frozen=True):
    """/v1/models; everything is on one page."""

    data: tuple[AnthropicModel, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None


def is_anthropic(headers: Mapping[str, str]) -> bool:
    """Whether a caller of an address that two dialects share speaks this one."""
    return "anthropic-version" in headers


class AnthropicRoutes:
    """The dialect's handlers."""

    def __init__(
        self,
        desk: Desk,
        supervisor: Supervisor,
        installed: Callable[[], Awaitable[tuple[InstalledModel, ...]]],
        pictures: PictureFetcher,
    ) -> None:
        self._desk = desk
        self._pictures = pictures
        self._supervisor = supervisor
        self._installed = installed

    def routes(self) -> list[Route]:
        """Addresses that are this dialect's alone."""
        return [
            Route(MESSAGES_ROUTE, self.messages, methods=["POST"]),
            Route(COUNT_ROUTE, self.count_tokens, methods=["POST"]),
        ]

    async def messages(self, request: Request) -> Response:
        """POST /v1/messages."""
        ask = messages_ask(await self._pictures.filled(decode_json(await read_body(request))))

        async def work(send: Send) -> None:
            async with self._desk.ticket(MESSAGES_ROUTE, caller_of(request), ask.model) as ticket:
                if ask.stream:
                    await self._stream(ticket, ask, EventStream(send, {"request-id": ticket.request_id}))
                else:
                    answer = json_answer(await self._whole(ticket, ask), headers={"request-id": ticket.request_id})
                    await answer(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens."""
        ask = count_ask(await self._pictures.filled(decode_json(await read_body(request))))

        async def work(send: Send) -> None:
            async with self._desk.ticket(COUNT_ROUTE, caller_of(request), ask.model) as ticket:
                counted = await ask_once(
                    self._desk, ticket, lambda request_id: Count(request_id, ask.messages, ask.shape)
                )
                if not isinstance(counted, Counted):
                    raise TypeError(f"a worker answered a count with {type(counted).__name__}")
                answer = json_answer(TokenCount(counted.n_tokens), headers={"request-id": ticket.request_id})
                await answer(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        entries = await self._models()
        first_id, last_id = (entries[0].id, entries[-1].id) if entries else (None, None)
        return json_answer(AnthropicModelList(entries, has_more=False, first_id=first_id, last_id=last_id))

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}."""
        wanted = request.path_params["model"]
        entries = await self._models()
        for entry in entries:
            if entry.id == wanted:
                return json_answer(entry)
        names = ", ".join(entry.id for entry in entries[:8]) or "none yet"
        raise ModelNotFound(f"No model named {wanted!r} is installed.", hint=f"Installed: {names}.", model=wanted)

    async def _models(self) -> tuple[AnthropicModel, ...]:
        slots = {slot.model.id: slot for slot in self._supervisor.slots()}
        entries = []
        for model in await self._installed():
            if model.kind != "chat":
                continue
            slot = slots.get(model.id)
            n_ctx = slot.facts.n_ctx if slot is not None and slot.facts is not None else model.n_ctx_train
            made_at = datetime.datetime.fromtimestamp(model.created_s, datetime.UTC)
            entries.append(
                AnthropicModel(model.id, "model", model.name, made_at.strftime("%Y-%m-%dT%H:%M:%SZ"), "active", n_ctx)
            )
        return tuple(sorted(entries, key=lambda entry: entry.id not in slots))

    # --- answering ----------------------------------------------------------------------------------------

    async def _whole(self, ticket: Ticket, ask: MessagesAsk) -> MessageAnswer:
        gathered = Gathered(message_id(ticket))
        finished: Finished | None = None
        async with contextlib.aclosing(said(self._desk, ticket, _asks(ticket, ask))) as batches:
            async for batch in batches:
                for message in batch:
                    if isinstance(message, Delta):
                        gathered.add(message)
                    elif isinstance(message, Finished):
                        finished = message
        if finished is None:
            raise TypeError("a worker ended a request without saying so")
        reason, stop = stop_of(finished, ask.options.max_tokens or 0, ask.stops)
        return MessageAnswer(
            message_id(ticket),
            "message",
            "assistant",
            ticket.model,
            gathered.blocks(),
            reason,
            stop,
            usage_shape(finished.usage),
        )

    async def _stream(self, ticket: Ticket, ask: MessagesAsk, stream: EventStream) -> None:
        events = Events(ticket)
        last = b""
        try:
            async with contextlib.aclosing(said(self._desk, ticket, _asks(ticket, ask))) as batches:
                async for batch in batches:
                    data: list[bytes] = []
                    for message in batch:
                        if isinstance(message, PromptProgress):
                            events.progress(message)
                        elif isinstance(message, Delta):
                            data.append(events.delta(message))
                        elif isinstance(message, Finished):
                            last = events.end(message, ask.options.max_tokens or 0, ask.stops)
                    body = b"".join(data)
                    if body:
                        await stream.write(body)
                    else:
                        await stream.beat(PING if events.has_started else COMMENT)
            await stream.end(last)
        except RuntimeFault as error:
            # Before the first byte the error can still be a plain answer with its own status.
            if not stream.has_begun:
                raise
            await stream.end(error_event(error))


def _asks(ticket: Ticket, ask: MessagesAsk) -> BuildAsks:
    async def build(lease: Lease) -> list[Ask]:
        check_media(lease, ask.messages)
        return [
            Generate(
                ticket.request_id,
                messages=ask.messages,
                options=ask.options,
                continue_last=ask.continue_last,
                shape=ask.shape,
            )
        ]

    return build
