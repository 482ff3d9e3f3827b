"""The official `anthropic` client against a real host with the starter model."""

import asyncio
from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.e2e.conftest import HostUnderTest, poll

pytestmark = pytest.mark.e2e

N_STREAMS = 8
GREEDY = {"temperature": 0}
"""The client has no such argument; the API does."""
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


def ask(text: str) -> list[MessageParam]:
    return [{"role": "user", "content": text}]


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.fixture(scope="module")
def client(real_host: HostUnderTest) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=real_host.address, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def idle(host: HostUnderTest) -> bool | None:
    engine = host.engine()
    return True if engine.get("active", 0) == 0 and engine.get("waiting", 0) == 0 else None


def test_when_asked_then_the_model_answers_with_exact_counts(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    given: list[MessageParam] = [
        *ask("What is the capital of France?"),
        {"role": "assistant", "content": "The capital of France is"},
    ]
    answer = client.messages.create(
        model=real_host.model, system="You know geography.", messages=given, max_tokens=10, extra_body=GREEDY
    )
    assert "Paris" in text_of(answer)
    assert answer.stop_reason in ("end_turn", "max_tokens")
    whole = client.messages.create(model=real_host.model, messages=given[:1], max_tokens=10)
    counted = client.messages.count_tokens(model=real_host.model, messages=given[:1])
    assert whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0) == counted.input_tokens
    assert 0 < answer.usage.output_tokens <= 10


def test_when_streamed_then_the_text_equals_the_whole_answer(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    question = ask("Name three colours.")
    # The first one reads the prompt; the two that are compared both go on from it, so no near tie parts them.
    client.messages.create(model=real_host.model, messages=question, max_tokens=1, extra_body=GREEDY)
    whole = client.messages.create(model=real_host.model, messages=question, max_tokens=30, extra_body=GREEDY)
    with client.messages.stream(model=real_host.model, messages=question, max_tokens=30, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(whole) == text_of(final)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.stop_reason == whole.stop_reason


def test_when_it_is_cut_or_stopped_then_the_reason_says_by_what(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    cut = client.messages.create(model=real_host.model, messages=ask("Tell a story."), max_tokens=5)
    assert cut.stop_reason == "max_tokens"
    assert cut.usage.output_tokens == 5
    stopped = client.messages.create(
        model=real_host.model,
        messages=[*ask("Count."), {"role": "assistant", "content": "1, 2, 3, 4, 5, 6,"}],
        max_tokens=60,
        extra_body=GREEDY,
        stop_sequences=[" 9"],
    )
    assert stopped.stop_reason == "stop_sequence"
    assert stopped.stop_sequence == " 9"
    assert text_of(stopped).startswith(" 7, 8")  # gone on with, not begun anew


def test_when_the_prompt_is_too_long_then_the_error_tells_both_sizes(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"1,?024"):
        client.messages.create(model=real_host.model, messages=ask("word " * 5000), max_tokens=5)


def test_when_the_context_is_full_then_the_reason_says_so(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    answer = client.messages.create(
        model=real_host.model,
        messages=[*ask("word " * 900), {"role": "assistant", "content": "word word word word word"}],
        max_tokens=5000,
        extra_body=GREEDY,
    )
    assert answer.stop_reason in ("model_context_window_exceeded", "end_turn")
    used = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) + answer.usage.output_tokens
    if answer.stop_reason == "model_context_window_exceeded":
        assert used >= 1023


def test_when_the_next_turn_comes_then_the_first_is_cached(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    history = ask("Remember the number 4711. " * 10)
    first = client.messages.create(model=real_host.model, messages=history, max_tokens=8, extra_body=GREEDY)
    history += [{"role": "assistant", "content": text_of(first)}, *ask("Which number?")]
    second = client.messages.create(model=real_host.model, messages=history, max_tokens=8, extra_body=GREEDY)
    read = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    assert (second.usage.cache_read_input_tokens or 0) >= read - 8


def test_when_several_stream_at_once_then_each_gets_its_own_answer(real_host: HostUnderTest) -> None:
    async def one(client: anthropic.AsyncAnthropic, number: int) -> str:
        async with client.messages.stream(
            model=real_host.model, messages=ask(f"Repeat exactly: code {number}"), max_tokens=24, extra_body=GREEDY
        ) as stream:
            return text_of(await stream.get_final_message())

    numbers = [1000 + 37 * index for index in range(N_STREAMS)]

    async def run() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=real_host.address, api_key="none", timeout=240) as client:
            return await asyncio.gather(*(one(client, number) for number in numbers))

    for number, text in zip(numbers, asyncio.run(run()), strict=True):
        assert not any(str(other) in text for other in numbers if other != number)
    poll(lambda: idle(real_host))


def test_when_the_stream_is_closed_then_the_engine_is_idle(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    stream = client.messages.create(
        model=real_host.model, messages=ask("Write a very long story."), max_tokens=900, stream=True
    )
    for _ in range(3):
        next(iter(stream))
    stream.close()
    poll(lambda: idle(real_host), timeout_s=10)


def test_when_models_are_listed_then_the_loaded_one_is_first(
    client: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    models = client.models.list().data
    assert models[0].id == real_host.model
    assert models[0].max_input_tokens == 1024


def test_when_the_model_is_unknown_then_the_client_raises_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude"):
        client.messages.create(model="claude-of-old", messages=ask("Hi"), max_tokens=5)
