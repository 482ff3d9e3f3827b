"""Markdown fences around text that may hold fences itself. No Qt here."""

import re


def fenced(text: str, language: str = "") -> str:
    """A text in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"
