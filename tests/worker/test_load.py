"""Loading, and each way it can fail with its own error and llama.cpp's own words."""

from pathlib import Path

import pytest

from runtime.errors import FileTruncated, ModelLoadFailed, NotEnoughMemory, NotGguf, UnknownArchitecture
from runtime.options import LoadOptions
from runtime.worker import native
from runtime.worker.load import load_model
from tests.fakes.engine_rig import starter, starter_path
from tests.fakes.tiny_gguf import write_transformer, write_unknown

pytestmark = pytest.mark.e2e


def quiet(_stage: str, _fraction: float) -> None:
    """Progress nobody looks at."""


def test_when_a_model_is_loaded_then_its_facts_are_those_of_the_file() -> None:
    model = starter()
    facts = model.facts
    assert (facts.architecture, facts.quantization, facts.n_layer, facts.n_vocab) == ("llama", "Q4_1", 30, 49152)
    assert (facts.n_ctx, facts.n_parallel, facts.n_ctx_train) == (2048, 32, 8192)
    assert facts.n_params == 134_515_008
    assert facts.device_names == ("CPU",)
    assert facts.has_chat_template
    # f16 K and V of 3 heads of 64 in 30 layers.
    assert facts.kv_bytes == pytest.approx(model.resolved.n_cells * 30 * 2 * 3 * 64 * 2, rel=0.001)
    assert 0 < facts.compute_bytes < 250 * 1024 * 1024
    assert (facts.resolved["flash_attn"], facts.resolved["n_ubatch"]) == ("off", 128)
    assert facts.resolved["n_batch"] == 512
    assert "n_ctx" not in facts.resolved
    assert model.metadata["general.architecture"] == "llama"


def test_when_a_model_is_loaded_then_progress_rises_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    load_model(write_transformer(tmp_path / "a.gguf"), LoadOptions(n_ctx=256), lambda *step: told.append(step)).close()
    fractions = [fraction for stage, fraction in told if stage == "Reading the model"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert told[-1][0] == "Warming up"


def test_when_progress_raises_then_the_load_is_given_up_with_that_error() -> None:
    class GaveUpError(Exception):
        pass

    def give_up(_stage: str, fraction: float) -> None:
        if fraction > 0.3:
            raise GaveUpError

    with pytest.raises(GaveUpError):
        load_model(starter_path(), LoadOptions(n_ctx=256), give_up)


def test_when_options_are_automatic_then_they_are_told_as_resolved(tmp_path: Path) -> None:
    model = load_model(write_transformer(tmp_path / "a.gguf"), LoadOptions(), quiet)
    assert model.facts.resolved["n_ctx"] == model.facts.n_ctx == 4096
    assert model.facts.resolved["n_parallel"] == 4
    assert model.facts.resolved["kv_cells"] == model.resolved.n_cells
    model.close()
    model.close()


def test_when_the_file_is_missing_then_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="cannot be opened"):
        load_model(tmp_path / "none.gguf", LoadOptions(), quiet)


def test_when_the_file_is_no_gguf_then_the_error_says_so(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>404</html>")
    with pytest.raises(NotGguf):
        load_model(path, LoadOptions(), quiet)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_when_the_file_is_cut_off_then_the_error_says_so_with_llama_cpps_words(tmp_path: Path, share: float) -> None:
    whole = write_transformer(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(FileTruncated) as caught:
        load_model(path, LoadOptions(), quiet)
    assert caught.value.details["size_bytes"] == path.stat().st_size
    assert caught.value.details["reason"]


def test_when_the_architecture_is_unknown_then_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture) as caught:
        load_model(write_unknown(tmp_path / "new.gguf"), LoadOptions(), quiet)
    assert caught.value.details["architecture"] == "flux-capacitor"
    assert "unknown model architecture" in str(caught.value.details["reason"])


def test_when_the_context_needs_more_memory_than_there_is_then_the_numbers_are_told(tmp_path: Path) -> None:
    path = write_transformer(tmp_path / "a.gguf")
    with pytest.raises(NotEnoughMemory) as caught:
        load_model(path, LoadOptions(n_ctx=2**31 - 4096, n_parallel=1), quiet)
    assert int(caught.value.details["needed_bytes"]) > int(caught.value.details["free_bytes"]) > 0


def test_when_a_tensor_is_missing_then_llama_cpps_words_are_told(tmp_path: Path) -> None:
    path = tmp_path / "hole.gguf"
    raw = write_transformer(tmp_path / "whole.gguf").read_bytes()
    path.write_bytes(raw.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_ap.weight"))
    with pytest.raises(ModelLoadFailed, match=r"blk\.1\.ffn_up\.weight"):
        load_model(path, LoadOptions(), quiet)


def test_when_the_abort_flag_is_read_then_it_is_what_was_written() -> None:
    import ctypes

    flag = native.AbortFlag()
    read = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(native.flag_reader())
    assert not read(flag.address)
    flag.set()
    assert read(flag.address)
    assert flag
    flag.clear()
    assert not read(flag.address)
