"""`deskside doctor`: what works here, what is missing, and what to do."""

import argparse

import msgspec

from runtime.cli import exit_codes
from runtime.cli.checks import Check, Report, State, examine
from runtime.cli.terminal import Style, Terminal, neutralise
from runtime.paths import DataFolder

_MARKS: dict[State, tuple[str, str, Style]] = {
    "ok": ("✓", "ok", "green"),
    "note": ("!", "note", "yellow"),
    "problem": ("✗", "problem", "red"),
}


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Print the findings; the code tells whether Deskside can work here."""
    if not parsed.json and terminal.err_is_tty:
        terminal.err.write("Looking...\r")
        terminal.err.flush()
    report = examine(data)
    if parsed.json:
        terminal.line(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print(report, terminal)
    return exit_codes.OK if report.works else exit_codes.FAILURE


def _print(report: Report, terminal: Terminal) -> None:
    terminal.line(f"Deskside {report.version}", "bold")
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        for line in _lines(check, width, terminal):
            terminal.line(line)
    problems = sum(check.state == "problem" for check in report.checks)
    notes = sum(check.state == "note" for check in report.checks)
    if problems:
        terminal.line(f"{_count(problems, 'problem')} to solve.", "red")
    elif notes:
        terminal.line(f"Deskside works here; {_count(notes, 'note')} above.", "green")
    else:
        terminal.line("Everything works.", "green")


def _lines(check: Check, width: int, terminal: Terminal) -> list[str]:
    mark, word, style = _MARKS[check.state]
    shown = mark if (terminal.out.encoding or "").lower().replace("-", "") == "utf8" else word
    lines = [f"{terminal.paint(shown, style)} {check.name.ljust(width)}  {neutralise(check.found)}"]
    if check.advice:
        indent = " " * (len(shown) + 1 + width + 2)
        lines.append(f"{indent}{terminal.paint(neutralise(check.advice), 'bold')}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
