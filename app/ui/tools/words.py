"""What is said of tool servers."""

from PySide6.QtCore import QCoreApplication

from runtime.messages.tools import ServerState, ToolServerInfo


def tr(text: str) -> str:
    """Translate in the context of tools."""
    return QCoreApplication.translate("Tools", text)


def count_of(n: int) -> str:
    """How many tools."""
    return tr("1 tool") if n == 1 else tr("{n} tools").format(n=n)


def state_of(server: ToolServerInfo) -> tuple[str, str]:
    """The state in words, and the tone of its tag."""
    words: dict[ServerState, tuple[str, str]] = {
        "off": (tr("Off"), "tag"),
        "idle": (tr("Starts when needed"), "tag"),
        "starting": (tr("Starting"), "tag-accent"),
        "ready": (tr("Ready"), "tag-accent"),
        "waiting": (tr("Starts again soon"), "tag-amber"),
        "failed": (tr("Does not run"), "tag-amber"),
        "signing_in": (tr("Waits for your browser"), "tag-accent"),
    }
    if server.needs_sign_in and server.state == "failed":
        return tr("Needs a sign-in"), "tag-amber"
    return words[server.state]
