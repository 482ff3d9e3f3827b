"""Sounds from HTTP body to answer: a real host, a tiny hearing model, and the official client."""

import base64
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest
from tests.fakes.tiny_vision import write_seeing_model
from tests.support.pictures import png, wav

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostUnderTest]:
    folder = tmp_path_factory.mktemp("hearing")
    path, _projector = write_seeing_model(folder / "models", "ultravox")
    made = HostUnderTest(DataFolder(folder / "data"))
    try:
        made.open_api()
        made.load(path, n_ctx=2048, n_threads=1)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def client(host: HostUnderTest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.address}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def hear(client: openai.OpenAI, model: str, sound: bytes) -> openai.types.chat.ChatCompletion:
    data = base64.b64encode(sound).decode()
    content = [
        {"type": "text", "text": "What is said?"},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    messages: Any = [{"role": "user", "content": content}]
    return client.chat.completions.create(
        model=model, messages=messages, max_tokens=4, temperature=0, logprobs=True, top_logprobs=5
    )


def test_when_sounds_are_sent_then_the_answer_depends_on_them_and_all_tokens_count(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    facts = host.loaded()["facts"]
    assert isinstance(facts, dict)
    assert facts["can_hear"]
    low, high = (hear(client, host.model, wav(1.0, tone_hz=hz)) for hz in (200.0, 3000.0))
    assert low.usage is not None
    assert low.usage.prompt_tokens > 375  # rows of half a minute, as this kind hears
    assert low.choices[0].logprobs != high.choices[0].logprobs
    again = hear(client, host.model, wav(1.0, tone_hz=200.0))
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) > 375


def test_when_a_sound_is_too_long_damaged_or_a_picture_then_400_says_why(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    with pytest.raises(openai.BadRequestError, match="minutes long"):
        hear(client, host.model, wav(1900.0, hz=2000))
    with pytest.raises(openai.BadRequestError, match="no sound"):
        hear(client, host.model, wav(0.0))
    url = "data:image/png;base64," + base64.b64encode(png(20, 20)).decode()
    messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    with pytest.raises(openai.BadRequestError, match="cannot see"):
        client.chat.completions.create(model=host.model, messages=messages, max_tokens=2)
    assert hear(client, host.model, wav(0.3)).usage is not None
