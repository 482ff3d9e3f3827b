"""The official `openai` client against a real host with the starter model."""

import asyncio
import re
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.conftest import HostUnderTest, poll

pytestmark = pytest.mark.e2e

N_STREAMS = 32
GREEDY = {"temperature": 0.0, "seed": 7}


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(real_host: HostUnderTest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real_host.address}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def idle(host: HostUnderTest) -> bool | None:
    engine = host.engine()
    return True if engine.get("active", 0) == 0 and engine.get("waiting", 0) == 0 else None


def test_when_asked_then_the_model_answers_with_exact_counts(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.completions.create(
        model=real_host.model, prompt="The capital of France is", max_tokens=6, temperature=0
    )
    assert "Paris" in answer.choices[0].text
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens == 5
    assert usage.completion_tokens == 6
    timings = (answer.model_extra or {})["timings"]
    assert timings["predicted_n"] == usage.completion_tokens
    assert timings["predicted_per_second"] > 0


def test_when_streamed_then_the_text_equals_the_whole_answer(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    question = ask("Name three colours.")
    # A seed asks for the same text: without one, the second request goes on from the first one's prompt, and a near
    # tie may fall otherwise.
    whole = client.chat.completions.create(
        model=real_host.model, messages=question, max_tokens=30, temperature=0, seed=1
    )
    stream = client.chat.completions.create(
        model=real_host.model,
        messages=question,
        max_tokens=30,
        temperature=0,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_when_max_tokens_is_reached_then_reason_is_length(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.chat.completions.create(model=real_host.model, messages=ask("Tell a story."), max_tokens=5)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


def test_when_stop_string_is_given_then_it_ends_there(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.completions.create(
        model=real_host.model, prompt="1, 2, 3, 4, 5, 6,", stop=" 9", max_tokens=60, temperature=0
    )
    assert answer.choices[0].finish_reason == "stop"
    assert " 8" in answer.choices[0].text
    assert " 9" not in answer.choices[0].text


def test_when_logprobs_are_asked_then_chosen_token_is_likeliest(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    answer = client.chat.completions.create(
        model=real_host.model, messages=ask("Say yes."), max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content
    for entry in told.content:
        assert len(entry.top_logprobs) == 3
        assert entry.token == entry.top_logprobs[0].token
        assert entry.logprob <= 0
    assert answer.usage is not None
    assert len(told.content) in (answer.usage.completion_tokens, answer.usage.completion_tokens - 1)


def test_when_several_choices_are_asked_then_they_come(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.chat.completions.create(
        model=real_host.model, messages=ask("Invent a word."), n=3, max_tokens=12, temperature=1.5, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_when_echo_is_asked_then_the_prompt_comes_first(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.completions.create(
        model=real_host.model, prompt="The sky is", echo=True, max_tokens=4, temperature=0
    )
    assert answer.choices[0].text.startswith("The sky is")
    assert len(answer.choices[0].text) > len("The sky is")


def test_when_grammar_is_given_then_the_answer_follows_it(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.chat.completions.create(
        model=real_host.model,
        messages=ask("Is the sky blue?"),
        max_tokens=10,
        extra_body={"grammar": 'root ::= "maybe" | "perhaps"'},
    )
    assert answer.choices[0].message.content in ("maybe", "perhaps")


def test_when_prompt_is_too_long_then_the_error_tells_both_sizes(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"1,?024") as raised:
        client.chat.completions.create(model=real_host.model, messages=ask("word " * 5000))
    assert raised.value.code == "context_length_exceeded"


def test_when_embedded_then_vectors_have_length_one(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.embeddings.create(model=real_host.model, input=["a cat", "a dog", "tax law"])
    vectors = [entry.embedding for entry in answer.data]
    assert [sum(x * x for x in vector) for vector in vectors] == pytest.approx([1, 1, 1], abs=1e-3)
    assert answer.usage.prompt_tokens > 3


def test_when_the_next_turn_comes_then_the_first_is_cached(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    history = ask("Remember the number 4711. " * 10)
    first = client.chat.completions.create(model=real_host.model, messages=history, max_tokens=8, temperature=0)
    history.append({"role": "assistant", "content": first.choices[0].message.content})
    history.append({"role": "user", "content": "Which number?"})
    second = client.chat.completions.create(model=real_host.model, messages=history, max_tokens=8, temperature=0)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= first.usage.prompt_tokens - 8


def test_when_32_stream_at_once_then_all_finish_right_and_apart(real_host: HostUnderTest) -> None:
    """Each asks to repeat its own number: mixed-up sequences would show."""
    questions = [f"Repeat exactly: code {index * 37 + 1000}" for index in range(N_STREAMS)]

    async def one(client: openai.AsyncOpenAI, question: str) -> tuple[str, str | None]:
        stream = await client.chat.completions.create(
            model=real_host.model, messages=ask(question), max_tokens=24, temperature=0, stream=True
        )
        text, reason = "", None
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
        return text, reason

    async def run() -> list[tuple[str, str | None]]:
        async with openai.AsyncOpenAI(base_url=f"{real_host.address}/v1", api_key="none", timeout=240) as many:
            return await asyncio.gather(*(one(many, question) for question in questions))

    answers = asyncio.run(run())
    assert all(reason in ("stop", "length") for _text, reason in answers)
    right = 0
    numbers = {question.split()[-1] for question in questions}
    for (text, _reason), question in zip(answers, questions, strict=True):
        own = question.split()[-1]
        said = set(re.findall(r"\d{4}", text)) & numbers
        assert said <= {own}, (question, text)
        right += own in said
    assert right >= N_STREAMS * 3 // 4, answers  # it is a small model; none may say another's number
    poll(lambda: idle(real_host))


def test_when_8_clients_vanish_then_no_sequence_stays_busy(real_host: HostUnderTest) -> None:
    async def vanish(client: httpx.AsyncClient) -> None:
        body = {"model": real_host.model, "stream": True, "messages": ask("Count to a million."), "ignore_eos": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if '"content":"' in line and '"content":""' not in line:
                    return

    async def run() -> None:
        async with httpx.AsyncClient(base_url=real_host.address, timeout=120) as client:
            await asyncio.gather(*(vanish(client) for _ in range(8)))

    asyncio.run(run())
    poll(lambda: idle(real_host), timeout_s=10)


def test_when_stream_is_closed_then_the_engine_is_idle(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    stream = client.chat.completions.create(
        model=real_host.model, messages=ask("Count to a million."), stream=True, extra_body={"ignore_eos": True}
    )
    for _ in range(3):
        next(iter(stream))
    stream.close()
    poll(lambda: idle(real_host), timeout_s=10)


def test_when_plain_request_times_out_then_the_engine_is_idle(real_host: HostUnderTest) -> None:
    body = {"model": real_host.model, "messages": ask("Count to a million."), "ignore_eos": True}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{real_host.address}/v1/chat/completions", json=body, timeout=1.0)
    poll(lambda: idle(real_host), timeout_s=10)
