"""Machines that lend their memory: which ones the person named, and whether each can be used now.

The addresses are settings; what a node last answered is kept here. Looking happens at the start, when one is added,
before a plan, and every `PERIOD_S` while someone listens.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from runtime.errors import BadRequest, RuntimeFault
from runtime.host.events import EventHub
from runtime.host.settings import SettingsFile
from runtime.messages.api import NodesChanged
from runtime.messages.fit import NodeInfo
from runtime.probe.report import EngineReport

log = logging.getLogger(__name__)

PERIOD_S = 10.0
MAX_NODES = 16
KNOCK_S = 3.0
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")
_MAX_PORT = 65_535

Ping = Callable[[str], Awaitable[NodeInfo]]
"""Asks one node; an unreachable one is an answer, not an error."""


class Devices(Protocol):
    """Asks llama.cpp; `runtime.host.prober.Prober` does."""

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        """The engine's devices, those of these nodes included."""
        ...


class NodePing:
    """Asks a node. Home: the event loop.

    What it lends is asked of llama.cpp when it is first met and when it comes back, since that starts a process; in
    between, that it still takes connections is enough.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._met: dict[str, NodeInfo] = {}
        """Reachable ones, as they were when they were last asked; at most `MAX_NODES` are asked."""

    async def __call__(self, address: str) -> NodeInfo:
        """How it is now."""
        host, _, port = address.rpartition(":")
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(KNOCK_S):
                _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            return self._lost(address, f"It did not answer within {KNOCK_S:.0f} s.")
        except OSError as error:
            return self._lost(address, f"It cannot be reached: {error.strerror or error}.")
        latency_s = time.monotonic() - began_at
        writer.close()
        if address not in self._met:
            info = await self._ask(address)
            if info.state != "reachable":
                return info
            self._met[address] = info
        return msgspec.structs.replace(self._met[address], latency_s=round(latency_s, 6))

    def _lost(self, address: str, problem: str) -> NodeInfo:
        self._met.pop(address, None)
        return NodeInfo(address, "unreachable", problem=f"{problem} Is 'deskside node' running there?")

    async def _ask(self, address: str) -> NodeInfo:
        try:
            report = await self._devices.devices((address,))
        except RuntimeFault as error:
            return NodeInfo(address, "unreachable", problem=error.message)
        if problem := report.problems.get(address):
            return NodeInfo(address, "too_old" if "version" in problem else "unreachable", problem=problem)
        lent = [device for device in report.compute if device.node == address]
        total_bytes = sum(device.total_bytes for device in lent)
        return NodeInfo(address, "reachable", total_bytes, sum(device.free_bytes for device in lent))


def checked_address(raw: str) -> str:
    """`host:port` as it is stored.

    Raises:
        BadRequest: it is not one.
    """
    address = raw.strip()
    found = _ADDRESS.fullmatch(address)
    if found is None or not 1 <= int(found[1]) <= _MAX_PORT:
        raise BadRequest(f"{raw!r} is not host:port.", hint="For example 192.168.1.20:50052.", param="address")
    return address


class Nodes:
    """Home: the event loop."""

    def __init__(self, settings: SettingsFile, hub: EventHub, ping: Ping, *, period_s: float = PERIOD_S) -> None:
        self._settings = settings
        self._hub = hub
        self._ping = ping
        self._period_s = period_s
        self._known: dict[str, NodeInfo] = {}
        self._task: asyncio.Task[None] | None = None

    def list(self) -> tuple[NodeInfo, ...]:
        """All named nodes, in the order they were added, as they last answered."""
        return tuple(
            self._known.get(address) or NodeInfo(address, "unreachable", problem="It has not been asked yet.")
            for address in self._settings.current.models_options.nodes
        )

    def reachable(self) -> tuple[str, ...]:
        """Addresses of the nodes that can be used now."""
        return tuple(node.address for node in self.list() if node.state == "reachable")

    async def add(self, raw_address: str) -> tuple[NodeInfo, ...]:
        """Name a node; it need not be reachable.

        Raises:
            BadRequest: no address, or too many nodes.
            StorageFault: it could not be saved; it holds for this run.
        """
        address = checked_address(raw_address)
        options = self._settings.current.models_options
        if address not in options.nodes:
            if len(options.nodes) >= MAX_NODES:
                raise BadRequest(f"{MAX_NODES} nodes are the most.", hint="Remove one first.", param="address")
            self._settings.change(models_options=msgspec.structs.replace(options, nodes=(*options.nodes, address)))
        await self.look()
        return self.list()

    async def remove(self, address: str) -> tuple[NodeInfo, ...]:
        """Forget a node; an unknown one is no error."""
        options = self._settings.current.models_options
        kept = tuple(known for known in options.nodes if known != address.strip())
        if kept != options.nodes:
            self._settings.change(models_options=msgspec.structs.replace(options, nodes=kept))
        self._known.pop(address.strip(), None)
        self._hub.send(NodesChanged(self.list()))
        return self.list()

    async def look(self) -> None:
        """Ask every node now, all at once, and tell if something changed."""
        before = self.list()
        addresses = self._settings.current.models_options.nodes
        answers = await asyncio.gather(*(self._ping(address) for address in addresses))
        self._known = dict(zip(addresses, answers, strict=True))
        after = self.list()
        if [_without_latency(node) for node in after] != [_without_latency(node) for node in before]:
            self._hub.send(NodesChanged(after))

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="look at nodes")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        is_first = True
        while True:
            if self._settings.current.models_options.nodes and (is_first or self._hub.has_listeners):
                is_first = False
                try:
                    await self.look()
                except Exception:  # a look must never end the loop
                    log.exception("the nodes could not be asked")
            await asyncio.sleep(self._period_s)


def _without_latency(node: NodeInfo) -> NodeInfo:
    """The latency alone moves all the time and is not worth an event."""
    return msgspec.structs.replace(node, latency_s=0.0)
