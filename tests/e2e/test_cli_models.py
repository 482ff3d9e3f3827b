"""Models from the terminal: real processes, the starter model's bytes, and a hub on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.library.starter import find_starter
from tests.fakes.fake_hub import FakeHub, FakeRepo

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals"),
]

PATIENCE_S = 120.0
REPO = "org/small-GGUF"


def starter_bytes() -> bytes:
    path = find_starter()
    assert path is not None
    return path.read_bytes()


class Terminal:
    """`deskside` on a data folder of its own, with a hub of its own."""

    def __init__(self, data_dir: Path, hub: FakeHub) -> None:
        self.data_dir = data_dir
        self.hub = hub

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "runtime.cli.main", "--data-dir", str(self.data_dir), *words],
            env=os.environ | {"HF_ENDPOINT": self.hub.endpoint},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}"
        return out if code == 0 else err


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with FakeHub({REPO: FakeRepo({"small-Q4_1.gguf": starter_bytes(), "README.md": b"# Small\n"})}) as hub:
        yield Terminal(tmp_path / "data", hub)


def test_when_a_repository_is_pulled_then_it_is_judged_fetched_checked_and_can_be_removed(terminal: Terminal) -> None:
    found = terminal.run("models", "search", "small")
    assert REPO in found
    (row,) = json.loads(terminal.run("fit", REPO, "--json"))["rows"]
    assert row["recommended"]
    judged = json.loads(terminal.run("fit", f"{REPO}:Q4_1", "--ctx", "2048", "--json"))
    assert terminal.hub.sent_bytes < 0.1 * len(starter_bytes())
    assert "small-q4_1 is ready" in terminal.run("models", "pull", REPO)
    local = json.loads(terminal.run("fit", "small-q4_1", "--ctx", "2048", "--json"))
    assert local["method"] == judged["method"] == "dry_run"
    assert [budget["memory"] for budget in local["budgets"]] == [budget["memory"] for budget in judged["budgets"]]
    assert "as announced" in terminal.run("models", "verify", "small-q4_1")
    assert "--yes" in terminal.run("models", "remove", "small-q4_1", code=2)
    assert "trash" in terminal.run("models", "remove", "small-q4_1", "--yes")
    assert "small-q4_1" not in terminal.run("models")


def test_when_a_pull_is_interrupted_then_the_same_command_goes_on_where_it_was(terminal: Terminal) -> None:
    terminal.hub.on_body = lambda path, start: starts.append(start) if path.endswith(".gguf") else None
    starts: list[int] = []
    terminal.hub.gate.clear()  # bodies wait at their first piece
    process = terminal.start("models", "pull", f"{REPO}:Q4_1")
    deadline = time.monotonic() + PATIENCE_S
    while not starts:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    terminal.hub.gate.set()
    while sum(path.stat().st_size for path in terminal.data_dir.rglob("*.partial")) < 1_000_000:
        assert process.poll() is None, "the download was over before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    terminal.hub.gate.clear()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Paused" in err
    assert "small-q4_1" not in terminal.run("models")
    starts.clear()
    terminal.hub.gate.set()
    assert "small-q4_1 is ready" in terminal.run("models", "pull", f"{REPO}:Q4_1")
    assert starts[0] >= 1_000_000
    assert out == ""


def test_when_what_is_asked_for_is_not_there_then_the_exit_code_and_the_sentence_say_so(terminal: Terminal) -> None:
    assert "Q4_1" in terminal.run("models", "pull", f"{REPO}:Q9", code=2)
    assert "org/none" in terminal.run("models", "info", "org/none", code=2)
    assert "is installed" in terminal.run("models", "verify", "nothing", code=2)
    assert "no repository" in terminal.run("models", "pull", "nothing", code=2)


def test_when_the_hub_is_away_then_the_built_in_list_answers_and_a_pull_says_why(terminal: Terminal) -> None:
    terminal.hub.stop()
    assert json.loads(terminal.run("models", "search", "--json"))["offline"]
    assert json.loads(terminal.run("models", "search", "--picks", "--json"))["entries"]
    terminal.run("models", "pull", REPO, code=1)
    terminal.hub.start()


def test_when_a_file_is_imported_then_it_is_a_model_and_the_original_stays(terminal: Terminal, tmp_path: Path) -> None:
    original = tmp_path / "elsewhere" / "Größer als.Q4_1.gguf"
    original.parent.mkdir()
    original.write_bytes(starter_bytes())
    terminal.run("models", "import", str(original))
    assert original.is_file()
    assert any(path.name == original.name for path in (terminal.data_dir / "models").rglob("*.gguf"))
    folders = json.loads(terminal.run("models", "folders", "--json"))
    assert folders["folders"][0]["n_models"] == 1
