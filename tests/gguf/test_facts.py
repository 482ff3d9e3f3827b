from pathlib import Path

import pytest

from runtime.errors import FileTruncated
from runtime.gguf.facts import SplitName, read_facts, read_special_tokens, split_name
from runtime.gguf.header import ArrayRef, read_header
from runtime.gguf.source import FileSource
from runtime.library.starter import find_starter
from tests.support.gguf_files import write_tiny_model


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
