"""Which tools a conversation offers, and which may run without a question. The only place that decides both."""

from dataclasses import dataclass

import msgspec
from PySide6.QtCore import QObject, Signal

from app.link import HostLink
from app.opened import Opened
from app.saver import Saver
from app.settings import Settings
from app.store.records import ConversationChange, ToolSetup
from runtime.messages.shared import MAX_TOOLS, AnswerShape, Tool
from runtime.messages.tools import ToolInfo, ToolServerInfo

MAX_ALLOWED = 500
"""Permissions that are kept, here and in each conversation; past it the oldest goes."""

Permission = tuple[str, str, str]
"""Server, tool, fingerprint: a tool that changes its description or its schema is another one, and asks again."""


@dataclass(frozen=True, slots=True)
class Found:
    """A tool with its server."""

    server: ToolServerInfo
    tool: ToolInfo

    @property
    def permission(self) -> Permission:
        """What a permission for it looks like."""
        return self.server.config.name, self.tool.name, self.tool.fingerprint


class ToolBook(QObject):
    """Home thread: main."""

    changed = Signal()
    """Servers, tools, what is on, or a permission changed."""

    def __init__(self, link: HostLink, settings: Settings, saver: Saver, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._settings = settings
        self._saver = saver
        self._hidden: frozenset[str] = frozenset()
        link.tools_changed.connect(self.changed)
        settings.changed.connect(self.changed)

    # --- what is offered

    @property
    def servers(self) -> tuple[ToolServerInfo, ...]:
        """All servers, in the order they were added, without those about to be removed."""
        return tuple(one for one in self._link.tool_servers if one.config.name not in self._hidden)

    def hide(self, names: frozenset[str]) -> None:
        """These are about to be removed: as if they were gone."""
        self._hidden = names
        self.changed.emit()

    def setup(self, opened: Opened) -> ToolSetup:
        """Which tools a conversation uses: its own choice, or the default."""
        return self._settings.values.default_tools if opened.tools is None else opened.tools

    def set_setup(self, opened: Opened, setup: ToolSetup) -> None:
        """A conversation's own choice; the conversation must be kept already."""
        opened.tools = setup
        self._saver.change(opened.id, ConversationChange(tools=setup))
        self.changed.emit()

    def set_default(self, setup: ToolSetup) -> None:
        """What new conversations use; permissions of one conversation do not go with it."""
        self._settings.update(default_tools=msgspec.structs.replace(setup, allowed=()))

    def offered(self, opened: Opened) -> list[Found]:
        """The tools that the model is told of now: of servers that are on and known, at most `MAX_TOOLS`."""
        setup = self.setup(opened)
        off = set(setup.off)
        return [
            Found(server, tool)
            for server in self.servers
            if server.config.name in setup.servers and server.config.enabled
            for tool in server.tools
            if not tool.problem and (server.config.name, tool.name) not in off
        ][:MAX_TOOLS]

    def shape(self, opened: Opened, shape: AnswerShape, *, follows_tools: bool) -> AnswerShape:
        """A shape with the tools in it; `follows_tools`: the answer goes on behind results of tools."""
        found = self.offered(opened)
        if not found:
            return shape
        must_call = self.setup(opened).must_call and not follows_tools
        return msgspec.structs.replace(
            shape,
            tools=tuple(Tool(one.tool.call_name, one.tool.description, one.tool.parameters) for one in found),
            tool_choice="required" if must_call else "auto",
            # One: a small model that must call would call until it is cut off.
            parallel_tool_calls=shape.parallel_tool_calls and not must_call,
        )

    # --- what may run

    def may_run(self, opened: Opened, found: Found) -> bool:
        """Whether it needs no question."""
        if found.tool.read_only and self._settings.values.trust_read_only:
            return True
        return found.permission in self.setup(opened).allowed or found.permission in self.allowed

    @property
    def allowed(self) -> tuple[Permission, ...]:
        """What needs no question in any conversation, oldest first."""
        return self._settings.values.tools_allowed

    def allow_here(self, opened: Opened, found: Found) -> None:
        """It needs no question in this conversation any more."""
        setup = self.setup(opened)
        kept = (*(one for one in setup.allowed if one != found.permission), found.permission)[-MAX_ALLOWED:]
        self.set_setup(opened, msgspec.structs.replace(setup, allowed=kept))

    def allow_always(self, found: Found) -> None:
        """It needs no question anywhere any more."""
        kept = (*(one for one in self.allowed if one != found.permission), found.permission)[-MAX_ALLOWED:]
        self._settings.update(tools_allowed=kept)

    def revoke(self, permission: Permission) -> None:
        """It asks again, except where a conversation allows it."""
        self._settings.update(tools_allowed=tuple(one for one in self.allowed if one != permission))

    @property
    def trusts_read_only(self) -> bool:
        """Whether tools that say they only read need no question."""
        return self._settings.values.trust_read_only

    def trust_read_only(self, trust: bool) -> None:
        """Believe tools that say they only read, or do not."""
        self._settings.update(trust_read_only=trust)
