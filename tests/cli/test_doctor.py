import argparse
import io
import json
from pathlib import Path

import pytest

from runtime.cli import doctor
from runtime.cli.checks import Check, Report
from runtime.cli.terminal import Terminal
from runtime.paths import DataFolder

GOOD = Report(
    "0.1.0", works=True, checks=(Check("Python", "ok", "3.11"), Check("Display", "note", "none", "Use chat."))
)
BAD = Report("0.1.0", works=False, checks=(Check("llama.cpp", "problem", "It ended: \x1b[2J", "Set it up again."),))


class Utf8(io.StringIO):
    encoding = "utf-8"


def run(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *, as_json: bool = False
) -> int:
    monkeypatch.setattr(doctor, "examine", lambda _: report)
    terminal = Terminal(out, io.StringIO(), {})
    return doctor.run(argparse.Namespace(json=as_json), DataFolder(tmp_path), terminal)


def test_when_it_works_then_the_code_is_0_and_notes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Utf8()
    assert run(GOOD, tmp_path, monkeypatch, out) == 0
    assert "✓ Python" in out.getvalue()
    assert "Use chat." in out.getvalue()
    assert "1 note above" in out.getvalue()


def test_when_something_is_broken_then_the_code_is_1_and_the_advice_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    assert run(BAD, tmp_path, monkeypatch, out) == 1
    text = out.getvalue()
    assert "problem llama.cpp" in text  # no encoding is known here, so words stand for the marks
    assert "␛[2J" in text
    assert "Set it up again." in text
    assert "1 problem to solve." in text


def test_when_json_is_asked_for_then_it_is_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    assert run(BAD, tmp_path, monkeypatch, out, as_json=True) == 1
    report = json.loads(out.getvalue())
    assert report["works"] is False
    assert report["checks"][0]["state"] == "problem"
