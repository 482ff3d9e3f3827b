"""llama-server's own routes, answered by the fake worker."""

import json
from typing import Any

import pytest

from tests.host.conftest import RunningHost

MODEL = "fake"


def post(host: RunningHost, path: str, **body: Any) -> Any:
    return host.public.post(path, json={"model": MODEL, **body}).raise_for_status().json()


def test_when_text_is_tokenized_then_tokens_come_with_pieces_if_asked(host: RunningHost) -> None:
    assert post(host, "/tokenize", content="hé")["tokens"] == list("hé".encode())
    pieces = post(host, "/tokenize", content="hé", with_pieces=True)["tokens"]
    assert pieces == [{"id": 104, "piece": "h"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert post(host, "/detokenize", tokens=list(b"hi"))["content"] == "hi"


def test_when_no_model_is_named_then_the_loaded_one_answers(host: RunningHost) -> None:
    assert host.public.post("/tokenize", json={"content": "a"}).json() == {"tokens": [97]}


def test_when_a_template_is_applied_then_the_prompt_comes(host: RunningHost) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert post(host, "/apply-template", messages=messages)["prompt"] == "[system]Be brief.[user]Hi"


def test_when_documents_are_ranked_then_the_best_comes_first(host: RunningHost) -> None:
    answer = post(host, "/v1/rerank", query="a", documents=["b", "aa", "a"], top_n=2, return_documents=True)
    assert [(row["index"], row["relevance_score"]) for row in answer["results"]] == [(1, 2.0), (2, 1.0)]
    assert answer["results"][0]["document"] == {"text": "aa"}
    assert answer["id"]
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"]


def test_when_documents_are_objects_then_their_texts_are_ranked(host: RunningHost) -> None:
    for path in ("/rerank", "/v2/rerank"):
        answer = post(host, path, query="a", documents=[{"text": "aa"}, "a"])
        assert answer["results"] == [{"index": 0, "relevance_score": 2.0}, {"index": 1, "relevance_score": 1.0}]


def test_when_texts_are_ranked_then_a_plain_list_comes(host: RunningHost) -> None:
    assert post(host, "/rerank", query="a", texts=["b", "a"]) == [
        {"index": 1, "score": 1.0},
        {"index": 0, "score": 0.0},
    ]
    shown = post(host, "/rerank", query="a", texts=["a"], return_text=True)
    assert shown == [{"index": 0, "score": 1.0, "text": "a"}]


def test_when_completed_then_text_counts_and_reason_come(host: RunningHost) -> None:
    answer = post(host, "/completion", prompt="say 3")
    assert answer["content"] == "w0 w1 w2 "
    assert (answer["stop"], answer["stop_type"]) == (True, "eos")
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (3, 12)
    assert answer["timings"]["predicted_n"] == 3
    assert post(host, "/completion", prompt="say 3", n_predict=1)["stop_type"] == "limit"


def test_when_completion_is_streamed_then_events_join_to_the_text(host: RunningHost) -> None:
    answer = host.public.post("/completion", json={"prompt": "say 3", "stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data")]
    assert "".join(event["content"] for event in events) == "w0 w1 w2 "
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]


def test_when_probabilities_are_asked_then_they_come(host: RunningHost) -> None:
    answer = post(host, "/completion", prompt="logprobs", n_probs=2)
    assert answer["completion_probabilities"][0]["token"] == "Hi"
    assert "completion_probabilities" not in post(host, "/completion", prompt="say 1")


def test_when_a_schema_or_tokens_are_given_then_they_arrive(host: RunningHost) -> None:
    told = json.loads(post(host, "/completion", prompt="describe", json_schema={"type": "object"}, top_k=3)["content"])
    assert told["shape"]["json_schema"] == '{"type":"object"}'
    assert told["options"]["sampling"]["top_k"] == 3
    assert post(host, "/completion", prompt=[1, 2])["content"] == "echo: tokens (1, 2)"


def test_when_filling_in_then_the_models_own_prompt_is_used(host: RunningHost) -> None:
    answer = post(host, "/infill", input_prefix="ab", input_suffix="cd")
    assert answer["content"] == f"echo: tokens {tuple(b'ab')}"


def test_when_properties_are_asked_then_the_loaded_model_is_told(host: RunningHost) -> None:
    props = host.public.get("/props").raise_for_status().json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["total_slots"] == 4
    assert props["model_alias"] == MODEL
    assert "/" not in props["model_path"]
    assert host.public.get("/props?model=nothing").status_code == 400


def test_when_slots_are_asked_then_busy_ones_show(host: RunningHost) -> None:
    assert [slot["is_processing"] for slot in host.public.get("/slots").json()] == [False] * 4
    body = {"prompt": "slowly 100000", "stream": True}
    with host.public.stream("POST", "/completion", json=body) as answer:
        lines = answer.iter_lines()  # kept: an iterator that goes away closes the answer
        next(lines)
        slots = host.public.get("/slots").json()
        assert [slot["is_processing"] for slot in slots] == [True, False, False, False]
        assert slots[0]["id_task"]
    host.until(lambda: not any(slot["is_processing"] for slot in host.public.get("/slots").json()))


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 3}, "text"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "a list"),
        ("/completion", {}, "prompt"),
        ("/completion", {"prompt": "x", "temperature": 99}, "temperature"),
        ("/infill", {"input_prefix": "x"}, "input_suffix"),
        ("/rerank", {"query": "x", "documents": []}, "documents"),
        ("/apply-template", {"messages": []}, "messages"),
    ],
)
def test_when_a_body_is_wrong_then_the_error_says_what(
    host: RunningHost, path: str, body: dict[str, Any], words: str
) -> None:
    answer = host.public.post(path, json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_when_it_fails_in_the_midst_of_a_stream_then_an_error_event_comes(host: RunningHost) -> None:
    answer = host.public.post("/completion", json={"prompt": "fail late", "stream": True})
    assert "refused" in answer.text
    assert host.public.post("/completion", json={"prompt": "too long"}).status_code == 400


def test_when_a_slot_is_to_be_saved_then_the_answer_says_that_prompts_are_stored_anyway(host: RunningHost) -> None:
    answer = host.public.post("/slots/0?action=save", json={"filename": "chat.bin"})
    assert answer.status_code == 501
    assert answer.json()["error"]["code"] == "not_supported_error"
    assert "disk_cache_bytes" in answer.text
    assert host.public.post("/slots/0?action=delete", json={}).status_code == 400
