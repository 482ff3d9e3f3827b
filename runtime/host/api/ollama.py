"""Ollama's routes that ask a model: chat, generate, embed."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import NotAllowed, RuntimeFault
from runtime.host.admission import Ask
from runtime.host.api.answering import BuildAsks, check_media, infill_tokens, said
from runtime.host.api.http import EventStream, WatchedResponse, decode_json, json_answer, read_body
from runtime.host.api.ollama_answer import (
    NDJSON,
    Lines,
    OllamaEmbedAnswer,
    OllamaEmbeddingsAnswer,
    OllamaFigures,
    Piece,
    Pieces,
    figures_of,
    joined,
    line,
    nanoseconds,
    ollama_error,
)
from runtime.host.api.ollama_names import meant_by
from runtime.host.api.ollama_request import (
    OllamaAsk,
    OllamaEmbedAsk,
    chat_ask,
    embed_ask,
    embeddings_ask,
    generate_ask,
)
from runtime.host.api.vectors import check_dimensions, vector
from runtime.host.caller import caller_of
from runtime.host.desk import Desk, Ticket
from runtime.host.settings import SettingsFile
from runtime.host.supervisor import Lease, Supervisor
from runtime.messages.api import InstalledModel
from runtime.messages.ipc import Delta, Embed, Embedded, Finished, Generate, InfillPrompt
from runtime.units import now

CHAT_ROUTE = "/api/chat"
GENERATE_ROUTE = "/api/generate"
EMBED_ROUTE = "/api/embed"
EMBEDDINGS_ROUTE = "/api/embeddings"


class OllamaRoutes:
    """The handlers."""

    def __init__(
        self,
        desk: Desk,
        supervisor: Supervisor,
        settings: SettingsFile,
        installed: Callable[[], Awaitable[tuple[InstalledModel, ...]]],
    ) -> None:
        self._desk = desk
        self._supervisor = supervisor
        self._settings = settings
        self._installed = installed

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route(CHAT_ROUTE, self.chat, methods=["POST"]),
            Route(GENERATE_ROUTE, self.generate, methods=["POST"]),
            Route(EMBED_ROUTE, self.embed, methods=["POST"]),
            Route(EMBEDDINGS_ROUTE, self.embeddings, methods=["POST"]),
        ]

    async def chat(self, request: Request) -> Response:
        """POST /api/chat."""
        return self._answer(CHAT_ROUTE, request, chat_ask(decode_json(await read_body(request))))

    async def generate(self, request: Request) -> Response:
        """POST /api/generate."""
        return self._answer(GENERATE_ROUTE, request, generate_ask(decode_json(await read_body(request))))

    async def embed(self, request: Request) -> Response:
        """POST /api/embed."""
        return self._embedded(EMBED_ROUTE, request, embed_ask(decode_json(await read_body(request))))

    async def embeddings(self, request: Request) -> Response:
        """POST /api/embeddings."""
        return self._embedded(EMBEDDINGS_ROUTE, request, embeddings_ask(decode_json(await read_body(request))))

    # --- text ---------------------------------------------------------------------------------------------

    def _answer(self, route: str, request: Request, ask: OllamaAsk) -> Response:
        lines = Lines(ask.model, chat=route == CHAT_ROUTE)

        async def work(send: Send) -> None:
            name = await self._meant(ask.model)
            if ask.is_bare and ask.keep_s == 0:
                self._unload(name)
                last = lines.answer(Piece(), now(), OllamaFigures(done_reason="unload"))
                await json_answer(last)(request.scope, request.receive, send)
                return
            async with self._desk.ticket(route, caller_of(request), name) as ticket:
                answering = _Answering(self._desk, ticket, ask, lines)
                if ask.is_bare:
                    await json_answer(await answering.load())(request.scope, request.receive, send)
                elif ask.stream:
                    await answering.stream(EventStream(send, {"content-type": NDJSON}))
                else:
                    await json_answer(await answering.whole())(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def _meant(self, name: str) -> str:
        return meant_by(name, await self._installed(), self._settings.current.aliases)

    def _unload(self, model_id: str) -> None:
        """Let a model go that a program's request loaded.

        Raises:
            NotAllowed: a person loaded it.
        """
        slot = next((slot for slot in self._supervisor.slots() if slot.model.id == model_id), None)
        if slot is None:
            return
        if not slot.on_demand:
            raise NotAllowed(
                f"{model_id} was loaded by a person, and programs may not unload it.", hint="Unload it in Deskside."
            )
        slot.keep_s = 0.0

    # --- vectors ------------------------------------------------------------------------------------------

    def _embedded(self, route: str, request: Request, ask: OllamaEmbedAsk) -> Response:
        async def work(send: Send) -> None:
            began_at = time.monotonic()
            name = await self._meant(ask.model)
            async with self._desk.ticket(route, caller_of(request), name) as ticket, self._desk.lease(ticket) as lease:
                load_s = time.monotonic() - began_at
                keep(lease, ask.keep_s)
                embedded = Embedded("", (), ticket.usage)
                if ask.inputs:
                    ticket.send(lease, [Embed(ticket.request_id, ask.inputs, ask.truncate)])
                while ask.inputs and not ticket.has_ended:
                    for message in await ticket.take():
                        if isinstance(message, Embedded):
                            embedded = message
                check_dimensions(embedded.vectors, ask.dimensions)
                vectors = tuple(vector(raw, ask.dimensions) for raw in embedded.vectors)
                answer: msgspec.Struct = OllamaEmbeddingsAnswer(vectors[0] if vectors else [])
                if route == EMBED_ROUTE:
                    total = nanoseconds(time.monotonic() - began_at)
                    n_tokens = embedded.usage.prompt_tokens
                    answer = OllamaEmbedAnswer(ask.model, vectors, total, nanoseconds(load_s), n_tokens)
                await json_answer(answer)(request.scope, request.receive, send)

        return WatchedResponse(work)


def keep(lease: Lease, keep_s: float | None) -> None:
    """Note how long the model shall stay; has no say over one that a person loaded."""
    if keep_s is not None:
        lease.slot.keep_s = keep_s


class _Answering:
    """One chat or generate request on its way."""

    def __init__(self, desk: Desk, ticket: Ticket, ask: OllamaAsk, lines: Lines) -> None:
        self._desk = desk
        self._ticket = ticket
        self._ask = ask
        self._lines = lines
        self._began_at = time.monotonic()
        self._load_s = 0.0

    async def load(self) -> msgspec.Struct:
        """Only load the model."""
        async with self._desk.lease(self._ticket) as lease:
            keep(lease, self._ask.keep_s)
        return self._lines.answer(Piece(), now(), OllamaFigures(done_reason="load"))

    async def whole(self) -> msgspec.Struct:
        """The answer in one."""
        pieces = Pieces()
        parts: list[Piece] = []
        finished: Finished | None = None
        async with contextlib.aclosing(said(self._desk, self._ticket, self._build())) as batches:
            async for batch in batches:
                for message in batch:
                    if isinstance(message, Delta):
                        parts += pieces.add(message)
                    elif isinstance(message, Finished):
                        finished = message
        if finished is None:
            raise TypeError("a worker ended a request without saying so")
        return self._lines.answer(joined([*parts, *pieces.close()]), now(), self._figures(finished))

    async def stream(self, stream: EventStream) -> None:
        """The answer line by line; an empty piece after each silence, since this form knows no comments."""
        pieces = Pieces()
        last = b""
        try:
            async with contextlib.aclosing(said(self._desk, self._ticket, self._build())) as batches:
                async for batch in batches:
                    parts: list[Piece] = []
                    for message in batch:
                        if isinstance(message, Delta):
                            parts += pieces.add(message)
                        elif isinstance(message, Finished):
                            parts += pieces.close()
                            last = line(self._lines.answer(Piece(), now(), self._figures(message)))
                    if parts:
                        at_s = now()
                        await stream.write(b"".join(line(self._lines.answer(part, at_s)) for part in parts))
                    elif not last:
                        await stream.beat(line(self._lines.answer(Piece(), now())))
            await stream.end(last)
        except RuntimeFault as error:
            if not stream.has_begun:
                raise
            await stream.end(line(ollama_error(error)))

    def _figures(self, finished: Finished) -> OllamaFigures:
        return figures_of(finished, time.monotonic() - self._began_at, self._load_s)

    def _build(self) -> BuildAsks:
        async def build(lease: Lease) -> Sequence[Ask]:
            self._load_s = time.monotonic() - self._began_at
            ask, ticket = self._ask, self._ticket
            keep(lease, ask.keep_s)
            check_media(lease, ask.messages)
            if ask.suffix:
                wanted = InfillPrompt(f"{ticket.request_id}.prompt", ask.prompt or "", ask.suffix)
                tokens = await infill_tokens(ticket, lease, wanted)
                return [Generate(ticket.request_id, prompt_tokens=tokens, options=ask.options, shape=ask.shape)]
            return [
                Generate(
                    ticket.request_id,
                    messages=ask.messages or None,
                    prompt=ask.prompt,
                    options=ask.options,
                    continue_last=ask.continue_last,
                    shape=ask.shape,
                )
            ]

        return build
