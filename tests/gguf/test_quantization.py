import gguf
import pytest

from runtime.gguf.quantization import TENSOR_TYPES, name_of_file_type, quantization_in_name, tensor_bytes


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen3-8b-q4_k_m.gguf", "Q4_K_M"),
        ("Llama-3.3-70B-Instruct-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Name.i1-IQ3_XXS.gguf", "IQ3_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("gpt-oss-20b-MXFP4_MOE-00001-of-00002.gguf", "MXFP4_MOE"),
        ("model-f16-to-Q8_0.gguf", "Q8_0"),
        ("mmproj-model-f16.gguf", "F16"),
        ("Qwen2-7B.gguf", ""),
        ("notq4_0really.gguf", ""),
    ],
)
def test_file_name_when_looked_at_then_tells_its_format(file_name: str, expected: str) -> None:
    assert quantization_in_name(file_name) == expected


def test_file_type_when_named_then_flags_and_unknown_ids_are_tolerated() -> None:
    assert name_of_file_type(15) == "Q4_K_M"
    assert name_of_file_type(1024 + 7) == "Q8_0"
    assert name_of_file_type(5555) == ""
    assert name_of_file_type(None) == ""


def test_block_sizes_when_compared_with_the_gguf_package_then_agree() -> None:
    for kind, (block_size, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        ours = TENSOR_TYPES[int(kind)]
        assert (ours.name, ours.block_size, ours.block_bytes) == (kind.name, block_size, block_bytes)


def test_tensor_bytes_when_of_known_and_unknown_format_then_is_a_size_or_nothing() -> None:
    assert tensor_bytes(12, (256, 10)) == 1440
    assert tensor_bytes(9999, (256, 10)) is None
    assert TENSOR_TYPES[12].bits_per_weight == 4.5
