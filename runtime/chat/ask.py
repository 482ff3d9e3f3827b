"""What a request asks of the template beside its messages: tools, reasoning switches, values of its own."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.chat.sandbox import TemplateValue
from runtime.errors import BadRequest
from runtime.messages.shared import AnswerShape, Tool

Mark = Callable[[str], str]
MAX_DEPTH = 64
"""Nesting of a schema or a value that a template gets."""
RESERVED = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token")
)
"""Variables that a request cannot set."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Values for one render.

    Attributes:
        tools: functions in OpenAI's form, as most templates want them.
        values: further variables.
    """

    tools: tuple[dict[str, TemplateValue], ...] = ()
    values: Mapping[str, TemplateValue] = field(default_factory=dict)


NOTHING = Ask()


def make_ask(shape: AnswerShape, mark: Mark = str) -> Ask:
    """What a request asks of the template.

    Args:
        shape: of the answer. Its tools are left out where none may be called.
        mark: put on every text, which may come from anywhere.

    Raises:
        BadRequest: a schema or the template's values are no JSON, nested too deeply, or take a reserved name.
    """
    tools = () if shape.tool_choice == "none" else tuple(_tool(tool, mark) for tool in shape.tools)
    return Ask(tools, _reasoning_values(shape) | _own_values(shape.template_values, mark))


def _tool(tool: Tool, mark: Mark) -> dict[str, TemplateValue]:
    try:
        parameters = json.loads(tool.parameters or '{"type": "object", "properties": {}}')
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The parameters of the tool {tool.name!r} are no JSON: {error}", param="tools") from error
    if not isinstance(parameters, dict):
        raise BadRequest(f"The parameters of the tool {tool.name!r} are no JSON schema object.", param="tools")
    function: dict[str, TemplateValue] = {
        "name": mark(tool.name),
        "description": mark(tool.description),
        "parameters": _plain(parameters, mark, "tools"),
    }
    return {"type": "function", "function": function}


def _plain(value: object, mark: Mark, param: str, depth: int = 0) -> TemplateValue:
    """Plain data for the template, its texts marked."""
    if depth > MAX_DEPTH:
        raise BadRequest(f"Values are nested more than {MAX_DEPTH} deep.", param=param)
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, dict):
        return {mark(str(key)): _plain(item, mark, param, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, mark, param, depth + 1) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise BadRequest("Only plain data can be given to the template.", param=param)


def _reasoning_values(shape: AnswerShape) -> dict[str, TemplateValue]:
    """The switches that templates know. `auto` sets none: the template has its own default."""
    values: dict[str, TemplateValue] = {}
    if shape.reasoning != "auto":
        # Qwen, GLM, SmolLM and others read the first, DeepSeek, Granite and Kimi the second.
        values["enable_thinking"] = values["thinking"] = shape.reasoning == "on"
    if shape.reasoning_effort:
        values["reasoning_effort"] = shape.reasoning_effort
    elif shape.reasoning == "off":
        values["reasoning_effort"] = "low"  # gpt-oss cannot be told more
    if shape.reasoning_budget is not None:
        values["thinking_budget"] = shape.reasoning_budget  # Seed-OSS tells the model
    return values


def _own_values(text: str, mark: Mark) -> dict[str, TemplateValue]:
    if not text:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The template's values are no JSON: {error}", param="chat_template_kwargs") from error
    if not isinstance(values, dict):
        raise BadRequest("The template's values are no JSON object.", param="chat_template_kwargs")
    for name in values:
        if name in RESERVED or not name.isidentifier() or name.startswith("_"):
            raise BadRequest(f"The template's value {name!r} cannot be set.", param="chat_template_kwargs")
    return {name: _plain(value, mark, "chat_template_kwargs") for name, value in values.items()}
