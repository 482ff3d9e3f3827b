"""Rerank, embeddings, adapters and a stretched context over HTTP, with a real host, real workers and tiny models."""

from collections.abc import Iterator
from typing import Any

import gguf
import httpx
import openai
import pytest

from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest, poll
from tests.fakes.tiny_gguf import write_transformer
from tests.fakes.tiny_lora import random_pairs, shapes_of, write_lora
from tests.fakes.tiny_readers import write_encoder, write_qwen3

pytestmark = pytest.mark.e2e


class Rig:
    """A host with these models: `base` with adapters `first` and `second`, `ranker`, `bert`."""

    def __init__(self, host: HostUnderTest) -> None:
        self.host = host
        self.api = httpx.Client(base_url=host.address, timeout=90)

    def load(self, model: str, **options: object) -> None:
        answer = self.host.private.post("/admin/models/load", json={"model": model, "options": options})
        assert answer.status_code == 202, answer.text
        poll(lambda: self._is_ready(answer.json()["id"]) or None)

    def _is_ready(self, model_id: str) -> bool:
        states = {one["id"]: one for one in self.host.private.get("/admin/status").json()["models"]}
        assert states[model_id]["state"] != "failed", states[model_id]
        return bool(states[model_id]["state"] == "ready")

    def post(self, path: str, **body: object) -> Any:
        return self.api.post(path, json=body).raise_for_status().json()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    root = tmp_path_factory.mktemp("readers")
    models = root / "data" / "models"
    models.mkdir(parents=True)
    base = write_transformer(models / "base.gguf", n_ctx_train=512)
    shapes = shapes_of(base)
    write_lora(models / "first.gguf", random_pairs(shapes))
    write_lora(models / "second.gguf", random_pairs(shapes, seed=9))
    write_qwen3(models / "ranker.gguf", pooling=gguf.PoolingType.RANK)
    write_encoder(models / "bert.gguf")
    host = HostUnderTest(DataFolder(root / "data"))
    try:
        host.open_api()
        made = Rig(host)
        made.load(
            "base",
            n_ctx=1024,
            rope_scaling="yarn",
            # One by path, one by the library's id of it.
            lora=[{"path": str(models / "first.gguf"), "scale": 0.0}, {"path": "second", "scale": 0.0}],
        )
        yield made
        made.api.close()
    finally:
        host.close()


def say(rig: Rig, **body: object) -> str:
    fixed = {"model": "base", "prompt": "abcdefgh", "n_predict": 16, "temperature": 0, "ignore_eos": True}
    return str(rig.post("/completion", **fixed, **body)["content"])


def test_when_scales_are_sent_with_a_request_then_the_answer_is_another(rig: Rig) -> None:
    plain = say(rig)
    first, second = say(rig, lora=[{"id": 0, "scale": 1.0}]), say(rig, lora=[{"id": 1, "scale": 1.0}])
    assert len({plain, first, second}) == 3
    assert say(rig, lora=[{"id": 0, "scale": 0.0}]) == plain
    client = openai.OpenAI(base_url=f"{rig.host.address}/v1", api_key="none")
    answers = [
        client.completions.create(
            model="base", prompt="abcdefgh", max_tokens=16, temperature=0,
            extra_body={"ignore_eos": True, "lora": lora},
        ).choices[0].text
        for lora in ([], [{"id": 0, "scale": 1.0}])
    ]  # fmt: skip
    assert answers == [plain, first]


def test_when_the_scales_are_changed_for_all_then_requests_without_their_own_have_them(rig: Rig) -> None:
    plain, first = say(rig), say(rig, lora=[{"id": 0, "scale": 1.0}])
    told = rig.api.get("/lora-adapters", params={"model": "base"}).json()
    assert [(one["id"], one["path"], one["scale"]) for one in told] == [(0, "first.gguf", 0), (1, "second.gguf", 0)]
    changed = rig.api.post("/lora-adapters", params={"model": "base"}, json=[{"id": 0, "scale": 1.0}])
    assert changed.json() == {"success": True}
    try:
        assert say(rig) == first
        assert say(rig, lora=[]) == plain
        assert rig.api.get("/lora-adapters", params={"model": "base"}).json()[0]["scale"] == 1.0
    finally:
        rig.api.post("/lora-adapters", params={"model": "base"}, json=[])
    assert say(rig) == plain


def test_when_scales_are_sent_with_texts_then_their_vectors_are_others_and_those_for_all_hold_too(rig: Rig) -> None:
    client = openai.OpenAI(base_url=f"{rig.host.address}/v1", api_key="none")

    def vector(**body: object) -> list[float]:
        asked = client.embeddings.create(model="base", input=["abcdefgh"], encoding_format="float", extra_body=body)
        return asked.data[0].embedding

    plain, first = vector(), vector(lora=[{"id": 0, "scale": 1.0}])
    assert first != pytest.approx(plain, abs=1e-3)
    rig.api.post("/lora-adapters", params={"model": "base"}, json=[{"id": 0, "scale": 1.0}])
    try:
        assert vector() == pytest.approx(first, abs=1e-4)
        assert vector(lora=[]) == pytest.approx(plain, abs=1e-4)
    finally:
        rig.api.post("/lora-adapters", params={"model": "base"}, json=[])
    with pytest.raises(openai.BadRequestError, match="none with the id 7"):
        vector(lora=[{"id": 7, "scale": 1}])


@pytest.mark.parametrize(
    "body", [b"{}", b"[1]", b"[", b'[{"id": 9, "scale": 1}]', b'[{"id": 0, "scale": 1e9}]', b"[" * 9999]
)
def test_when_the_list_of_scales_is_wrong_then_it_is_400(rig: Rig, body: bytes) -> None:
    answer = rig.api.post("/lora-adapters", params={"model": "base"}, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_when_an_adapter_is_not_there_then_the_request_says_so(rig: Rig) -> None:
    answer = rig.api.post("/completion", json={"model": "base", "prompt": "a", "lora": [{"id": 7, "scale": 1}]})
    assert answer.status_code == 400
    assert "none with the id 7" in answer.json()["error"]["message"]


def test_when_the_context_is_stretched_then_a_longer_prompt_than_the_training_is_read_and_the_plan_says_so(
    rig: Rig,
) -> None:
    answer = rig.post("/completion", model="base", prompt="ab" * 400, n_predict=2, ignore_eos=True)
    assert answer["tokens_evaluated"] > 512
    plan = rig.host.private.post(
        "/admin/plan", json={"target": {"model": "base"}, "options": {"n_ctx": 1024, "rope_scaling": "yarn"}}
    ).json()
    assert "YaRN stretches the 512 tokens" in plan["reason"]
    assert plan["resolved"]["rope"]["freq_scale"] == 0.5


def test_when_a_load_has_adapters_then_the_plan_counts_them(rig: Rig) -> None:
    def needed(*adapters: str) -> int:
        options = {"n_ctx": 512, "lora": [{"path": str(rig.host.data.root / "models" / one)} for one in adapters]}
        plan = rig.host.private.post("/admin/plan", json={"target": {"model": "base"}, "options": options}).json()
        assert plan["method"] == "dry_run"
        return int(plan["needed_bytes"])

    assert needed("first.gguf", "second.gguf") > needed("first.gguf") > needed()
    wrong = {"lora": [{"path": str(rig.host.data.root / "models" / "bert.gguf")}]}
    refused = rig.host.private.post("/admin/plan", json={"target": {"model": "base"}, "options": wrong})
    assert "no LoRA adapter" in refused.json()["message"]


def test_when_documents_are_ranked_then_the_best_comes_first_and_others_can_be_embedded(rig: Rig) -> None:
    rig.load("ranker")
    documents = ["the cat sat", "tax law", "", "a river"]
    answer = rig.post("/v1/rerank", model="ranker", query="cat", documents=documents, top_n=3, return_documents=True)
    scores = [row["relevance_score"] for row in answer["results"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert answer["results"][0]["document"]["text"] == documents[answer["results"][0]["index"]]
    assert answer["usage"]["prompt_tokens"] > 40
    too_long = rig.api.post("/rerank", json={"model": "ranker", "query": "cat", "documents": ["a", "b" * 9000]})
    assert too_long.status_code == 400
    assert "Document 1 with the query" in too_long.json()["error"]["message"]
    refused = rig.api.post("/v1/embeddings", json={"model": "ranker", "input": "a"})
    assert "cannot make embeddings" in refused.json()["error"]["message"]


def test_when_texts_are_embedded_by_an_encoder_then_dimensions_and_base64_hold(rig: Rig) -> None:
    rig.load("bert")
    client = openai.OpenAI(base_url=f"{rig.host.address}/v1", api_key="none")
    texts = ["cat dog", "sun moon star", "tax"] * 30
    whole = client.embeddings.create(model="bert", input=texts)  # base64, decoded by the client
    assert len(whole.data) == 90
    assert sum(number * number for number in whole.data[0].embedding) == pytest.approx(1, abs=1e-4)
    short = client.embeddings.create(model="bert", input=texts[:2], dimensions=8, encoding_format="float")
    assert [len(entry.embedding) for entry in short.data] == [8, 8]
    assert sum(number * number for number in short.data[1].embedding) == pytest.approx(1, abs=1e-4)
    head = whole.data[0].embedding[:8]
    length = sum(number * number for number in head) ** 0.5
    assert short.data[0].embedding == pytest.approx([number / length for number in head], abs=1e-3)
    with pytest.raises(openai.BadRequestError, match="vectors have 64"):
        client.embeddings.create(model="bert", input="cat", dimensions=65)
    long = rig.api.post("/api/embed", json={"model": "bert", "input": "cat " * 999})
    assert len(long.json()["embeddings"][0]) == 64
    refused = rig.api.post("/api/embed", json={"model": "bert", "input": "cat " * 999, "truncate": False})
    assert refused.status_code == 400
