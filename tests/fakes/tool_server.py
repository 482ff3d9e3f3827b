"""A real tool server of the official package, as other people write them, with every habit good and bad.

`python tool_server.py` speaks over stdio; `--http` over streamable HTTP on a free port, which it prints; `--sse` over
the older form. `--mode`: `junk` prints a greeting first, `child` starts a process of its own and prints its number to
the log, `many` has 200 tools, `strange` has odd names and schemas. Those that never become a server are in
`tool_server_broken`.
"""

import argparse
import asyncio
import base64
import contextlib
import os
import socket
import subprocess
import sys
from typing import Any

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from pydantic import AnyUrl

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAYAAABytg0kAAAAFElEQVR4nGP8z8Dwn4GBgYGJAQoAHxcCAk+Uzr4AAAAASUVORK5CYII="
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}

TOOLS = [
    types.Tool(
        name="echo",
        description="Says the text again.",
        inputSchema=TEXT,
        annotations=types.ToolAnnotations(readOnlyHint=True, title="Echo"),
    ),
    types.Tool(name="add", description="Adds two whole numbers.", inputSchema=NUMBERS),
    types.Tool(name="slow", description="Takes a while and tells how far it is.", inputSchema=NOTHING),
    types.Tool(name="mute", description="Says nothing for ten minutes.", inputSchema=NOTHING),
    types.Tool(name="fail", description="Always fails.", inputSchema=NOTHING),
    types.Tool(name="picture", description="Answers with a picture.", inputSchema=NOTHING),
    types.Tool(name="huge", description="Answers with a million letters.", inputSchema=NOTHING),
    types.Tool(name="link", description="Answers with an address.", inputSchema=NOTHING),
    types.Tool(name="grow", description="Gives the server one more tool.", inputSchema=NOTHING),
    types.Tool(name="crash", description="Ends the server.", inputSchema=NOTHING),
    types.Tool(name="ask", description="Asks the client to sample, to elicit and for roots.", inputSchema=NOTHING),
    types.Tool(name="variables", description="Names the variables it got.", inputSchema=NOTHING),
]


def tools_of(mode: str) -> list[types.Tool]:
    if mode == "many":
        return [types.Tool(name=f"tool-{n}", inputSchema=NOTHING) for n in range(200)]
    if mode != "strange":
        return list(TOOLS)
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(70):
        deep = {"type": "object", "properties": {"x": deep}}
    return [
        types.Tool(name="get weather/now!", description="\x1b[31mred\x1b[0m <b>bold</b>", inputSchema=NOTHING),
        types.Tool(name="large", inputSchema={**NOTHING, "description": "x" * 100_000}),
        types.Tool(name="deep", inputSchema=deep),
        types.Tool(name="list", inputSchema={"type": "array"}),
        types.Tool(name="n" * 100, inputSchema=NOTHING),
    ]


class Everything:
    """What the tools do."""

    def __init__(self, server: Server[Any, Any], tools: list[types.Tool]) -> None:
        self._server = server
        self._tools = tools

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        does = getattr(self, name, None)
        if does is None:
            raise ValueError(f"{name} went wrong on purpose")
        answer = await does(arguments)
        return text(answer) if isinstance(answer, str) else answer

    async def echo(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("text", ""))

    async def add(self, arguments: dict[str, Any]) -> Any:
        total = arguments["a"] + arguments["b"]
        return text(str(total)), {"sum": total}

    async def slow(self, _arguments: dict[str, Any]) -> str:
        context = self._server.request_context
        token = context.meta.progressToken if context.meta else None
        try:
            for step in range(600):
                if token is not None:
                    await context.session.send_progress_notification(token, step, 600, f"step {step}")
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            say("slow was cancelled")
            raise
        return "done"

    async def mute(self, _arguments: dict[str, Any]) -> str:
        await asyncio.sleep(600)
        return "at last"

    async def picture(self, _arguments: dict[str, Any]) -> Any:
        data = base64.b64encode(PICTURE).decode()
        return [*text("Two by two:"), types.ImageContent(type="image", data=data, mimeType="image/png")]

    async def huge(self, _arguments: dict[str, Any]) -> str:
        return "x" * 1_000_000

    async def link(self, _arguments: dict[str, Any]) -> Any:
        return [types.ResourceLink(type="resource_link", uri=AnyUrl("https://example.org/a"), name="a")]

    async def grow(self, _arguments: dict[str, Any]) -> str:
        self._tools.append(types.Tool(name=f"new-{len(self._tools)}", inputSchema=NOTHING))
        await self._server.request_context.session.send_tool_list_changed()
        return "grown"

    async def crash(self, _arguments: dict[str, Any]) -> str:
        say("about to crash")
        os._exit(3)

    async def ask(self, _arguments: dict[str, Any]) -> str:
        return await ask_client(self._server.request_context.session)

    async def variables(self, _arguments: dict[str, Any]) -> str:
        return "\n".join(sorted(os.environ))


def text(words: str) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=words)]


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def build(mode: str) -> Server[Any, Any]:
    server: Server[Any, Any] = Server("Everything", "1.2.3")
    tools = tools_of(mode)
    everything = Everything(server, tools)

    @server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
    async def list_tools() -> list[types.Tool]:
        return tools

    @server.call_tool(validate_input=False)  # type: ignore[untyped-decorator]
    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        return await everything.call(name, arguments)

    return server


async def ask_client(session: Any) -> str:
    words: list[str] = []
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="hello"))
    for asking in (
        session.create_message([message], max_tokens=5),
        session.elicit("Your name?", {"type": "object", "properties": {}}),
        session.list_roots(),
    ):
        try:
            await asking
            words.append("yes")
        except Exception as error:  # noqa: BLE001 - the answer is the point
            words.append(str(error))
    return " | ".join(words)


async def over_stdio(server: Server[Any, Any]) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


def over_http(server: Server[Any, Any], *, sse: bool, token: str) -> None:
    # Late: over stdio it should start fast.
    import uvicorn
    from mcp.server.sse import SseServerTransport
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    if sse:
        transport = SseServerTransport("/messages/")

        async def connect(request: Request) -> Response:
            async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
                await server.run(read, write, server.create_initialization_options())
            return Response()

        app = Starlette(routes=[Route("/sse", connect), Mount("/messages/", transport.handle_post_message)])
    else:
        manager = StreamableHTTPSessionManager(server)

        async def handle(scope: Any, receive: Any, send: Any) -> None:
            if token and Request(scope).headers.get("authorization") != f"Bearer {token}":
                await Response("no", 401)(scope, receive, send)
                return
            await manager.handle_request(scope, receive, send)

        @contextlib.asynccontextmanager
        async def life(_app: Starlette) -> Any:
            async with manager.run():
                yield

        app = Starlette(routes=[Mount("/mcp", handle)], lifespan=life)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()  # who reads the port may come at once
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)).run([sock])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--sse", action="store_true")
    parser.add_argument("--token", default="")
    given = parser.parse_args()
    match given.mode:
        case "junk":
            sys.stdout.write("Welcome to Everything!\n{not json}\n")
            sys.stdout.flush()
        case "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            say(f"child {child.pid}")
    server = build(given.mode)
    if given.http or given.sse:
        over_http(server, sse=given.sse, token=given.token)
    else:
        asyncio.run(over_stdio(server))


if __name__ == "__main__":
    main()
