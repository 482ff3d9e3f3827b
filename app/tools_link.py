"""The window's requests about tool servers; answers come by callback. What changes by itself is in `app.link`."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject

from app.call import Call
from app.link import Failed, HostLink
from runtime.messages.tools import (
    ToolServerChange,
    ToolServerConfig,
    ToolServerInfo,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)

A = TypeVar("A")
Done = Callable[[A], None]

START_TIMEOUT_MS = 180_000
"""A server may fetch itself before it answers."""


class ToolsLink(QObject):
    """Home thread: main. Whoever asks has one of its own as its child: later answers are told to nobody.

    Without `failed`, a failure comes as `HostLink.request_failed`.
    """

    def __init__(self, link: HostLink, parent: QObject) -> None:
        super().__init__(parent)
        self._link = link

    def _ask(
        self, path: str, body: msgspec.Struct, kind: type[A], done: Done[A] | None, failed: Failed | None, method: str
    ) -> Call | None:
        decode = msgspec.json.Decoder(kind).decode
        return self._link.send(method, path, body, decode, done, failed, timeout_ms=START_TIMEOUT_MS, owner=self)

    def add(
        self, config: ToolServerConfig, done: Done[ToolServerInfo] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Add a server."""
        return self._ask("/admin/tools/servers", config, ToolServerInfo, done, failed, "POST")

    def change(
        self,
        name: str,
        config: ToolServerConfig,
        done: Done[ToolServerInfo] | None = None,
        *,
        failed: Failed | None = None,
    ) -> Call | None:
        """Change a server; empty secret values stay what they are."""
        body = ToolServerChange(name, config)
        return self._ask("/admin/tools/servers", body, ToolServerInfo, done, failed, "PUT")

    def remove(self, name: str, *, failed: Failed | None = None) -> Call | None:
        """Forget a server and its secrets."""
        body = ToolServerRequest(name)
        return self._link.send("DELETE", "/admin/tools/servers", body, lambda _raw: None, None, failed, owner=self)

    def paste(self, text: str, done: Done[ToolsState], *, failed: Failed | None = None) -> Call | None:
        """Add the servers of an `mcpServers` text; the answer has them."""
        return self._ask("/admin/tools/import", ToolServersText(text), ToolsState, done, failed, "POST")

    def test(self, config: ToolServerConfig, done: Done[ToolServerInfo], *, failed: Failed) -> Call | None:
        """Try a server without keeping it."""
        return self._ask("/admin/tools/test", config, ToolServerInfo, done, failed, "POST")

    def start(
        self,
        name: str,
        done: Done[ToolServerInfo] | None = None,
        *,
        anew: bool = False,
        failed: Failed | None = None,
    ) -> Call | None:
        """Start a server, also one that runs if `anew`; answers once it can be used."""
        path = "/admin/tools/restart" if anew else "/admin/tools/start"
        return self._ask(path, ToolServerRequest(name), ToolServerInfo, done, failed, "POST")

    def log(self, name: str, done: Done[ToolServerLog], *, failed: Failed | None = None) -> Call | None:
        """What a server wrote lately."""
        return self._ask("/admin/tools/log", ToolServerRequest(name), ToolServerLog, done, failed, "POST")
