"""Text that is still coming in, read by code that looks like it were all there.

A reader is a generator: where it needs more text than has come, it yields, and goes on once it is fed. Nothing is
read twice, so a long answer costs no more than its length.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

_SPACE = " \t\r\n"
_NAME_ENDS = re.compile(r"""[\s\[\]<>{}()"'`:;=,|\uff5c]""")
_PARTS = re.compile(r"\{index\}|\{id\}|\s+|(?<=[>\]])|(?=[<\[])")
"""What stands between the fixed pieces of a form: a number, an id, white space, or the border of a mark."""
_TO_CLOSE = re.compile(r'["{}\[\]]')
_TO_QUOTE = re.compile(r'["\\]')
MAX_NAME_CHARS = 256
MAX_DEPTH = 200
"""Nested values in the arguments of a call."""


class Unreadable(Exception):
    """The text is not what the reader expected."""


class Source:
    """The text and the place in it. Home thread: the one that feeds it.

    Attributes:
        text: what has come and is not dropped yet.
        at: the place.
        ended: nothing more will come.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def feed(self, text: str) -> None:
        """Add text."""
        self.text += text

    def drop_read(self) -> None:
        """Forget what lies before the place."""
        self.text = self.text[self.at :]
        self.at = 0

    def more(self) -> Reading[None]:
        """Wait for more text; `Unreadable` when none will come."""
        if self.ended:
            raise Unreadable
        yield

    def here(self) -> Reading[str]:
        """The next character, not taken."""
        while self.at >= len(self.text):
            yield from self.more()
        return self.text[self.at]

    def is_over(self) -> Reading[bool]:
        """Whether nothing but white space follows, ever."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return False
            if self.ended:
                return True
            yield

    def literal(self, text: str) -> Reading[bool]:
        """Take exactly this text; False, and nothing taken, if another follows."""
        while len(self.text) - self.at < len(text):
            if self.ended or not text.startswith(self.text[self.at :]):
                return False
            yield
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def form(self, form: str) -> Reading[bool]:
        """Take a text of a `ToolFormat`; False as `literal`.

        White space is taken as it comes, any number for `{index}`, any letters and digits for `{id}`.
        """
        start, done = self.at, 0
        for part in (*_PARTS.finditer(form), None):
            fixed = form[done : part.start() if part else None]
            if fixed:
                # Between two marks there may be white space that the form does not have.
                yield from self.is_over()
                if not (yield from self.literal(fixed)):
                    self.at = start
                    return False
            if part is None:
                break
            done = part.end()
            if part.group() == "{index}" and not (yield from self._run_of(str.isdecimal)):
                self.at = start
                return False
            if part.group() == "{id}":
                yield from self._run_of(str.isalnum)
        return True

    def one_of(self, forms: Sequence[str]) -> Reading[bool]:
        """Take the first of these that follows."""
        for form in forms:
            if (yield from self.form(form)):
                return True
        return False

    def _run_of(self, belongs: Callable[[str], bool]) -> Reading[bool]:
        start = self.at
        while True:
            if self.at >= len(self.text):
                if self.ended:
                    break
                yield
                continue
            if not belongs(self.text[self.at]):
                break
            self.at += 1
        return self.at > start

    def until(self, marks: Sequence[str]) -> Reading[str]:
        """Take the text up to the nearest of these marks, which is left; `Unreadable` if there is none."""
        start = looked = self.at
        longest = max(map(len, marks))
        while True:
            places = [place for mark in marks if (place := self.text.find(mark, looked)) >= 0]
            if places:
                self.at = min(places)
                return self.text[start : self.at]
            looked = max(start, len(self.text) - longest + 1)
            yield from self.more()

    def name(self) -> Reading[str]:
        """Take a function's name."""
        yield from self.is_over()
        start = looked = self.at
        while True:
            end = _NAME_ENDS.search(self.text, looked)
            if end is not None or self.ended or len(self.text) - start > MAX_NAME_CHARS:
                break
            looked = len(self.text)
            yield
        self.at = end.start() if end else len(self.text)
        name = self.text[start : self.at]
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise Unreadable
        return name

    def json(self) -> Reading[str]:
        """Take a JSON object or list; only its brackets and strings are looked at."""
        yield from self.is_over()
        start, depth = self.at, 0
        if (yield from self.here()) not in "{[":
            raise Unreadable
        while True:
            found = _TO_CLOSE.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
                yield from self.more()
                continue
            if found.group() == '"':
                self.at = found.start()
                yield from self.string()
                continue
            self.at = found.end()
            depth += 1 if found.group() in "{[" else -1
            if depth > MAX_DEPTH:
                raise Unreadable
            if depth == 0:
                return self.text[start : self.at]

    def string(self) -> Reading[str]:
        """Take a JSON string, which begins here; quotes and escapes are kept."""
        start = self.at
        self.at += 1
        while True:
            found = _TO_QUOTE.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
                yield from self.more()
            elif found.group() == '"':
                self.at = found.end()
                return self.text[start : self.at]
            else:
                while len(self.text) < found.end() + 1:
                    yield from self.more()
                self.at = found.end() + 1


def fixed_part(form: str) -> str:
    """The first mark of a text of a `ToolFormat`, by which its place is found."""
    words = [word for word in _PARTS.split(form) if word]
    return words[0] if words else ""
