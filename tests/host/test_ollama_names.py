"""What Ollama's names stand for."""

import pytest

from runtime.errors import BadRequest, HubNotFound
from runtime.host.api.ollama_names import choose_file, digest_of, hub_name, meant_by
from runtime.messages.api import InstalledModel
from runtime.messages.library import HubFile

REPO = "bartowski/Qwen2.5-1.5B-Instruct-GGUF"


def installed(model_id: str, path: str, quantization: str) -> InstalledModel:
    return InstalledModel(id=model_id, name=model_id, path=path, size_bytes=1, quantization=quantization)


MODELS = (
    installed("smollm2-135m-instruct-q4_1", "/models/SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
    installed("qwen2.5-1.5b-instruct-q8_0", f"/models/{REPO}/Qwen2.5-1.5B-Instruct-Q8_0.gguf", "Q8_0"),
    installed("qwen2.5-1.5b-instruct-q4_k_m", f"/models/{REPO}/Qwen2.5-1.5B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
    installed("llama3.2-3b", "/ollama/blobs/sha256-1", "Q4_K_M"),
)
ALIASES = {"gpt-of-old": "llama3.2-3b"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm2-135m-instruct-q4_1", "smollm2-135m-instruct-q4_1"),
        ("SmolLM2-135M-Instruct-Q4_1:latest", "smollm2-135m-instruct-q4_1"),
        ("smollm2", "smollm2-135m-instruct-q4_1"),
        ("llama3.2:3b", "llama3.2-3b"),
        ("gpt-of-old", "llama3.2-3b"),
        ("gpt-of-old:latest", "llama3.2-3b"),
        (f"hf.co/{REPO}", "qwen2.5-1.5b-instruct-q4_k_m"),
        (f"hf.co/{REPO}:Q8_0", "qwen2.5-1.5b-instruct-q8_0"),
        (f"https://huggingface.co/{REPO}:q4_k_m", "qwen2.5-1.5b-instruct-q4_k_m"),
        (f"hf.co/{REPO.lower()}:latest", "qwen2.5-1.5b-instruct-q4_k_m"),
        (f"hf.co/{REPO}:Q2_K", f"hf.co/{REPO}:Q2_K"),  # not fetched
        ("hf.co/no/one", "hf.co/no/one"),
        ("qwen2.5", "qwen2.5"),  # two are meant: neither is taken
        ("mistral:latest", "mistral"),
        ("", ""),
    ],
)
def test_when_a_name_is_given_then_it_stands_for_one_model_or_stays(name: str, expected: str) -> None:
    assert meant_by(name, MODELS, ALIASES) == expected


def test_when_a_name_is_of_the_hub_then_repository_and_quantization_are_told() -> None:
    assert hub_name("hf.co/a/b:Q4_K_M") == ("a/b", "Q4_K_M")
    assert hub_name("huggingface.co/a/b:latest") == ("a/b", "")
    assert hub_name("hf.co/a/b") == ("a/b", "")
    for name in ("llama3.2:3b", "user/model", "hf.co/a", "hf.co/a/b/c:Q4_0", "", "hf.co/a/b:Q4 K"):
        with pytest.raises(BadRequest) as raised:
            hub_name(name)
        assert "hf.co/owner/repo" in raised.value.hint


def file(quantization: str, size_bytes: int, *, is_projector: bool = False) -> HubFile:
    path = f"model-{quantization}.gguf"
    return HubFile(path, (path,), (size_bytes,), ("",), quantization, size_bytes, is_projector=is_projector)


def test_when_no_quantization_is_named_then_the_usual_one_is_taken() -> None:
    files = (file("F16", 1, is_projector=True), file("Q8_0", 80), file("Q4_K_M", 40), file("IQ2_XS", 20))
    assert choose_file(files, REPO, "").quantization == "Q4_K_M"
    assert choose_file(files[:2], REPO, "").quantization == "Q8_0"
    assert choose_file((file("IQ3_M", 30), file("IQ2_XS", 20)), REPO, "").quantization == "IQ2_XS"


def test_when_a_quantization_is_named_then_it_is_found_or_the_others_are_told() -> None:
    files = (file("Q8_0", 80), file("Q4_K_M", 40))
    assert choose_file(files, REPO, "q8_0").size_bytes == 80
    assert choose_file(files, REPO, "model-Q4_K_M.gguf").size_bytes == 40
    with pytest.raises(HubNotFound, match="Q2_K") as raised:
        choose_file(files, REPO, "Q2_K")
    assert "Q4_K_M, Q8_0" in raised.value.hint
    with pytest.raises(HubNotFound):
        choose_file((file("F16", 1, is_projector=True),), REPO, "")


def test_when_a_file_changes_then_its_digest_does() -> None:
    first, second = MODELS[0], installed(MODELS[0].id, MODELS[0].path + "x", "Q4_1")
    assert digest_of(first) == digest_of(MODELS[0])
    assert digest_of(first) != digest_of(second)
