"""Pictures from HTTP body to answer: a real host, a tiny seeing model, and the official clients."""

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest, poll
from tests.fakes.tiny_vision import write_projector, write_seeing_model
from tests.support.pictures import png, png_file

pytestmark = pytest.mark.e2e

CAT, DOG = png(90, 60, seed=1), png(90, 60, seed=2)


def data_url(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostUnderTest]:
    folder = tmp_path_factory.mktemp("vision")
    path, _projector = write_seeing_model(folder / "models", "qwen2vl")
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


def shown(picture: bytes, text: str) -> list[Any]:
    """A user's turn with a picture."""
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": data_url(picture)}}]
    return [{"role": "user", "content": content}]


def see(
    client: openai.OpenAI, model: str, picture: bytes, text: str = "What is it?", **options: Any
) -> openai.types.chat.ChatCompletion:
    asked: Any = {"max_tokens": 6, "temperature": 0, **options}
    answer: openai.types.chat.ChatCompletion = client.chat.completions.create(
        model=model, messages=shown(picture, text), **asked
    )
    return answer


def test_when_the_model_is_loaded_then_it_says_that_it_sees(host: HostUnderTest) -> None:
    facts = host.loaded()["facts"]
    assert isinstance(facts, dict)
    assert facts["can_see"]
    assert not facts.get("can_hear")
    assert facts["projector"] == "mmproj-tiny-qwen2vl.gguf"
    assert facts["memory"][-1]["projector_bytes"] > 0


def test_when_openai_sends_pictures_then_the_answer_depends_on_them_and_all_tokens_count(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    plain = client.chat.completions.create(
        model=host.model, messages=[{"role": "user", "content": "What is it?"}], max_tokens=1
    )
    cat = see(client, host.model, CAT, logprobs=True, top_logprobs=5)
    dog = see(client, host.model, DOG, logprobs=True, top_logprobs=5)
    assert cat.usage is not None
    assert plain.usage is not None
    # 90 x 60 becomes 4 x 2 rows of merged patches, and the marks around them.
    assert cat.usage.prompt_tokens >= plain.usage.prompt_tokens + 8
    assert cat.choices[0].logprobs != dog.choices[0].logprobs


def test_when_a_second_question_is_about_the_same_picture_then_only_new_tokens_are_read(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    first = see(client, host.model, CAT, "Tell me about it, please.")
    turns: list[Any] = [
        *shown(CAT, "Tell me about it, please."),
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And now?"},
    ]
    second = client.chat.completions.create(model=host.model, messages=turns, max_tokens=4)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= first.usage.prompt_tokens - 2


def test_when_a_picture_is_streamed_about_then_the_chunks_come(client: openai.OpenAI, host: HostUnderTest) -> None:
    stream = client.chat.completions.create(
        model=host.model,
        messages=shown(DOG, "What?"),
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


def test_when_responses_send_a_picture_then_it_is_seen(client: openai.OpenAI, host: HostUnderTest) -> None:
    content = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": data_url(CAT), "detail": "auto"},
    ]
    given: Any = [{"role": "user", "content": content}]
    answer = client.responses.create(model=host.model, input=given, max_output_tokens=16)
    assert answer.usage is not None
    assert answer.usage.input_tokens > 20


def test_when_anthropic_sends_a_picture_then_it_is_seen_and_counted(host: HostUnderTest) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(CAT).decode()}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    messages: list[Any] = [{"role": "user", "content": content}]
    with anthropic.Anthropic(base_url=host.address, api_key="none", max_retries=0, timeout=60) as client:
        answer = client.messages.create(model=host.model, messages=messages, max_tokens=5)
        counted = client.messages.count_tokens(model=host.model, messages=messages)
        bare = client.messages.count_tokens(model=host.model, messages=[{"role": "user", "content": "What?"}])
    cached = answer.usage.cache_read_input_tokens or 0
    assert answer.usage.input_tokens + cached == counted.input_tokens
    assert counted.input_tokens >= bare.input_tokens + 8


def test_when_a_tool_brought_a_picture_then_the_model_sees_it_in_the_result(host: HostUnderTest) -> None:
    """As the window sends it."""
    call = {"id": "1", "name": "look", "arguments": "{}"}
    asked = [{"role": "user", "content": "Look"}, {"role": "assistant", "tool_calls": [call]}]
    told = {"role": "tool", "content": "Here:", "name": "look", "tool_call_id": "1"}

    def parts(picture: bytes) -> dict[str, object]:
        media = {"kind": "image", "data": base64.b64encode(picture).decode(), "mime": "image/png"}
        return {"parts": [{"type": "text", "text": "Here:"}, {"type": "media", "media": media}]}

    def counted(*turns: object) -> int:
        answer = host.private.post("/admin/count", json={"model": host.model, "messages": turns})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["n_tokens"])

    assert counted(*asked, told | parts(CAT)) >= counted(*asked, told) + 8
    options = {"max_tokens": 3, "sampling": {"temperature": 0}}
    body = {"model": host.model, "messages": [*asked, told | parts(DOG)], "options": options}
    answer = host.private.post("/admin/chat", json=body)
    assert '"type":"finished"' in answer.text, answer.text


def test_when_ollama_sends_a_picture_then_it_is_seen(host: HostUnderTest) -> None:
    asked = {"role": "user", "content": "What?", "images": [DOG]}
    with ollama.Client(host=host.address, timeout=60) as client:
        answer = client.chat(model=host.model, messages=[asked], options={"num_predict": 4})
    assert (answer.prompt_eval_count or 0) > 20


def test_when_pictures_cannot_be_read_then_400_says_why_and_the_model_goes_on(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    bad = {
        "cut off": CAT[:-30],
        "damaged": CAT[:60] + bytes(40) + CAT[100:],
        "million": png_file(60_000, 60_000, b""),
        "narrow": png(600, 2),
    }
    for picture in bad.values():
        with pytest.raises(openai.BadRequestError, match="picture"):
            see(client, host.model, picture)
    with pytest.raises(openai.BadRequestError, match="WebP header"):
        see(client, host.model, b"RIFF\x10\0\0\0WEBPVP8 " + bytes(40))
    assert see(client, host.model, CAT).usage is not None


def test_when_pictures_and_texts_are_asked_at_once_then_all_are_answered(
    client: openai.OpenAI, host: HostUnderTest
) -> None:
    answers: dict[int, object] = {}

    def ask(number: int) -> None:
        picture = png(300 + number, 200, seed=10 + number)
        if number % 2:
            answers[number] = see(client, host.model, picture, max_tokens=20).usage
        else:
            text = client.chat.completions.create(
                model=host.model, messages=[{"role": "user", "content": f"Say {number}"}], max_tokens=20
            )
            answers[number] = text.usage

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 8


def test_when_the_projector_is_another_models_then_the_load_fails_with_the_reason(
    host: HostUnderTest, tmp_path: Path
) -> None:
    path, projector = write_seeing_model(tmp_path, "llava", n_embd_projector=48)
    asked = {"model": str(path), "options": {"n_ctx": 512, "projector": str(projector)}, "replace": False}
    answer = host.private.post("/admin/models/load", json=asked)
    assert answer.status_code == 202, answer.text
    name = answer.json()["id"]

    def failed() -> dict[str, object] | None:
        models = host.private.get("/admin/status").json()["models"]
        return next((model for model in models if model["id"] == name and model["state"] == "failed"), None)

    failure = poll(failed)["failure"]
    assert isinstance(failure, dict)
    assert "rows of 48 numbers" in failure["message"]
    host.private.post("/admin/models/unload", json={"model": name})


def test_when_a_projector_ends_the_process_that_loads_it_then_the_load_fails_and_the_host_goes_on(
    client: openai.OpenAI, host: HostUnderTest, tmp_path: Path
) -> None:
    path, projector = write_seeing_model(tmp_path / "broken", "gemma3")
    write_projector(projector, "gemma3", n_places=3)
    asked = {"model": str(path), "options": {"n_ctx": 512}, "replace": False}
    name = host.private.post("/admin/models/load", json=asked).json()["id"]

    def failed() -> dict[str, object] | None:
        models = host.private.get("/admin/status").json()["models"]
        return next((model for model in models if model["id"] == name and model["state"] == "failed"), None)

    failure = poll(failed)["failure"]
    assert isinstance(failure, dict)
    assert failure["message"]
    host.private.post("/admin/models/unload", json={"model": name})
    assert see(client, host.model, CAT).usage is not None


def test_when_the_projector_is_left_out_then_pictures_get_400(host: HostUnderTest, tmp_path: Path) -> None:
    path, _projector = write_seeing_model(tmp_path / "blind", "llava")
    answer = host.private.post(
        "/admin/models/load",
        json={"model": str(path), "options": {"n_ctx": 512, "projector": "none"}, "replace": False},
    )
    name = answer.json()["id"]

    def ready() -> bool | None:
        models = host.private.get("/admin/status").json()["models"]
        return any(model["id"] == name and model["state"] == "ready" for model in models) or None

    poll(ready)
    body = {
        "model": name,
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(CAT)}}]}],
    }
    refused = httpx.post(f"{host.address}/v1/chat/completions", json=body, timeout=60)
    assert refused.status_code == 400
    assert "cannot see" in refused.json()["error"]["message"]
    host.private.post("/admin/models/unload", json={"model": name})
