"""Real tool servers, and our side of them."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from runtime.messages.tools import ToolServerConfig, ToolServerInfo
from runtime.tool_servers.secrets import SecretStore
from runtime.tool_servers.server import ServerPolicy
from runtime.tool_servers.servers import Kept, ToolServers
from runtime.tool_servers.sign_in_store import SignInStore
from tests.fakes.keyring import FakeKeyring
from tests.fakes.tool_programs import SERVER, stdio_config

FAST = ServerPolicy(start_s=60.0, backoff_s=(0.05, 0.05), steady_s=60.0, relist_s=0.0)


class Side:
    """The servers of a host, with settings and a keyring in memory."""

    def __init__(
        self, folder: Path, policy: ServerPolicy, keyring: FakeKeyring | None, sign_in_s: float = 60.0
    ) -> None:
        self.configs: tuple[ToolServerConfig, ...] = ()
        self.told: list[tuple[ToolServerInfo, ...]] = []
        self.keyring = keyring or FakeKeyring()
        self.servers = ToolServers(
            Kept(lambda: self.configs, self._write),
            SecretStore(folder, self.keyring),
            SignInStore(folder, self.keyring),
            self.told.append,
            policy,
            start_delay_s=0.0,
            sign_in_s=sign_in_s,
        )

    def _write(self, configs: tuple[ToolServerConfig, ...]) -> None:
        self.configs = configs


class Shared:
    """One server that runs for a whole module; only what does not harm it belongs there."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self.side = self._runner.run(self._made(folder))

    async def _made(self, folder: Path) -> Side:
        side = Side(folder, FAST, None)
        await side.servers.add(stdio_config(mode="junk", env={"TOKEN_OF_MINE": "secret"}, timeout_s=60.0))
        await side.servers.wake("every")
        return side

    def run(self, work: Callable[[Side], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(150):
                await work(self.side)

        self._runner.run(bounded())

    def close(self) -> None:
        self._runner.run(self.side.servers.close())
        self._runner.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


MakeSide = Callable[..., contextlib.AbstractAsyncContextManager[Side]]


@pytest.fixture
def make_side(tmp_path: Path) -> MakeSide:
    @contextlib.asynccontextmanager
    async def make(
        policy: ServerPolicy = FAST, keyring: FakeKeyring | None = None, sign_in_s: float = 60.0
    ) -> AsyncIterator[Side]:
        side = Side(tmp_path, policy, keyring, sign_in_s)
        try:
            yield side
        finally:
            await side.servers.close()

    return make


@contextlib.contextmanager
def http_server(*arguments: str) -> Iterator[str]:
    """A server at an address, which is the value."""
    process = subprocess.Popen([sys.executable, str(SERVER), *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdecimal()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
