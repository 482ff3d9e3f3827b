"""Reads the `mcpServers` JSON that other programs keep, as a person copies it from there."""

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from runtime.errors import BadRequest
from runtime.messages.tools import MAX_SERVERS, ServerName, ToolServerConfig, Transport

_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_WORDS = ("command", "url", "serverUrl", "httpUrl")
_MAX_NAME_CHARS = 48
_PLACEHOLDER = re.compile(r"\$\{input:([^}]*)\}")


class _Entry(msgspec.Struct, frozen=True):
    """One server as other programs write it; fields of theirs that mean nothing here are passed over."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    env: dict[str, str | int | float | bool] | None = None
    cwd: str | None = None
    url: str | None = None
    server_url: str | None = msgspec.field(default=None, name="serverUrl")
    http_url: str | None = msgspec.field(default=None, name="httpUrl")
    headers: dict[str, str] | None = None
    type: str | None = None
    transport: str | None = None
    disabled: bool = False


def read_pasted(text: str) -> tuple[ToolServerConfig, ...]:
    """The servers of a pasted text: `{"mcpServers": {...}}`, `{"servers": {...}}`, or the inner object alone.

    Raises:
        BadRequest: it is no such JSON; the sentence names the server and the field.
    """
    servers = _servers(_decoded(text))
    if not servers:
        raise BadRequest("No server stands in this text.", hint='Paste the whole {"mcpServers": {...}}.', param="text")
    if len(servers) > MAX_SERVERS:
        raise BadRequest(f"{MAX_SERVERS} servers are the most.", hint="Paste fewer.", param="text")
    return tuple(_config(name, raw) for name, raw in servers.items())


def checked(config: ToolServerConfig) -> ToolServerConfig:
    """A config whose parts fit each other; blanks around names and addresses are gone.

    Raises:
        BadRequest: the program or the address is missing or no such thing.
    """
    config = msgspec.structs.replace(
        config, name=config.name.strip(), command=config.command.strip(), url=config.url.strip()
    )
    if config.transport == "stdio":
        if not config.command:
            raise BadRequest(
                f'The server "{config.name}" has no command.', hint="Name the program to start.", param="command"
            )
        if any("\0" in part for part in (config.command, config.folder, *config.args, *config.env.values())):
            raise BadRequest("A zero byte stands in a value.", hint="Remove it.", param="args")
        if wrong := next((name for name in config.env if "=" in name or "\0" in name), ""):
            raise BadRequest(f"{wrong!r} cannot be a variable's name.", hint="Leave out the equals sign.", param="env")
        return msgspec.structs.replace(config, url="", headers={})
    _check_url(config)
    for name, value in config.headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable() or not value.isascii():
            raise BadRequest(f"The header {name!r} cannot be sent.", hint="Use plain letters.", param="headers")
    return msgspec.structs.replace(config, command="", args=(), env={}, folder="")


def _check_url(config: ToolServerConfig) -> None:
    try:
        parts = urlsplit(config.url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not config.url.isprintable() or " " in config.url:
        raise BadRequest(
            f'The server "{config.name}" has no address that begins with http:// or https://.',
            hint="For example http://127.0.0.1:8000/mcp.",
            param="url",
        )


def _decoded(text: str) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        # People often copy only `"name": {...}` out of the braces.
        try:
            raw = msgspec.json.decode("{" + text.strip().rstrip(",") + "}")
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise BadRequest(
                f"This is no JSON ({error}).", hint='Paste the whole {"mcpServers": {...}}.', param="text"
            ) from None
    if not isinstance(raw, dict):
        raise BadRequest("This is no JSON object.", hint='It begins with {"mcpServers":.', param="text")
    return raw


def _servers(raw: dict[str, Any]) -> dict[str, Any]:
    for key in ("mcpServers", "servers", "mcp", "context_servers"):
        inner = raw.get(key)
        if isinstance(inner, dict) and not {"command", "url"} & {
            name for name, v in inner.items() if isinstance(v, str)
        }:
            return _servers(inner) if key == "mcp" else inner
    if any(isinstance(raw.get(word), str) for word in _WORDS):
        return {"server": raw}
    return raw


def _config(name: str, raw: object) -> ToolServerConfig:
    try:
        entry = msgspec.convert(raw, _Entry)
    except msgspec.ValidationError as error:
        raise BadRequest(
            f'The server "{name[:100]}": {error}.', hint="Correct it and paste again.", param="text"
        ) from None
    if found := _PLACEHOLDER.search(msgspec.json.encode(raw).decode()):
        raise BadRequest(
            f'The server "{name[:100]}" asks for a value named "{found[1][:100]}".',
            hint=f"Put the value in the place of {found[0][:100]}.",
            param="text",
        )
    url = entry.url or entry.server_url or entry.http_url or ""
    said = (entry.type or entry.transport or "").strip().lower()
    transport = _TRANSPORTS.get(said)
    if said and transport is None:
        raise BadRequest(
            f'The server "{name[:100]}" uses "{said[:50]}".', hint="stdio, http and sse are known here.", param="text"
        )
    if transport is None:
        transport = "stdio" if entry.command else "sse" if url.rstrip("/").endswith("/sse") else "http"
    try:
        config = msgspec.convert(
            {
                "name": _our_name(name),
                "transport": transport,
                "command": entry.command or "",
                "args": entry.args or (),
                "env": {key: _as_text(value) for key, value in (entry.env or {}).items()},
                "folder": entry.cwd or "",
                "url": url,
                "headers": entry.headers or {},
                "enabled": not entry.disabled,
            },
            ToolServerConfig,
        )
    except msgspec.ValidationError as error:
        raise BadRequest(
            f'The server "{name[:100]}": {error}.', hint="Correct it and paste again.", param="text"
        ) from None
    return checked(config)


def _as_text(value: str | float | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _our_name(name: str) -> str:
    plain = re.sub(r"[^\w .-]+", "-", name, flags=re.ASCII).strip(" -_.")[:_MAX_NAME_CHARS].strip()
    try:
        return msgspec.convert(plain, ServerName)
    except msgspec.ValidationError:
        return "server"
