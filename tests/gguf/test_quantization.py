import gguf
import pytest

from runtime.gguf.quantization import TENSOR_TYPES, is_removed, name_of_file_type, quantization_in_name, tensor_bytes


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
        ("mmproj-BF16.gguf", "BF16"),
        ("Model-FP16.gguf", "F16"),
        ("Big-Q5_K_M-00002-of-00003.gguf", "Q5_K_M"),
        ("UD-Q2_K_XL/Big-UD-Q2_K_XL-00001-of-00003.gguf", "UD-Q2_K_XL"),
        ("gemma-3-4b-it-Q6_K_L.gguf", "Q6_K_L"),
        ("model-q4_k.gguf", "Q4_K_M"),
        ("Phi-3.5-mini-instruct-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("BitNet-2B-TQ2_0.gguf", "TQ2_0"),
        ("Qwen2-7B.gguf", ""),
        ("notq4_0really.gguf", ""),
    ],
)
def test_file_name_when_looked_at_then_tells_its_format(file_name: str, expected: str) -> None:
    assert quantization_in_name(file_name) == expected


def test_format_that_llama_cpp_gave_up_when_asked_then_is_known_as_removed() -> None:
    assert is_removed("Q4_0_4_4")
    assert not is_removed("Q4_0")


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
