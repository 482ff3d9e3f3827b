"""Conversations that are summed up, by the official client."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.host.conftest import RunningHost

MODEL = "fake"


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def asked(client: openai.OpenAI, **fields: Any) -> dict[str, Any]:
    """What the worker is asked when this is."""
    told: dict[str, Any] = json.loads(client.responses.create(**{"model": MODEL, **fields}).output_text)
    return told


def test_when_a_conversation_is_compacted_then_it_goes_on_with_what_the_user_said_and_a_summary(
    client: openai.OpenAI,
) -> None:
    first = client.responses.create(model=MODEL, input="say 2")
    second = client.responses.create(model=MODEL, input="say 3", previous_response_id=first.id)
    short = client.responses.compact(model=MODEL, previous_response_id=second.id, instructions="Be brief.")
    assert short.object == "response.compaction"
    assert short.usage.output_tokens > 0
    output = [item.to_dict(warnings=False) for item in short.output]
    assert [item["type"] for item in output] == ["message", "message", "compaction"]
    assert [item["role"] for item in output[:2]] == ["user", "user"]
    told = asked(client, input=[*output, {"role": "user", "content": "describe"}])["messages"]
    assert [row["role"] for row in told] == ["user", "assistant", "user"]
    assert told[0]["content"] == "say 2\n\nsay 3"
    assert told[1]["content"].startswith("Summary of what was said and done before:\n")
    assert told[2]["content"] == "describe"


def test_when_it_is_compacted_again_then_the_summary_is_not_among_what_the_user_said(client: openai.OpenAI) -> None:
    short = client.responses.compact(model=MODEL, input="say 2")
    items: Any = [*(item.to_dict(warnings=False) for item in short.output), {"role": "user", "content": "say 3"}]
    again = client.responses.compact(model=MODEL, input=items)
    assert [item.to_dict(warnings=False)["type"] for item in again.output] == ["message", "message", "compaction"]


def test_when_a_summary_is_not_ours_then_the_error_names_it(client: openai.OpenAI) -> None:
    for content in ("gAAAAA", "deskside.!", "deskside." + base64.b64encode(b"\xff").decode()):
        item: Any = {"type": "compaction", "encrypted_content": content}
        with pytest.raises(openai.BadRequestError, match="another server made it") as refused:
            client.responses.create(model=MODEL, input=[item])
        assert refused.value.param == "input[0].encrypted_content"


def test_when_there_is_nothing_to_sum_up_or_no_model_then_that_is_said(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="`input` is missing"):
        client.responses.compact(model=MODEL)
    with pytest.raises(openai.NotFoundError):
        client.responses.compact(model="nowhere", input="x")
