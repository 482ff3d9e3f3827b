import struct
from pathlib import Path

import pytest

from runtime.errors import FileTruncated, ModelLoadFailed
from runtime.gguf import facts as facts_module
from runtime.gguf.facts import ProjectorFacts, SplitName, facts_of, read_facts, read_special_tokens, split_name
from runtime.gguf.header import ArrayRef, GgufHeader, MetaValue, TensorInfo, read_header
from runtime.gguf.source import FileSource, MemorySource
from runtime.library.starter import find_starter
from tests.support.gguf_files import ARRAY, pack_entry, pack_header, write_tiny_model


def test_starter_model_when_read_then_its_facts_are_known() -> None:
    path = find_starter()
    assert path is not None
    facts = read_facts(path)
    facts.check_whole()
    assert facts.architecture == "llama"
    assert facts.kind == "chat"
    assert facts.quantization == "Q4_1"
    assert facts.n_params == 134_515_008
    assert facts.needed_bytes == facts.size_bytes == path.stat().st_size
    assert (facts.n_ctx_train, facts.n_layer, facts.n_vocab) == (8192, 30, 49_152)
    assert "<|im_start|>" in facts.chat_template
    assert facts.bits_per_weight == pytest.approx(5.7437, abs=0.0001)


def test_starter_when_read_then_its_details_are_known() -> None:
    path = find_starter()
    assert path is not None
    facts = read_facts(path)
    assert facts.weight_bytes == 96_576_768
    assert dict(facts.tensor_types) == {"Q4_1": 66_355_200, "Q8_0": 30_081_024, "F32": 140_544}
    assert (facts.tokenizer, facts.is_supported, facts.projector) == ("gpt2", True, None)
    assert facts.attention is not None
    assert (facts.attention.n_head, facts.attention.n_head_kv) == ((9,) * 30, (3,) * 30)
    assert (facts.attention.k_width, facts.attention.v_width) == ((192,) * 30, (192,) * 30)
    assert (facts.attention.n_swa, facts.attention.is_mla, facts.attention.is_hybrid) == (0, False, False)


def header_of(metadata: dict[str, MetaValue], tensors: tuple[TensorInfo, ...] = ()) -> GgufHeader:
    return GgufHeader(3, False, metadata, tensors, 32, 512, 512)


def test_projector_when_read_then_says_what_it_takes() -> None:
    facts = facts_of(
        header_of(
            {
                "general.architecture": "clip",
                "clip.has_vision_encoder": True,
                "clip.has_audio_encoder": True,
                "clip.projector_type": "qwen2.5o",
                "clip.vision.projection_dim": 2048,
                "clip.vision.image_size": 560,
            }
        ),
        "mmproj-model-f16.gguf",
    )
    assert (facts.kind, facts.quantization, facts.attention) == ("projector", "F16", None)
    assert facts.projector == ProjectorFacts(True, True, "qwen2.5o", 2048, 560)


@pytest.mark.parametrize(
    ("kind", "scale", "rows"), [("gemma3", None, 256), ("gemma3", 2, 1024), ("gemma4v", None, 280), ("mlp", None, 0)]
)
def test_projector_whose_rows_see_each_other_when_read_then_says_how_many_there_are(
    kind: str, scale: int | None, rows: int
) -> None:
    metadata: dict[str, MetaValue] = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.vision.image_size": 896,
        "clip.vision.patch_size": 14,
    }
    if scale is not None:
        metadata["clip.vision.projector.scale_factor"] = scale
    facts = facts_of(header_of(metadata), "mmproj.gguf")
    assert facts.projector is not None
    assert facts.projector.whole_rows == rows


def test_old_projector_that_tells_nothing_when_read_then_is_for_pictures() -> None:
    facts = facts_of(header_of({"general.architecture": "clip"}), "mmproj.gguf")
    assert facts.projector is not None
    assert (facts.projector.has_vision, facts.projector.has_audio) == (True, False)


def test_projector_for_sound_alone_when_read_then_does_not_see() -> None:
    metadata: dict[str, MetaValue] = {
        "general.architecture": "clip",
        "clip.has_audio_encoder": True,
        "clip.audio.projector_type": "ultravox",
        "clip.audio.projection_dim": 4096,
    }
    facts = facts_of(header_of(metadata), "mmproj.gguf")
    assert facts.projector == ProjectorFacts(False, True, "ultravox", 4096, 0)


def test_origin_of_a_model_when_read_then_is_told() -> None:
    facts = facts_of(
        header_of(
            {
                "general.architecture": "qwen3",
                "general.size_label": "8B",
                "general.tags": ("chat", "code"),
                "general.languages": ("en", "de"),
                "general.base_model.count": 2,
                "general.base_model.0.name": "Qwen3 8B Base",
                "general.base_model.0.repo_url": "https://example.org/Qwen/Qwen3-8B-Base",
                "general.base_model.1.name": "Another",
                "quantize.imatrix.file": "/data/someone/imatrix.dat",
                "quantize.imatrix.dataset": "/data/someone/calibration_v3.txt",
                "quantize.imatrix.entries_count": 400,
            }
        ),
        "a.gguf",
    )
    assert (facts.size_label, facts.tags, facts.languages) == ("8B", ("chat", "code"), ("en", "de"))
    assert facts.base_models == ("Qwen/Qwen3-8B-Base", "Another")
    assert facts.imatrix == "calibration_v3.txt"


def test_numbers_that_make_no_sense_when_read_then_are_left_out_of_the_facts() -> None:
    facts = facts_of(
        header_of(
            {
                "general.architecture": "llama",
                "llama.block_count": -3,
                "llama.context_length": -1,
                "llama.embedding_length": 1 << 50,
                "split.count": -7,
                "general.base_model.count": 1 << 40,
                "general.tags": "no list",
            }
        ),
        "a.gguf",
    )
    assert (facts.n_layer, facts.n_ctx_train, facts.n_embd, facts.split_count) == (None, None, None, 1)
    assert (facts.attention, facts.base_models, facts.tags) == (None, (), ())


def test_format_that_neither_name_nor_header_tells_when_read_then_is_that_of_most_tensors() -> None:
    tensors = (TensorInfo("a", (256, 64), 12, 0), TensorInfo("b", (64,), 0, 9216))
    assert facts_of(header_of({"general.architecture": "llama"}, tensors), "sha256-0123").quantization == "Q4_K"
    assert facts_of(header_of({"general.architecture": "llama"}), "sha256-0123").quantization == ""


def test_architecture_llama_cpp_does_not_know_when_read_then_is_not_supported() -> None:
    facts = facts_of(header_of({"general.architecture": "flux-capacitor", "flux-capacitor.block_count": 2}), "a.gguf")
    assert not facts.is_supported
    assert facts.attention is not None
    assert not facts.attention.is_known


def test_more_special_tokens_than_any_model_has_when_read_then_are_refused() -> None:
    count = facts_module.MAX_SPECIAL_TOKENS + 1
    entry = pack_entry("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ", 5, count) + struct.pack("<i", 3) * count)
    source = MemorySource(pack_header([entry]))
    with pytest.raises(ModelLoadFailed, match="special tokens"):
        read_special_tokens(source, read_header(source))


def test_starter_header_when_read_then_no_token_is_built_and_no_weight_is_read() -> None:
    class Counting(FileSource):
        n_bytes = 0

        def read_at(self, offset: int, n_bytes: int) -> bytes:
            self.n_bytes += n_bytes
            return super().read_at(offset, n_bytes)

    path = find_starter()
    assert path is not None
    with Counting(path) as source:
        header = read_header(source)
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], ArrayRef)
    assert isinstance(header.metadata["tokenizer.ggml.merges"], ArrayRef)
    assert source.n_bytes < header.data_offset + 4 * 1024 * 1024


def test_special_tokens_when_read_then_control_and_user_defined_are_told_apart(tmp_path: Path) -> None:
    with FileSource(write_tiny_model(tmp_path / "tiny.gguf")) as source:
        tokens = read_special_tokens(source, read_header(source))
    assert [(token.token_id, token.text, token.is_control) for token in tokens] == [
        (0, "token0", True),
        (1, "token1", True),
        (2, "token2", False),
    ]


def test_file_cut_off_in_its_tensors_when_checked_then_both_sizes_are_told(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - 1000)
    facts = read_facts(path)
    with pytest.raises(FileTruncated) as caught:
        facts.check_whole()
    assert caught.value.details["size_bytes"] == whole - 1000
    assert whole - 32 <= int(caught.value.details["needed_bytes"]) <= whole
    assert "tiny.gguf" in caught.value.message


@pytest.mark.parametrize(
    ("file_name", "architecture", "general_type", "pooling_type", "expected"),
    [
        ("a.gguf", "llama", "model", None, "chat"),
        ("mmproj-a.gguf", "llama", "model", None, "projector"),
        ("a.gguf", "clip", "mmproj", None, "projector"),
        ("a.gguf", "nomic-bert", "model", None, "embedding"),
        ("a.gguf", "qwen3", "model", 3, "embedding"),
        ("a.gguf", "qwen3", "model", 0, "chat"),
        ("a.gguf", "llama", "adapter", None, "other"),
        ("imatrix_unsloth.gguf", "llama", "model", None, "other"),
    ],
)
def test_kind_of_file_when_read_then_is_known(
    tmp_path: Path, file_name: str, architecture: str, general_type: str, pooling_type: int | None, expected: str
) -> None:
    path = write_tiny_model(
        tmp_path / file_name, architecture=architecture, general_type=general_type, pooling_type=pooling_type
    )
    assert read_facts(path).kind == expected


def test_quantization_when_the_name_does_not_tell_then_comes_from_the_file_type(tmp_path: Path) -> None:
    assert read_facts(write_tiny_model(tmp_path / "a.gguf", file_type=17)).quantization == "Q5_K_M"
    assert read_facts(write_tiny_model(tmp_path / "a-UD-Q4_K_XL.gguf", file_type=15)).quantization == "UD-Q4_K_XL"


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("big-00002-of-00005.gguf", SplitName("big", 2, 5)),
        ("big-Q4_K_M-00001-of-00001.gguf", SplitName("big-Q4_K_M", 1, 1)),
        ("big-00006-of-00005.gguf", None),
        ("big-00000-of-00005.gguf", None),
        ("big.gguf", None),
    ],
)
def test_name_of_a_part_when_looked_at_then_is_understood(file_name: str, expected: SplitName | None) -> None:
    assert split_name(file_name) == expected
