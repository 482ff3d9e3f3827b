"""How the tool server of tests is started."""

import sys
from pathlib import Path

from runtime.messages.tools import ToolServerConfig

BROKEN = Path(__file__).with_name("tool_server_broken.py")
SERVER = Path(__file__).with_name("tool_server.py")


def stdio_config(name: str = "every", mode: str = "", **given: object) -> ToolServerConfig:
    """A stdio server in one of its modes."""
    args = (str(SERVER), *(("--mode", mode) if mode else ()))
    return ToolServerConfig(name, command=sys.executable, args=args, **given)  # type: ignore[arg-type]


def broken_config(how: str, name: str = "every") -> ToolServerConfig:
    """A program that never becomes one."""
    return ToolServerConfig(name, command=sys.executable, args=(str(BROKEN), how))
