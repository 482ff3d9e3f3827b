"""What a template may take of time and memory while it renders.

Python makes a text at once and whole: a `join` or `replace` with large parts, some of them named a thousand times,
takes gigabytes before anyone sees how long the result is. So the length is worked out from the parts, and refused
before. All that is made in one render has a bound together, and each step that may take a moment looks at the clock.
"""

import datetime
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

from jinja2 import TemplateError

MAX_MADE = 64
"""Characters that a render may make altogether, as a multiple of what it may say. A template that puts a conversation
together turn by turn makes its text many times."""
MAX_BITS = 4096
"""Of a whole number."""
_MAX_EXPONENT = 64
_TICKS_PER_LOOK = 32
_SMALL = 256
"""Shorter texts and lists are not counted one by one."""
_ITEM_CHARS = 8
_MAX_DEEP = 100_000
"""Parts of a value that are looked at to learn how long its text is."""
_MAX_INDENT = 64


@dataclass(slots=True)
class Render:
    """Limits of one render, the one time it sees, and the ids of the lists it was given."""

    deadline: float
    limit_s: float
    max_chars: int
    now: datetime.datetime
    given: frozenset[int] = frozenset()
    ticks: int = 0
    made_chars: int = 0


current: ContextVar[Render] = ContextVar("current")


class Limit(TemplateError):
    """The template went over a limit."""


def tick() -> str:
    """Called at the start of each round of a loop and each call of a macro."""
    render = current.get()
    render.ticks += 1
    if render.ticks % _TICKS_PER_LOOK == 0:
        look_at_clock(render)
    return ""


def look_at_clock(render: Render) -> None:
    """Stop a template that ran too long."""
    if time.monotonic() > render.deadline:
        raise Limit(f"it ran for more than {render.limit_s:g} seconds")


def bounded(value: object) -> object:
    """Pass on what a template made, unless it is too long, or one thing too many."""
    render = current.get()
    if isinstance(value, str | bytes | list | tuple):
        n_items = len(value)
        if n_items > render.max_chars:
            raise Limit("its text grows without end")
        if n_items > _SMALL:
            look_at_clock(render)
            render.made_chars += n_items * (1 if isinstance(value, str | bytes) else _ITEM_CHARS)
            if render.made_chars > MAX_MADE * render.max_chars:
                raise Limit("it makes text without end")
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Limit("it makes a number without end")
    return value


def check_length(n_chars: int) -> None:
    """Refuse what would be too long."""
    if n_chars > current.get().max_chars:
        raise Limit("its text grows without end")


def concat(parts: Iterable[str]) -> str:
    """Join texts, as Jinja does for blocks and macros."""
    listed = parts if isinstance(parts, list) else list(parts)
    check_length(sum(map(len, listed)))
    text = "".join(listed)
    bounded(text)
    return text


def concat_any(*parts: object) -> str:
    """Jinja's `~`."""
    return concat([part if isinstance(part, str) else _text(part) for part in parts])


def _text(value: object) -> str:
    check_length(_deep_length(value))
    return str(value)


def check_binop(operator: str, left: object, right: object) -> None:
    """Refuse what an operator would make too long."""
    if operator == "*":
        for many, what in ((left, right), (right, left)):
            if isinstance(what, str | list | tuple) and isinstance(many, int) and many > 0:
                check_length(len(what) * many)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    elif operator == "**":
        if not (isinstance(right, int | float) and abs(right) <= _MAX_EXPONENT):
            raise Limit("it raises a number to a huge power")
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * abs(right))
    elif operator == "%" and isinstance(left, str):
        _check_fields(left, "%", right)
    elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        check_length(len(left) + len(right))


def _check_bits(n_bits: int) -> None:
    if n_bits > MAX_BITS:
        raise Limit("it makes a number without end")


def check_string_call(owner: str, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Refuse what a text's own method would make too long."""
    if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, int):
                check_length(argument * (owner.count("\t") if name == "expandtabs" else 1))
    elif name == "replace":
        _check_replace(owner, args)
    elif name == "join":
        _check_join(owner, args)
    elif name == "translate":
        longest = max((_deep_length(argument) for argument in args), default=0)
        check_length(len(owner) * max(longest, 1))
    elif name in ("format", "format_map"):
        _check_fields(owner, "{", [*args, *kwargs.values()])


def listed(args: Sequence[object]) -> tuple[object, ...]:
    """Arguments of a `join`: what can only be gone through once becomes a list, so that it can be counted first."""
    most = current.get().max_chars + 1
    return tuple(bounded(list(islice(value, most))) if isinstance(value, Iterator) else value for value in args)


def check_filter(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Refuse what a filter would make too long. `args` begins with what it is applied to."""
    look_at_clock(current.get())
    value = args[0] if args else ""
    for argument in (*args[1:], *kwargs.values()):
        if isinstance(argument, int) and not isinstance(argument, bool):
            check_length(argument)
    if name == "join":
        _check_join(str(_argument(args, kwargs, 1, "d") or ""), (value,))
    elif name == "replace":
        _check_replace(str(value), [kwargs[key] for key in ("old", "new") if key in kwargs] or args[1:])
    elif name == "format":
        _check_fields(str(value), "%", [*args[1:], *kwargs.values()])
    elif name == "indent":
        width = _argument(args, kwargs, 1, "width")
        n_chars = len(width) if isinstance(width, str) else width if isinstance(width, int) else 0
        check_length((str(value).count("\n") + 1) * n_chars)
    elif name == "tojson":
        for argument in (*args[1:], *kwargs.values()):
            n_chars = argument if isinstance(argument, int) else _deep_length(argument)
            if n_chars > _MAX_INDENT:
                raise Limit("it asks for an endless width")


def _argument(args: Sequence[object], kwargs: Mapping[str, object], place: int, name: str) -> object:
    return args[place] if len(args) > place else kwargs.get(name)


def _check_join(between: str, args: Sequence[object]) -> None:
    parts = args[0] if args else ()
    if isinstance(parts, Sequence):
        check_length(_deep_length(parts) + len(between) * max(0, len(parts) - 1))


def _check_replace(owner: str, args: Sequence[object]) -> None:
    texts = [str(argument) for argument in args[:2]]
    if len(texts) > 1:
        found = owner.count(texts[0]) if texts[0] else len(owner) + 1
        check_length(len(owner) + found * len(texts[1]))


def _check_fields(pattern: str, mark: str, values: object) -> None:
    """Refuse a width or precision of more than six digits, and large values named many times."""
    digits = 0
    for character in pattern:
        digits = digits + 1 if character.isdigit() else 0
        if digits > 6 or (character == "*" and mark == "%"):  # noqa: PLR2004 - a million characters is enough
            raise Limit("it asks for an endless width")
    check_length(len(pattern) + pattern.count(mark) * _deep_length(values))


def _deep_length(value: object) -> int:
    """About how many characters a value takes as text, from above; looks at a bounded number of parts."""
    total = 0
    waiting: list[object] = [value]
    left = _MAX_DEEP
    while waiting:
        left -= 1
        if left < 0:
            raise Limit("it makes text of too many parts")
        item = waiting.pop()
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, Mapping):
            waiting += item.keys()
            waiting += item.values()
            total += 4 * len(item)
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += islice(item, left + 1)
            total += 4 * len(item)
        elif isinstance(item, int):
            total += item.bit_length() // 3 + 2
        else:
            total += 32
    return total
