"""The OpenAPI 3.1 document of all routes, generated from the types that the handlers use."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from runtime.errors import Failure
from runtime.host.api.anthropic_answer import AnthropicError, MessageAnswer, TokenCount
from runtime.host.api.anthropic_request import CountBody, MessagesBody
from runtime.host.api.health import Health
from runtime.host.api.http import json_answer
from runtime.host.api.ollama_answer import OllamaError
from runtime.host.api.openai import EmbeddingList, ModelCard, ModelList
from runtime.host.api.openai_answer import ChatCompletion, ErrorShape, TextCompletion
from runtime.host.api.openai_request import ChatBody, CompletionBody, EmbeddingBody
from runtime.host.api.operations import EVENTS, JSON, MODELS_OPERATIONS, Operation
from runtime.host.api.operations_dialects import NATIVE_OPERATIONS, OLLAMA_OPERATIONS
from runtime.host.api.operations_tools import TOOLS_OPERATIONS
from runtime.host.api.responses_answer import Deleted, InputTokens, ResponseAnswer
from runtime.host.api.responses_compact import Compacted
from runtime.host.api.responses_input import InputPage
from runtime.host.api.responses_request import ResponsesBody
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
    NewKey,
    NewKeyAnswer,
    RequestInfo,
    Status,
    UnloadRequest,
)
from runtime.messages.hardware import HardwareSample
from runtime.options import ApiOptions, KeyLimits

OPERATIONS = (
    Operation("get", "/health", "State of the host; needs no key.", answer=Health),
    Operation("get", "/metrics", "Prometheus text.", answer=str, content="text/plain"),
    Operation("get", "/v1/models", "Installed models.", answer=ModelList),
    Operation("get", "/v1/models/{model}", "One installed model.", answer=ModelCard),
    Operation(
        "post",
        "/v1/chat/completions",
        "Chat. With `stream`, server-sent events of chunks and `[DONE]`. Unknown fields are ignored.",
        ChatBody,
        ChatCompletion,
        streams=EVENTS,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Plain completion; streams as chat does.",
        CompletionBody,
        TextCompletion,
        streams=EVENTS,
    ),
    Operation("post", "/v1/embeddings", "Vectors of texts.", EmbeddingBody, EmbeddingList),
    Operation(
        "post",
        "/v1/responses",
        "Responses. With `stream`, that API's events. Answers are kept in memory for `previous_response_id`.",
        ResponsesBody,
        ResponseAnswer,
        streams=EVENTS,
    ),
    Operation("post", "/v1/responses/input_tokens", "Tokens of what would be asked.", ResponsesBody, InputTokens),
    Operation("post", "/v1/responses/compact", "A conversation summed up.", ResponsesBody, Compacted),
    Operation("get", "/v1/responses/{response_id}", "An answer that is kept.", answer=ResponseAnswer),
    Operation("delete", "/v1/responses/{response_id}", "Forget an answer.", answer=Deleted),
    Operation(
        "post",
        "/v1/responses/{response_id}/cancel",
        "End an answer that runs in the background.",
        answer=ResponseAnswer,
    ),
    Operation("get", "/v1/responses/{response_id}/input_items", "What an answer was made from.", answer=InputPage),
    Operation(
        "post",
        "/v1/messages",
        "Anthropic Messages. With `stream`, that API's events. Fields of paid services are ignored.",
        MessagesBody,
        MessageAnswer,
        streams=EVENTS,
    ),
    Operation("post", "/v1/messages/count_tokens", "Tokens of a conversation with its tools.", CountBody, TokenCount),
    Operation("get", "/admin/status", "The host at a glance.", answer=Status),
    Operation("get", "/admin/events", "Snapshot and changes.", answer=HostEvent, content=EVENTS),
    Operation("get", "/admin/models", "Models on disk.", answer=tuple[InstalledModel, ...]),
    Operation("post", "/admin/models/load", "Load; progress comes as events.", LoadRequest, LoadedModel, 202),
    Operation("post", "/admin/models/unload", "Unload.", UnloadRequest, status=204),
    Operation("post", "/admin/chat", "One turn of a chat; closing it cancels.", ChatRequest, ChatEvent, content=EVENTS),
    Operation("post", "/admin/count", "Tokens of a conversation.", CountRequest, CountAnswer),
    Operation("get", "/admin/hardware", "A reading of the machine.", answer=HardwareSample),
    Operation("get", "/admin/api", "The public API now.", answer=ApiState),
    Operation("put", "/admin/api", "Start, stop or move the public API.", ApiOptions, ApiState),
    Operation("post", "/admin/keys", "Make an API key.", NewKey, NewKeyAnswer, 201),
    Operation("put", "/admin/keys/{name}", "Change what a key's holder may take.", KeyLimits, ApiKeyInfo),
    Operation("delete", "/admin/keys/{name}", "Delete an API key; `problem` says what ends with it.", answer=ApiState),
    Operation("get", "/admin/requests", "Running and lately finished requests.", answer=tuple[RequestInfo, ...]),
    Operation("post", "/admin/requests/cancel", "Cancel a running request.", CancelRequest, status=204),
    *OLLAMA_OPERATIONS,
    *NATIVE_OPERATIONS,
    *MODELS_OPERATIONS,
    *TOOLS_OPERATIONS,
    Operation("post", "/admin/shutdown", "End the host.", status=204),
    Operation("get", "/openapi.json", "What other programs may call.", answer=dict[str, Any]),
    Operation("get", "/admin/openapi.json", "This document.", answer=dict[str, Any]),
)

PUBLIC_OPERATIONS = tuple(operation for operation in OPERATIONS if not operation.path.startswith("/admin"))
"""What the public listener serves."""


def build_document(version: str, operations: Sequence[Operation] = OPERATIONS) -> dict[str, Any]:
    """The document of these operations; JSON-ready."""
    types = [kind for operation in operations for kind in (operation.body, operation.answer) if kind is not None]
    types += [Failure, ErrorShape, AnthropicError, OllamaError]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = list(zip(types, schemas, strict=True))

    def schema(kind: object) -> dict[str, Any]:
        return next(found for known, found in by_type if known is kind)

    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        entry: dict[str, Any] = {
            "summary": operation.text,
            "operationId": f"{operation.method}_{operation.path.strip('/').translate(_PLAIN)}",
            "responses": _responses(operation, schema),
        }
        if operation.path == "/health":
            entry["security"] = []
        if operation.body is not None:
            entry["requestBody"] = {"required": True, "content": {JSON: {"schema": schema(operation.body)}}}
        names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
        if names:
            entry["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ]
        paths.setdefault(operation.path, {})[operation.method] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "Deskside", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}],
    }


def _responses(operation: Operation, schema: Callable[[object], dict[str, Any]]) -> dict[str, Any]:
    """What may come back: the answer, refusals (whose fault is the caller's), failures of this machine."""
    answer: dict[str, Any] = {"description": operation.text}
    if operation.answer is not None:
        whole = schema(operation.answer)
        answer["content"] = {operation.content: {"schema": whole}}
        if operation.streams:
            # Ollama's lines have the answer's shape; events have many, and the document says only that they are text.
            piece = {"type": "string"} if operation.streams == EVENTS else whole
            answer["content"][operation.streams] = {"schema": piece}
    error = {JSON: {"schema": schema(_error_of(operation.path))}}
    return {
        str(operation.status): answer,
        "4XX": {"description": "Refused; the sentence says why and what to do.", "content": error},
        "5XX": {"description": "The model or this machine failed; the sentence says how.", "content": error},
    }


def _error_of(path: str) -> type[msgspec.Struct]:
    if path.startswith("/admin"):
        return Failure
    if path.startswith("/api/"):
        return OllamaError
    return AnthropicError if path.startswith("/v1/messages") else ErrorShape


_PLAIN = str.maketrans({"/": "_", "{": "", "}": "", ".": "_"})


class OpenApiRoutes:
    """GET /openapi.json for everybody, GET /admin/openapi.json with the private routes as well."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._documents: dict[tuple[Operation, ...], dict[str, Any]] = {}

    async def public(self, _request: Request) -> Response:
        """What the public listener serves."""
        return self._document(PUBLIC_OPERATIONS)

    async def document(self, _request: Request) -> Response:
        """Every route."""
        return self._document(OPERATIONS)

    def _document(self, operations: tuple[Operation, ...]) -> Response:
        """Made on the first call."""
        if operations not in self._documents:
            self._documents[operations] = build_document(self._version, operations)
        return json_answer(self._documents[operations])
