import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cli.prompt_line import MAX_HISTORY_LINES, PromptLine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the console keeps the history there")
readline = pytest.importorskip("readline")


@pytest.fixture(autouse=True)
def _no_history() -> Iterator[None]:
    readline.clear_history()
    yield
    readline.clear_history()


def test_when_a_line_ends_with_a_backslash_then_it_goes_on(tmp_path: Path) -> None:
    typed = iter(["one \\", "two\\", "three", "next"])
    prompts = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    lines = PromptLine(tmp_path / "history", ask)
    assert lines.read("> ", ". ") == "one \ntwo\nthree"
    assert prompts == ["> ", ". ", ". "]
    assert lines.read("> ", ". ") == "next"


def test_when_closed_then_the_history_is_there_the_next_time_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    lines = PromptLine(path)
    readline.add_history("Why is the sky blue?")
    lines.close()
    lines.close()
    assert path.stat().st_mode & 0o077 == 0
    readline.clear_history()
    PromptLine(path)
    assert readline.get_history_item(1) == "Why is the sky blue?"


def test_when_the_history_grows_then_it_stays_bounded(tmp_path: Path) -> None:
    lines = PromptLine(tmp_path / "history")
    for number in range(MAX_HISTORY_LINES + 100):
        readline.add_history(f"line {number}")
    lines.close()
    kept = (tmp_path / "history").read_text().splitlines()
    assert len(kept) <= MAX_HISTORY_LINES + 1
    assert kept[-1] == f"line {MAX_HISTORY_LINES + 99}"


def test_when_the_folder_cannot_be_written_then_only_the_history_is_lost(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    PromptLine(tmp_path / "file" / "history").close()
