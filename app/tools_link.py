"""The window's requests about tool servers; answers come by callback. What changes by itself is in `app.link`."""

from app.asking import Asking, Done
from app.call import Call
from app.link import Failed
from runtime.messages.tools import (
    SignInBegun,
    ToolServerChange,
    ToolServerConfig,
    ToolServerInfo,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)


class ToolsLink(Asking):
    """Home thread: main."""

    ANSWER_TIMEOUT_MS = 180_000
    """A server may fetch itself before it answers."""

    def add(
        self, config: ToolServerConfig, done: Done[ToolServerInfo] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Add a server."""
        return self._ask("/admin/tools/servers", config, ToolServerInfo, done, failed)

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
        return self._ask("/admin/tools/servers", body, ToolServerInfo, done, failed, method="PUT")

    def remove(self, name: str, *, failed: Failed | None = None) -> Call | None:
        """Forget a server and its secrets."""
        return self._tell("/admin/tools/servers", ToolServerRequest(name), None, failed, method="DELETE")

    def paste(self, text: str, done: Done[ToolsState], *, failed: Failed | None = None) -> Call | None:
        """Add the servers of an `mcpServers` text; the answer has them."""
        return self._ask("/admin/tools/import", ToolServersText(text), ToolsState, done, failed)

    def test(self, config: ToolServerConfig, done: Done[ToolServerInfo], *, failed: Failed) -> Call | None:
        """Try a server without keeping it."""
        return self._ask("/admin/tools/test", config, ToolServerInfo, done, failed)

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
        return self._ask(path, ToolServerRequest(name), ToolServerInfo, done, failed)

    def sign_in(self, name: str, done: Done[SignInBegun], *, failed: Failed) -> Call | None:
        """Begin a sign-in by browser; the answer has the address to open."""
        return self._ask("/admin/tools/sign-in", ToolServerRequest(name), SignInBegun, done, failed)

    def cancel_sign_in(self, name: str, *, failed: Failed | None = None) -> Call | None:
        """Wait no longer for the browser."""
        return self._tell("/admin/tools/sign-in/cancel", ToolServerRequest(name), None, failed)

    def sign_out(self, name: str, *, failed: Failed | None = None) -> Call | None:
        """Forget the tokens of a sign-in."""
        return self._tell("/admin/tools/sign-out", ToolServerRequest(name), None, failed)

    def log(self, name: str, done: Done[ToolServerLog], *, failed: Failed | None = None) -> Call | None:
        """What a server wrote lately."""
        return self._ask("/admin/tools/log", ToolServerRequest(name), ToolServerLog, done, failed)
