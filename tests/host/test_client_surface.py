"""Every method of the official clients: it works, or its error is a sentence in the dialect's shape.

What the clients have is asked of the packages themselves, so that a method of a later version is missed here first.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.host.conftest import RunningHost

CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "say 1"}]}
RESPONSE: dict[str, Any] = {"model": "fake", "input": "say 1"}
REFUSED = "refused"
"""With a sentence; the other entries say how a call works."""

NOT_CALLS = {"with_raw_response", "with_streaming_response", "parse", "stream", "connect", "create_and_poll"}
"""Ways to make the same calls; `connect` is a WebSocket, of which `GET /v1/responses` is the test."""

Call = Callable[[Any], object]


def kept(client: openai.OpenAI) -> str:
    return str(client.responses.create(**RESPONSE).id)


OPENAI: dict[str, Call | str] = {
    "responses.create": lambda client: client.responses.create(**RESPONSE),
    "responses.retrieve": lambda client: client.responses.retrieve(kept(client)),
    "responses.delete": lambda client: (client.responses.delete(kept(client)),),
    "responses.cancel": lambda client: client.responses.cancel(client.responses.create(**RESPONSE, background=True).id),
    "responses.compact": lambda client: client.responses.compact(**RESPONSE),
    "responses.input_items.list": lambda client: list(client.responses.input_items.list(kept(client))),
    "responses.input_tokens.count": lambda client: client.responses.input_tokens.count(**RESPONSE),
    "chat.completions.create": lambda client: client.chat.completions.create(**CHAT),
    "chat.completions.retrieve": REFUSED,
    "chat.completions.update": REFUSED,
    "chat.completions.list": REFUSED,
    "chat.completions.delete": REFUSED,
    "chat.completions.messages.list": REFUSED,
    "completions.create": lambda client: client.completions.create(model="fake", prompt="say 1"),
    "embeddings.create": lambda client: client.embeddings.create(model="fake", input="x"),
    "models.retrieve": lambda client: client.models.retrieve("fake"),
    "models.list": lambda client: list(client.models.list()),
    "models.delete": REFUSED,
}
OPENAI_ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "chat.completions.retrieve": (("chatcmpl-1",), {}),
    "chat.completions.update": (("chatcmpl-1",), {"metadata": {}}),
    "chat.completions.list": ((), {}),
    "chat.completions.delete": (("chatcmpl-1",), {}),
    "chat.completions.messages.list": (("chatcmpl-1",), {}),
    "models.delete": (("fake",), {}),
}
ANTHROPIC: dict[str, Call | str] = {
    "messages.create": lambda client: client.messages.create(**CHAT, max_tokens=9),
    "messages.count_tokens": lambda client: client.messages.count_tokens(**CHAT),
    "messages.batches.create": REFUSED,
    "messages.batches.retrieve": REFUSED,
    "messages.batches.list": REFUSED,
    "messages.batches.delete": REFUSED,
    "messages.batches.cancel": REFUSED,
    "messages.batches.results": REFUSED,
    "models.retrieve": lambda client: client.models.retrieve("fake"),
    "models.list": lambda client: list(client.models.list()),
}
ANTHROPIC_ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "messages.batches.create": ((), {"requests": []}),
    "messages.batches.list": ((), {}),
    **{f"messages.batches.{name}": (("msgbatch_1",), {}) for name in ("retrieve", "delete", "cancel", "results")},
}
OLLAMA: dict[str, Call | str] = {
    "chat": lambda client: client.chat(**CHAT),
    "generate": lambda client: client.generate("fake", "say 1"),
    "embed": lambda client: client.embed("fake", "x"),
    "embeddings": lambda client: client.embeddings("fake", "x"),
    "list": lambda client: client.list(),
    "show": lambda client: client.show("fake"),
    "ps": lambda client: client.ps(),
    "copy": lambda client: client.copy("fake", "another"),
    "delete": lambda client: (client.copy("fake", "third"), client.delete("third")),
    "pull": lambda client: client.pull("hf.co/org/repo:Q4_K_M"),
    "push": REFUSED,
    "create": REFUSED,
    "create_blob": REFUSED,
    "systemone": REFUSED,
}
OLLAMA_ELSEWHERE = {"web_search", "web_fetch", "close"}
"""They ask ollama.com, whatever the client's address is."""


def methods(owner: object) -> set[str]:
    """The calls that a part of a client has."""
    return {
        name
        for name, _ in inspect.getmembers(type(owner), inspect.isfunction)
        if not name.startswith("_") and name not in NOT_CALLS
    }


@pytest.fixture(scope="module")
def by_openai(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def by_anthropic(host: RunningHost) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=str(host.public.base_url), api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def by_ollama(host: RunningHost) -> Iterator[ollama.Client]:
    with ollama.Client(str(host.public.base_url)) as client:
        yield client


def test_when_a_client_has_a_method_then_the_tables_here_have_it_too(
    by_openai: openai.OpenAI, by_anthropic: anthropic.Anthropic, by_ollama: ollama.Client
) -> None:
    parts = {
        "responses": by_openai.responses,
        "responses.input_items": by_openai.responses.input_items,
        "responses.input_tokens": by_openai.responses.input_tokens,
        "chat.completions": by_openai.chat.completions,
        "chat.completions.messages": by_openai.chat.completions.messages,
        "completions": by_openai.completions,
        "embeddings": by_openai.embeddings,
        "models": by_openai.models,
    }
    assert {f"{part}.{name}" for part, owner in parts.items() for name in methods(owner)} == set(OPENAI)
    others = {
        "messages": by_anthropic.messages,
        "messages.batches": by_anthropic.messages.batches,
        "models": by_anthropic.models,
    }
    assert {f"{part}.{name}" for part, owner in others.items() for name in methods(owner)} == set(ANTHROPIC)
    assert methods(by_ollama) - OLLAMA_ELSEWHERE == set(OLLAMA)


@pytest.mark.parametrize("name", [name for name, call in OPENAI.items() if call != REFUSED])
def test_when_openais_client_calls_what_is_served_then_it_works(by_openai: openai.OpenAI, name: str) -> None:
    call = OPENAI[name]
    assert callable(call)
    assert call(by_openai) is not None


@pytest.mark.parametrize("name", OPENAI_ARGUMENTS)
def test_when_openais_client_calls_what_is_not_served_then_a_sentence_says_what_to_do(
    by_openai: openai.OpenAI, name: str
) -> None:
    method: Any = by_openai
    for part in name.split("."):
        method = getattr(method, part)
    args, fields = OPENAI_ARGUMENTS[name]
    with pytest.raises(openai.APIStatusError) as refused:
        list(method(*args, **fields))
    assert refused.value.status_code in (400, 404, 405)
    assert isinstance(refused.value.body, dict)
    message = refused.value.body["message"]
    assert "not kept" in message or "not deleted at this address" in message
    assert "Use /v1/responses" in message or "Remove it in Deskside" in message


@pytest.mark.parametrize("name", [name for name, call in ANTHROPIC.items() if call != REFUSED])
def test_when_anthropics_client_calls_what_is_served_then_it_works(
    by_anthropic: anthropic.Anthropic, name: str
) -> None:
    call = ANTHROPIC[name]
    assert callable(call)
    assert call(by_anthropic) is not None


@pytest.mark.parametrize("name", ANTHROPIC_ARGUMENTS)
def test_when_anthropics_client_calls_what_is_not_served_then_a_sentence_says_what_to_do(
    by_anthropic: anthropic.Anthropic, name: str
) -> None:
    method: Any = by_anthropic
    for part in name.split("."):
        method = getattr(method, part)
    args, fields = ANTHROPIC_ARGUMENTS[name]
    with pytest.raises(anthropic.NotFoundError) as refused:
        method(*args, **fields)
    body = refused.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    assert "Batches are not kept here" in body["error"]["message"]


def test_when_anthropics_client_asks_for_a_model_that_is_not_there_then_the_error_has_its_shape(
    by_anthropic: anthropic.Anthropic,
) -> None:
    with pytest.raises(anthropic.NotFoundError) as refused:
        by_anthropic.models.retrieve("nowhere")
    body = refused.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"


@pytest.mark.parametrize("name", [name for name, call in OLLAMA.items() if call != REFUSED and name != "pull"])
def test_when_ollamas_client_calls_what_is_served_then_it_works(by_ollama: ollama.Client, name: str) -> None:
    call = OLLAMA[name]
    assert callable(call)
    assert call(by_ollama) is not None


def test_when_ollamas_client_calls_what_is_not_served_then_a_sentence_says_so(by_ollama: ollama.Client) -> None:
    client = by_ollama
    calls: dict[str, Callable[[], object]] = {
        "push": lambda: client.push("fake"),
        "create": lambda: client.create("new", from_="fake"),
        "create_blob": lambda: client.create_blob(__file__),
        "systemone": lambda: client.systemone("fake", "x", {}),
    }
    assert set(calls) == {name for name, call in OLLAMA.items() if call == REFUSED}
    for name, call in calls.items():
        with pytest.raises(ollama.ResponseError) as refused:
            call()
        assert " " in refused.value.error, name
        assert refused.value.status_code in (404, 501), name


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/files", "Files are not kept here"),
        ("/v1/audio/transcriptions", "neither made nor written down"),
        ("/v1/images/generations", "are not made here"),
        ("/v1/moderations", "not moderated here"),
        ("/v1/batches", "Batches are not kept here"),
        ("/v1/assistants", "are not kept here"),
        ("/v1/threads/t/runs", "Conversations are not kept here"),
        ("/v1/vector_stores", "Vector stores"),
        ("/v1/fine_tuning/jobs", "not trained"),
        ("/v1/realtime/client_secrets", "Live sessions"),
        ("/v1/complete", "/v1/messages"),
        ("/v1/filesystem", "There is nothing at /v1/filesystem. The OpenAI routes"),
    ],
)
def test_when_an_address_of_a_hosted_service_is_asked_then_the_sentence_says_what_to_do_instead(
    host: RunningHost, path: str, words: str
) -> None:
    answer = host.public.post(path, json={})
    assert answer.status_code == 404
    assert words in answer.json()["error"]["message"]
    told = host.public.post(path, json={}, headers={"anthropic-version": "2023-06-01"}).json()
    assert (told["type"], told["error"]["type"]) == ("error", "not_found_error")


def test_when_responses_are_listed_or_opened_as_a_socket_then_a_sentence_says_so(host: RunningHost) -> None:
    answer = host.public.get("/v1/responses")
    assert answer.status_code == 405
    assert "not served over a WebSocket" in answer.json()["error"]["message"]
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    with contextlib.suppress(OSError):
        told = host.public.get("/v1/responses", headers={**headers, "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="})
        assert told.status_code in (400, 403, 405)
