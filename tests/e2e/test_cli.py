"""The terminal program with the real starter model: real processes from the command line to llama.cpp."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals and opens a pseudo-terminal"),
]

LONG_TASK = "Write the numbers from 1 to 1000, each on a line of its own:\n1\n2\n3\n4\n5\n6\n7\n8"
COMMAND = (sys.executable, "-m", "runtime.cli.main")
PATIENCE_S = 90.0


class Program:
    """A running `deskside` whose output is read as it comes."""

    def __init__(self, *words: str, environ: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            env=os.environ | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.lines: list[str] = []
        self.said: list[str] = []
        self._came = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said)),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, words: str) -> str:
        """The first line of standard output that holds these words."""
        with self._came:
            found = self._came.wait_for(
                lambda: next((line for line in self.lines if words in line), None) or not self._alive(), PATIENCE_S
            )
        assert isinstance(found, str), f"{words!r} never came: {self.lines} {self.said}"
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.finish()

    def finish(self) -> int:
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()

    def _alive(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def _read(self, stream: object, into: list[str]) -> None:
        for line in stream:  # type: ignore[attr-defined]  # a text stream
            with self._came:
                into.append(line)
                self._came.notify_all()
        stream.close()  # type: ignore[attr-defined]
        with self._came:
            self._came.notify_all()


def deskside(*words: str, typed: str | None = None, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        stdin=None if typed is not None else subprocess.DEVNULL,
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )


class Served(Program):
    """`deskside serve` on a port of its own, ready."""

    def __init__(self, data_dir: Path, *words: str) -> None:
        super().__init__("--data-dir", str(data_dir), "serve", "--port", "0", *words)
        self.data_dir = data_dir
        self.curl = self.wait_for("curl ").strip()
        self.base = shlex.split(self.curl)[1].removesuffix("/chat/completions")

    def post(self, route: str, body: object, **headers: str) -> dict[str, object]:
        answer = httpx.post(f"{self.base}/{route}", json=body, headers=headers, timeout=PATIENCE_S)
        answer.raise_for_status()
        decoded: dict[str, object] = answer.json()
        return decoded


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    program = Served(tmp_path_factory.mktemp("served"), "--ctx", "2048", "--parallel", "2")
    yield program
    program.kill()


def test_when_it_serves_then_the_line_it_prints_works(served: Served) -> None:
    words = shlex.split(served.curl)
    if shutil.which("curl") is None:
        answer = served.post("chat/completions", json.loads(words[words.index("-d") + 1]))
    else:
        done = subprocess.run([*words, "-s", "--max-time", "60"], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
    assert answer["object"] == "chat.completion"
    assert any("2 conversations of 2,048 tokens" in line for line in served.lines)
    assert any("Loading" in line for line in served.said)


def test_when_a_host_runs_then_chat_uses_it_and_prints_only_the_answer(served: Served) -> None:
    words = ("--data-dir", str(served.data_dir), "chat", "--temperature", "0", "--max-tokens", "12", "Count to five.")
    first, second = deskside(*words), deskside(*words)
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert first.stdout.strip()
    assert first.stdout == second.stdout
    assert served.process.poll() is None


def test_when_text_is_piped_then_it_follows_the_prompt(served: Served) -> None:
    words = ("--data-dir", str(served.data_dir), "chat", "--temperature", "0", "--max-tokens", "24")
    piped = deskside(*words, "Repeat this word:", typed="strawberry\n")
    joined = deskside(*words, "Repeat this word:\n\nstrawberry")
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == joined.stdout


def test_when_only_a_pipe_is_given_then_it_is_the_prompt(served: Served) -> None:
    ended = deskside("--data-dir", str(served.data_dir), "chat", "--max-tokens", "4", typed="Hello!")
    assert ended.returncode == 0
    assert ended.stdout.strip()


def test_when_there_is_nothing_to_ask_then_the_code_is_2(served: Served) -> None:
    ended = deskside("--data-dir", str(served.data_dir), "chat")
    assert ended.returncode == 2
    assert "nothing to ask" in ended.stderr


def test_when_ctrl_c_comes_in_one_answer_then_the_code_is_130_and_the_host_serves_on(served: Served) -> None:
    program = Program("--data-dir", str(served.data_dir), "chat", "--temperature", "0", LONG_TASK)
    program.wait_for("\n")
    assert program.end() == 130
    assert "Traceback" not in "".join(program.said)
    assert deskside("--data-dir", str(served.data_dir), "chat", "--max-tokens", "2", "Hi").returncode == 0


def test_when_the_models_process_dies_then_chat_says_so_and_the_next_one_works(served: Served) -> None:
    program = Program("--data-dir", str(served.data_dir), "chat", "--temperature", "0", LONG_TASK)
    program.wait_for("\n")
    children = psutil.Process(served.process.pid).children()  # a probe may still be there beside the worker
    (worker,) = [child for child in children if "runtime.worker" in child.cmdline()]
    worker.kill()
    assert program.finish() == 1
    assert program.said[0].startswith("deskside: ")
    assert "Traceback" not in "".join(program.said)
    again = deskside("--data-dir", str(served.data_dir), "chat", "--max-tokens", "2", "Hi")
    assert again.returncode == 0, again.stderr


def test_when_the_folder_is_in_use_then_a_second_serve_ends_with_3(served: Served) -> None:
    ended = deskside("--data-dir", str(served.data_dir), "serve", "--port", "0")
    assert ended.returncode == 3
    assert "already runs" in ended.stderr


def test_when_the_port_is_in_use_then_serve_ends_with_4_and_says_what_to_do(served: Served, tmp_path: Path) -> None:
    port = served.base.rpartition(":")[2].removesuffix("/v1")
    ended = deskside("--data-dir", str(tmp_path), "serve", "--port", port)
    assert ended.returncode == 4
    assert f"Port {port}" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_when_a_host_runs_then_doctor_and_hardware_know(served: Served) -> None:
    report = json.loads(deskside("--data-dir", str(served.data_dir), "doctor", "--json").stdout)
    (host,) = (check for check in report["checks"] if check["name"] == "Host")
    assert f"process {served.process.pid}" in host["found"]
    sample = json.loads(deskside("--data-dir", str(served.data_dir), "hardware", "--json").stdout)
    assert sample["memory"]["ours_bytes"] > 100_000_000  # the host and its worker with the model


def test_when_no_host_runs_then_chat_starts_one_and_ends_it(tmp_path: Path) -> None:
    ended = deskside("--data-dir", str(tmp_path), "chat", "--max-tokens", "4", "Say hi.")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
    assert not (tmp_path / "run" / "host.json").exists()
    left = [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in (process.info["cmdline"] or [])]
    assert left == []


def test_when_serve_has_a_key_then_only_the_key_opens_it_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    program = Served(tmp_path, "--api-key", "open-sesame", "--ctx", "512", "--parallel", "1")
    try:
        assert "Authorization: Bearer open-sesame" in program.curl
        assert httpx.get(f"{program.base}/models", timeout=PATIENCE_S).status_code == 401
        done = program.post(
            "completions",
            {"model": "smollm2-135m-instruct-q4_1", "prompt": "1, 2,", "max_tokens": 2},
            Authorization="Bearer open-sesame",
        )
        assert done["object"] == "text_completion"
        assert program.end() == 0
        assert "Stopped." in "".join(program.said)
    finally:
        program.kill()


def test_when_there_is_no_display_then_the_window_becomes_a_server(tmp_path: Path) -> None:
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    busy = any(connection.laddr[1:2] == (1234,) for connection in psutil.net_connections("tcp"))
    if busy:
        pytest.skip("port 1234 is in use on this machine")
    program = Program("--data-dir", str(tmp_path), environ=dict.fromkeys(hidden, ""))
    try:
        assert "127.0.0.1:1234" in program.wait_for("curl ")
        assert "no display" in "".join(program.said)
        assert program.end(signal.SIGTERM) == 0
    finally:
        program.kill()


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_when_the_model_is_not_there_then_the_code_is_2_and_names_are_offered(tmp_path: Path, command: str) -> None:
    words = ("--port", "0") if command == "serve" else ("hi",)
    ended = deskside("--data-dir", str(tmp_path), command, "--model", "nonsuch", *words)
    assert ended.returncode == 2
    assert "nonsuch" in ended.stderr
    assert "smollm2" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_when_the_model_is_damaged_then_a_sentence_says_how(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model at all")
    ended = deskside("--data-dir", str(tmp_path / "data"), "serve", "--port", "0", "--model", str(broken))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("deskside: ")


class Pty:
    """`deskside` on a pseudo-terminal, as a person has it."""

    def __init__(self, *words: str) -> None:
        import pty

        self._master, slave = pty.openpty()
        environ = os.environ | {"NO_COLOR": "1", "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True
        )
        os.close(slave)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, words: str) -> None:
        """Read on until these words have come after what was waited for last."""
        import select

        deadline = time.monotonic() + PATIENCE_S
        while words not in self.text:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._master], [], [], max(0.0, left_s))
            assert ready, f"{words!r} never came: {self.text!r}"
            try:
                came = os.read(self._master, 65_536)
            except OSError:  # Linux: the other end is closed
                came = b""
            assert came, f"ended before {words!r} came: {self.text!r}"
            self.text += came.decode("utf-8", "replace")
        self.text = self.text.partition(words)[2]

    def close(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self._master)


def test_when_a_person_talks_then_ctrl_c_stops_the_answer_and_not_the_program(served: Served) -> None:
    terminal = Pty("--data-dir", str(served.data_dir), "chat", "--temperature", "0")
    try:
        terminal.wait_for("is ready")
        terminal.wait_for("> ")
        terminal.type("Say hello.\n")
        terminal.wait_for("tok/s")
        terminal.wait_for("first after")
        terminal.wait_for("> ")
        terminal.type(LONG_TASK.replace("\n", " ") + "\n")
        terminal.wait_for("7 8")
        terminal.wait_for(" 2")  # the answer is under way
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.wait_for("stopped")
        terminal.wait_for("> ")
        terminal.type(f"/save {served.data_dir / 'talk.md'}\n")
        terminal.wait_for("Saved as")
        terminal.wait_for("> ")
        terminal.type("/quit\n")
        assert terminal.close() == 0
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
    saved = (served.data_dir / "talk.md").read_text()
    assert saved.count("## You") == 2
    assert saved.count("## Model") == 2
    assert "Say hello." in (served.data_dir / "chat_history").read_text()
    assert served.process.poll() is None
