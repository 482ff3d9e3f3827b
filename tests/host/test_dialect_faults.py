"""Broken bodies at every route of every dialect: a clean 4xx in its shape."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.host.conftest import RunningHost

ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/api/pull",
    "/api/copy",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/completion",
    "/infill",
    "/rerank",
)
DEEP = 200_000
FIELDS = (
    "model", "messages", "system", "max_tokens", "tools", "tool_choice", "thinking", "output_config", "stop_sequences",
    "stream", "options", "format", "keep_alive", "think", "prompt", "suffix", "images", "raw", "input", "dimensions",
    "name", "source", "destination", "content", "tokens", "query", "documents", "n_predict", "json_schema",
    "input_prefix", "input_suffix", "input_extra", "temperature", "seed", "stop", "n_probs", "logit_bias",
)  # fmt: skip


def check(host: RunningHost, path: str, body: bytes) -> None:
    answer = host.public.post(path, content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500, (path, answer.status_code, answer.text[:500])
    told = answer.json()
    words = told["error"] if path.startswith("/api/") else told["error"]["message"]
    assert isinstance(words, str)
    assert words
    if path.startswith("/v1/messages"):
        assert told["type"] == "error"


@pytest.mark.parametrize("path", ROUTES)
def test_when_the_body_is_compressed_then_that_is_said(host: RunningHost, path: str) -> None:
    body = gzip.compress(b'{"model": "fake"}')
    for coding in ("gzip", "br", "deflate, gzip"):
        answer = host.public.post(path, content=body, headers={"content-encoding": coding})
        assert answer.status_code == 415
        assert f"compressed ({coding})" in answer.text
    answer = host.public.post(path, content=b"{", headers={"content-encoding": "identity"})
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ROUTES)
def test_when_the_body_is_no_object_then_it_is_a_clean_error(host: RunningHost, path: str) -> None:
    bodies = (
        b"",
        b"[]",
        b"{",
        b"null",
        b'"x"',
        b'{"model": "\xff\xfe"}',
        b'{"model": NaN}',
        b'{"messages":' + b"[" * DEEP,
        b"[" * DEEP,
        b'{"model": 3}',
        b"\x00\x01\x02",
    )
    for body in bodies:
        check(host, path, body)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_when_arguments_and_schemas_are_deep_then_it_is_a_clean_error(host: RunningHost, path: str) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    tool = f'{{"type":"custom","name":"x","input_schema":{deep},"function":{{"name":"x","parameters":{deep}}}}}'
    message = '{"role":"user","content":"say 1"}'
    for extra in (f'"tools":[{tool}]', f'"format":{deep}', f'"metadata":{deep}'):
        body = f'{{"model":"fake","max_tokens":5,"stream":false,"messages":[{message}],{extra}}}'
        answer = host.public.post(path, content=body.encode())
        assert answer.status_code < 500, answer.text[:500]


def test_when_a_number_or_name_is_extreme_then_it_is_no_fault_of_ours(host: RunningHost) -> None:
    for extra in (
        {"keep_alive": 1e300},
        {"keep_alive": "9" * 4000 + "h"},
        {"options": {"top_k": 10**30}},
        {"options": {"num_predict": -(10**30)}},
        {"options": {"seed": 10**30}},
        {"options": {"stop": [""] * 1000}},
        {"options": {"stop": 5}},
        {"model": "\ud800"},
        {"model": "x" * 100_000},
    ):
        body = {"model": "fake", "messages": [{"role": "user", "content": "say 1"}], "stream": False, **extra}
        answer = host.public.post("/api/chat", content=json.dumps(body).encode())
        assert answer.status_code < 500, (extra, answer.text[:300])
        assert host.public.get("/api/ps").status_code == 200


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from((*FIELDS, "type", "role", "text", "function", "arguments", "id")), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=st.sampled_from(ROUTES), body=st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=6))
def test_when_bodies_are_random_then_nothing_breaks(host: RunningHost, path: str, body: dict[str, Any]) -> None:
    body.pop("model", None)
    answer = host.public.post(path, content=json.dumps(body).encode())
    assert answer.status_code < 500, (path, body, answer.text[:500])
    if answer.status_code >= 400:
        assert "error" in answer.json()
