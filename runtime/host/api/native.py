"""llama-server's own routes: tokens, templates, completion and infill, properties, slots, rerank."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import BadRequest, ModelLoading, NotSupported, RuntimeFault
from runtime.host.admission import Ask
from runtime.host.api.answering import infill_tokens, said
from runtime.host.api.body import typed, without_nulls
from runtime.host.api.http import EventStream, WatchedResponse, decode_json, event_bytes, json_answer, read_body
from runtime.host.api.model_words import ModelShelf
from runtime.host.api.native_adapters import AdapterRoutes
from runtime.host.api.native_request import (
    DetokenizeBody,
    NativeAsk,
    TokenizeBody,
    completion_ask,
    infill_ask,
    rerank_ask,
)
from runtime.host.api.openai_answer import (
    TimingsShape,
    UsageShape,
    chat_logprobs,
    error_event,
    timings_shape,
    usage_shape,
)
from runtime.host.api.openai_request import chat_ask
from runtime.host.caller import caller_of
from runtime.host.desk import Desk, ask_once
from runtime.host.mailbox import RequestMessage
from runtime.host.model_slot import ModelSlot
from runtime.host.supervisor import Lease, Supervisor
from runtime.messages.ipc import (
    ApplyTemplate,
    Delta,
    Detokenize,
    Finished,
    Generate,
    InfillPrompt,
    Rendered,
    Rerank,
    Reranked,
    Tokenize,
    Tokenized,
)
from runtime.messages.shared import PositionLogprobs

_RUNNING = ("prompt", "generating")
_encode = msgspec.json.Encoder().encode

A = TypeVar("A", Tokenized, Rendered, Reranked)


class TokenPiece(msgspec.Struct, frozen=True):
    """A token with its text, or its bytes where they are no whole text."""

    id: int
    piece: str | tuple[int, ...]


class TokenList(msgspec.Struct, frozen=True):
    """/tokenize."""

    tokens: tuple[int | TokenPiece, ...]


class DetokenizedText(msgspec.Struct, frozen=True):
    """/detokenize."""

    content: str


class RenderedPrompt(msgspec.Struct, frozen=True):
    """/apply-template."""

    prompt: str


class RankedDocument(msgspec.Struct, frozen=True):
    """The text of a ranked document."""

    text: str


class RankedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document; `index` is its place in the request."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None


class RankedText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the plain list."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class Ranking(msgspec.Struct, frozen=True):
    """/rerank: the best first."""

    id: str
    model: str
    object: str
    usage: UsageShape
    results: tuple[RankedResult, ...]


class NativeChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a stream of /completion or /infill."""

    index: int
    content: str
    stop: bool
    tokens_predicted: int
    completion_probabilities: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class NativeCompletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last event, or the whole answer. `stop_type` is eos, word, limit or none."""

    index: int
    content: str
    stop: bool
    id_slot: int
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    has_new_line: bool
    truncated: bool
    stop_type: str
    stopping_word: str
    timings: TimingsShape
    completion_probabilities: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class GenerationSettings(msgspec.Struct, frozen=True):
    """What holds where a request says nothing."""

    n_ctx: int


class Modalities(msgspec.Struct, frozen=True):
    """What beside text the model takes."""

    vision: bool
    audio: bool


class Props(msgspec.Struct, frozen=True):
    """/props of the model that was loaded last, or of `?model=`."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    modalities: Modalities
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class SlotState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot of a loaded model. Which request is in which slot changes, so they are told in order of arrival."""

    id: int
    model: str
    n_ctx: int
    is_processing: bool
    id_task: str = ""
    n_prompt_tokens: int = 0
    n_decoded: int = 0


class NativeRoutes:
    """The handlers."""

    def __init__(self, desk: Desk, supervisor: Supervisor, meant_by: Callable[[str], str]) -> None:
        """`meant_by` gives the id that a further name of a model stands for."""
        self._desk = desk
        self._supervisor = supervisor
        self._meant_by = meant_by
        self._shelf = ModelShelf()

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/apply-template", self.apply_template, methods=["POST"]),
            Route("/completion", self.completion, methods=["POST"]),
            Route("/infill", self.infill, methods=["POST"]),
            Route("/rerank", self.rerank, methods=["POST"]),
            Route("/reranking", self.rerank, methods=["POST"]),
            Route("/v1/rerank", self.rerank, methods=["POST"]),
            Route("/v1/reranking", self.rerank, methods=["POST"]),
            Route("/v2/rerank", self.rerank, methods=["POST"]),
            *AdapterRoutes(self._loaded).routes(),
            Route("/props", self.props, methods=["GET"]),
            Route("/slots", self.slots, methods=["GET"]),
            Route("/slots/{slot_id}", self.slot_action, methods=["POST"]),
        ]

    # --- tokens and templates -----------------------------------------------------------------------------

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        body = typed(without_nulls(decode_json(await read_body(request))), TokenizeBody)

        def build(request_id: str) -> Ask:
            return Tokenize(request_id, body.content, body.add_special, body.parse_special)

        def answer(message: Tokenized, _model: str) -> TokenList:
            if not body.with_pieces:
                return TokenList(message.token_ids)
            pairs = zip(message.token_ids, message.pieces, strict=True)
            return TokenList(tuple(TokenPiece(token, _piece(raw)) for token, raw in pairs))

        return self._asked(request, body.model, build, Tokenized, answer)

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        body = typed(without_nulls(decode_json(await read_body(request))), DetokenizeBody)
        return self._asked(
            request,
            body.model,
            lambda request_id: Detokenize(request_id, body.tokens),
            Rendered,
            lambda message, _model: DetokenizedText(message.text),
        )

    async def apply_template(self, request: Request) -> Response:
        """POST /apply-template: takes what /v1/chat/completions takes."""
        ask = chat_ask(decode_json(await read_body(request)))

        def build(request_id: str) -> Ask:
            return ApplyTemplate(request_id, ask.messages, ask.shape, ask.continue_last)

        return self._asked(request, ask.model, build, Rendered, lambda message, _model: RenderedPrompt(message.text))

    async def rerank(self, request: Request) -> Response:
        """POST /rerank."""
        body = rerank_ask(decode_json(await read_body(request)))

        def answer(message: Reranked, model: str) -> msgspec.Struct | tuple[RankedText, ...]:
            ranked = sorted(enumerate(message.scores), key=lambda entry: -entry[1])[: body.top_n]
            texts = body.documents
            if body.is_plain:
                return tuple(
                    RankedText(index, score, texts[index] if body.shows_texts else msgspec.UNSET)
                    for index, score in ranked
                )
            results = tuple(
                RankedResult(index, score, RankedDocument(texts[index]) if body.shows_texts else None)
                for index, score in ranked
            )
            return Ranking(message.request_id, model, "list", usage_shape(message.usage), results)

        return self._asked(
            request,
            body.model,
            lambda request_id: Rerank(request_id, body.query, body.documents, body.lora),
            Reranked,
            answer,
        )

    def _asked(
        self,
        request: Request,
        model: str,
        build: Callable[[str], Ask],
        kind: type[A],
        answer: Callable[[A, str], msgspec.Struct | tuple[msgspec.Struct, ...]],
    ) -> Response:
        """Something that the model answers with one message."""

        async def work(send: Send) -> None:
            async with self._desk.ticket(request.url.path, caller_of(request), model) as ticket:
                message: RequestMessage = await ask_once(self._desk, ticket, build)
                if not isinstance(message, kind):
                    raise TypeError(f"a worker answered {request.url.path} with {type(message).__name__}")
                response = json_answer(answer(message, ticket.model))
                await response(request.scope, request.receive, send)

        return WatchedResponse(work)

    # --- text ---------------------------------------------------------------------------------------------

    async def completion(self, request: Request) -> Response:
        """POST /completion."""
        return self._completed(request, completion_ask(decode_json(await read_body(request))), is_infill=False)

    async def infill(self, request: Request) -> Response:
        """POST /infill."""
        return self._completed(request, infill_ask(decode_json(await read_body(request))), is_infill=True)

    def _completed(self, request: Request, ask: NativeAsk, *, is_infill: bool) -> Response:
        async def work(send: Send) -> None:
            async with self._desk.ticket(request.url.path, caller_of(request), ask.model) as ticket:

                async def build(lease: Lease) -> Sequence[Ask]:
                    tokens = ask.prompt if isinstance(ask.prompt, tuple) else None
                    if is_infill:
                        text = ask.prompt if isinstance(ask.prompt, str) else ""
                        wanted = InfillPrompt(f"{ticket.request_id}.prompt", ask.prefix, ask.suffix, text, ask.files)
                        tokens = await infill_tokens(ticket, lease, wanted)
                    prompt = ask.prompt if tokens is None and isinstance(ask.prompt, str) else None
                    return [
                        Generate(
                            ticket.request_id,
                            prompt=prompt,
                            prompt_tokens=tokens,
                            options=ask.options,
                            shape=ask.shape,
                        )
                    ]

                stream = EventStream(send, {"x-request-id": ticket.request_id})
                gathered = _Gathered(ask)
                try:
                    async with contextlib.aclosing(said(self._desk, ticket, build)) as batches:
                        async for batch in batches:
                            data = b"".join(map(gathered.add, batch))
                            if ask.stream and data:
                                await stream.write(data)
                            elif ask.stream:
                                await stream.beat()
                    last = gathered.last(ticket.model)
                    if ask.stream:
                        await stream.end(event_bytes(last))
                    else:
                        answer = json_answer(last, headers={"x-request-id": ticket.request_id})
                        await answer(request.scope, request.receive, send)
                except RuntimeFault as error:
                    if not stream.has_begun:
                        raise
                    await stream.end(error_event(error))

        return WatchedResponse(work)

    # --- what is loaded -----------------------------------------------------------------------------------

    async def props(self, request: Request) -> Response:
        """GET /props."""
        slot = self._loaded(request.query_params.get("model", ""))
        facts = slot.facts
        if facts is None:
            raise ModelLoading(f"{slot.model.id} is being loaded.", hint="Try again.", percent=slot.percent)
        words = await self._shelf.words(slot.model)
        return json_answer(
            Props(
                GenerationSettings(facts.n_ctx),
                facts.n_parallel,
                slot.model.id,
                facts.name,
                Modalities(facts.can_see, facts.can_hear),
                words.template,
                words.bos_token,
                words.eos_token,
                facts.engine,
                is_sleeping=False,
            )
        )

    async def slots(self, _request: Request) -> Response:
        """GET /slots."""
        running = [row for row in self._desk.rows() if row.state in _RUNNING]
        states: list[SlotState] = []
        for slot in self._supervisor.slots():
            if slot.facts is None or slot.state != "ready":
                continue
            rows = [row for row in running if row.model == slot.model.id]
            for index in range(slot.facts.n_parallel):
                row = rows[index] if index < len(rows) else None
                states.append(
                    SlotState(
                        index,
                        slot.model.id,
                        slot.facts.n_ctx,
                        row is not None,
                        row.request_id if row is not None else "",
                        row.prompt_tokens if row is not None else 0,
                        row.generated_tokens if row is not None else 0,
                    )
                )
        return json_answer(tuple(states))

    async def slot_action(self, request: Request) -> Response:
        """POST /slots/{id}?action=save|restore|erase: there are no slots to save, conversations move between them."""
        action = request.query_params.get("action", "")
        if action not in {"save", "restore", "erase"}:
            raise BadRequest("action is one of save, restore and erase.", param="action")
        raise NotSupported(
            f"Slots have no conversation of their own here, so there is nothing to {action}.",
            hint="Long prompts are stored on disk and found again by themselves; the load option disk_cache_bytes says "
            "how much.",
        )

    def _loaded(self, name: str) -> ModelSlot:
        slots = self._supervisor.slots()
        if not slots:
            raise BadRequest("No model is loaded.", hint="Load one, or ask it something.", param="model")
        wanted = self._meant_by(name)
        slot = next((slot for slot in slots if slot.model.id == wanted), None) if name else slots[-1]
        if slot is None:
            raise BadRequest(f"{name!r} is not loaded.", hint="Ask it something, or load it.", param="model")
        return slot


class _Gathered:
    """One completion as it comes in."""

    def __init__(self, ask: NativeAsk) -> None:
        self._ask = ask
        self._texts: list[str] = []
        self._logprobs: list[PositionLogprobs] = []
        self._n_tokens = 0
        self._finished: Finished | None = None

    def add(self, message: RequestMessage) -> bytes:
        """Take a message; the event it makes in a stream."""
        if isinstance(message, Finished):
            self._finished = message
        if not isinstance(message, Delta):
            return b""
        self._n_tokens += message.n_tokens
        self._texts.append(message.text)
        self._logprobs.extend(message.logprobs)
        if not message.text and not message.logprobs:
            return b""
        chunk = NativeChunk(0, message.text, False, self._n_tokens, _probabilities(message.logprobs))
        return event_bytes(chunk)

    def last(self, model: str) -> NativeCompletion:
        """The whole answer; in a stream without the text, which was sent."""
        finished = self._finished
        if finished is None:
            raise TypeError("a worker ended a request without saying so")
        text = "".join(self._texts)
        stop = finished.stop_strings[0] if finished.stop_strings else ""
        reason = finished.reasons[0]
        ended = "word" if stop else "eos" if reason == "stop" else "limit" if reason == "length" else "none"
        usage = finished.usage
        is_streamed = self._ask.stream
        return NativeCompletion(
            index=0,
            content="" if is_streamed else text,
            stop=True,
            id_slot=-1,
            model=model,
            tokens_predicted=usage.completion_tokens,
            tokens_evaluated=usage.prompt_tokens,
            tokens_cached=usage.cached_tokens,
            has_new_line="\n" in text,
            truncated=False,
            stop_type=ended,
            stopping_word=stop,
            timings=timings_shape(usage, finished.timings),
            completion_probabilities=_probabilities(() if is_streamed else self._logprobs),
        )


def _probabilities(positions: Sequence[PositionLogprobs]) -> msgspec.Raw | msgspec.UnsetType:
    """In the form of newer servers: as in OpenAI's chat, so one shape serves both."""
    return msgspec.Raw(_encode(chat_logprobs(positions).content)) if positions else msgspec.UNSET


def _piece(raw: bytes) -> str | tuple[int, ...]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return tuple(raw)
