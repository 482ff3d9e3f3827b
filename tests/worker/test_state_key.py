"""What a saved state belongs to."""

import os
from pathlib import Path

from msgspec.structs import replace

from runtime.messages.load import ResolvedLoad, RopeScaling
from runtime.worker.state_key import state_key

RESOLVED = ResolvedLoad(
    n_ctx=4096, n_parallel=1, n_seq_max=2, n_cells=4096, n_batch=512, n_ubatch=512, n_threads=2, n_gpu_layers=0
)
METADATA = {"general.architecture": "llama", "llama.context_length": "8192"}


def model(tmp_path: Path, name: str = "a.gguf", last: bytes = b"x") -> Path:
    path = tmp_path / name
    path.write_bytes(bytes(3_000_000) + last)
    os.utime(path, (1_000_000, 1_000_000))
    return path


def test_when_nothing_differs_then_the_key_is_the_same_wherever_the_file_is(tmp_path: Path) -> None:
    first = state_key(model(tmp_path), RESOLVED, METADATA)
    assert first == state_key(model(tmp_path, "b.gguf"), RESOLVED, METADATA)
    assert len(first) == 32


def test_when_the_file_or_its_time_differs_then_the_key_does(tmp_path: Path) -> None:
    first = state_key(model(tmp_path), RESOLVED, METADATA)
    assert first != state_key(model(tmp_path, last=b"y"), RESOLVED, METADATA)
    later = model(tmp_path)
    os.utime(later, (1_000_001, 1_000_001))
    assert first != state_key(later, RESOLVED, METADATA)


def test_when_what_decides_about_the_numbers_differs_then_the_key_does(tmp_path: Path) -> None:
    path = model(tmp_path)
    keys = {
        state_key(path, RESOLVED, METADATA),
        state_key(path, replace(RESOLVED, type_k="q8_0"), METADATA),
        state_key(path, replace(RESOLVED, type_v="q8_0"), METADATA),
        state_key(path, replace(RESOLVED, flash_attn="off"), METADATA),
        state_key(path, replace(RESOLVED, n_cells=8193), METADATA),
        state_key(path, replace(RESOLVED, rope=RopeScaling(freq_scale=0.5)), METADATA),
    }
    assert len(keys) == 6


def test_when_only_the_room_differs_then_the_key_does_not(tmp_path: Path) -> None:
    path = model(tmp_path)
    roomier = replace(RESOLVED, n_ctx=8192, n_cells=8192, n_parallel=4, n_seq_max=8, n_batch=64, n_threads=1)
    assert state_key(path, RESOLVED, METADATA) == state_key(path, roomier, METADATA)


def test_when_a_part_of_a_split_model_differs_then_the_key_does(tmp_path: Path) -> None:
    first = model(tmp_path, "a-00001-of-00002.gguf")
    second = model(tmp_path, "a-00002-of-00002.gguf")
    before = state_key(first, RESOLVED, METADATA)
    second.write_bytes(bytes(10))
    assert before != state_key(first, RESOLVED, METADATA)
