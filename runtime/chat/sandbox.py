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

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from runtime.chat import template_limits as limits
from runtime.errors import TemplateRefused

RENDER_LIMIT_S = 5.0
"""A thousand turns render in some 20 ms; this is for templates that never end."""
MAX_ADDED_CHARS = 8 * 1024 * 1024
"""A rendered conversation may be this much longer than four times its messages."""
MAX_LIST = 100_000
"""Items a template may put in a list of its own."""
MAX_TEMPLATE_CHARS = 1024 * 1024
"""The longest known templates are under 100,000 characters."""
_MAX_WORDS = 2000
"""Of a refusal: a template may say anything, at any length."""
_LEFT_OUT = ("lipsum", "xmlattr", "urlize", "wordwrap", "pprint")
"""What makes long texts of short ones and is in no chat template."""

TemplateValue = str | int | float | bool | None | list["TemplateValue"] | dict[str, "TemplateValue"]

_FAILURES = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError,
)  # fmt: skip
"""What Python raises when a template does something that makes no sense."""


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return limits.current.get().now.strftime(pattern)


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
        self.tick = limits.tick
        self.concat = limits.concat  # type: ignore[method-assign]  # what blocks and macros are put together with
        self.concat_bounded = limits.concat_any
        for name in _LEFT_OUT:
            self.globals.pop(name, None)
            self.filters.pop(name, None)
        self.globals["namespace"] = _Namespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.filters["tojson"] = _tojson
        self.filters = {name: _bounded_filter(name, function) for name, function in self.filters.items()}
        self.filters["_bounded"] = limits.bounded

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Let the template change a list of its own (Kimi's templates do)."""
        if attr in ("append", "pop") and type(obj) is list and id(obj) not in limits.current.get().given:
            return True
        return bool(super().is_safe_attribute(obj, attr, value))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Refuse what would be too long before it is made."""
        limits.check_binop(operator, left, right)
        return limits.bounded(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: object, /, *args: object, **kwargs: object) -> object:  # noqa: N805
        """Call with a look at numbers that become lengths (`ljust`, `zfill`, `replace`) and at the result."""
        # Jinja wraps `str.format`; what it wraps knows its string.
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(owner, str):
            args = limits.listed(args)
            limits.check_string_call(owner, getattr(__obj, "__name__", ""), args, kwargs)
        elif isinstance(owner, list) and len(owner) >= MAX_LIST:
            raise limits.Limit("it makes an endless list")
        limits.tick()
        return limits.bounded(super().call(__context, __obj, *args, **kwargs))

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        _add_limits(source, self)
        return super()._generate(source, name, filename, defer_init)


def _bounded_filter(name: str, function: Callable[..., object]) -> Callable[..., object]:
    n_own = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @functools.wraps(function)  # keeps the marks by which Jinja knows what to hand in
    def checked(*args: object, **kwargs: object) -> object:
        if name == "join":
            args = (*args[:n_own], *limits.listed(args[n_own:]))
        limits.check_filter(name, args[n_own:], kwargs)
        return limits.bounded(function(*args, **kwargs))

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
            raise TemplateRefused(f"The model's chat template does not compile: {_cut(str(error))}") from error

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
        token = limits.current.set(limits.Render(time.monotonic() + RENDER_LIMIT_S, RENDER_LIMIT_S, limit, now, given))
        parts: list[str] = []
        n_chars = 0
        try:
            for part in self._template.generate(values):
                n_chars += len(part)
                limits.check_length(n_chars)
                parts.append(part)
        except TemplateError as error:
            raise TemplateRefused(_sentence(error)) from error
        except _FAILURES as error:
            raise TemplateRefused(
                f"The model's chat template failed: {type(error).__name__}: {_cut(str(error))}"
            ) from error
        finally:
            limits.current.reset(token)
        return "".join(parts)


def _list_ids(values: Iterable[TemplateValue]) -> Iterator[int]:
    for value in values:
        if isinstance(value, list):
            yield id(value)
            yield from _list_ids(value)
        elif isinstance(value, dict):
            yield from _list_ids(value.values())


def _sentence(error: TemplateError) -> str:
    words = _cut(error.message or type(error).__name__)
    if isinstance(error, limits.Limit):
        return f"The model's chat template was stopped: {words}."
    return f"The model's chat template refuses this conversation: {words}"


def _cut(words: str) -> str:
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"
