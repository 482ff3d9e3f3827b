"""Answers in the background, asked for, followed and cancelled by the official client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from runtime.host.api import responses_background
from tests.host.conftest import MakeHost, RunningHost

MODEL = "fake"
LONG = "slowly 100000"
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def checked(answer: Response) -> Response:
    """The client builds its types without checking them; here they are checked."""
    return Response.model_validate(answer.to_dict())


def status_of(client: openai.OpenAI, answer: Response) -> str:
    return str(checked(client.responses.retrieve(answer.id)).status)


def numbers(events: list[ResponseStreamEvent]) -> list[int]:
    for event in events:
        EVENT.validate_python(event.to_dict())
    return [event.sequence_number for event in events]


def test_when_asked_in_the_background_then_it_is_read_by_its_id_once_it_has_ended(
    host: RunningHost, client: openai.OpenAI
) -> None:
    answer = checked(client.responses.create(model=MODEL, input="say 3", background=True))
    assert answer.background
    assert answer.status in ("queued", "in_progress")
    host.until(lambda: status_of(client, answer) == "completed")
    ended = client.responses.retrieve(answer.id)
    assert (ended.output_text, ended.background) == ("w0 w1 w2 ", True)
    more = client.responses.create(model=MODEL, input="describe", previous_response_id=answer.id)
    assert [row["content"] for row in json.loads(more.output_text)["messages"]] == ["say 3", "w0 w1 w2 ", "describe"]
    items = client.responses.input_items.list(answer.id)
    assert [item.to_dict()["content"][0]["text"] for item in items] == ["say 3"]  # type: ignore[index]


def test_when_it_runs_then_it_is_told_so_goes_on_alone_and_ends_when_cancelled(
    host: RunningHost, client: openai.OpenAI
) -> None:
    answer = client.responses.create(model=MODEL, input=LONG, background=True)
    host.until(lambda: status_of(client, answer) == "in_progress")
    with pytest.raises(openai.BadRequestError, match="has not ended yet"):
        client.responses.create(model=MODEL, input="x", previous_response_id=answer.id)
    (item,) = client.responses.input_items.list(answer.id)
    assert item.to_dict()["content"][0]["text"] == LONG  # type: ignore[index]
    cancelled = checked(client.responses.cancel(answer.id))
    assert cancelled.status == "cancelled"
    assert cancelled.output_text.startswith("w0 ")
    assert status_of(client, answer) == "cancelled"
    assert checked(client.responses.cancel(answer.id)).status == "cancelled"
    host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "cancelled")
    assert host.private.get("/admin/status").json()["models"][0]["state"] == "ready"


def test_when_a_follower_is_cut_off_then_it_goes_on_behind_what_it_had(client: openai.OpenAI) -> None:
    with client.responses.create(model=MODEL, input="slowly 40", background=True, stream=True) as stream:
        first = [event for event, _ in zip(stream, range(6), strict=False)]
    assert [event.type for event in first[:3]] == ["response.created", "response.queued", "response.in_progress"]
    created = first[0]
    assert created.type == "response.created"
    rest = list(client.responses.retrieve(created.response.id, stream=True, starting_after=first[-1].sequence_number))
    assert rest[-1].type == "response.completed"
    assert numbers(first + rest) == list(range(len(first) + len(rest)))
    text = "".join(event.delta for event in first + rest if event.type == "response.output_text.delta")
    assert text == "".join(f"w{index} " for index in range(40))
    again = list(client.responses.retrieve(created.response.id, stream=True))
    assert numbers(again) == numbers(first + rest)


@pytest.mark.parametrize("after", ["x", "-2", "9" * 30])
def test_when_what_is_followed_makes_no_sense_then_it_is_refused(
    client: openai.OpenAI, host: RunningHost, after: str
) -> None:
    answer = client.responses.create(model=MODEL, input="say 1", background=True)
    wrong = host.public.get(f"/v1/responses/{answer.id}", params={"stream": "true", "starting_after": after})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "starting_after")


def test_when_an_ordinary_answer_is_followed_or_cancelled_then_a_sentence_says_why_not(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="say 1")
    with pytest.raises(openai.BadRequestError, match="are not kept"):
        client.responses.retrieve(answer.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="did not run in the background"):
        client.responses.cancel(answer.id)


def test_when_it_is_deleted_while_it_runs_then_it_ends_and_is_gone(host: RunningHost, client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input=LONG, background=True)
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id, stream=True)
    host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "cancelled")


def test_when_the_model_fails_then_the_answer_says_how(make_host: MakeHost) -> None:
    host = make_host(model="fake")
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        answer = client.responses.create(model=MODEL, input="exit", background=True)
        host.until(lambda: status_of(client, answer) == "failed")
        failed = checked(client.responses.retrieve(answer.id))
        assert failed.error is not None
        assert "exited with code 3" in failed.error.message
        events = list(client.responses.retrieve(answer.id, stream=True))
        assert events[-1].type == "response.failed"


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"store": False}, openai.BadRequestError, "is kept, or nobody could ask for it"),
        ({"model": "nowhere"}, openai.NotFoundError, "nowhere"),
        ({"input": []}, openai.BadRequestError, "`input` is missing"),
    ],
)
def test_when_it_cannot_begin_then_that_is_told_at_once(
    client: openai.OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.responses.create(**{"model": MODEL, "input": "x", "background": True, **fields})


def test_when_too_many_run_then_one_more_is_told_when_to_come_back(
    host: RunningHost, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_background, "MAX_RUNNING", 2)
    running = [client.responses.create(model=MODEL, input=LONG, background=True) for _ in range(2)]
    with pytest.raises(openai.RateLimitError, match="run in the background already") as refused:
        client.responses.create(model=MODEL, input=LONG, background=True)
    assert refused.value.response.headers["retry-after"] == "10"
    for answer in running:
        client.responses.cancel(answer.id)
    assert client.responses.create(model=MODEL, input="say 1", background=True).status in ("queued", "in_progress")
    del host


def test_when_more_events_come_than_are_kept_then_the_first_ones_go_and_that_is_said(
    host: RunningHost, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_background, "MAX_EVENTS_BYTES", 4000)
    answer = client.responses.create(model=MODEL, input="say 100", background=True)
    host.until(lambda: status_of(client, answer) == "completed")
    with pytest.raises(openai.BadRequestError, match="are not kept any more"):
        client.responses.retrieve(answer.id, stream=True)


def test_when_many_have_ended_then_the_events_of_the_first_are_forgotten(
    host: RunningHost, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_background, "MAX_ENDED", 2)
    answers = [client.responses.create(model=MODEL, input="say 1", background=True) for _ in range(3)]
    host.until(lambda: all(status_of(client, answer) == "completed" for answer in answers))
    told = [host.public.get(f"/v1/responses/{answer.id}?stream=true").status_code for answer in answers]
    assert sorted(told) == [200, 200, 400]


def test_when_it_takes_too_long_then_it_ends_and_says_so(
    host: RunningHost, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_background, "RUN_WITHIN_S", 0.2)
    answer = client.responses.create(model=MODEL, input=LONG, background=True)
    host.until(lambda: status_of(client, answer) == "failed")
    error = client.responses.retrieve(answer.id).error
    assert error is not None
    assert "took longer than" in error.message


def test_when_its_key_has_taken_what_it_may_then_that_is_told_at_once(make_host: MakeHost) -> None:
    host = make_host(model="fake")
    limits = {"max_concurrent": 1}
    key = host.private.post("/admin/keys", json={"name": "one", "limits": limits}).json()["key"]
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key=key, max_retries=0) as client:
        first = client.responses.create(model=MODEL, input=LONG, background=True)
        with pytest.raises(openai.RateLimitError, match="1 requests at once"):
            client.responses.create(model=MODEL, input="say 1", background=True)
        host.private.delete("/admin/keys/one")
        host.until(lambda: host.public.get(f"/v1/responses/{first.id}").json()["status"] == "failed")
        assert "was deleted" in host.public.get(f"/v1/responses/{first.id}").json()["error"]["message"]
