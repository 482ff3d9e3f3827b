"""OpenAI's routes: models, chat completions, completions, embeddings."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from runtime.errors import ModelNotFound, RuntimeFault
from runtime.host.api.answering import check_media, infill_tokens
from runtime.host.api.http import (
    KEEP_ALIVE_S,
    EventStream,
    WatchedResponse,
    decode_json,
    json_answer,
    read_body,
    with_comments,
)
from runtime.host.api.openai_answer import (
    FINGERPRINT,
    ChatCompletion,
    Chunks,
    Gathered,
    TextCompletion,
    UsageShape,
    added_up,
    error_event,
    timings_shape,
    usage_shape,
)
from runtime.host.api.openai_request import ChatAsk, CompletionAsk, chat_ask, completion_ask, embedding_ask
from runtime.host.api.picture_fetch import PictureFetcher
from runtime.host.api.vectors import check_dimensions, vector, vector_base64
from runtime.host.caller import caller_of
from runtime.host.desk import Desk, Ticket, ask_once
from runtime.host.supervisor import Lease, Supervisor
from runtime.messages.api import InstalledModel
from runtime.messages.ipc import Delta, Embed, Embedded, Finished, Generate, InfillPrompt

CHAT_ROUTE = "/v1/chat/completions"
TEXT_ROUTE = "/v1/completions"
EMBEDDING_ROUTE = "/v1/embeddings"

BuildParts = Callable[[Lease, Ticket], Awaitable[list[Generate]]]
"""The parts of a request, once it is known which model will answer."""


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of /v1/models. `state` and the sizes are extensions."""

    id: str
    object: str
    created: int
    owned_by: str
    state: str
    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    size_bytes: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """/v1/models."""

    object: str
    data: tuple[ModelCard, ...]


class Embedding(msgspec.Struct, frozen=True):
    """One vector: a list of numbers, or base64 of little-endian float32."""

    object: str
    index: int
    embedding: str | list[float]


class EmbeddingList(msgspec.Struct, frozen=True):
    """/v1/embeddings."""

    object: str
    model: str
    data: tuple[Embedding, ...]
    usage: UsageShape


class OpenAiRoutes:
    """The dialect's handlers."""

    def __init__(
        self,
        desk: Desk,
        supervisor: Supervisor,
        installed: Callable[[], Awaitable[tuple[InstalledModel, ...]]],
        aliases: Callable[[], Mapping[str, str]],
        pictures: PictureFetcher,
    ) -> None:
        """`aliases` are further names of models, with the ids they stand for."""
        self._desk = desk
        self._aliases = aliases
        self._pictures = pictures
        self._supervisor = supervisor
        self._installed = installed

    # --- models -------------------------------------------------------------------------------------------

    async def models(self, _request: Request) -> Response:
        """GET /v1/models: what is installed, the loaded ones first."""
        return json_answer(ModelList("list", await self._cards()))

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}."""
        wanted = request.path_params["model"]
        cards = await self._cards()
        for card in cards:
            if card.id == wanted:
                return json_answer(card)
        names = ", ".join(card.id for card in cards[:8]) or "none yet"
        raise ModelNotFound(
            f"No model named {wanted!r} is installed.", hint=f"Installed: {names}.", model=wanted, param="model"
        )

    async def _cards(self) -> tuple[ModelCard, ...]:
        slots = {slot.model.id: slot for slot in self._supervisor.slots()}
        known = {model.id: model for model in await self._installed() if model.kind in ("chat", "embedding")}
        known = {**{slot_id: slot.model for slot_id, slot in slots.items()}, **known}
        cards = []
        for model in known.values():
            slot = slots.get(model.id)
            facts = slot.facts if slot is not None else None
            cards.append(
                ModelCard(
                    id=model.id,
                    object="model",
                    created=int(model.created_s),
                    owned_by=model.publisher or "local",
                    state=slot.state if slot is not None else "not_loaded",
                    n_ctx=facts.n_ctx if facts is not None else None,
                    n_ctx_train=model.n_ctx_train,
                    n_params=model.n_params,
                    size_bytes=model.size_bytes,
                )
            )
        by_id = {card.id: card for card in cards}
        cards += [
            msgspec.structs.replace(by_id[meant], id=alias)
            for alias, meant in self._aliases().items()
            if meant in by_id and alias not in by_id
        ]
        return tuple(sorted(cards, key=lambda card: card.state == "not_loaded"))

    # --- text ---------------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        ask = chat_ask(await self._pictures.filled(decode_json(await read_body(request))))

        async def build(lease: Lease, ticket: Ticket) -> list[Generate]:
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

        return self._answer(CHAT_ROUTE, request, ask, build)

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        ask = completion_ask(decode_json(await read_body(request)))

        async def build(lease: Lease, ticket: Ticket) -> list[Generate]:
            parts = []
            for index, prompt in enumerate(ask.prompts):
                part_id = f"{ticket.request_id}.{index}"
                if ask.suffix and isinstance(prompt, str):
                    wanted = InfillPrompt(f"{part_id}.prompt", prompt, ask.suffix)
                    prompt = await infill_tokens(ticket, lease, wanted)  # noqa: PLW2901 - the same prompt, as tokens
                if isinstance(prompt, str):
                    parts.append(Generate(part_id, prompt=prompt, options=ask.options, shape=ask.shape))
                else:
                    parts.append(Generate(part_id, prompt_tokens=prompt, options=ask.options, shape=ask.shape))
            return parts

        return self._answer(TEXT_ROUTE, request, ask, build)

    def _answer(self, route: str, request: Request, ask: ChatAsk | CompletionAsk, build: BuildParts) -> Response:
        async def work(send: Send) -> None:
            async with self._desk.ticket(route, caller_of(request), ask.model) as ticket:
                if ask.stream:
                    await self._stream(ticket, ask, build, send)
                else:
                    answer = await self._whole(ticket, ask, build)
                    await _send(json_answer(answer, headers={"x-request-id": ticket.request_id}), request, send)

        return WatchedResponse(work)

    async def _whole(
        self, ticket: Ticket, ask: ChatAsk | CompletionAsk, build: BuildParts
    ) -> ChatCompletion | TextCompletion:
        finished: dict[int, Finished] = {}
        async with self._desk.lease(ticket) as lease:
            parts = await build(lease, ticket)
            place = {part.request_id: index * ask.options.n for index, part in enumerate(parts)}
            gathered = [Gathered() for _ in range(len(parts) * ask.options.n)]
            ticket.send(lease, parts)
            while not ticket.has_ended:
                for message in await ticket.take():
                    if isinstance(message, Delta):
                        gathered[place[message.request_id] + message.choice].add(message)
                    elif isinstance(message, Finished):
                        finished[place[message.request_id]] = message
        usage, timings = added_up(list(finished.values()))
        ends = [
            (first + offset, reason)
            for first, end in sorted(finished.items())
            for offset, reason in enumerate(end.reasons)
        ]
        told, times = usage_shape(usage), timings_shape(usage, timings)
        logprobs = ask.options.logprobs
        key, made, model = ticket.request_id, ticket.created_s, ticket.model
        if isinstance(ask, ChatAsk):
            chat = tuple(gathered[index].chat_choice(index, reason, logprobs=logprobs) for index, reason in ends)
            return ChatCompletion(key, "chat.completion", made, model, chat, told, times, FINGERPRINT)
        text = tuple(gathered[index].text_choice(index, reason, logprobs=logprobs) for index, reason in ends)
        return TextCompletion(key, "text_completion", made, model, text, told, times, FINGERPRINT)

    async def _stream(self, ticket: Ticket, ask: ChatAsk | CompletionAsk, build: BuildParts, send: Send) -> None:
        stream = EventStream(send, {"x-request-id": ticket.request_id})
        try:
            async with contextlib.AsyncExitStack() as stack:
                lease = await with_comments(stack.enter_async_context(self._desk.lease(ticket)), stream)
                parts = await build(lease, ticket)
                ticket.send(lease, parts)
                await self._stream_parts(ticket, ask, parts, stream)
        except RuntimeFault as error:
            # Before the first byte the error can still be a plain answer with its own status.
            if not stream.has_begun:
                raise
            await stream.end(error_event(error))

    async def _stream_parts(
        self, ticket: Ticket, ask: ChatAsk | CompletionAsk, parts: Sequence[Generate], stream: EventStream
    ) -> None:
        n_choices = ask.options.n
        place = {part.request_id: index * n_choices for index, part in enumerate(parts)}
        chunks = Chunks(
            ticket.request_id,
            ticket.created_s,
            ticket.model,
            chat=isinstance(ask, ChatAsk),
            include_usage=ask.include_usage,
        )
        opening = chunks.opening(len(parts) * n_choices)
        finished: list[Finished] = []
        while not ticket.has_ended:
            data: list[bytes] = []
            batch = await ticket.take(KEEP_ALIVE_S)
            for message in batch:
                if isinstance(message, Delta):
                    data.append(chunks.delta(place[message.request_id] + message.choice, message))
                elif isinstance(message, Finished):
                    finished.append(message)
                    data.append(_closings(chunks, message, place[message.request_id], finished, len(parts)))
            body = b"".join(data)
            if body:
                await stream.write(opening + body)
                opening = b""
            else:
                await stream.beat()
        await stream.end(chunks.end(added_up(finished)[0]))

    # --- embeddings ---------------------------------------------------------------------------------------

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        ask = embedding_ask(decode_json(await read_body(request)))

        async def work(send: Send) -> None:
            async with self._desk.ticket(EMBEDDING_ROUTE, caller_of(request), ask.model) as ticket:
                message = await ask_once(
                    self._desk, ticket, lambda request_id: Embed(request_id, ask.inputs, lora=ask.lora)
                )
                if not isinstance(message, Embedded):
                    raise TypeError(f"a worker answered an embedding with {type(message).__name__}")
                check_dimensions(message.vectors, ask.dimensions)
                form = vector_base64 if ask.as_base64 else vector
                data = tuple(
                    Embedding("embedding", index, form(raw, ask.dimensions))
                    for index, raw in enumerate(message.vectors)
                )
                answer = EmbeddingList("list", ticket.model, data, usage_shape(message.usage))
                await _send(json_answer(answer, headers={"x-request-id": ticket.request_id}), request, send)

        return WatchedResponse(work)


def _closings(chunks: Chunks, message: Finished, first: int, finished: Sequence[Finished], n_parts: int) -> bytes:
    """Closing chunks of one prompt's choices; the very last one tells the timings of the whole call."""
    *others, last = enumerate(message.reasons, first)
    data = b"".join(chunks.closing(index, reason) for index, reason in others)
    if len(finished) < n_parts:
        return data + chunks.closing(*last)
    return data + chunks.last(*last, *added_up(finished))


async def _send(response: Response, request: Request, send: Send) -> None:
    await response(request.scope, request.receive, send)
