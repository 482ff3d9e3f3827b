"""A short stretch of the fuzzing of every parser, always the same."""

from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.fuzz.parsers import Run

N_ROUNDS = 30


def test_short_run_when_fuzzed_then_finds_nothing(tmp_path: Path) -> None:
    run = Run(20261130, tmp_path)
    n_targets = len(targets.targets())
    for _ in range(N_ROUNDS * n_targets):
        run.step()
    assert run.found == {}
    assert set(run.inputs.values()) == {N_ROUNDS}
    # Damage that leaves nothing readable would prove little.
    assert sum(run.accepted.values()) > N_ROUNDS * n_targets / 5


def test_defect_in_a_parser_when_fuzzed_then_is_found_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_pattern: str) -> None:
        raise IndexError("broken")

    monkeypatch.setattr(targets, "read_pattern", broken)
    run = Run(1, tmp_path, only="pattern")
    run.step()
    (found,) = run.found
    assert found.startswith("pattern: IndexError at test_parsers.py:")
    (text,) = tmp_path.glob("*.txt")
    assert "IndexError" in text.read_text(encoding="utf-8")
