"""Context extension: what llama.cpp is told, what it then does, and what the plan says."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.errors import BadRequest
from runtime.fit.defaults import resolve
from runtime.fit.rope import extension_note, rope_of
from runtime.gguf.parts import read_shape
from runtime.host.api.body import typed
from runtime.messages.load import RopeScaling
from runtime.options import LoadOptions
from runtime.scheduler.plan import BatchPlan
from runtime.worker import parameters
from runtime.worker.backend import LlamaBackend
from runtime.worker.load import LOG, LlamaModel, load_model
from tests.fakes.engine_rig import running
from tests.fakes.tiny_gguf import RopeMetadata, write_transformer

YARN, LINEAR = gguf.RopeScalingType.YARN, gguf.RopeScalingType.LINEAR
N_CTX_TRAIN = 256


def load(path: Path, **options: object) -> LlamaModel:
    chosen = typed({"n_threads": 1, "n_parallel": 1, "flash_attn": "off", **options}, LoadOptions)
    return load_model(path, chosen, lambda _stage, _fraction: None)


def logits_of(path: Path, **options: object) -> NDArray[np.float32]:
    """Logits behind 32 tokens."""
    model = load(path, **options)
    try:
        tokens = [260 + index * index % 60 for index in range(32)]
        backend = LlamaBackend(model)
        assert backend.decode(BatchPlan(tokens, list(range(32)), [0] * 32, [31])) == 0
        return backend.logits.row(0).copy()
    finally:
        model.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transformer(tmp_path_factory.mktemp("rope") / "plain.gguf", n_ctx_train=N_CTX_TRAIN)


def test_when_nothing_is_said_then_llama_keeps_to_the_file(plain: Path) -> None:
    resolved = resolve(read_shape(plain), LoadOptions(), n_cores=1, free_bytes=2**30)
    assert resolved.rope == RopeScaling()
    params = parameters.context_params(resolved)
    assert (params.rope_scaling_type, params.rope_freq_base, params.rope_freq_scale) == (-1, 0, 0)
    assert (params.yarn_ext_factor, params.yarn_attn_factor, params.yarn_orig_ctx) == (-1, -1, 0)


def test_when_every_number_is_given_then_each_arrives(plain: Path) -> None:
    options = LoadOptions(
        n_ctx=2048, rope_scaling="yarn", rope_freq_base=5e5, rope_freq_scale=0.125, yarn_ext_factor=0.5,
        yarn_attn_factor=2, yarn_beta_fast=16, yarn_beta_slow=3, yarn_orig_ctx=128,
    )  # fmt: skip
    params = parameters.context_params(resolve(read_shape(plain), options, n_cores=1, free_bytes=2**30))
    assert (params.rope_scaling_type, params.rope_freq_base, params.rope_freq_scale) == (2, 5e5, 0.125)
    assert (params.yarn_ext_factor, params.yarn_attn_factor) == (0.5, 2)
    assert (params.yarn_beta_fast, params.yarn_beta_slow, params.yarn_orig_ctx) == (16, 3, 128)


@pytest.mark.parametrize(("n_ctx", "scale"), [(1024, 0.25), (N_CTX_TRAIN, 0.0)])
def test_when_only_the_way_is_chosen_then_the_scale_fits_the_context(plain: Path, n_ctx: int, scale: float) -> None:
    shape = read_shape(plain)
    assert rope_of(shape, LoadOptions(rope_scaling="yarn"), n_ctx).freq_scale == scale
    assert rope_of(shape, LoadOptions(rope_scaling="linear"), n_ctx).freq_scale == scale
    assert rope_of(shape, LoadOptions(rope_scaling="auto"), n_ctx).freq_scale == 0


def test_when_the_file_stretches_already_then_the_scale_goes_on_from_there(tmp_path: Path) -> None:
    path = write_transformer(tmp_path / "m.gguf", n_ctx_train=1024, rope=RopeMetadata(YARN, 4.0, 256))
    assert rope_of(read_shape(path), LoadOptions(rope_scaling="yarn"), 2048).freq_scale == 1 / 8


def test_when_the_scaling_is_unknown_then_it_is_refused() -> None:
    with pytest.raises(BadRequest, match="rope_scaling"):
        typed({"rope_scaling": "ntk"}, LoadOptions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "without RoPE scaling"),
        ({"rope_scaling": "yarn"}, "YaRN stretches the 256 tokens it was trained for 4 times"),
        ({"rope_scaling": "linear"}, "Linear scaling stretches"),
        ({"rope_freq_base": 1e6}, "positions are changed"),
    ],
)
def test_when_the_context_is_longer_than_the_training_then_the_note_says_so(
    plain: Path, options: dict[str, object], words: str
) -> None:
    shape = read_shape(plain)
    asked = typed({"n_ctx": 1024, **options}, LoadOptions)
    assert words in extension_note(shape, resolve(shape, asked, n_cores=1, free_bytes=2**30))
    short = typed({"n_ctx": 256, **options}, LoadOptions)
    assert extension_note(shape, resolve(shape, short, n_cores=1, free_bytes=2**30)) == ""


@pytest.mark.e2e
@pytest.mark.parametrize("kind", [LINEAR, YARN])
def test_when_scaled_by_option_then_logits_are_those_of_a_file_that_says_so(
    plain: Path, tmp_path: Path, kind: gguf.RopeScalingType
) -> None:
    written = write_transformer(tmp_path / "m.gguf", n_ctx_train=N_CTX_TRAIN, rope=RopeMetadata(kind, 4.0, N_CTX_TRAIN))
    by_file = logits_of(written)
    by_option = logits_of(plain, n_ctx=4 * N_CTX_TRAIN, rope_scaling=kind.value)
    np.testing.assert_allclose(by_option, by_file, atol=1e-5)
    assert np.abs(by_option - logits_of(plain)).max() > 0.1
    assert np.abs(by_option - logits_of(written, rope_scaling="none")).max() > 0.1


@pytest.mark.e2e
def test_when_loaded_then_llama_says_what_it_was_told(plain: Path) -> None:
    model = load(plain, n_ctx=1024, rope_scaling="yarn", rope_freq_base=5e4)
    try:
        told = "\n".join(LOG.lines())
        assert "freq_base             = 50000.0" in told
        assert "freq_scale            = 0.25" in told
    finally:
        model.close()


@pytest.mark.e2e
def test_when_a_prompt_is_longer_than_the_training_then_it_is_read_and_gone_on_from(plain: Path) -> None:
    model = load(plain, n_ctx=1024, rope_scaling="yarn")
    try:
        prompt = [260 + index * index % 60 for index in range(900)]
        with running(model) as rig:
            text, done = rig.ask(prompt, max_tokens=8, ignore_eos=True)
        assert done.usage.prompt_tokens == 900
        assert done.usage.completion_tokens == 8
        assert text
    finally:
        model.close()
