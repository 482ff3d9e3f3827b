"""Vectors under adapters: a request's own scales hold for its texts alone, whoever reads beside it."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.options import Adapter, LoadOptions
from runtime.scheduler.adapters import AdapterSet, adapter_set
from runtime.worker.load import LlamaModel, load_model
from tests.fakes.engine_rig import EngineRig, running
from tests.fakes.tiny_gguf import write_transformer
from tests.fakes.tiny_lora import random_pairs, shapes_of, write_lora

pytestmark = pytest.mark.e2e

NEAR = 3e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    folder = tmp_path_factory.mktemp("lora")
    base = write_transformer(folder / "base.gguf")
    shapes = shapes_of(base)
    files = [write_lora(folder / f"{seed}.gguf", random_pairs(shapes, seed=seed)) for seed in (7, 9)]
    options = LoadOptions(
        n_threads=1, n_ctx=1024, flash_attn="off", type_k="f32", type_v="f32",
        lora=tuple(Adapter(str(path), 0.5) for path in files),
    )  # fmt: skip
    loaded = load_model(base, options, lambda _stage, _fraction: None)
    yield loaded
    loaded.close()


def texts(longest: int = 700) -> list[tuple[int, ...]]:
    generator = np.random.default_rng(6)
    return [tuple(generator.integers(260, 320, n).tolist()) for n in (1, longest, 40, 2, 200)]


def sets(model: LlamaModel) -> list[AdapterSet | None]:
    keys = [fact.key for fact in model.facts.adapters]
    return [None, model.adapters.default, adapter_set(keys, (1.0, 0.0)), adapter_set(keys, (0.0, -2.0))]


def vectors(rig: EngineRig, request_id: str) -> NDArray[np.float32]:
    return np.array([np.frombuffer(vector, dtype="<f4") for vector in rig.wait(request_id).vectors])


def test_when_requests_with_other_scales_are_read_together_then_each_gets_what_it_gets_alone(model: LlamaModel) -> None:
    chosen = sets(model)
    with running(model) as rig:
        alone = [vectors(rig, rig.read(*texts(), adapters=one)) for one in chosen]
        names = [rig.read(*texts(), adapters=one) for one in chosen * 2]
        together = [vectors(rig, name) for name in names]
    for index, found in enumerate(together):
        np.testing.assert_allclose(found, alone[index % len(chosen)], atol=NEAR)
    for first in range(len(chosen)):
        for second in range(first):
            assert np.abs(alone[first] - alone[second]).max() > 100 * NEAR


def test_when_cells_are_held_by_texts_of_another_set_then_those_are_read_on_and_nobody_waits_for_ever(
    model: LlamaModel,
) -> None:
    chosen = sets(model)
    with running(model) as rig:
        names = [rig.read(*texts(1000), adapters=one) for one in chosen * 3]
        assert all(len(vectors(rig, name)) == 5 for name in names)
