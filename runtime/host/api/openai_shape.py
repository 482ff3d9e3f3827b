"""What an answer may look like, in OpenAI's words: tools, their choice, formats of text, effort of thought.

Both of OpenAI's APIs use it; they differ only in how deep a tool's name stands in the JSON.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import json_text, typed
from runtime.messages.shared import AnswerShape, ReasoningEffort, ReasoningMode, Tool, ToolChoice

ANY_OBJECT = '{"type":"object"}'
"""JSON mode: OpenAI promises an object, not just any JSON."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_EFFORTS: dict[Effort, ReasoningEffort] = {
    "none": "",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


class FunctionSpec(msgspec.Struct, frozen=True):
    """A function that the model may call. Arguments are always held to `parameters`, whatever `strict` says."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class SchemaSpec(msgspec.Struct, frozen=True):
    """A named JSON schema. Answers are always held to it, whatever `strict` says."""

    schema: dict[str, Any] | None = None
    name: str = ""
    description: str | None = None
    strict: bool | None = None


class FormatSpec(SchemaSpec, frozen=True, kw_only=True):
    """A format of text: chat has the schema inside `json_schema`, Responses beside `type`."""

    type: str
    json_schema: SchemaSpec | None = None


class Choice(msgspec.Struct, frozen=True):
    """A checked `tool_choice`. `allowed` are the only tools that may be called; None is all of them."""

    mode: ToolChoice = "auto"
    name: str = ""
    allowed: tuple[str, ...] | None = None


def function_tool(spec: FunctionSpec, where: str) -> Tool:
    """A function as our tool.

    Raises:
        BadRequest: the name is empty or too long, or the schema is too large.
    """
    if not spec.name:
        raise BadRequest(f"`{where}.name` is empty.", hint="Name the function.", param=f"{where}.name")
    parameters = json_text(spec.parameters) if spec.parameters is not None else ""
    return typed({"name": spec.name, "description": spec.description or "", "parameters": parameters}, Tool)


def only_functions(kind: str, where: str) -> BadRequest:
    """The refusal of a tool that is no function."""
    return BadRequest(
        f"`{where}` is of type {kind!r}; only tools of type 'function' work here.",
        hint="Describe it as a function, and run it yourself.",
        param=f"{where}.type",
    )


def chosen(tools: Sequence[Tool], choice: Choice) -> tuple[tuple[Tool, ...], Choice]:
    """The tools that stay, with the choice among them.

    Raises:
        BadRequest: a name is not among the tools, stands there twice, or a call is asked for and there are no tools.
    """
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise BadRequest(f"`tools` has {twice!r} twice.", hint="Give each tool a name of its own.", param="tools")
    for name in (*(choice.allowed or ()), *([choice.name] if choice.name else ())):
        if name not in names:
            raise BadRequest(
                f"`tool_choice` names {name!r}, which is none of the tools.",
                hint="Name one of `tools`.",
                param="tool_choice",
            )
    kept = tuple(tool for tool in tools if choice.allowed is None or tool.name in choice.allowed)
    if choice.mode == "required" and not kept:
        raise BadRequest("`tool_choice` asks for a tool, but there are none.", hint="Add `tools`.", param="tool_choice")
    return kept, choice


def schema_of(form: FormatSpec, where: str) -> str:
    """The JSON schema that a format asks for; "" is free text.

    Raises:
        BadRequest: the format is not known, or its schema is missing.
    """
    if form.type == "text":
        return ""
    if form.type == "json_object":
        return json_text(form.schema) if form.schema else ANY_OBJECT  # a schema here is llama-server's
    if form.type != "json_schema":
        raise BadRequest(
            f"`{where}.type` is {form.type!r}.",
            hint="Formats are text, json_object and json_schema.",
            param=f"{where}.type",
        )
    schema = form.schema if form.schema is not None else form.json_schema.schema if form.json_schema else None
    if schema is None:
        place = f"{where}.schema" if form.json_schema is None and form.name else f"{where}.json_schema.schema"
        raise BadRequest(f"`{place}` is missing.", hint="Add the JSON schema.", param=place)
    return json_text(schema)


def reasoning_of(effort: Effort | None) -> tuple[ReasoningMode, ReasoningEffort]:
    """Whether and how long to think. `minimal` leaves the whether to the model."""
    if effort is None:
        return "auto", ""
    if effort == "none":
        return "off", ""
    return ("auto" if effort == "minimal" else "on"), _EFFORTS[effort]


def answer_shape(
    *,
    tools: Sequence[Tool],
    choice: Choice,
    parallel_tool_calls: bool,
    json_schema: str,
    reasoning: tuple[ReasoningMode, ReasoningEffort],
    reasoning_budget: int | None = None,
    template_values: str = "",
) -> AnswerShape:
    """All of it together, checked.

    Raises:
        BadRequest: too many tools, a schema too large, a choice that cannot be met.
    """
    kept, choice = chosen(tools, choice)
    raw = {
        "tools": kept,
        "tool_choice": choice.mode,
        "tool_name": choice.name,
        "parallel_tool_calls": parallel_tool_calls and not choice.name,  # OpenAI calls a named tool once
        "json_schema": json_schema,
        "reasoning": reasoning[0],
        "reasoning_effort": reasoning[1],
        "reasoning_budget": reasoning_budget,
        "template_values": template_values,
    }
    return typed(raw, AnswerShape)
