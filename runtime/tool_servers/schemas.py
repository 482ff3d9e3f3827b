"""Tools of a server as values, and why models are not offered some of them."""

import hashlib
from collections.abc import Sequence

import mcp.types as mcp
import msgspec

from runtime.errors import BadRequest
from runtime.grammar.schema_terms import read_schema
from runtime.messages.tools import MAX_DESCRIPTION_CHARS, MAX_TOOL_SCHEMA_CHARS, ToolInfo, ToolServerConfig

_NAME_CHARS = 256


def to_tools(config: ToolServerConfig, found: Sequence[mcp.Tool]) -> tuple[ToolInfo, ...]:
    """The tools in the server's order, each name once; `call_name` is given by `ToolServers`."""
    taken: set[str] = set()
    tools: list[ToolInfo] = []
    for tool in found:
        if tool.name in taken or not tool.name or len(tool.name) > _NAME_CHARS:
            continue
        taken.add(tool.name)
        tools.append(_tool(config, tool))
    return tuple(tools)


def _tool(config: ToolServerConfig, tool: mcp.Tool) -> ToolInfo:
    hints = tool.annotations or mcp.ToolAnnotations()
    description = (tool.description or "")[:MAX_DESCRIPTION_CHARS]
    parameters, problem = _parameters(tool.inputSchema)
    return ToolInfo(
        name=tool.name,
        call_name="",
        title=(tool.title or hints.title or "")[:_NAME_CHARS],
        description=description,
        parameters=parameters,
        read_only=bool(hints.readOnlyHint),
        destructive=bool(hints.destructiveHint) and not hints.readOnlyHint,
        fingerprint=_fingerprint(config, tool.name, description, parameters),
        problem=problem,
    )


def _parameters(schema: dict[str, object]) -> tuple[str, str]:
    try:
        text = msgspec.json.encode(schema).decode()
    except (RecursionError, msgspec.EncodeError):
        return "", "The schema of its arguments is nested too deeply."
    if len(text) > MAX_TOOL_SCHEMA_CHARS:
        return "", (
            f"The schema of its arguments has {len(text):,} characters; {MAX_TOOL_SCHEMA_CHARS:,} are the most."
        )
    if schema.get("type", "object") != "object":
        return text, "The schema of its arguments describes no object."
    try:
        read_schema(text)
    except BadRequest as error:
        return text, f"The schema of its arguments is not valid. {error.message}"
    return text, ""


def _fingerprint(config: ToolServerConfig, *parts: str) -> str:
    said = msgspec.json.encode((config.transport, config.command, config.args, config.url, config.folder, *parts))
    return hashlib.sha256(said).hexdigest()[:32]
