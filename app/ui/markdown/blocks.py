"""Blocks: what a piece of Markdown shows, as values. Flat, in reading order; nesting is told by `Place`."""

from dataclasses import dataclass, field
from typing import Literal

Gap = Literal["none", "tight", "block", "heading"]
"""Space before a block; the first block of an answer has none."""

Align = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one style. With `tex` it is an inline formula (and `text` its source as written)."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    strike: bool = False
    href: str = ""
    tex: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands: `path` has a `q` for each quote and an `l` for each list around it, outermost first.

    `marker` is set on the first block of a list item: a bullet, a number, or `[ ]` and `[x]` for a task.
    """

    path: str = ""
    marker: str = ""
    gap: Gap = "block"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph (`level` 0) or a heading (1..6)."""

    runs: tuple[Run, ...]
    level: int = 0
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Code with the language written at its fence; `closed` is false while it streams."""

    code: str
    language: str = ""
    closed: bool = True
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table. With `continues` it has no header of its own and takes the widths of the table above."""

    header: tuple[tuple[Run, ...], ...]
    rows: tuple[tuple[tuple[Run, ...], ...], ...]
    aligns: tuple[Align, ...]
    continues: bool = False
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class MathBlock:
    """A formula on lines of its own."""

    tex: str
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class RuleBlock:
    """A thematic break."""

    place: Place = field(default_factory=Place)


Block = TextBlock | CodeBlock | TableBlock | MathBlock | RuleBlock


def plain_text(runs: tuple[Run, ...]) -> str:
    """The text of runs without styles."""
    return "".join(run.text for run in runs)
