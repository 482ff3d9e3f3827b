"""The OpenAI dialect, asked by the official client, answered by the fake worker."""

import asyncio
import base64
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import (
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionToolParam,
)

from tests.host.conftest import RunningHost

MODEL = "fake"
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NAMED: ChatCompletionNamedToolChoiceParam = {"type": "function", "function": {"name": "clock"}}
DATA = "data:image/png;base64"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def n_running(host: RunningHost) -> int:
    rows = host.private.get("/admin/requests").json()
    return sum(1 for row in rows if row["state"] in ("loading", "queued", "prompt", "generating"))


def n_busy_in_worker(host: RunningHost) -> int:
    return int(host.private.get("/admin/status").json()["models"][0]["engine"].get("active", 0))


def test_when_asked_whole_then_answer_usage_and_timings_come(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ask("say 3"))
    assert answer.choices[0].message.content == "w0 w1 w2 "
    assert answer.choices[0].finish_reason == "stop"
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (12, 3, 15)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.model_extra is not None
    assert answer.model_extra["timings"]["predicted_per_second"] == 100.0


def test_when_streamed_then_chunks_join_to_the_answer_and_usage_comes_last(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=ask("say 5"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "w0 w1 w2 w3 w4 "
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert (chunks[-2].model_extra or {})["timings"]["predicted_n"] == 5


def test_when_streamed_async_then_the_same_comes(host: RunningHost) -> None:
    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{host.public.base_url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(model=MODEL, messages=ask("say 4"), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(run()) == "w0 w1 w2 w3 "


def test_when_model_thinks_then_reasoning_is_apart(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ask("think"))
    assert answer.choices[0].message.content == "Yes."
    assert (answer.choices[0].message.model_extra or {})["reasoning_content"] == "Hmm. "
    stream = client.chat.completions.create(model=MODEL, messages=ask("think"), stream=True)
    reasoning = [(chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "") for chunk in stream]
    assert "".join(reasoning) == "Hmm. "


def test_when_n_choices_are_asked_then_each_has_its_index(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ask("say 2"), n=3)
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(i, "w0 w1 ") for i in range(3)]
    stream = client.chat.completions.create(model=MODEL, messages=ask("say 2"), n=2, stream=True)
    texts = ["", ""]
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == ["w0 w1 ", "w0 w1 "]


def test_when_max_completion_tokens_is_given_then_it_wins(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ask("say 9"), max_tokens=7, max_completion_tokens=2)
    assert answer.choices[0].message.content == "w0 w1 "
    assert answer.choices[0].finish_reason == "length"


def test_when_logprobs_are_asked_then_tokens_bytes_and_alternatives_come(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ask("logprobs"), logprobs=True, top_logprobs=2)
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    first, second = told.content
    assert (first.token, first.logprob, first.bytes) == ("Hi", -0.25, [72, 105])
    assert first.top_logprobs[0].token == "Hi"
    assert second.bytes == [0xF0, 0x9F]
    chunks = list(client.chat.completions.create(model=MODEL, messages=ask("logprobs"), logprobs=True, stream=True))
    streamed = [
        entry.token for chunk in chunks if (found := chunk.choices[0].logprobs) for entry in found.content or ()
    ]
    assert streamed[0] == "Hi"
    assert len(streamed) == 2


def test_when_content_is_a_list_of_text_parts_then_they_are_joined(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": [{"type": "text", "text": "say"}, {"type": "text", "text": " 2"}]}],
    )
    assert answer.choices[0].message.content == "w0 w1 "


def test_when_legacy_completion_is_asked_then_text_and_logprobs_come(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="logprobs", logprobs=2)
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text == "Hi!"
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.tokens == ["Hi", "bytes:\\xf0\\x9f"]
    assert told.token_logprobs == [-0.25, -1.5]
    assert told.text_offset == [0, 2]
    assert (told.top_logprobs or [])[0] == {"Hi": -0.25, "bytes:\\xf0\\x9f": -1.5}


def test_when_a_suffix_is_given_then_the_model_fills_in(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["ab", "c"], suffix="x")
    assert [choice.text for choice in answer.choices] == [
        f"echo: tokens {tuple(b'ab')}",
        f"echo: tokens {tuple(b'c')}",
    ]


def test_when_a_completion_is_to_be_json_then_the_model_is_asked_so(client: openai.OpenAI) -> None:
    schema = {"type": "object"}
    answer = client.completions.create(model=MODEL, prompt="describe", extra_body={"json_schema": schema})
    assert json.loads(json.loads(answer.choices[0].text)["shape"]["json_schema"]) == schema


def test_when_several_prompts_are_given_then_choices_are_in_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["one", "say 2", "three"], n=2)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices[::2]] == ["echo: one", "w0 w1 ", "echo: three"]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 36
    texts = ["", ""]
    for chunk in client.completions.create(model=MODEL, prompt=["one", "two"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["echo: one", "echo: two"]


def test_when_many_prompts_are_given_then_no_more_than_the_slots_are_with_the_model(
    client: openai.OpenAI, host: RunningHost
) -> None:
    def first_tokens() -> float:
        lines = host.public.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if "first_token_seconds_count" in line)

    before = first_tokens()
    answer = client.completions.create(model=MODEL, prompt=["active"] * 100)
    assert [choice.index for choice in answer.choices] == list(range(100))
    assert max(int(choice.text) for choice in answer.choices) < 4
    assert first_tokens() == before + 1
    streamed = client.completions.create(model=MODEL, prompt=[f"say {n % 3}" for n in range(50)], stream=True)
    texts = [""] * 50
    for chunk in streamed:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["", "w0 ", "w0 w1 "] * 16 + ["", "w0 "]


def test_when_a_call_of_many_prompts_is_cancelled_then_those_not_begun_end_too(host: RunningHost) -> None:
    def rows() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = host.private.get("/admin/requests").json()
        return [row for row in told if row["state"] == "generating"]

    with ThreadPoolExecutor(1) as pool:
        body = {"model": MODEL, "prompt": ["slowly 1000"] * 20}
        asked = pool.submit(host.public.post, "/v1/completions", json=body, timeout=15)
        host.until(lambda: bool(rows()))
        host.private.post("/admin/requests/cancel", json={"request_id": rows()[0]["request_id"]})
        choices = asked.result().json()["choices"]
    assert len(choices) == 20
    assert [choice["text"] for choice in choices[4:]] == [""] * 16


def test_when_prompt_is_token_ids_then_they_reach_the_model(client: openai.OpenAI) -> None:
    assert client.completions.create(model=MODEL, prompt=[1, 2, 3]).choices[0].text == "echo: tokens (1, 2, 3)"


def test_when_embeddings_are_asked_then_official_client_reads_base64(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=["abc", "defgh"])
    assert [entry.embedding for entry in answer.data] == [[3.0, 0.0, 0.5, -1.0], [5.0, 1.0, 0.5, -1.0]]
    floats = client.embeddings.create(model=MODEL, input="abc", encoding_format="float", dimensions=4)
    assert floats.data[0].embedding == [3.0, 0.0, 0.5, -1.0]
    raw = client.embeddings.with_raw_response.create(model=MODEL, input="abc", encoding_format="base64")
    encoded = raw.http_response.json()["data"][0]["embedding"]
    assert struct.unpack("<4f", base64.b64decode(encoded)) == (3.0, 0.0, 0.5, -1.0)
    for form in ("float", "base64"):
        raw = client.embeddings.with_raw_response.create(model=MODEL, input="abc", dimensions=3, encoding_format=form)
        told = raw.http_response.json()["data"][0]["embedding"]
        cut = told if form == "float" else struct.unpack("<3f", base64.b64decode(told))
        assert cut == pytest.approx([0.98639, 0.0, 0.16440], abs=1e-4)
    with pytest.raises(openai.BadRequestError, match="vectors have 4"):
        client.embeddings.create(model=MODEL, input="abc", dimensions=5)


def test_when_models_are_listed_then_loaded_ones_come_first(client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert models[0].id == MODEL
    assert {model.id for model in models} >= {"fake", "other"}
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="Installed: fake"):
        client.models.retrieve("nothing")


def test_when_stream_is_closed_then_the_worker_is_idle_again(client: openai.OpenAI, host: RunningHost) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ask("slowly 100000"), stream=True)
    next(iter(stream))
    assert n_running(host) == 1
    stream.close()
    host.until(lambda: n_running(host) == 0 and n_busy_in_worker(host) == 0)


def test_when_plain_request_is_dropped_then_the_worker_is_idle_again(host: RunningHost) -> None:
    with pytest.raises(httpx.ReadTimeout):
        host.public.post("/v1/chat/completions", json={"model": MODEL, "messages": ask("silence")}, timeout=0.5)
    host.until(lambda: n_running(host) == 0 and n_busy_in_worker(host) == 0)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("busy", openai.RateLimitError, "32 requests wait already"),
        ("too long", openai.BadRequestError, "9000 tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_when_refused_before_the_first_token_then_status_says_so(
    client: openai.OpenAI, text: str, error: type[openai.APIStatusError], words: str, stream: bool
) -> None:
    with pytest.raises(error, match=words) as raised:
        client.chat.completions.create(model=MODEL, messages=ask(text), stream=stream)
    if text == "busy":
        assert raised.value.response.headers["retry-after"] == "7"
    else:
        assert raised.value.code == "context_length_exceeded"


def test_when_it_fails_late_then_stream_carries_the_error(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ask("fail late"), stream=True)
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="The batch was refused"):
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    with pytest.raises(openai.InternalServerError, match="The batch was refused"):
        client.chat.completions.create(model=MODEL, messages=ask("fail late"))


def test_when_reader_is_slow_then_nothing_is_lost(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ask("flood"), stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == "word " * 5_000


BAD_BODIES = [
    ({"messages": "x"}, "`messages` must be a list", "messages"),
    ({"messages": []}, "`messages` is missing or empty", "messages"),
    ({}, "`messages` is missing or empty", "messages"),
    ({"messages": [{"content": "x"}]}, "`messages[0].role` is missing", "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "Roles are system", "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "`messages[0].content` is missing", "messages[0].content"),
    ({"messages": ask("x"), "temperature": "hot"}, "`temperature` must be a number, not text", "temperature"),
    ({"messages": ask("x"), "temperature": -1}, "`temperature` must be >= 0", "temperature"),
    ({"messages": ask("x"), "top_p": 2}, "`top_p` must be <= 1", "top_p"),
    ({"messages": ask("x"), "n": 99}, "`n` must be <= 16", "n"),
    ({"messages": ask("x"), "stop": ["a"] * 17}, "`stop` must be of length <= 16", "stop"),
    ({"messages": ask("x"), "logit_bias": {"a": 1}}, "`logit_bias`", "logit_bias"),
    ({"messages": ask("x"), "max_tokens": 1.5}, "`max_tokens` must be a whole number", "max_tokens"),
    ({"messages": ask("x"), "top_logprobs": 3}, "needs `logprobs`", "top_logprobs"),
    ({"messages": ask("x"), "tools": [{"type": "function"}]}, "`tools[0].function` is missing", "tools[0].function"),
    ({"messages": ask("x"), "tools": [{"type": "custom"}]}, "only tools of type 'function'", "tools[0].type"),
    ({"messages": ask("x"), "tools": [WEATHER, WEATHER]}, "`tools` has 'weather' twice", "tools"),
    ({"messages": ask("x"), "tools": [WEATHER] * 257}, "`tools` must be of length <= 256", "tools"),
    ({"messages": ask("x"), "tool_choice": "required"}, "there are none", "tool_choice"),
    ({"messages": ask("x"), "tool_choice": "some"}, "`tool_choice` is not understood", "tool_choice"),
    ({"messages": ask("x"), "tools": [WEATHER], "tool_choice": NAMED}, "names 'clock', which is none", "tool_choice"),
    ({"messages": ask("x"), "functions": [{}]}, "`functions` is not supported. Use `tools`.", "functions"),
    ({"messages": ask("x"), "response_format": {"type": "xml"}}, "Formats are text", "response_format.type"),
    (
        {"messages": ask("x"), "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        "`response_format.json_schema.schema` is missing",
        "response_format.json_schema.schema",
    ),
    (
        {"messages": ask("x"), "response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'},
        "cannot both hold",
        "grammar",
    ),
    ({"messages": ask("x"), "reasoning_effort": "huge"}, "`reasoning_effort`", "reasoning_effort"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]},
        "`messages[0].content[0].image_url.url` is a remote address, which is not fetched.",
        "messages[0].content[0].image_url.url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"{DATA},?"}}]}]},
        "is not base64",
        "messages[0].content[0].image_url.url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"{DATA},YWJj"}}]}]},
        "no picture of a known format. Send PNG, JPEG, WebP, GIF or BMP.",
        "messages[0].content[0].image_url.url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"{DATA},{PNG}"}}]}]},
        "fake cannot see pictures.",
        "messages",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "is of type 'file', which cannot be read in a message of the user",
        "messages[0].content[0].type",
    ),
    ({"messages": [*ask("x"), {"role": "tool", "content": "1"}]}, "`messages[1].tool_call_id` is missing", None),
    ({"messages": ask("x"), "continue_final_message": True}, "the last message to be the assistant's", None),
]


@pytest.mark.parametrize(("body", "words", "param"), BAD_BODIES)
def test_when_a_field_is_wrong_then_the_answer_names_it(
    host: RunningHost, body: dict[str, object], words: str, param: str | None
) -> None:
    answer = host.public.post("/v1/chat/completions", json={"model": MODEL, **body})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


def test_when_harmless_or_unknown_fields_come_then_they_are_accepted(host: RunningHost) -> None:
    extras = {
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
        "user": "me",
        "store": False,
        "stop": None,
        "temperature": None,
        "seed": -1,
        "made_up": {"deep": [1]},
        "top_k": 5,
        "min_p": 0.1,
        "mirostat": 2,
        "dry_multiplier": 0.5,
        "grammar": 'root ::= "a"',
        "logit_bias": {"5": -100},
    }
    answer = host.public.post("/v1/chat/completions", json={"model": MODEL, "messages": ask("say 1"), **extras})
    assert answer.status_code == 200, answer.text


def test_when_json_is_broken_then_line_and_column_are_told(host: RunningHost) -> None:
    answer = host.public.post("/v1/chat/completions", content=b'{"model": "fake",\n "messages": [,]}')
    assert answer.status_code == 400
    assert "line 2, column 15" in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b'"text"', b"\xff\xfe", b'{"a":' * 5000])
def test_when_body_is_no_object_then_it_is_refused(host: RunningHost, content: bytes) -> None:
    answer = host.public.post("/v1/chat/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_when_body_is_too_large_then_it_is_refused_unread(host: RunningHost) -> None:
    url = host.public.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=10) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {10**12}\r\n\r\n"
        sock.sendall(head.encode())
        assert b" 413 " in sock.makefile("rb").readline()


def test_when_endless_body_comes_then_it_is_cut_off(host: RunningHost) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 1024 * 1024

    try:
        answer = host.public.post("/v1/chat/completions", content=endless())
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return  # cut off while it was still sending: the connection is closed under it
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "x", "suffix": "y", "echo": True}, "`suffix` needs prompts that are text"),
        ({"prompt": [1, 2], "suffix": "y"}, "`suffix` needs prompts that are text"),
        ({"prompt": "x", "best_of": 3}, "`best_of`"),
        ({"prompt": "x", "tools": [WEATHER]}, "`tools` need messages. Ask /v1/chat/completions."),
        ({"prompt": "x", "json_schema": {"type": "object"}, "grammar": "x"}, "cannot both hold"),
        ({}, "`prompt` is missing"),
        ({"prompt": []}, "`prompt` is empty"),
        ({"prompt": [1, "a"]}, "mixes"),
        ({"prompt": ["x"] * 300}, "at most 256"),
        ({"prompt": "x", "logprobs": 1, "echo": True}, "`logprobs` with `echo` is not supported"),
        ({"prompt": "x", "logprobs": 21}, "`top_logprobs` must be <= 20"),
    ],
)
def test_when_legacy_field_is_wrong_then_the_answer_names_it(
    host: RunningHost, body: dict[str, object], words: str
) -> None:
    answer = host.public.post("/v1/completions", json={"model": MODEL, **body})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_when_model_is_unknown_then_404_lists_what_is_there(client: openai.OpenAI) -> None:
    with pytest.raises(
        openai.NotFoundError, match=r"No model named 'gpt-4o' is installed\. Installed: fake, other"
    ) as e:
        client.chat.completions.create(model="gpt-4o", messages=ask("x"))
    assert e.value.code == "model_not_found"


def test_when_model_is_unknown_and_a_drive_does_not_answer_then_it_is_told_to_come_back(
    host: RunningHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.files, "silent", "/mnt/nas")
    answer = host.public.post("/v1/chat/completions", json={"model": "gpt-4o", "messages": ask("x")})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "10"
    assert "but nas does not answer" in answer.json()["error"]["message"]  # its folder is not told


def test_when_model_names_a_file_then_it_is_not_read(host: RunningHost) -> None:
    for name in (str(host.data.models / "fake.gguf"), "/etc/passwd"):
        answer = host.public.post("/v1/chat/completions", json={"model": name, "messages": ask("x")})
        assert answer.status_code == 404


@pytest.mark.parametrize("path", ["//v1//models", "/v1/models/", "/v1/models"])
def test_when_path_has_spare_slashes_then_it_is_found(host: RunningHost, path: str) -> None:
    assert host.public.get(f"{host.address_of_api}{path}").status_code == 200


def test_when_route_or_method_is_wrong_then_json_says_so(host: RunningHost) -> None:
    nowhere = host.public.get("/v2/nothing")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    wrong = host.public.get("/v1/embeddings")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "GET is not allowed" in wrong.json()["error"]["message"]


def test_when_public_then_admin_routes_are_not_there(host: RunningHost) -> None:
    assert host.public.get("/admin/status", headers={"authorization": f"Bearer {host.token}"}).status_code == 404
