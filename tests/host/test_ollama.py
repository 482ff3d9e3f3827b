"""The Ollama dialect, asked by the official client, answered by the fake worker."""

import base64
import datetime
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.fakes.models_parts import REPO
from tests.host.conftest import MakeHost, RunningHost

MODEL = "fake"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[ollama.Client]:
    with ollama.Client(host=str(host.public.base_url)) as client:
        yield client


def described(host: RunningHost, **fields: Any) -> dict[str, Any]:
    """What the worker is asked when this is."""
    body = {"model": MODEL, "stream": False, "messages": ask("describe"), **fields}
    answer = host.public.post("/api/chat", json=body).raise_for_status().json()
    told: dict[str, Any] = json.loads(answer["message"]["content"])
    return told


# --- chat -------------------------------------------------------------------------------------------------


def test_when_asked_whole_then_text_and_figures_come(client: ollama.Client) -> None:
    answer = client.chat(model=MODEL, messages=ask("say 3"))
    assert answer.message.content == "w0 w1 w2 "
    assert answer.done is True
    assert answer.done_reason == "stop"
    assert (answer.prompt_eval_count, answer.eval_count) == (12, 3)
    assert answer.eval_duration == 100_000_000
    assert answer.total_duration is not None
    assert answer.total_duration > 0
    assert answer.created_at is not None
    datetime.datetime.fromisoformat(answer.created_at)


def test_when_streamed_then_lines_join_to_the_answer(client: ollama.Client) -> None:
    parts = list(client.chat(model=MODEL, messages=ask("say 4"), stream=True))
    assert "".join(part.message.content or "" for part in parts) == "w0 w1 w2 w3 "
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == 4


def test_when_stream_is_not_said_then_it_is_streamed(host: RunningHost) -> None:
    answer = host.public.post("/api/chat", json={"model": MODEL, "messages": ask("say 2")})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert json.loads(answer.text.splitlines()[-1])["done"] is True


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_tools_are_called_then_calls_are_whole(client: ollama.Client, *, is_streamed: bool) -> None:
    given: Any = {"model": MODEL, "messages": ask("call"), "tools": [WEATHER]}
    parts = list(client.chat(**given, stream=True)) if is_streamed else [client.chat(**given)]
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("weather", {"city": "Oslo"}),
        ("clock", {}),
    ]
    assert "".join(part.message.thinking or "" for part in parts) == "Which?"
    assert "".join(part.message.content or "" for part in parts) == "Let me see."
    assert parts[-1].done_reason == "stop"


def test_when_a_conversation_with_tools_is_sent_then_results_belong_to_calls(host: RunningHost) -> None:
    told = described(
        host,
        messages=[
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [
                    {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
                    {"function": {"name": "clock", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "noon", "tool_name": "clock"},
            {"role": "tool", "content": "rain"},
            {"role": "user", "content": "describe"},
        ],
    )
    assert told["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "assistant",
            "reasoning": "Hm.",
            "tool_calls": [
                {"id": "call_0", "name": "weather", "arguments": '{"city":"Oslo"}'},
                {"id": "call_1", "name": "clock", "arguments": "{}"},
            ],
        },
        {"role": "tool", "content": "noon", "name": "clock", "tool_call_id": "call_1"},
        {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "call_0"},
        {"role": "user", "content": "describe"},
    ]


def test_when_options_are_given_then_they_arrive_and_strange_ones_do_no_harm(host: RunningHost) -> None:
    options = {"temperature": 0, "seed": -1, "num_predict": 7, "top_k": 3, "stop": ["END"], "num_ctx": 99, "new": 1}
    told = described(host, options=options)["options"]
    assert told["max_tokens"] == 7
    assert told["stop"] == ["END"]
    assert (told["sampling"]["temperature"], told["sampling"]["top_k"]) == (0.0, 3)
    assert "seed" not in told["sampling"]
    assert "max_tokens" not in described(host, options={"num_predict": -1})["options"]
    assert described(host, truncate=True)["options"]["context_policy"] == "drop_oldest"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"think": True}, {"reasoning": "on"}),
        ({"think": False}, {"reasoning": "off"}),
        ({"think": "low"}, {"reasoning": "on", "reasoning_effort": "low"}),
        ({"format": "json"}, {"json_schema": '{"type":"object"}'}),
        ({"format": {"type": "object"}}, {"json_schema": '{"type":"object"}'}),
        ({"format": ""}, {}),
    ],
)
def test_when_a_shape_is_asked_for_then_it_arrives(
    host: RunningHost, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert described(host, **given).get("shape", {}) == expected


def test_when_tools_are_given_then_the_model_gets_them(host: RunningHost) -> None:
    (tool,) = described(host, tools=[WEATHER])["shape"]["tools"]
    assert tool["name"] == "weather"
    assert json.loads(tool["parameters"]) == WEATHER["function"]["parameters"]  # type: ignore[index]


def test_when_logprobs_are_asked_then_they_come(client: ollama.Client) -> None:
    answer = client.chat(model=MODEL, messages=ask("logprobs"), logprobs=True, top_logprobs=2)
    assert answer.logprobs is not None
    assert answer.logprobs[0].token == "Hi"
    assert answer.logprobs[0].logprob == -0.25


# --- generate ---------------------------------------------------------------------------------------------


def test_when_a_prompt_is_given_then_it_is_a_turn_of_the_user(client: ollama.Client) -> None:
    answer = client.generate(model=MODEL, prompt="describe", system="Be brief.")
    told = json.loads(answer.response or "")
    assert told["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "describe"},
    ]


def test_when_raw_then_the_prompt_is_taken_as_it_is(client: ollama.Client) -> None:
    told = json.loads(client.generate(model=MODEL, prompt="describe", raw=True).response or "")
    assert (told["prompt"], told.get("messages")) == ("describe", None)


def test_when_a_suffix_is_given_then_the_model_fills_in(client: ollama.Client) -> None:
    answer = client.generate(model=MODEL, prompt="ab", suffix="cd")
    assert answer.response == f"echo: tokens {tuple(b'ab')}"  # the fake gives the bytes of the prefix as tokens


def test_when_generate_is_streamed_then_lines_join(client: ollama.Client) -> None:
    parts = list(client.generate(model=MODEL, prompt="think", stream=True))
    assert "".join(part.response or "" for part in parts) == "Yes."
    assert "".join(part.thinking or "" for part in parts) == "Hmm. "


# --- embed ------------------------------------------------------------------------------------------------


def test_when_embedded_then_a_vector_comes_for_each(client: ollama.Client) -> None:
    answer = client.embed(model=MODEL, input=["ab", "abc"])
    assert list(answer.embeddings) == [[2.0, 0.0, 0.5, -1.0], [3.0, 1.0, 0.5, -1.0]]
    assert answer.prompt_eval_count == 2
    assert list(client.embeddings(model=MODEL, prompt="ab").embedding) == [2.0, 0.0, 0.5, -1.0]


def test_when_dimensions_are_given_then_the_vector_is_cut_to_length_one(client: ollama.Client) -> None:
    (vector,) = client.embed(model=MODEL, input="abc", dimensions=3).embeddings
    assert len(vector) == 3
    assert sum(number * number for number in vector) == pytest.approx(1)
    with pytest.raises(ollama.ResponseError, match="vectors have 4"):
        client.embed(model=MODEL, input="abc", dimensions=5)


def test_when_a_text_is_too_long_then_it_is_cut_unless_that_is_refused(client: ollama.Client) -> None:
    long = "too long " * 600
    assert client.embed(model=MODEL, input=long).embeddings[0][0] == 4096
    with pytest.raises(ollama.ResponseError, match="too long"):
        client.embed(model=MODEL, input=long, truncate=False)


# --- models -----------------------------------------------------------------------------------------------


def test_when_models_are_listed_then_installed_ones_come(client: ollama.Client) -> None:
    names = {model.model for model in client.list().models}
    assert {"fake", "other"} <= names
    first = client.list().models[0]
    assert first.details is not None
    assert first.details.format == "gguf"
    assert len(first.digest or "") == 64


def test_when_loaded_models_are_listed_then_the_loaded_one_comes(client: ollama.Client) -> None:
    loaded = {model.model: model for model in client.ps().models}
    assert loaded[MODEL].context_length == 4096
    assert loaded[MODEL].expires_at is not None


def test_when_shown_then_metadata_and_capabilities_come(client: ollama.Client) -> None:
    shown = client.show(MODEL)
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"]
    assert "completion" in (shown.capabilities or ())


def test_when_a_name_has_latest_behind_then_the_model_is_found(client: ollama.Client) -> None:
    answer = client.chat(model="fake:latest", messages=ask("say 1"))
    assert answer.message.content == "w0 "
    assert answer.model == "fake:latest"


def test_when_copied_then_every_dialect_knows_the_new_name(host: RunningHost, client: ollama.Client) -> None:
    client.copy(MODEL, "gpt-of-old")
    assert client.chat(model="gpt-of-old", messages=ask("say 1")).message.content == "w0 "
    body = {"model": "gpt-of-old", "messages": ask("say 1")}
    assert host.public.post("/v1/chat/completions", json=body).status_code == 200
    assert host.public.post("/v1/messages", json={**body, "max_tokens": 5}).status_code == 200
    assert "gpt-of-old" in {model.model for model in client.list().models}
    assert "gpt-of-old" in {model["id"] for model in host.public.get("/v1/models").json()["data"]}
    assert host.public.get("/v1/models/gpt-of-old").json()["state"] == "ready"
    client.delete("gpt-of-old")
    assert "gpt-of-old" not in {model.model for model in client.list().models}
    with pytest.raises(ollama.ResponseError):
        client.chat(model="gpt-of-old", messages=ask("say 1"))
    with pytest.raises(ollama.ResponseError, match="is installed"):
        client.copy(MODEL, "other")


def test_when_the_version_is_asked_then_it_is_one(host: RunningHost) -> None:
    version = host.public.get("/api/version").json()["version"]
    assert all(part.isdecimal() for part in version.split("."))
    assert host.public.get("/").text == "Ollama is running"
    assert host.public.head("/").status_code == 200


def test_when_nothing_is_asked_then_the_model_is_only_loaded_and_let_go(make_host: MakeHost) -> None:
    host = make_host()
    with ollama.Client(host=str(host.public.base_url)) as client:
        assert client.generate(model="other").done_reason == "load"
        assert [model.model for model in client.ps().models] == ["other"]
        client.chat(model="other", messages=ask("say 1"), keep_alive="30m")
        expires_at = client.ps().models[0].expires_at
        assert expires_at is not None
        left = expires_at - datetime.datetime.now(datetime.UTC)
        assert datetime.timedelta(minutes=29) < left < datetime.timedelta(minutes=31)
        assert client.generate(model="other", keep_alive=0).done_reason == "unload"
        host.until(lambda: client.ps().models == [])


def test_when_a_person_loaded_it_then_programs_may_not_unload_it(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="by a person") as raised:
        client.generate(model=MODEL, keep_alive=0)
    assert raised.value.status_code == 403
    client.chat(model=MODEL, messages=ask("say 1"), keep_alive=0)
    assert MODEL in {model.model for model in client.ps().models}


def test_when_deleted_then_it_is_gone(make_host: MakeHost) -> None:
    host = make_host()
    with ollama.Client(host=str(host.public.base_url)) as client:
        client.copy("other", "second")
        client.delete("other")
        assert {"other", "second"} & {model.model for model in client.list().models} == set()
        with pytest.raises(ollama.ResponseError, match="not found") as raised:
            client.delete("other")
        assert raised.value.status_code == 404


# --- pull -------------------------------------------------------------------------------------------------


def test_when_pulled_then_progress_comes_and_success_last(make_host: MakeHost) -> None:
    host = make_host()
    with ollama.Client(host=str(host.public.base_url)) as client:
        steps = client.pull(f"hf.co/{REPO}:Q4_K_M", stream=True)
        seen = [next(steps), next(steps)]
        assert seen[0].status == "pulling manifest"
        assert (seen[1].total, seen[1].completed) == (1000, None)
        host.downloads.arrive("d1")
        seen += list(steps)
        assert seen[-1].status == "success"
        assert (1000, 1000) in {(step.total, step.completed) for step in seen}


def test_when_pulled_without_stream_then_one_answer_comes(make_host: MakeHost) -> None:
    host = make_host()
    told: list[Any] = []

    def pull() -> None:
        with ollama.Client(host=str(host.public.base_url)) as client:
            told.append(client.pull(f"hf.co/{REPO}"))

    thread = threading.Thread(target=pull)
    thread.start()
    host.until(lambda: bool(host.private.get("/admin/downloads").json()))
    host.downloads.arrive("d1")
    thread.join(20)
    assert told[0].status == "success"


def test_when_the_caller_of_a_pull_leaves_then_what_was_fetched_is_kept(make_host: MakeHost) -> None:
    host = make_host()
    body = {"model": f"hf.co/{REPO}:Q4_K_M"}
    with (
        httpx.Client(base_url=host.public.base_url) as client,
        client.stream("POST", "/api/pull", json=body) as answer,
    ):
        lines = answer.iter_lines()
        assert "manifest" in next(lines)
        assert "pulling" in next(lines)
    host.until(lambda: host.private.get("/admin/downloads").json()[0]["state"] == "paused")


def test_when_a_download_is_cancelled_then_the_pull_fails(make_host: MakeHost) -> None:
    host = make_host()
    with ollama.Client(host=str(host.public.base_url)) as client:
        steps = client.pull(f"hf.co/{REPO}", stream=True)
        next(steps)
        next(steps)
        host.private.post("/admin/downloads/cancel", json={"id": "d1"})
        with pytest.raises(ollama.ResponseError, match="cancelled"):
            list(steps)


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("llama3.2:3b", 400, r"hf\.co/owner/repo"),
        (f"hf.co/{REPO}:Q9_Z", 404, "Q4_K_M"),
        ("hf.co/no/one", 404, "no/one"),
    ],
)
def test_when_a_name_cannot_be_pulled_then_the_error_says_why(
    client: ollama.Client, name: str, status: int, words: str
) -> None:
    with pytest.raises(ollama.ResponseError, match=words) as raised:
        client.pull(name)
    assert raised.value.status_code == status


def test_when_an_installed_model_is_pulled_then_it_is_success_at_once(client: ollama.Client) -> None:
    assert client.pull(MODEL).status == "success"


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"messages": "x"}, "a list"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"mirostat": 1}}, "mirostat"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"think": "hard"}, "think"),
        ({"messages": [{"role": "user", "content": "x", "images": ["%%%"]}]}, "not base64"),
        ({"messages": [{"role": "user", "content": "x", "images": [PNG]}]}, "cannot see"),
    ],
)
def test_when_a_body_is_wrong_then_the_error_says_what(host: RunningHost, body: dict[str, Any], words: str) -> None:
    answer = host.public.post("/api/chat", json={"model": MODEL, "messages": ask("x"), **body})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert words in answer.json()["error"]


def test_when_a_field_would_change_the_prompt_then_it_is_refused(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="template"):
        client.generate(model=MODEL, prompt="x", template="{{ .Prompt }}")
    with pytest.raises(ollama.ResponseError, match="context"):
        client.generate(model=MODEL, prompt="x", context=[1, 2])


def test_when_it_fails_then_the_client_raises_with_the_status(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="nothing") as raised:
        client.chat(model="nothing", messages=ask("x"))
    assert raised.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="9000"):
        client.chat(model=MODEL, messages=ask("too long"))


def test_when_it_fails_in_the_midst_of_a_stream_then_the_last_line_says_so(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="refused"):
        list(client.chat(model=MODEL, messages=ask("fail late"), stream=True))


def test_when_the_client_leaves_then_the_worker_is_told(host: RunningHost) -> None:
    body = {"model": MODEL, "messages": ask("slowly 100000")}
    with httpx.Client(base_url=host.public.base_url) as client, client.stream("POST", "/api/chat", json=body) as told:
        next(told.iter_lines())

    def is_idle() -> bool:
        (model,) = host.private.get("/admin/status").json()["models"]
        return bool(model["engine"].get("active", 0) == 0)

    host.until(is_idle)


def test_when_what_is_not_served_is_asked_then_the_client_shows_a_sentence(
    host: RunningHost, client: ollama.Client
) -> None:
    with pytest.raises(ollama.ResponseError, match="Deskside does not do") as told:
        client.create("mine", from_="fake")
    assert told.value.status_code == 501
    with pytest.raises(ollama.ResponseError, match="Deskside does not do"):
        client.push("mine")
    answer = host.public.post("/api/blobs/sha256:00", content=b"x")
    assert answer.status_code == 501
    assert "/api/pull" in answer.json()["error"]
    assert host.public.head("/api/blobs/sha256:00").status_code == 404
