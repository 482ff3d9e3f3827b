"""Targets: what tool servers, pasted settings and models say, which are all strangers."""

import asyncio
import json
import random
from typing import Any

import httpx
import mcp.types as mcp
import msgspec
from pydantic import ValidationError

from app.tool_results import pictures_of, pretty, problem_with, text_of
from app.ui.markdown.parse import parse_segment, plain_blocks
from app.ui.markdown.segments import Segment, Segmenter
from runtime.errors import BadRequest
from runtime.messages.tools import ToolResult, ToolServerConfig
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.log import Lines, ServerLog
from runtime.tool_servers.paste import read_pasted
from runtime.tool_servers.redirect import Redirect
from runtime.tool_servers.results import to_result
from runtime.tool_servers.schemas import to_tools
from runtime.tool_servers.sign_in_store import SignIn
from runtime.tool_servers.stdio import Junk, _message_of
from runtime.tool_servers.tokens import TokenAuth
from tests.fuzz.damage import damaged_bytes, damaged_text
from tests.fuzz.target import Target, bytes_maker, cuts, json_maker, json_text_maker

_PASTED = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "abc", "N": 1}, "cwd": "/srv"},
        "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer x"}},
        "old": {"url": "http://127.0.0.1:9/sse", "disabled": True},
    }
}
_RESULT = {
    "content": [
        {"type": "text", "text": "Rain."},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA", "mimeType": "image/png"}},
    ],
    "structuredContent": {"a": [1, {"b": None}]},
    "isError": False,
}
_TOOLS = {
    "tools": [
        {
            "name": "weather",
            "title": "Weather",
            "description": "Weather of a city.",
            "inputSchema": {
                "type": "object",
                "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "n": {"$ref": "#/$defs/n"}},
                "$defs": {"n": {"type": "integer", "minimum": 1}},
                "required": ["city"],
            },
            "annotations": {"readOnlyHint": True, "destructiveHint": False, "title": "W"},
        },
        {"name": "now", "inputSchema": {"type": "object"}},
    ],
    "nextCursor": "2",
}
_MESSAGES: list[Any] = [
    {"jsonrpc": "2.0", "id": 1, "result": _TOOLS},
    {"jsonrpc": "2.0", "id": "a", "error": {"code": -32000, "message": "no", "data": {"x": 1}}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
]
_MARKDOWN = (
    "# Title\n\nSome **bold** and [a link](https://example.org).\n\n- one\n- two\n  - [x] three\n",
    "A `code` line.\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n1. one\n\n   more\n",
    "> quote\n> > deep\n\n$$\\frac{a}{b}$$\n\nand $x^2$ \\(y\\)\n",
)
_MARKDOWN_WORDS = (
    *("```", "~~~", "**", "*", "_", "`", "[", "](", ")", "![", "|", "|---|", "\n\n", "\n", "    ", "\t", "> ", "- "),
    *("1. ", "#", "$", "$$", "\\[", "\\]", "\\(", "<b>", "&amp;", "&#0;", "---", "http://", "[x]", "~~", "\\"),
)
_TOKENS = {"access_token": "abc", "refresh_token": "r2", "expires_in": 3600, "token_type": "Bearer", "scope": "a"}
_RETURNS = [
    b"GET /callback?code=abc&state=s&iss=https%3A%2F%2Fa.example HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
    b"GET /callback?error=access_denied&error_description=no&state=s HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
    b"GET //[::1/callback?" + b"a=1&" * 80 + b" HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nX: y\r\n\r\n",
]
_CONFIG = ToolServerConfig("files", command="npx")


def targets() -> tuple[Target, ...]:
    """All of them."""
    return (
        Target("pasted servers", json_text_maker([_PASTED, _PASTED["mcpServers"]]), _check_pasted, (BadRequest,)),
        Target("tool server's lines", _lines, _check_lines, (Lost,)),
        Target("tool results", json_maker([_RESULT]), _check_result, (ValidationError,)),
        Target("lists of tools", json_maker([_TOOLS]), _check_tools, (ValidationError,)),
        Target("arguments of calls", json_text_maker([{"city": "Oslo", "n": [1, 2.5, None]}]), _check_arguments, ()),
        Target("renewed tokens", json_text_maker([_TOKENS]), _check_tokens, ()),
        Target("page of a sign-in", bytes_maker(_RETURNS), _check_return, ()),
        Target("Markdown", _markdown, _check_markdown, ()),
    )


def _check_pasted(raw: bytes, draw: random.Random) -> None:
    del draw
    for config in read_pasted(raw.decode("utf-8", "replace")):
        msgspec.convert(msgspec.to_builtins(config), ToolServerConfig)


def _lines(draw: random.Random) -> bytes:
    lines = [json_text_maker(_MESSAGES)(draw) for _ in range(draw.randint(1, 4))]
    raw = draw.choice((b"\n", b"\r\n")).join([b"Server is ready", *lines]) + b"\n"
    return damaged_bytes(draw, raw, []) if draw.random() < 0.3 else raw


def _check_lines(raw: bytes, draw: random.Random) -> None:
    def read(pieces: list[bytes]) -> list[bytes]:
        lines = Lines(4000)
        return [line for piece in pieces for line in lines.feed(piece)]

    whole = read([raw])
    assert read(cuts(draw, raw)) == whole, "another cut gives other lines"
    junk = Junk(ServerLog())
    for line in whole:
        if asyncio.run(_message_of(line)) is None:
            junk.take(line)


def _check_result(value: Any, draw: random.Random) -> None:
    del draw
    result = to_result(mcp.CallToolResult.model_validate(value), 1.0)
    msgspec.json.decode(msgspec.json.encode(result), type=ToolResult)
    text_of(result, 4096)
    pictures_of(result)


def _check_tools(value: Any, draw: random.Random) -> None:
    del draw
    msgspec.json.encode(to_tools(_CONFIG, mcp.ListToolsResult.model_validate(value).tools))


def _check_arguments(raw: bytes, draw: random.Random) -> None:
    del draw
    text = raw.decode("utf-8", "replace")
    problem = problem_with(text)
    pretty(text)
    if not problem:
        assert isinstance(json.loads(text or "{}", strict=False), dict)


def _check_tokens(raw: bytes, draw: random.Random) -> None:
    """Whatever the endpoint answers: the request ends, with a token that can be sent."""
    del draw

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=raw) if request.url.path == "/token" else httpx.Response(401)

    async def ask() -> None:
        one = SignIn("https://a.example/mcp", "old", "https://a.example/token", "me", refresh_token="r")
        auth = TokenAuth(one, lambda _renewed: None)
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), auth=auth) as client:
            await client.post("https://a.example/mcp")

    asyncio.run(ask())


def _check_return(raw: bytes, draw: random.Random) -> None:
    """Whatever the browser, or another program, says to the page: it answers or closes, and goes on."""

    async def visit() -> None:
        redirect = Redirect()
        await redirect.open()
        port = redirect.uri.split(":")[2].split("/")[0].encode()
        redirect.state = "s"
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, told: faults.append(told))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        for piece in cuts(draw, raw.replace(b"PORT", port)):
            writer.write(piece)
        writer.write_eof()
        said = await reader.read()
        assert not said or said.startswith(b"HTTP/1.1 ")
        writer.close()
        await redirect.close()
        assert not faults, faults

    asyncio.run(visit())


def _markdown(draw: random.Random) -> str:
    return damaged_text(draw, draw.choice(_MARKDOWN), _MARKDOWN_WORDS, list(_MARKDOWN))


def _check_markdown(text: str, draw: random.Random) -> None:
    def read(pieces: list[str]) -> list[Segment]:
        segmenter = Segmenter()
        found: list[Segment] = []
        for piece in pieces:
            found += segmenter.feed(piece)
            if (open_one := segmenter.open()) is not None and draw.random() < 0.2:
                parse_segment(open_one)
        return found + segmenter.finish()

    whole = read([text])
    assert read(cuts(draw, text)) == whole, "another cut gives other segments"
    for segment in whole:
        parse_segment(segment)
        plain_blocks(segment)
