"""The process of a stdio server: found, started, read, and ended with all that it started."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.log import Lines, ServerLog

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""One message of a server; a picture of 8 MiB is 11 MiB of base64."""

END_GRACE_S = 2.0
"""Closing its input asks a server to end; after that it is told, and after that it is ended."""

_READ_BYTES = 64 * 1024
_LOG_LINE_BYTES = 8 * 1024

if sys.platform == "win32":
    _INHERITED = (
        "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES",
        "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
    )  # fmt: skip
else:
    _INHERITED = (
        "DISPLAY", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
        "WAYLAND_DISPLAY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    )  # fmt: skip


class ServerProcess:
    """A running server. Home: the event loop."""

    def __init__(self, process: asyncio.subprocess.Process, log: ServerLog) -> None:
        self._process = process
        self._log = log
        self._reading = asyncio.create_task(self._read_log(), name=f"log of tool server {process.pid}")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def read(self) -> bytes:
        """What it wrote to its standard output; empty at the end."""
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - made with pipes
        return await stream.read(_READ_BYTES)

    async def write(self, line: bytes) -> None:
        """Hand it one line.

        Raises:
            OSError: it reads no more.
        """
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - made with pipes
        stream.write(line + b"\n")
        await stream.drain()

    async def how_it_ended(self) -> str:
        """`exited with code 3`: for a process whose output has ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), 1.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), 0.5)
        code = self._process.returncode
        if code is None:
            return "closed its output"
        if code < 0 and sys.platform != "win32":
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    async def stop(self) -> None:
        """Ask it to end, and end it and its children; nothing is left when this returns."""
        children = _children(self._process.pid) if sys.platform == "win32" else []
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            for push in (self._ask, self._kill):
                try:
                    await asyncio.wait_for(asyncio.shield(self._process.wait()), END_GRACE_S)
                    break
                except TimeoutError:
                    push()
            else:
                await self._process.wait()
        finally:
            self._kill()  # what it started may outlive it
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
            await asyncio.wait({self._reading}, timeout=0.5)
            self._reading.cancel()
            # A grandchild that left the group may hold the pipes open; nothing public closes our ends.
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    def _ask(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.terminate()
            else:
                os.killpg(self._process.pid, signal.SIGTERM)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                for child in _children(self._process.pid):
                    with contextlib.suppress(psutil.Error):
                        child.kill()
                if self._process.returncode is None:
                    self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _read_log(self) -> None:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101 - made with pipes
        lines = Lines(_LOG_LINE_BYTES)
        while chunk := await stream.read(_READ_BYTES):
            for line in lines.feed(chunk):
                self._log.add(line.decode("utf-8", "replace"))
        self._log.add(lines.rest().decode("utf-8", "replace"))


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def surroundings(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a server: the few every program needs, and its own. Not the host's, which may hold secrets."""
    inherited = {name: value for name in _INHERITED if (value := os.environ.get(name)) is not None}
    return {**inherited, **env}


def _found(config: ToolServerConfig, path: str | None) -> tuple[str, Path]:
    """The program's full path and its working folder.

    Raises:
        Lost: one of them is not there.
    """
    folder = Path(config.folder).expanduser() if config.folder else Path.home()
    if not folder.is_dir():
        raise Lost(f"There is no folder {folder}.", hint="Choose another working folder.", is_final=True)
    command = str(Path(config.command).expanduser()) if config.command.startswith("~") else config.command
    # Also finds npx.cmd and the like on Windows, which starts no script without its ending.
    program = shutil.which(command, path=path) or shutil.which(str(folder / command))
    if program is None:
        raise Lost(
            f'There is no program "{config.command}".', hint="Install it, or write its full path.", is_final=True
        )
    return program, folder


async def start_server(config: ToolServerConfig, log: ServerLog) -> ServerProcess:
    """Start the program of a server in a process group of its own.

    Raises:
        Lost: it cannot be started; asking again does not help.
    """
    env = surroundings(config.env)
    program, folder = await asyncio.to_thread(_found, config, env.get("PATH"))
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *config.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=os.name != "nt",
            creationflags=flags,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Lost(f'"{config.command}" cannot be started: {reason}.', is_final=True) from error
    return ServerProcess(process, log)
