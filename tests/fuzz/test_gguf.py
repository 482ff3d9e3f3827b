"""A short stretch of the fuzzing, always the same, and its corpus."""

from pathlib import Path

import pytest

from runtime.gguf import header as header_module
from runtime.gguf.header import read_header
from runtime.gguf.source import MemorySource
from tests.fuzz.gguf import CORPUS, Run, main, read_everything

SEEDS = sorted(CORPUS.glob("*.gguf"))
N_INPUTS = 1000


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
@pytest.mark.parametrize("first_bytes", [1, 7, 100, 4096])
def test_seed_when_read_locally_and_in_pieces_then_gives_the_same(path: Path, first_bytes: int) -> None:
    data = path.read_bytes()
    assert len(data) < 32 * 1024
    assert read_header(MemorySource(data)).version == 3
    assert read_everything(data, len(data), first_bytes)


def test_short_run_when_fuzzed_then_finds_nothing(tmp_path: Path) -> None:
    run = Run(20261130, tmp_path)
    for _ in range(N_INPUTS):
        run.step()
    assert run.found == set()
    assert list(tmp_path.iterdir()) == []
    assert len(run.seen) > 100


def test_defect_in_the_reader_when_fuzzed_then_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise IndexError("broken")

    monkeypatch.setattr(header_module, "_read_array", broken)
    run = Run(1, tmp_path)
    for _ in range(300):
        run.step()
    assert run.found
    (text, *_) = tmp_path.glob("*.txt")
    assert "IndexError" in text.read_text(encoding="utf-8")
    assert text.with_suffix(".gguf").stat().st_size > 0


def test_file_of_a_finding_when_named_then_is_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.gguf._limit_memory", lambda: None)
    assert main([str(SEEDS[0])]) == 0
    assert SEEDS[0].name in capsys.readouterr().out
