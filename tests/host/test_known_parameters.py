"""The table of parameters in ARCHITECTURE.md (decision 65): what is ignored is ignored, what is refused is named."""

from typing import Any

import pytest

from tests.host.conftest import RunningHost

ROW = {"role": "user", "content": "say 1"}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [ROW]},
    "/v1/completions": {"prompt": "say 1"},
    "/v1/responses": {"input": "say 1"},
    "/v1/messages": {"messages": [ROW], "max_tokens": 9},
    "/api/chat": {"messages": [ROW], "stream": False},
    "/api/generate": {"prompt": "say 1", "stream": False},
    "/completion": {"prompt": "say 1"},
}
IGNORED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "store": True, "metadata": {"a": "b"}, "service_tier": "flex", "prediction": {"content": "x"},
        "verbosity": "low", "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
    },
    "/v1/responses": {
        "service_tier": "flex", "user": "u", "prompt_cache_key": "k", "safety_identifier": "s",
        "text": {"verbosity": "low"}, "background_options": {"completion_window": "2h"},
        "stream_options": {"include_obfuscation": False},
    },
    "/v1/messages": {
        "metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}, "betas": ["x"],
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
    },
    "/api/chat": {"options": {"num_ctx": 4096, "num_gpu": 1, "num_thread": 2, "nonsense": 1}},
    "/completion": {"cache_prompt": True, "id_slot": 0, "samplers": ["top_k"]},
}  # fmt: skip
REFUSED: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "/v1/chat/completions": (
        ("functions", {"functions": [{"name": "f"}]}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("audio", {"audio": {"voice": "x", "format": "wav"}}),
        ("modalities", {"modalities": ["text", "audio"]}),
        ("web_search_options", {"web_search_options": {}}),
        ("chat_template", {"chat_template": "{{ x }}"}),
    ),
    "/v1/completions": (("best_of", {"best_of": 3}), ("logprobs", {"logprobs": 1, "echo": True})),
    "/v1/responses": (
        ("conversation", {"conversation": "conv_1"}),
        ("prompt", {"prompt": {"id": "pmpt_1"}}),
        ("context_management", {"context_management": [{"type": "compaction"}]}),
        ("tools[0]", {"tools": [{"type": "web_search"}]}),
        ("store", {"background": True, "store": False}),
    ),
    "/v1/messages": (
        ("mcp_servers", {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}),
        ("container", {"container": "c"}),
        ("tools[0]", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ),
    "/api/generate": (
        ("template", {"template": "{{ .Prompt }}"}),
        ("context", {"context": [1, 2]}),
        ("mirostat", {"options": {"mirostat": 1}}),
        ("images", {"raw": True, "images": ["aGk="]}),
    ),
}


@pytest.mark.parametrize("route", IGNORED)
def test_when_a_request_has_what_only_others_mean_then_it_is_answered_all_the_same(
    host: RunningHost, route: str
) -> None:
    body = {"model": "fake", **ROUTES[route], **IGNORED[route], "a field nobody knows": {"x": [1]}}
    answer = host.public.post(route, json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("route", ROUTES)
def test_when_a_field_is_known_to_nobody_then_it_is_ignored_in_every_dialect(host: RunningHost, route: str) -> None:
    body = {"model": "fake", **ROUTES[route], "no_such_field": {"x": [1]}}
    assert host.public.post(route, json=body).status_code == 200


@pytest.mark.parametrize(
    ("route", "name", "fields"), [(route, name, fields) for route, rows in REFUSED.items() for name, fields in rows]
)
def test_when_a_request_has_what_cannot_be_honoured_then_the_refusal_names_it(
    host: RunningHost, route: str, name: str, fields: dict[str, Any]
) -> None:
    answer = host.public.post(route, json={"model": "fake", **ROUTES[route], **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert name in (error if isinstance(error, str) else error["message"])
