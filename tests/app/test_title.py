"""Titles from questions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.title import MAX_TITLE_CHARS, title_from


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("\n\n  Hello   world \nmore", "Hello world"),
        ("## Heading", "Heading"),
        ("```\ncode here", "code here"),
        (
            "Please explain the difference between a process and a thread to me",
            "Please explain the difference between a process…",
        ),
        ("x" * 100, "x" * MAX_TITLE_CHARS + "…"),
    ],
)
def test_when_given_a_question_then_its_first_words_are_the_title(text: str, title: str) -> None:
    assert title_from(text) == title


@given(st.text(max_size=300))
def test_when_given_any_text_then_the_title_is_one_short_line(text: str) -> None:
    title = title_from(text)
    assert len(title) <= MAX_TITLE_CHARS + 1
    assert len(title.splitlines()) <= 1
