"""OpenAI's Responses API: answers as items, kept so that the next request may go on with them."""

import contextlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import BadRequest, ResponseNotFound, RuntimeFault
from runtime.host.admission import Ask
from runtime.host.api.answering import BuildAsks, check_media, said
from runtime.host.api.http import EventStream, WatchedResponse, decode_json, json_answer, read_body
from runtime.host.api.picture_fetch import PictureFetcher
from runtime.host.api.responses_answer import Deleted, InputTokens, ResponseAnswer, ResponseMaker
from runtime.host.api.responses_background import Background
from runtime.host.api.responses_compact import COMPACT_ROUTE, compacted
from runtime.host.api.responses_input import input_items, items_page
from runtime.host.api.responses_items import Turns
from runtime.host.api.responses_request import ResponsesAsk, count_input_ask, responses_ask
from runtime.host.api.responses_store import ResponseStore, Stored
from runtime.host.caller import caller_of
from runtime.host.desk import Desk, Ticket, ask_once
from runtime.host.supervisor import Lease
from runtime.messages.ipc import Count, Counted, Delta, Finished, Generate

RESPONSES_ROUTE = "/v1/responses"
COUNT_ROUTE = "/v1/responses/input_tokens"
_MAX_DIGITS = 15


class ResponsesRoutes:
    """The API's handlers."""

    def __init__(self, desk: Desk, pictures: PictureFetcher, store: ResponseStore | None = None) -> None:
        self._desk = desk
        self._pictures = pictures
        self._store = store if store is not None else ResponseStore()
        self._background = Background(desk, _asks, self._keep, RESPONSES_ROUTE)

    def routes(self) -> list[Route]:
        """Addresses of this API."""
        return [
            Route(RESPONSES_ROUTE, self.create, methods=["POST"]),
            Route(COUNT_ROUTE, self.count, methods=["POST"]),
            Route(COMPACT_ROUTE, self.compact, methods=["POST"]),
            Route("/v1/responses/{response_id}", self.kept, methods=["GET", "DELETE"]),
            Route("/v1/responses/{response_id}/input_items", self.input_items, methods=["GET"]),
            Route("/v1/responses/{response_id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """POST /v1/responses."""
        raw = decode_json(await read_body(request))
        self._check_ended(raw.get("previous_response_id"))
        ask = responses_ask(await self._pictures.filled(raw), self._store)
        if ask.body.background:
            return await self._begin(request, ask)

        async def work(send: Send) -> None:
            async with self._desk.ticket(RESPONSES_ROUTE, caller_of(request), ask.body.model) as ticket:
                headers = {"x-request-id": ticket.request_id}
                if ask.body.stream:
                    await self._stream(ticket, ask, EventStream(send, headers))
                else:
                    answer = json_answer(await self._whole(ticket, ask), headers=headers)
                    await answer(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def _begin(self, request: Request, ask: ResponsesAsk) -> Response:
        run = await self._background.start(ask, caller_of(request))
        if ask.body.stream:
            return WatchedResponse(lambda send: run.follow(-1, EventStream(send)))
        return json_answer(run.shown())

    def _check_ended(self, response_id: object) -> None:
        if isinstance(response_id, str) and self._background.running(response_id) is not None:
            raise BadRequest(
                f"The response {response_id!r} has not ended yet.",
                hint="Wait until its `status` says so.",
                param="previous_response_id",
            )

    async def count(self, request: Request) -> Response:
        """POST /v1/responses/input_tokens."""
        ask = count_input_ask(decode_json(await read_body(request)), self._store)

        async def work(send: Send) -> None:
            async with self._desk.ticket(COUNT_ROUTE, caller_of(request), ask.model) as ticket:
                counted = await ask_once(
                    self._desk, ticket, lambda request_id: Count(request_id, ask.messages, ask.shape)
                )
                if not isinstance(counted, Counted):
                    raise TypeError(f"a worker answered a count with {type(counted).__name__}")
                answer = json_answer(InputTokens("response.input_tokens", counted.n_tokens))
                await answer(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def compact(self, request: Request) -> Response:
        """POST /v1/responses/compact."""
        raw = decode_json(await read_body(request))
        self._check_ended(raw.get("previous_response_id"))
        ask = count_input_ask(await self._pictures.filled(raw), self._store)

        async def work(send: Send) -> None:
            async with self._desk.ticket(COMPACT_ROUTE, caller_of(request), ask.model) as ticket:
                told = await compacted(self._desk, ticket, ask)
                answer = json_answer(told, headers={"x-request-id": ticket.request_id})
                await answer(request.scope, request.receive, send)

        return WatchedResponse(work)

    async def kept(self, request: Request) -> Response:
        """GET and DELETE /v1/responses/{id}."""
        response_id = request.path_params["response_id"]
        running = self._background.running(response_id)
        if request.method == "DELETE":
            if running is not None:
                await self._background.cancel(running)
            self._background.forget(response_id)
            self._store.remove(self._found(response_id).response_id)
            return json_answer(Deleted(response_id, "response", deleted=True))
        if request.query_params.get("stream", "false").lower() != "false":
            return self._follow(request, response_id)
        if running is not None:
            return json_answer(running.shown())
        return Response(self._found(response_id).encoded, media_type="application/json")

    def _follow(self, request: Request, response_id: str) -> Response:
        run = self._background.followed(response_id)
        if run is None:
            self._found(response_id)
            raise BadRequest(
                f"The events of {response_id!r} are not kept: it has ended, or did not run in the background.",
                hint="Leave `stream` out.",
                param="stream",
            )
        after = request.query_params.get("starting_after", "-1")
        if not (after == "-1" or (after.isascii() and after.isdigit() and len(after) <= _MAX_DIGITS)):
            raise BadRequest("`starting_after` is no number of an event.", hint="Send one.", param="starting_after")
        run.events_from(int(after) + 1)  # refused before anything is sent
        return WatchedResponse(lambda send: run.follow(int(after), EventStream(send)))

    async def input_items(self, request: Request) -> Response:
        """GET /v1/responses/{id}/input_items: what came before the answer, the newest first unless `order=asc`."""
        response_id = request.path_params["response_id"]
        running = self._background.running(response_id)
        if running is not None:
            rows = running.ask.history
        else:
            stored = self._found(response_id)
            rows = stored.messages[: len(stored.messages) - stored.n_answer]
        items = input_items(response_id, rows)
        return json_answer(items_page(items, request.query_params))

    async def cancel(self, request: Request) -> Response:
        """POST /v1/responses/{id}/cancel: of an answer in the background; one that has ended is told as it is."""
        response_id = request.path_params["response_id"]
        running = self._background.running(response_id)
        if running is not None:
            await self._background.cancel(running)
        found = self._found(response_id)
        if not found.is_background:
            raise BadRequest(
                f"The response {response_id!r} did not run in the background, so it cannot be cancelled.",
                hint="Close the connection of an answer that runs.",
                param="response_id",
            )
        return Response(found.encoded, media_type="application/json")

    def _found(self, response_id: str) -> Stored:
        found = self._store.get(response_id)
        if found is None:
            raise ResponseNotFound(
                f"The response {response_id!r} is not kept (any more).", hint="Ask for it anew.", param="response_id"
            )
        return found

    # --- answering ----------------------------------------------------------------------------------------

    async def _whole(self, ticket: Ticket, ask: ResponsesAsk) -> ResponseAnswer:
        maker = ResponseMaker(ask, ticket)
        async with contextlib.aclosing(said(self._desk, ticket, _asks(ticket, ask))) as batches:
            async for batch in batches:
                for message in batch:
                    if isinstance(message, Delta):
                        maker.delta(message)
                    elif isinstance(message, Finished):
                        maker.end(message)
        return self._keep(ask, maker)

    async def _stream(self, ticket: Ticket, ask: ResponsesAsk, stream: EventStream) -> None:
        maker = ResponseMaker(ask, ticket)
        last = b""
        try:
            async with contextlib.aclosing(said(self._desk, ticket, _asks(ticket, ask))) as batches:
                async for batch in batches:
                    data: list[bytes] = []
                    for message in batch:
                        if isinstance(message, Delta):
                            data.append(maker.delta(message))
                        elif isinstance(message, Finished):
                            last = maker.end(message)
                            self._keep(ask, maker)  # before the program hears the id is whole
                    body = b"".join(data)
                    if body:
                        await stream.write(body)
                    else:
                        await stream.beat()
            await stream.end(last)
        except RuntimeFault as error:
            # Before the first byte the error can still be a plain answer with its own status.
            if not stream.has_begun:
                raise
            await stream.end(maker.failed(error))

    def _keep(self, ask: ResponsesAsk, maker: ResponseMaker) -> ResponseAnswer:
        answer = maker.answer
        if answer is None:
            raise TypeError("a worker ended a request without saying so")
        if ask.body.store:
            turns = Turns(ask.history)
            for item in answer.output:
                turns.item(item)
            encoded = json_answer(answer).body
            whole = (*ask.history, *turns.rows)
            n_answer = len(turns.rows)
            self._store.put(Stored(answer.id, bytes(encoded), answer.output, whole, n_answer, answer.background))
        return answer


def _asks(ticket: Ticket, ask: ResponsesAsk) -> BuildAsks:
    async def build(lease: Lease) -> list[Ask]:
        check_media(lease, ask.messages)
        return [Generate(ticket.request_id, messages=ask.messages, options=ask.options, shape=ask.shape)]

    return build
