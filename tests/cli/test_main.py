"""The program as a person starts it: real processes, their output and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runtime import __version__
from runtime.messages.hardware import HardwareSample

COMMAND = (sys.executable, "-W", "error", "-m", "runtime.cli.main")


def deskside(tmp_path: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        env=os.environ | {"DESKSIDE_DATA_DIR": str(tmp_path / "data")} | environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_when_the_version_is_asked_for_then_it_is_told(tmp_path: Path) -> None:
    assert deskside(tmp_path, "--version").stdout == f"deskside {__version__}\n"


def test_when_help_is_shown_then_no_heavy_package_is_loaded(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "runtime.cli.main", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    heavy = {"llama_cpp", "PySide6", "starlette", "uvicorn", "httpx", "transformers", "numpy", "psutil", "pynvml"}
    assert not loaded & heavy
    assert not (tmp_path / "data").exists()


def test_when_hardware_is_asked_for_json_then_it_is_a_reading(tmp_path: Path) -> None:
    ended = deskside(tmp_path, "hardware", "--json")
    assert ended.returncode == 0
    sample = msgspec.json.decode(ended.stdout, type=HardwareSample)
    assert sample.cpu.cores_logical == os.cpu_count()
    assert sample.cpu.utilisation_percent is not None


def test_when_hardware_is_printed_then_what_is_missing_says_so(tmp_path: Path) -> None:
    ended = deskside(tmp_path, "hardware")
    assert ended.returncode == 0
    assert "Memory" in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_when_hardware_is_watched_then_it_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--data-dir", str(tmp_path), "hardware", "--watch", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first, second = (json.loads(process.stdout.readline()) for _ in range(2))
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(30) == 0
    assert second["at_s"] - first["at_s"] == pytest.approx(1, abs=0.7)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell pipe")
def test_when_the_reader_of_the_output_leaves_then_nothing_is_said(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--data-dir", str(tmp_path), "hardware", "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert said == ""


def test_when_the_data_folder_is_a_file_then_a_sentence_says_so(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.touch()
    ended = deskside(tmp_path, "hardware", "--data-dir", str(target))
    assert ended.returncode == 1
    assert "is a file" in ended.stderr
    assert "--data-dir" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x", "x" * 5000])
def test_when_the_data_folder_is_no_path_then_a_sentence_says_so(name: str, tmp_path: Path) -> None:
    ended = deskside(tmp_path, "models", "--data-dir", name)
    assert ended.returncode == 1
    assert "The data folder cannot be used" in ended.stderr
    assert "went wrong" not in ended.stderr


def test_when_debug_is_given_then_the_origin_of_an_error_is_shown(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.touch()
    assert "Traceback" in deskside(tmp_path, "--debug", "--data-dir", str(target), "hardware").stderr
