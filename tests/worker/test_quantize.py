"""Quantizing as the host sees it: one order in, lines out, a file that is whole or not there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import msgspec
import numpy as np
import pytest

from runtime.gguf.facts import read_facts
from runtime.messages.quantize import QuantizeAnswer, QuantizeDone, QuantizeFailed, QuantizeOrder, QuantizeProgress
from runtime.options import LoadOptions
from runtime.worker.load import load_model
from tests.support.random_model import Shape, write_random_model

pytestmark = pytest.mark.e2e

SMALL = Shape(256, 4, 512, 4, 2, 2_000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("source") / "Größe é-F16.gguf", SMALL)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("large") / "large-F16.gguf", Shape(1024, 8, 4096, 8, 8, 8_000))


def start(order: QuantizeOrder) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime.worker.quantize"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    process.stdin.flush()
    return process


def answers(process: "subprocess.Popen[bytes]") -> Iterator[QuantizeAnswer]:
    assert process.stdout is not None
    for line in process.stdout:
        yield msgspec.json.decode(line, type=QuantizeAnswer)


def ask(order: QuantizeOrder) -> list[QuantizeAnswer]:
    with start(order) as process:
        return list(answers(process))


def failure(order: QuantizeOrder) -> tuple[str, str]:
    (answer,) = ask(order)
    assert isinstance(answer, QuantizeFailed)
    return answer.failure.kind, answer.failure.message


def test_when_a_file_is_made_then_it_is_what_the_preview_said_and_loads(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "ü small.gguf"
    order = QuantizeOrder(str(source), "Q4_K_M", str(target))
    (preview,) = ask(msgspec.structs.replace(order, preview=True))
    assert isinstance(preview, QuantizeDone)
    assert not target.exists()
    *progress, done = ask(order)
    assert isinstance(done, QuantizeDone)
    assert done.size_bytes == target.stat().st_size == pytest.approx(preview.size_bytes, abs=128)
    assert done.bits_per_weight == preview.bits_per_weight == pytest.approx(5, abs=0.6)
    assert all(isinstance(step, QuantizeProgress) for step in progress)
    assert preview.tensor_types["blk.0.attn_q.weight"] == "Q4_K"
    assert preview.tensor_types["output.weight"] == "Q6_K"
    assert preview.tensor_types["output_norm.weight"] == "F32"
    facts = read_facts(target)
    facts.check_whole()
    assert facts.quantization == "Q4_K_M"
    load_model(target, LoadOptions(n_ctx=256), lambda _stage, _fraction: None).close()
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(("quantization", "bits"), [("Q8_0", 8.5), ("Q4_0", 4.6), ("IQ4_XS", 4.5), ("BF16", 16)])
def test_when_a_preview_is_asked_for_then_it_tells_the_bits(source: Path, quantization: str, bits: float) -> None:
    (preview,) = ask(QuantizeOrder(str(source), quantization, preview=True))
    assert isinstance(preview, QuantizeDone)
    assert preview.bits_per_weight == pytest.approx(bits, abs=0.5)


def test_when_it_goes_on_then_progress_rises(large: Path, tmp_path: Path) -> None:
    *progress, done = ask(QuantizeOrder(str(large), "Q4_0", str(tmp_path / "a.gguf")))
    assert isinstance(done, QuantizeDone)
    steps = [step.done_bytes for step in progress if isinstance(step, QuantizeProgress)]
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert all(0 <= step <= large.stat().st_size for step in steps)


def test_when_its_input_ends_then_it_stops_and_leaves_nothing(large: Path, tmp_path: Path) -> None:
    with start(QuantizeOrder(str(large), "Q4_K_M", str(tmp_path / "a.gguf"))) as process:
        assert isinstance(next(answers(process)), QuantizeProgress)
        assert [path.name for path in tmp_path.iterdir()] == ["a.gguf.partial"]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


def test_when_a_killed_one_left_a_partial_file_then_the_next_writes_over_it(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.gguf"
    Path(f"{target}.partial").write_bytes(b"half" * 1000)
    assert isinstance(ask(QuantizeOrder(str(source), "Q8_0", str(target)))[-1], QuantizeDone)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]
    read_facts(target).check_whole()


def test_when_the_source_is_quantized_then_it_is_refused(source: Path, tmp_path: Path) -> None:
    quantized = tmp_path / "q8.gguf"
    ask(QuantizeOrder(str(source), "Q8_0", str(quantized)))
    kind, message = failure(QuantizeOrder(str(quantized), "Q4_K_M", str(tmp_path / "b.gguf")))
    assert kind == "BadRequest"
    assert "quantized already (Q8_0)" in message


def test_when_an_importance_matrix_is_needed_then_it_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    kind, message = failure(QuantizeOrder(str(source), "IQ2_XXS", str(tmp_path / "a.gguf")))
    assert (kind, "importance matrix" in message) == ("BadRequest", True)
    assert list(tmp_path.iterdir()) == []


def test_when_the_target_exists_then_it_is_kept(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.gguf"
    target.write_bytes(b"mine")
    assert failure(QuantizeOrder(str(source), "Q8_0", str(target)))[0] == "BadRequest"
    assert target.read_bytes() == b"mine"


def test_when_the_disk_cannot_hold_it_then_it_says_how_much_is_missing(tmp_path: Path) -> None:
    huge = write_hole(tmp_path / "huge.gguf")
    target = tmp_path / "out" / "a.gguf"
    target.parent.mkdir()
    kind, message = failure(QuantizeOrder(str(huge), "Q8_0", str(target)))
    assert kind == "DiskFull"
    assert "not enough room for a.gguf" in message
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "quantization", "kind"), [("none.gguf", "Q8_0", "ModelNotFound"), ("text.gguf", "Q8_0", "NotGguf")]
)
def test_when_the_source_is_no_model_then_it_says_so(tmp_path: Path, name: str, quantization: str, kind: str) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    assert failure(QuantizeOrder(str(tmp_path / name), quantization, str(tmp_path / "a.gguf")))[0] == kind


def test_when_the_format_does_not_exist_then_the_ones_that_do_are_named(source: Path) -> None:
    kind, message = failure(QuantizeOrder(str(source), "Q9_Z", preview=True))
    assert (kind, "Q9_Z" in message) == ("BadRequest", True)


def test_when_the_order_is_nonsense_then_it_is_a_bad_request() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.worker.quantize"], input=b"{}\n", capture_output=True, timeout=60, check=False
    )
    answer = msgspec.json.decode(ended.stdout, type=QuantizeAnswer)
    assert isinstance(answer, QuantizeFailed)
    assert answer.failure.kind == "BadRequest"


def write_hole(path: Path) -> Path:
    """The header of a model of half a terabyte; where its weights would be is a hole."""
    rows, width = 1 << 22, 1 << 16
    writer = gguf.GGUFWriter(None, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    size = rows * width * 2
    writer.add_tensor_info("output.weight", [rows, width], np.dtype(np.float16), size)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    head = -(-path.stat().st_size // 32) * 32
    with path.open("rb+") as file:
        file.truncate(head + size)
    return path
