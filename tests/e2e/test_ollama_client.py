"""The official `ollama` client against a real host with the starter model, and llama-server's own routes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from runtime.library.starter import find_starter
from tests.e2e.conftest import HostUnderTest, poll
from tests.fakes.fake_hub import FakeHub, FakeRepo

pytestmark = pytest.mark.e2e

N_STREAMS = 8
GREEDY = {"temperature": 0, "seed": 7}
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
FILE = "SmolLM2-135M-Instruct-Q4_1.gguf"


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(real_host: HostUnderTest) -> Iterator[ollama.Client]:
    with ollama.Client(host=real_host.address, timeout=120) as client:
        yield client


def idle(host: HostUnderTest) -> bool | None:
    engine = host.engine()
    return True if engine.get("active", 0) == 0 and engine.get("waiting", 0) == 0 else None


def test_when_chatting_then_the_model_answers_with_exact_counts(
    client: ollama.Client, real_host: HostUnderTest
) -> None:
    answer = client.chat(
        model=real_host.model, messages=ask("What is the capital of France?"), options={**GREEDY, "num_predict": 40}
    )
    assert answer.message.content
    assert answer.eval_count is not None
    assert 0 < answer.eval_count <= 40
    assert answer.prompt_eval_count is not None
    assert answer.prompt_eval_count > 5
    assert answer.total_duration is not None
    assert answer.eval_duration is not None
    assert 0 < answer.eval_duration < answer.total_duration


def test_when_streamed_then_the_text_equals_the_whole_answer(client: ollama.Client, real_host: HostUnderTest) -> None:
    given: Any = {
        "model": real_host.model,
        "messages": ask("Name three colours."),
        "options": {**GREEDY, "num_predict": 30, "seed": 1},
    }
    whole = client.chat(**given)
    parts = list(client.chat(**given, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert parts[-1].eval_count == whole.eval_count
    assert len(parts) > 3


def test_when_generating_raw_then_the_text_is_gone_on_with(client: ollama.Client, real_host: HostUnderTest) -> None:
    answer = client.generate(
        model=real_host.model,
        prompt="1, 2, 3, 4, 5, 6,",
        raw=True,
        options={**GREEDY, "num_predict": 60, "stop": [" 9"]},
    )
    assert (answer.response or "").startswith(" 7, 8")
    assert answer.done_reason == "stop"
    fact = client.generate(
        model=real_host.model, prompt="The capital of France is", raw=True, options={**GREEDY, "num_predict": 6}
    )
    assert "Paris" in (fact.response or "")
    cut = client.generate(model=real_host.model, prompt="Tell a story.", options={"num_predict": 4})
    assert cut.done_reason == "length"
    assert cut.eval_count == 4


def test_when_embedded_then_vectors_have_length_one(client: ollama.Client, real_host: HostUnderTest) -> None:
    answer = client.embed(model=real_host.model, input=["a cat", "tax law"])
    assert [sum(x * x for x in vector) for vector in answer.embeddings] == pytest.approx([1, 1], abs=1e-3)
    (short,) = client.embed(model=real_host.model, input="a cat", dimensions=64).embeddings
    assert len(short) == 64
    assert sum(x * x for x in short) == pytest.approx(1, abs=1e-6)


def test_when_models_are_listed_and_shown_then_facts_are_those_of_the_file(
    client: ollama.Client, real_host: HostUnderTest
) -> None:
    listed = {model.model: model for model in client.list().models}[real_host.model]
    path = find_starter()
    assert path is not None
    assert listed.size == path.stat().st_size
    assert listed.details is not None
    assert (listed.details.quantization_level, listed.details.parameter_size) == ("Q4_1", "135M")
    loaded = {model.model: model for model in client.ps().models}[real_host.model]
    assert loaded.context_length == 1024
    assert loaded.size is not None
    assert loaded.size > 10_000_000
    shown = client.show(real_host.model)
    assert "<|im_start|>" in (shown.template or "")
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["llama.block_count"] == 30
    assert shown.capabilities is not None
    assert "completion" in shown.capabilities


def test_when_a_name_is_copied_then_it_answers_until_deleted(client: ollama.Client, real_host: HostUnderTest) -> None:
    client.copy(real_host.model, "llama-of-old")
    try:
        answer = client.chat(model="llama-of-old:latest", messages=ask("Hi"), options={"num_predict": 3})
        assert answer.message.content
    finally:
        client.delete("llama-of-old")
    with pytest.raises(ollama.ResponseError, match="llama-of-old"):
        client.chat(model="llama-of-old", messages=ask("Hi"))


def test_when_the_prompt_is_too_long_then_it_is_refused_or_cut_as_asked(
    client: ollama.Client, real_host: HostUnderTest
) -> None:
    with pytest.raises(ollama.ResponseError, match=r"1,?024"):
        client.chat(model=real_host.model, messages=ask("word " * 5000))
    turns = [{"role": role, "content": "word " * 100} for _ in range(8) for role in ("user", "assistant")]
    body = {
        "model": real_host.model,
        "messages": [*turns, *ask("Say yes.")],
        "stream": False,
        "truncate": True,
        "options": {"num_predict": 4},
    }
    answer = httpx.post(f"{real_host.address}/api/chat", json=body, timeout=120).raise_for_status().json()
    assert answer["prompt_eval_count"] < 1024


def test_when_several_stream_at_once_then_each_gets_its_own_answer(real_host: HostUnderTest) -> None:
    numbers = [1000 + 37 * index for index in range(N_STREAMS)]

    async def one(client: ollama.AsyncClient, number: int) -> str:
        question = ask(f"Repeat exactly: code {number}")
        options = {**GREEDY, "num_predict": 24}
        parts = await client.chat(model=real_host.model, messages=question, options=options, stream=True)
        return "".join([part.message.content or "" async for part in parts])

    async def run() -> list[str]:
        async with ollama.AsyncClient(host=real_host.address, timeout=240) as client:
            return await asyncio.gather(*(one(client, number) for number in numbers))

    for number, text in zip(numbers, asyncio.run(run()), strict=True):
        assert not any(str(other) in text for other in numbers if other != number)


def test_when_the_client_leaves_then_the_engine_is_idle(real_host: HostUnderTest) -> None:
    body = {"model": real_host.model, "messages": ask("Write a very long story.")}
    with httpx.stream("POST", f"{real_host.address}/api/chat", json=body, timeout=120) as answer:
        next(answer.iter_lines())
    poll(lambda: idle(real_host), timeout_s=10)


def test_when_pulled_then_it_arrives_answers_and_is_deleted(own_host: HostUnderTest) -> None:
    path = find_starter()
    assert path is not None
    with FakeHub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: Path(path).read_bytes()})
        own_host.private.put("/admin/models/options", json={"hub_endpoint": hub.endpoint}).raise_for_status()
        own_host.open_api()
        name = f"hf.co/{REPO}:Q4_1"
        with ollama.Client(host=own_host.address, timeout=120) as client:
            steps = list(client.pull(name, stream=True))
            assert steps[0].status == "pulling manifest"
            assert steps[-1].status == "success"
            progress = [step for step in steps if step.digest]
            assert progress[-1].completed == progress[-1].total == path.stat().st_size
            answer = client.chat(model=name, messages=ask("Capital of France?"), options={**GREEDY, "num_predict": 20})
            assert answer.message.content
            assert client.pull(name).status == "success"  # nothing to do
            assert client.generate(model=name, keep_alive=0).done_reason == "unload"
            poll(lambda: True if not client.ps().models else None)
            client.delete(name)
            with pytest.raises(ollama.ResponseError) as raised:
                client.show(name)
            assert raised.value.status_code == 404


# --- llama-server's own routes ----------------------------------------------------------------------------


def post(host: HostUnderTest, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{host.address}{path}", json={"model": host.model, **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_when_text_is_tokenized_and_back_then_it_is_the_same(real_host: HostUnderTest) -> None:
    text = "The sky is blue, naïve 日本."
    tokens = post(real_host, "/tokenize", content=text)["tokens"]
    assert post(real_host, "/detokenize", tokens=tokens)["content"] == text
    pieces = post(real_host, "/tokenize", content="日", with_pieces=True)["tokens"]
    raw = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert raw.decode() == "日"
    assert len(post(real_host, "/tokenize", content="<|im_start|>")["tokens"]) == 1
    assert len(post(real_host, "/tokenize", content="<|im_start|>", parse_special=False)["tokens"]) > 1


def test_when_a_template_is_applied_then_completing_it_is_the_chat(real_host: HostUnderTest) -> None:
    messages = ask("What is the capital of France?")
    prompt = post(real_host, "/apply-template", messages=messages)["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n")
    text = post(real_host, "/completion", prompt=prompt, n_predict=12, temperature=0, seed=1)["content"]
    chat = post(real_host, "/v1/chat/completions", messages=messages, max_tokens=12, temperature=0, seed=1)
    assert text == chat["choices"][0]["message"]["content"]


def test_when_the_model_cannot_fill_in_or_rank_then_it_says_so(real_host: HostUnderTest) -> None:
    for path, body in (
        ("/infill", {"input_prefix": "def f(", "input_suffix": "return 1"}),
        ("/rerank", {"query": "x", "documents": ["y"]}),
    ):
        answer = httpx.post(f"{real_host.address}{path}", json={"model": real_host.model, **body}, timeout=120)
        assert answer.status_code == 400
        assert "cannot" in answer.json()["error"]["message"]


def test_when_properties_are_asked_then_the_model_is_told(real_host: HostUnderTest) -> None:
    props = httpx.get(f"{real_host.address}/props", timeout=20).json()
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert props["total_slots"] == 32
    assert (props["bos_token"], props["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert len(httpx.get(f"{real_host.address}/slots", timeout=20).json()) == 32
