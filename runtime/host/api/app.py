"""The two ASGI apps: the private one has every route, the public one no admin ones."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from runtime.errors import BugFault, RuntimeFault, to_failure
from runtime.host.access import AccessPolicy, Gate
from runtime.host.api.admin import AdminRoutes
from runtime.host.api.anthropic import MESSAGES_ROUTE, AnthropicRoutes, is_anthropic
from runtime.host.api.anthropic_answer import anthropic_error
from runtime.host.api.health import HealthRoutes
from runtime.host.api.http import ClientGone, json_answer
from runtime.host.api.not_served import not_so, not_there, speaks_ollama
from runtime.host.api.ollama_answer import ollama_error
from runtime.host.api.openai import OpenAiRoutes
from runtime.host.api.openai_answer import error_shape
from runtime.host.api.openapi import OpenApiRoutes


def shared_routes(
    openai: OpenAiRoutes, anthropic: AnthropicRoutes, health: HealthRoutes, openapi: OpenApiRoutes
) -> list[Route]:
    """Routes that both listeners have, beside those that are one dialect's alone."""
    return [
        Route("/health", health.health, methods=["GET"]),
        Route("/metrics", health.metrics, methods=["GET"]),
        Route("/openapi.json", openapi.public, methods=["GET"]),
        Route("/v1/models", _by_caller(openai.models, anthropic.models), methods=["GET"]),
        Route("/v1/models/{model:path}", _by_caller(openai.model, anthropic.model), methods=["GET"]),
        Route("/v1/chat/completions", openai.chat, methods=["POST"]),
        Route("/v1/completions", openai.completions, methods=["POST"]),
        Route("/v1/embeddings", openai.embeddings, methods=["POST"]),
    ]


Handler = Callable[[Request], Awaitable[Response]]


def _by_caller(openai: Handler, anthropic: Handler) -> Handler:
    """One address that two dialects have: callers of the one say so in a header."""

    async def handle(request: Request) -> Response:
        return await (anthropic if is_anthropic(request.headers) else openai)(request)

    return handle


def admin_routes(admin: AdminRoutes, openapi: OpenApiRoutes) -> list[Route]:
    """Routes of the private listener only."""
    return [
        Route("/admin/status", admin.status, methods=["GET"]),
        Route("/admin/events", admin.events, methods=["GET"]),
        Route("/admin/models", admin.models, methods=["GET"]),
        Route("/admin/models/load", admin.load, methods=["POST"]),
        Route("/admin/models/unload", admin.unload, methods=["POST"]),
        Route("/admin/chat", admin.chat, methods=["POST"]),
        Route("/admin/count", admin.count, methods=["POST"]),
        Route("/admin/hardware", admin.hardware, methods=["GET"]),
        Route("/admin/api", admin.api, methods=["GET", "PUT"]),
        Route("/admin/keys", admin.add_key, methods=["POST"]),
        Route("/admin/keys/{name}", admin.key, methods=["PUT", "DELETE"]),
        Route("/admin/requests", admin.requests, methods=["GET"]),
        Route("/admin/requests/cancel", admin.cancel, methods=["POST"]),
        Route("/admin/shutdown", admin.shutdown, methods=["POST"]),
        Route("/admin/openapi.json", openapi.document, methods=["GET"]),
    ]


def build_app(routes: Sequence[Route], policy: Callable[[], AccessPolicy]) -> ASGIApp:
    """Routes behind a gate, with every error in the shape of its dialect."""
    app = Starlette(
        routes=list(routes),
        exception_handlers={
            RuntimeFault: _on_fault,
            HTTPException: _on_http_exception,
            ClientGone: _on_client_gone,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False
    return Gate(app, policy, error_answer)


def error_answer(error: RuntimeFault, scope: Scope) -> Response:
    """An error as an answer: a `Failure` for our own clients, for others the shape of the dialect they speak."""
    headers = {}
    retry_after_s = error.details.get("retry_after_s")
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(float(retry_after_s))))
    elif error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = "2"
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return json_answer(_shape(error, scope), error.status, headers)


def _shape(error: RuntimeFault, scope: Scope) -> msgspec.Struct:
    path: str = scope["path"]
    if path.startswith("/admin"):
        return to_failure(error)
    if path.startswith(MESSAGES_ROUTE) or (path.startswith("/v1/") and is_anthropic(Headers(scope=scope))):
        return anthropic_error(error)
    if speaks_ollama(path):
        return ollama_error(error)
    return error_shape(error)


async def _on_fault(request: Request, error: Exception) -> Response:
    if not isinstance(error, RuntimeFault):
        raise error
    return error_answer(error, request.scope)


async def _on_bug(request: Request, error: Exception) -> Response:
    """Starlette raises the error again afterwards, so it also stands in the log with its stack."""
    failure = to_failure(error)
    return error_answer(BugFault(failure.message, hint=failure.hint), request.scope)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_answer(not_there(path), request.scope)
    answer = error_answer(not_so(request.method, path, _allowed(error)), request.scope)
    answer.status_code = error.status_code
    answer.headers["allow"] = _allowed(error)
    return answer


def _allowed(error: HTTPException) -> str:
    return (error.headers or {}).get("Allow", "")
