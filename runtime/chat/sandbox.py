"""Runs a model's Jinja template: code from the internet, so with a sandbox, a clock and a size limit.

Jinja's immutable sandbox keeps a template from Python's insides and from changing what it is given. It does not
keep it from running for ever or filling the memory; that is added here: loops and macros are made to look at the
clock, and whatever can make a text longer is checked against a limit. The dialect is the one templates are written
for (transformers' `apply_chat_template`): trimmed blocks, loop controls, `tojson` without HTML escapes,
`raise_exception`, `strftime_now` and the `generation` block.
"""

import datetime
import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from runtime.errors import TemplateRefused

RENDER_LIMIT_S = 5.0
"""A thousand turns render in some 20 ms; this is for templates that never end."""
MAX_ADDED_CHARS = 8 * 1024 * 1024
"""A rendered conversation may be this much longer than four times its messages."""
MAX_LIST = 100_000
"""Items a template may put in a list of its own."""
MAX_TEMPLATE_CHARS = 1024 * 1024
"""The longest known templates are under 100,000 characters."""
_MAX_EXPONENT = 64
_TICKS_PER_LOOK = 32

TemplateValue = str | int | float | bool | None | list["TemplateValue"] | dict[str, "TemplateValue"]

_FAILURES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What Python raises when a template does something that makes no sense."""


@dataclass(slots=True)
class _Render:
    """Limits of one render, the one time it sees, and the ids of the lists it was given."""

    deadline: float
    max_chars: int
    now: datetime.datetime
    given: frozenset[int] = frozenset()
    ticks: int = 0


_render: ContextVar[_Render] = ContextVar("_render")


class _Limit(TemplateError):
    """The template went over a limit."""


def _tick() -> str:
    """Called at the start of each round of a loop and each call of a macro."""
    render = _render.get()
    render.ticks += 1
    if render.ticks % _TICKS_PER_LOOK == 0 and time.monotonic() > render.deadline:
        raise _Limit(f"it ran for more than {RENDER_LIMIT_S:g} seconds")
    return ""


def _bounded(value: object) -> object:
    """Pass a value on unless it is too long."""
    if isinstance(value, str | list | tuple | bytes) and len(value) > _render.get().max_chars:
        raise _Limit("its text grows without end")
    return value


def _concat(*parts: object) -> str:
    text = "".join([str(part) for part in parts])
    _bounded(text)
    return text


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return _render.get().now.strftime(pattern)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, Iterator):  # what `map` and `select` give
        value = list(value)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    # The guard's marks (runtime.chat.guard) must stay marks; escaped, what stands between them would lose them.
    return text.replace("\\ufdd0", "\ufdd0").replace("\\ufdd1", "\ufdd1") if ensure_ascii else text


class _Namespace(Namespace):
    """Jinja's `namespace`, without names that mean something to Python."""

    def __init__(self, /, *args: object, **kwargs: object) -> None:
        values = dict(*args, **kwargs)
        for name in values:
            _check_name(name)
        super().__init__(values)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"the name {name!r} is not allowed in a namespace")


class _GenerationBlock(Extension):
    """`{% generation %}` marks the answer for training; for rendering it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the name and kind are Jinja's

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Keep what is inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        self.tick = _tick
        self.concat_bounded = _concat
        del self.globals["lipsum"]
        self.globals["namespace"] = _Namespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.filters["tojson"] = _tojson
        self.filters = {name: _bounded_filter(function) for name, function in self.filters.items()}
        self.filters["_bounded"] = _bounded

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Let the template change a list of its own (Kimi's templates do)."""
        if attr in ("append", "pop") and type(obj) is list and id(obj) not in _render.get().given:
            return True
        return bool(super().is_safe_attribute(obj, attr, value))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Refuse what would be too long before it is made."""
        if operator == "*":
            for many, what in ((left, right), (right, left)):
                if isinstance(what, str | list | tuple) and isinstance(many, int):
                    _bounded(range(0)) if many <= 0 else _check_length(len(what) * many)
        elif operator == "**" and not (isinstance(right, int | float) and abs(right) <= _MAX_EXPONENT):
            raise _Limit("it raises a number to a huge power")
        elif operator == "%" and isinstance(left, str):
            _check_width(left)
        return _bounded(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: object, /, *args: object, **kwargs: object) -> object:  # noqa: N805
        """Call with a look at numbers that become lengths (`ljust`, `zfill`, `replace`) and at the result."""
        # Jinja wraps `str.format`; what it wraps knows its string.
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(owner, str):
            _check_string_call(owner, getattr(__obj, "__name__", ""), args)
        elif isinstance(owner, list) and len(owner) >= MAX_LIST:
            raise _Limit("it makes an endless list")
        return _bounded(super().call(__context, __obj, *args, **kwargs))

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        _add_limits(source, self)
        return super()._generate(source, name, filename, defer_init)


def _check_length(n_chars: int) -> None:
    if n_chars > _render.get().max_chars:
        raise _Limit("its text grows without end")


def _check_width(pattern: str) -> None:
    """Refuse a width or precision of more than six digits in a format string."""
    digits = 0
    for character in pattern:
        digits = digits + 1 if character.isdigit() else 0
        if digits > 6 or (character == "*" and "%" in pattern):  # noqa: PLR2004 - a million characters is enough
            raise _Limit("it asks for an endless width")


def _check_string_call(owner: str, name: str, args: tuple[object, ...]) -> None:
    if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        for argument in args:
            if isinstance(argument, int):
                tabs = owner.count("\t") if name == "expandtabs" else 1
                _check_length(argument * tabs)
    elif name == "replace":
        texts = [argument for argument in args if isinstance(argument, str)]
        if len(texts) > 1:
            _check_length(len(owner) + (len(owner) + 1) // max(len(texts[0]), 1) * len(texts[1]))
    elif name in ("format", "format_map"):
        _check_width(owner)


def _bounded_filter(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)  # keeps the marks by which Jinja knows what to hand in
    def checked(*args: object, **kwargs: object) -> object:
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, int) and not isinstance(argument, bool):
                _check_length(argument)
        return _bounded(function(*args, **kwargs))

    return checked


def _add_limits(template: nodes.Template, environment: _Environment) -> None:
    """Put a look at the clock into every loop and macro, and a limit on every joined text."""

    def tick() -> nodes.Node:
        call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        return nodes.Output([call])

    bodies = [loop.body for loop in template.find_all(nodes.For)]
    bodies += [macro.body for macro in template.find_all(nodes.Macro)]
    bodies += [block.body for block in template.find_all(nodes.CallBlock)]
    for body in bodies:
        body.insert(0, tick())
    for assignment in template.find_all(nodes.AssignBlock):
        assignment.filter = nodes.Filter(assignment.filter, "_bounded", [], [], None, None)
    _replace_concats(template)
    template.set_environment(environment)


def _replace_concats(node: nodes.Node) -> None:
    for field, value in list(node.iter_fields()):
        if isinstance(value, nodes.Concat):
            setattr(node, field, _bounded_concat(value))
        elif isinstance(value, list):
            value[:] = [_bounded_concat(item) if isinstance(item, nodes.Concat) else item for item in value]
    for child in node.iter_child_nodes():
        _replace_concats(child)


def _bounded_concat(concat: nodes.Concat) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute("concat_bounded"), concat.nodes, [], None, None, lineno=concat.lineno)


class SandboxedTemplate:
    """A compiled template. Home thread: any."""

    def __init__(self, text: str) -> None:
        """Compile.

        Raises:
            TemplateRefused: if it does not compile.
        """
        if len(text) > MAX_TEMPLATE_CHARS:
            raise TemplateRefused(f"The model's chat template is {len(text)} characters long; that is too long to run.")
        self.text = text
        try:
            self._template: Template = _Environment().from_string(text)
        except TemplateSyntaxError as error:
            raise TemplateRefused(
                f"The model's chat template is broken (line {error.lineno}): {error.message}",
                hint="Use another conversion of this model, or plain text completion.",
            ) from error
        except (*_FAILURES, TemplateError) as error:
            raise TemplateRefused(f"The model's chat template does not compile: {error}") from error

    def render(self, values: Mapping[str, TemplateValue], *, now: datetime.datetime, input_chars: int) -> str:
        """Render with `values` as variables.

        Args:
            values: plain data; the template cannot change it.
            now: what `strftime_now` tells, the same for all renders of one request.
            input_chars: characters of all texts in `values`; the limit grows with them.

        Raises:
            TemplateRefused: if the template refuses these values (with its own words), fails, or goes over a limit.
        """
        limit = MAX_ADDED_CHARS + 4 * input_chars
        given = frozenset(_list_ids(values.values())) if ".append" in self.text else frozenset()
        token = _render.set(_Render(time.monotonic() + RENDER_LIMIT_S, limit, now, given))
        parts: list[str] = []
        n_chars = 0
        try:
            for part in self._template.generate(values):
                n_chars += len(part)
                _check_length(n_chars)
                parts.append(part)
        except TemplateError as error:
            raise TemplateRefused(_sentence(error)) from error
        except _FAILURES as error:
            raise TemplateRefused(f"The model's chat template failed: {type(error).__name__}: {error}") from error
        finally:
            _render.reset(token)
        return "".join(parts)


def _list_ids(values: Iterable[TemplateValue]) -> Iterator[int]:
    for value in values:
        if isinstance(value, list):
            yield id(value)
            yield from _list_ids(value)
        elif isinstance(value, dict):
            yield from _list_ids(value.values())


def _sentence(error: TemplateError) -> str:
    words = error.message or type(error).__name__
    if isinstance(error, _Limit):
        return f"The model's chat template was stopped: {words}."
    return f"The model's chat template refuses this conversation: {words}"
