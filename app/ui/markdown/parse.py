"""Parses one segment into blocks. HTML stays text, images become links: nothing is ever fetched by drawing."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.texmath import texmath_plugin

from app.ui.markdown.blocks import Align, Block, CodeBlock, Gap, MathBlock, Place, RuleBlock, Run, TableBlock, TextBlock
from app.ui.markdown.segments import Segment

MAX_DEPTH = 12
"""Deepest nesting of lists and quotes that is indented; deeper ones stand at this depth."""

_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]]")
_ALIGNS: dict[str, Align] = {"text-align:center": "center", "text-align:right": "right"}


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 40})
    made.enable(["table", "strikethrough"])
    made.disable(["html_block", "html_inline", "reference"])
    made.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    made.use(texmath_plugin, delimiters="brackets")
    return made


def parse_segment(segment: Segment) -> list[Block]:
    """The blocks of a segment; an open one is mended, so that a half-written `**bold` already shows bold."""
    gap: Gap = "none" if segment.continues else "block"
    if segment.kind == "fence":
        return [CodeBlock(segment.text, segment.info.split(" ")[0].lower(), segment.closed)]
    if segment.kind == "math":
        return [_display_math(segment)]
    source = segment.text if segment.closed else mend(segment.text)
    if segment.header:
        source = f"{segment.header}\n{source}"
    blocks = _Reader(_parser().parse(source)).read()
    if blocks:
        first = blocks[0]
        blocks[0] = replace(first, place=replace(first.place, gap=gap if segment.continues else first.place.gap))
        if segment.header and isinstance(first, TableBlock):
            blocks[0] = replace(first, continues=True, header=(), place=replace(first.place, gap="none"))
    return blocks


def plain_blocks(segment: Segment) -> list[Block]:
    """What a person typed: fences are code, all else is shown as written."""
    if segment.kind == "fence":
        return [CodeBlock(segment.text, segment.info.split(" ")[0].lower(), closed=True)]
    return [TextBlock((Run(segment.text.strip("\n")),), place=Place(gap="none" if segment.continues else "block"))]


def mend(text: str) -> str:
    """Close what a half-written end leaves open: emphasis, code, a link."""
    body = text.rstrip()
    stripped = body.rstrip("*_~`")
    if stripped != body and (not stripped or stripped[-1].isspace()):
        body = stripped
    line = body.rpartition("\n\n")[2]
    if line.count("`") % 2:
        return body + "`"
    outside = "".join(part for at, part in enumerate(line.split("`")) if at % 2 == 0)
    if outside.count("**") % 2:
        body = body.removesuffix("*") + "**" if body.endswith("*") and not body.endswith("**") else body + "**"
    if outside.count("~~") % 2:
        body += "~~"
    opening = outside.rfind("](")
    if opening >= 0 and ")" not in outside[opening:]:
        body += ")"
    return body


def _display_math(segment: Segment) -> Block:
    tex = segment.text.strip()
    for opening, closing in (("$$", "$$"), ("\\[", "\\]")):
        if tex.startswith(opening):
            tex = tex[len(opening) :]
            ended = tex.endswith(closing)
            tex = tex.removesuffix(closing).strip()
            if ended and tex:
                return MathBlock(tex)
    return CodeBlock(segment.text, "latex", segment.closed)


class _Reader:
    """Walks markdown-it's tokens once and writes flat blocks."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._path = ""
        self._markers: list[str] = []
        self._numbers: list[int] = []
        self._tight: list[bool] = []
        self._blocks: list[Block] = []
        self._fresh_list = False

    def read(self) -> list[Block]:
        """All blocks."""
        at = 0
        while at < len(self._tokens):
            token = self._tokens[at]
            if token.type == "table_open":
                end = next(i for i in range(at, len(self._tokens)) if self._tokens[i].type == "table_close")
                self._table(self._tokens[at:end])
                at = end
            else:
                self._token(token, at)
            at += 1
        return self._blocks

    def _place(self, gap: Gap = "block") -> Place:
        marker, self._markers = (self._markers[-1], []) if self._markers else ("", [])
        fresh, self._fresh_list = self._fresh_list, False
        if self._path.endswith("l") and self._tight and self._tight[-1] and not (fresh and self._path == "l"):
            gap = "tight"
        return Place(self._path[:MAX_DEPTH], marker, gap)

    def _token(self, token: Token, at: int) -> None:
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            self._open_list(token, at)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._path = self._path[:-1]
            self._numbers.pop()
            self._tight.pop()
        elif kind == "list_item_open":
            self._open_item()
        elif kind == "list_item_close":
            if self._markers:  # an item without text
                self._blocks.append(TextBlock((), place=self._place()))
        elif kind == "blockquote_open":
            self._path += "q"
        elif kind == "blockquote_close":
            self._path = self._path[:-1]
        elif kind == "inline":
            self._inline(token, self._tokens[at - 1])
        elif kind in ("fence", "code_block"):
            self._blocks.append(
                CodeBlock(
                    token.content.removesuffix("\n"), token.info.strip().split(" ")[0].lower(), place=self._place()
                )
            )
        elif kind == "hr":
            self._blocks.append(RuleBlock(self._place()))
        elif kind.startswith("math_block") or kind == "amsmath":
            self._blocks.append(MathBlock(token.content.strip(), self._place()))

    def _open_list(self, token: Token, at: int) -> None:
        self._path += "l"
        self._fresh_list = True
        start = token.attrGet("start")
        self._numbers.append(int(start) if start is not None else (1 if token.type == "ordered_list_open" else -1))
        depth = token.level
        inner = (each for each in self._tokens[at:] if each.type == "paragraph_open" and each.level > depth)
        first = next(inner, None)
        self._tight.append(first is None or first.hidden)

    def _open_item(self) -> None:
        number = self._numbers[-1]
        if number < 0:
            bullets = "•◦▪"
            self._markers = [bullets[min(self._path.count("l"), len(bullets)) - 1]]
        else:
            self._markers = [f"{number}."]
            self._numbers[-1] += 1

    def _inline(self, token: Token, before: Token) -> None:
        runs = tuple(_runs(token.children or []))
        level = int(before.tag[1]) if before.type == "heading_open" else 0
        place = self._place("heading" if level else "block")
        if place.marker and runs and runs[0].text[:4].lower() in ("[ ] ", "[x] "):
            place = replace(place, marker=runs[0].text[:3].lower())
            runs = (replace(runs[0], text=runs[0].text[4:]), *runs[1:])
        self._blocks.append(TextBlock(runs, level, place))

    def _table(self, tokens: list[Token]) -> None:
        rows: list[list[tuple[Run, ...]]] = []
        aligns: list[Align] = []
        for before, token in pairwise(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(tuple(_runs(token.children or [])))
                if len(rows) == 1:
                    aligns.append(_ALIGNS.get(str(before.attrGet("style") or ""), "left"))
        header, *body = rows or [[]]
        self._blocks.append(
            TableBlock(tuple(header), tuple(tuple(row) for row in body), tuple(aligns), place=self._place())
        )


def _with_addresses(run: Run) -> Iterator[Run]:
    """A bare web address in the text becomes a link."""
    if run.href or "://" not in run.text:
        yield run
        return
    at = 0
    for found in _ADDRESS.finditer(run.text):
        if found.start() > at:
            yield replace(run, text=run.text[at : found.start()])
        yield replace(run, text=found.group(), href=found.group())
        at = found.end()
    if at < len(run.text):
        yield replace(run, text=run.text[at:])


def _runs(children: list[Token]) -> Iterator[Run]:
    bold = italic = strike = 0
    href = ""
    for token in children:
        kind = token.type
        style = Run("", bold > 0, italic > 0, strike=strike > 0, href=href)
        if kind == "text" and token.content:
            yield from _with_addresses(replace(style, text=token.content))
        elif kind == "softbreak":
            yield replace(style, text=" ")
        elif kind == "hardbreak":
            yield replace(style, text="\u2028")
        elif kind == "code_inline":
            yield replace(style, text=token.content, code=True)
        elif kind.startswith("math_"):
            yield replace(style, text=token.content, tex=token.content.strip())
        elif kind == "image":
            yield replace(style, text=token.content or str(token.attrGet("src")), href=str(token.attrGet("src") or ""))
        elif kind in ("strong_open", "strong_close"):
            bold += token.nesting
        elif kind in ("em_open", "em_close"):
            italic += token.nesting
        elif kind in ("s_open", "s_close"):
            strike += token.nesting
        elif kind == "link_open":
            href = str(token.attrGet("href") or "")
        elif kind == "link_close":
            href = ""
