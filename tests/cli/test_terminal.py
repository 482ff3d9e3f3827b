import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.cli.terminal import ProgressBar, Terminal, neutralise, table, wants_colour


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(out: io.StringIO, err: io.StringIO, **environ: str) -> Terminal:
    return Terminal(out, err, environ)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", "␛[2J␛]0;owned␇"),
        ("a\r\nb\tc\n", "a\nb\tc\n"),
        ("hidden\rshown", "hidden␍shown"),
        ("\x9b31m", "\ufffd31m"),
        ("\x7f\x00", "␡␀"),
        ("safe\u202egnp.exe", "safe\ufffdgnp.exe"),
        ("\ud800", "\ufffd"),
        ("héllo 👋 世界", "héllo 👋 世界"),
    ],
)
def test_when_text_could_steer_the_terminal_then_it_is_shown_instead(text: str, shown: str) -> None:
    assert neutralise(text) == shown


@given(st.text())
def test_when_any_text_is_neutralised_then_no_control_but_line_feed_and_tab_is_left(text: str) -> None:
    shown = neutralise(text)
    assert all(ord(c) >= 0x20 or c in "\n\t" for c in shown)
    assert not any(0x7F <= ord(c) < 0xA0 for c in shown)
    shown.encode("utf-8")


def test_when_output_is_a_terminal_then_it_is_coloured() -> None:
    assert terminal(Tty(), Tty()).paint("x", "red", "bold") == "\x1b[31;1mx\x1b[0m"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_when_colour_is_not_wanted_then_there_is_none(environ: dict[str, str]) -> None:
    assert not wants_colour(Tty(), environ)


def test_when_output_is_a_pipe_then_there_is_no_colour() -> None:
    assert terminal(io.StringIO(), io.StringIO()).paint("x", "red") == "x"


def test_when_an_error_is_told_then_it_goes_to_standard_error_neutralised() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal(out, err).error("bad \x1b[2J", "do this")
    assert out.getvalue() == ""
    assert err.getvalue() == "deskside: bad ␛[2J\n  do this\n"


def test_when_progress_is_shown_on_a_terminal_then_one_line_fills_up() -> None:
    err = Tty()
    bar = ProgressBar(terminal(io.StringIO(), err, NO_COLOR="1"))
    bar.show("Loading", 0.5)
    bar.show("Loading", 0.501)  # nothing to see
    assert err.getvalue().count("\r") == 1
    assert " 50 %" in err.getvalue()
    bar.clear()
    assert err.getvalue().endswith("\r\x1b[K")


def test_when_progress_is_shown_in_a_log_then_it_is_a_few_lines() -> None:
    err = io.StringIO()
    bar = ProgressBar(terminal(io.StringIO(), err))
    for percent in range(101):
        bar.show("Loading", percent / 100)
    assert err.getvalue().splitlines() == [f"Loading {percent} %" for percent in (0, 25, 50, 75, 100)]


def test_when_rows_are_printed_then_columns_line_up() -> None:
    lines = table([("name", "size"), ("a", "1.0 GB"), ("longer", "98 MB")], right=frozenset({1}))
    assert lines == ["name      size", "a       1.0 GB", "longer   98 MB"]
    assert table([]) == []
