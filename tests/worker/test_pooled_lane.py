"""Vectors and scores: batched results against llama.cpp's own for one text alone, turns, refusals, cancelling."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import pytest

from runtime.errors import BadRequest, ContextExceeded
from runtime.options import LoadOptions, Pooling
from runtime.scheduler.types import Done, EngineRequest, PooledTask, Text
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.pooled_lane import PooledLane
from tests.fakes.engine_rig import TIMEOUT_S, EngineRig, running, starter
from tests.fakes.tiny_gguf import write_mamba, write_transformer
from tests.fakes.tiny_readers import BERT_TOKENS, N_CTX_BERT, write_encoder, write_qwen3
from tests.support.llama_alone import pooled_alone

pytestmark = pytest.mark.e2e

CLS, SEP = 2, 3
NEAR = 3e-4


def load(path: Path, pooling: Pooling = "auto") -> LlamaModel:
    """With everything in single precision, so that results can be compared closely."""
    options = LoadOptions(n_threads=1, pooling=pooling, type_k="f32", type_v="f32", flash_attn="off")
    return load_model(path, options, lambda _stage, _fraction: None)


def encoder_texts() -> list[tuple[int, ...]]:
    """A few dozen of all lengths up to the most."""
    generator = np.random.default_rng(5)
    lengths = [1, 2, 7, N_CTX_BERT - 2, 30, 3, *generator.integers(1, 60, 30).tolist()]
    return [(CLS, *generator.integers(4, len(BERT_TOKENS), n).tolist(), SEP) for n in lengths]


def causal_texts(longest: int = 900) -> list[tuple[int, ...]]:
    generator = np.random.default_rng(6)
    lengths = [1, 3, longest, 40, 2, *generator.integers(1, 80, 30).tolist()]
    return [tuple(generator.integers(260, 320, n).tolist()) for n in lengths]


@pytest.mark.parametrize("architecture", ["bert", "nomic-bert"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_when_many_texts_go_through_an_encoder_then_each_vector_is_what_it_is_alone(
    tmp_path: Path, architecture: str, pooling: Pooling
) -> None:
    kind = {"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS, "last": gguf.PoolingType.LAST}[pooling]
    with closing(load(write_encoder(tmp_path / "m.gguf", architecture=architecture, pooling=kind))) as model:
        assert (model.facts.can_embed, model.facts.can_rerank) == (True, False)
        texts = encoder_texts()
        with running(model) as rig:
            vectors = rig.vectors(*texts)
        for tokens, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, pooled_alone(model, tokens, pooling), atol=NEAR)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_when_many_texts_go_through_a_causal_embedder_then_each_vector_is_what_it_is_alone(
    tmp_path: Path, pooling: Pooling
) -> None:
    with closing(load(write_qwen3(tmp_path / "m.gguf"), pooling)) as model:
        texts = causal_texts()
        with running(model) as rig:
            vectors = rig.vectors(*texts)
        for tokens, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, pooled_alone(model, tokens, pooling), atol=NEAR)


def test_when_a_model_was_made_for_last_then_that_is_automatic(tmp_path: Path) -> None:
    with closing(load(write_qwen3(tmp_path / "m.gguf"))) as model:
        assert model.resolved.pooling == "last"


@pytest.mark.parametrize("is_encoder", [True, False])
def test_when_documents_are_ranked_together_then_each_score_is_what_it_is_alone(
    tmp_path: Path, *, is_encoder: bool
) -> None:
    write = write_encoder if is_encoder else write_qwen3
    with closing(load(write(tmp_path / "m.gguf", pooling=gguf.PoolingType.RANK))) as model:
        assert (model.facts.can_embed, model.facts.can_rerank) == (False, True)
        texts = encoder_texts() if is_encoder else causal_texts()
        with running(model) as rig:
            scores = rig.vectors(*texts, kind="score")
            with pytest.raises(BadRequest, match="no vectors"):
                rig.read(*texts)
        alone = [pooled_alone(model, tokens, "rank")[0] for tokens in texts]
        np.testing.assert_allclose([score[0] for score in scores], alone, rtol=5e-3, atol=5e-3)
        assert len({round(float(score), 5) for score in alone}) > len(alone) // 2


def test_when_a_model_has_no_classifier_then_it_is_not_loaded_to_rank(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no classifier"):
        load(write_qwen3(tmp_path / "m.gguf"), "rank")


def test_when_a_ranker_is_loaded_for_vectors_then_it_makes_them(tmp_path: Path) -> None:
    with closing(load(write_encoder(tmp_path / "m.gguf", pooling=gguf.PoolingType.RANK), "cls")) as model:
        text = encoder_texts()[3]
        with running(model) as rig:
            np.testing.assert_allclose(rig.vectors(text)[0], pooled_alone(model, text, "cls"), atol=NEAR)


def test_when_a_recurrent_model_reads_texts_then_each_is_read_alone(tmp_path: Path) -> None:
    with closing(load(write_mamba(tmp_path / "m.gguf"))) as model:
        texts = causal_texts(300)[:8]
        with running(model) as rig:
            vectors = rig.vectors(*texts)
        for tokens, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, pooled_alone(model, tokens, "mean"), atol=NEAR)


# --- turns --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineRig]:
    with (
        closing(load(write_transformer(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))) as model,
        running(model) as made,
    ):
        yield made


def test_when_the_starter_reads_many_texts_then_vectors_are_near_those_alone() -> None:
    model = starter()
    texts = [
        tuple(model.vocab.tokenize(text, add_special=True, parse_special=False))
        for text in ("A cat sat on the mat.", "Quarterly tax report", "Rivers of France, from source to sea.")
    ]
    with running(model) as rig:
        vectors = rig.vectors(*texts)
    for tokens, vector in zip(texts, vectors, strict=True):
        # Q4_1 with 8-bit activations: other batch sizes, other last bits.
        assert float(vector @ pooled_alone(model, tokens, "mean")) > 0.999


def test_when_texts_are_read_while_others_generate_then_both_go_on(rig: EngineRig) -> None:
    writer = rig.submit((5, 6, 7), max_tokens=3000, ignore_eos=True)
    rig.wait_until(lambda: bool(rig.texts[writer, 0]))
    text = (260, *range(260, 320)) * 15
    first, second = rig.read(*[text] * 8), rig.read(text[:9])
    rig.wait_until(lambda: bool(rig.ends[first]))
    order = [output for output in rig.outputs if isinstance(output, Done | Text)]
    ends = {output.request_id: i for i, output in enumerate(order) if isinstance(output, Done)}
    assert ends[second] < ends[first]  # the short one need not wait for the long one
    written = [o for o in order[: ends[first]] if isinstance(o, Text) and o.request_id == writer]
    assert len(written) >= 14  # at least one for each of the decodes of 512 rows
    rig.engine.cancel(writer)
    rig.wait(writer)


def test_when_a_reading_request_is_cancelled_then_it_ends_and_the_next_is_right(rig: EngineRig) -> None:
    text = (260, *range(260, 320)) * 20
    before = rig.vectors(text[:20])[0]
    name = rig.read(*[text] * 40)
    rig.engine.cancel(name)
    done = rig.wait(name)
    assert (done.reasons, done.vectors) == (("cancelled",), ())
    np.testing.assert_allclose(rig.vectors(text[:20])[0], before, atol=NEAR)


def test_when_requests_read_together_then_each_gets_its_own(tmp_path: Path) -> None:
    with closing(load(write_qwen3(tmp_path / "m.gguf"))) as model:
        texts = causal_texts()
        with running(model) as rig:
            names = [rig.read(*texts[start::3]) for start in range(3)]
            for start, name in enumerate(names):
                for tokens, raw in zip(texts[start::3], rig.wait(name).vectors, strict=True):
                    vector = np.frombuffer(raw, dtype="<f4")
                    np.testing.assert_allclose(vector, pooled_alone(model, tokens, "last"), atol=NEAR)


# --- refusing -----------------------------------------------------------------------------------------------


def test_when_a_text_is_too_long_then_it_is_named(tmp_path: Path) -> None:
    with closing(load(write_encoder(tmp_path / "m.gguf"))) as model:
        lane = PooledLane(model)
        with pytest.raises(ContextExceeded, match="Text 1 is 300 tokens") as caught:
            lane.check(PooledTask(((CLS, SEP), (4,) * 300)))
        assert dict(caught.value.details) == {"prompt_tokens": 300, "n_ctx": N_CTX_BERT, "index": 1}
        with pytest.raises(BadRequest, match="Text 0 is empty"):
            lane.check(PooledTask(((),)))
        with pytest.raises(BadRequest, match="outside the vocabulary"):
            lane.check(PooledTask(((4, 5), (len(BERT_TOKENS),))))
        with pytest.raises(BadRequest, match="cannot rank"):
            lane.check(PooledTask(((4,),), "score"))
        with pytest.raises(BadRequest, match="At most"):
            lane.check(PooledTask(((4,),) * 200_000))


def test_when_a_document_with_the_query_is_too_long_then_its_index_is_told(tmp_path: Path) -> None:
    with (
        closing(load(write_encoder(tmp_path / "m.gguf", pooling=gguf.PoolingType.RANK))) as model,
        pytest.raises(ContextExceeded, match="Document 2 with the query"),
    ):
        PooledLane(model).check(PooledTask(((4,), (5,), (6,) * 999), "score"))


def test_when_the_engine_stops_then_reading_requests_end_as_cancelled(tmp_path: Path) -> None:
    with closing(load(write_transformer(tmp_path / "m.gguf"))) as model:
        rig = EngineRig(model)
        thread = threading.Thread(target=rig.engine.run)
        thread.start()
        names = [rig.read(*[(5, 6, 7)] * 400) for _ in range(5)]
        rig.engine.stop(0)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        assert [len(rig.ends[name]) for name in names] == [1] * 5


def test_when_an_encoder_is_to_write_then_it_says_that_it_cannot(tmp_path: Path) -> None:
    with (
        closing(load(write_encoder(tmp_path / "m.gguf"))) as model,
        running(model) as rig,
        pytest.raises(BadRequest, match="cannot write"),
    ):
        rig.engine.submit(EngineRequest("g", (4, 5)))
