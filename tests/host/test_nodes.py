"""Nodes: asked when met and when they come back, and looked at in between."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from runtime.errors import BadRequest, ModelLoadFailed
from runtime.host.events import EventHub
from runtime.host.nodes import MAX_NODES, NodePing, Nodes, checked_address
from runtime.host.settings import SettingsFile
from runtime.messages.api import HostEvent, NodesChanged
from runtime.messages.fit import NodeInfo
from runtime.messages.load import ComputeDevice
from runtime.probe.report import EngineReport


class FakeDevices:
    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.problem = ""

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        self.asked.append(tuple(nodes))
        if self.problem == "raise":
            raise ModelLoadFailed("llama.cpp could not be asked.")
        lent = tuple(ComputeDevice(f"RPC0[{node}]", "", "node", 8000, 7000, node=node) for node in nodes)
        problems = dict.fromkeys(nodes, self.problem) if self.problem else {}
        return EngineReport("1", (), (), can_offload=True, compute=() if problems else lent, problems=problems)


async def listen() -> asyncio.Server:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    return await asyncio.start_server(hang_up, "127.0.0.1", 0)


def address_of(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_when_a_node_answers_then_what_it_lends_is_asked_once_until_it_was_away() -> None:
    async def run() -> None:
        devices = FakeDevices()
        ping = NodePing(devices)
        server = await listen()
        address = address_of(server)
        for _ in range(3):
            info = await ping(address)
            assert (info.state, info.total_bytes, info.free_bytes) == ("reachable", 8000, 7000)
            assert info.latency_s > 0
        assert devices.asked == [(address,)]
        server.close()
        await server.wait_closed()
        gone = await ping(address)
        assert (gone.state, gone.total_bytes) == ("unreachable", 0)
        assert "cannot be reached" in gone.problem
        host, _, port = address.rpartition(":")
        again = await asyncio.start_server(lambda _reader, writer: writer.close(), host, int(port))
        assert (await ping(address)).state == "reachable"
        assert len(devices.asked) == 2
        again.close()
        await again.wait_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        ("It speaks version 3.0.", "too_old"),
        ("It is no node.", "unreachable"),
        ("raise", "unreachable"),
    ],
)
def test_when_it_cannot_be_used_then_it_says_why_and_is_asked_again(problem: str, state: str) -> None:
    async def run() -> None:
        devices = FakeDevices()
        devices.problem = problem
        ping = NodePing(devices)
        server = await listen()
        info = await ping(address_of(server))
        assert info.state == state
        assert info.problem
        devices.problem = ""
        assert (await ping(address_of(server))).state == "reachable"
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def test_when_looked_at_then_only_changes_are_told(tmp_path: Path) -> None:
    async def run() -> None:
        answers = {"a:1": NodeInfo("a:1", "reachable", 8, 7, 0.001), "b:2": NodeInfo("b:2", "unreachable", problem="x")}
        told: list[HostEvent] = []
        hub = EventHub()
        hub.observe(told.append)

        async def ping(address: str) -> NodeInfo:
            return answers[address]

        nodes = Nodes(SettingsFile(tmp_path / "settings.toml"), hub, ping)
        await nodes.add("a:1")
        await nodes.add(" b:2 ")
        await nodes.add("b:2")
        assert [node.address for node in nodes.list()] == ["a:1", "b:2"]
        assert nodes.reachable() == ("a:1",)
        n_told = len(told)
        answers["a:1"] = NodeInfo("a:1", "reachable", 8, 7, 0.5)  # only the latency moved
        await nodes.look()
        assert len(told) == n_told
        answers["b:2"] = NodeInfo("b:2", "reachable", 4, 3)
        await nodes.look()
        assert isinstance(told[-1], NodesChanged)
        assert len(told) == n_told + 1
        assert nodes.reachable() == ("a:1", "b:2")
        again = Nodes(SettingsFile(tmp_path / "settings.toml"), hub, ping)
        assert [(node.address, node.state) for node in again.list()] == [
            ("a:1", "unreachable"),
            ("b:2", "unreachable"),
        ]
        await nodes.remove("a:1")
        assert [node.address for node in nodes.list()] == ["b:2"]

    asyncio.run(run())


def test_when_started_then_they_are_looked_at_once_without_listeners(tmp_path: Path) -> None:
    async def run() -> None:
        asked = asyncio.Event()
        n_asked = 0

        async def ping(address: str) -> NodeInfo:
            nonlocal n_asked
            n_asked += 1
            asked.set()
            if n_asked == 1:
                raise ZeroDivisionError  # a look must never end the loop
            return NodeInfo(address, "reachable")

        settings = SettingsFile(tmp_path / "settings.toml")
        settings.change(models_options=type(settings.current.models_options)(nodes=("a:1",)))
        nodes = Nodes(settings, EventHub(), ping, period_s=0.01)
        nodes.start()
        await asyncio.wait_for(asked.wait(), 5)
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert n_asked == 1
        await nodes.close()

    asyncio.run(run())


def test_when_there_are_enough_then_one_more_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async def ping(address: str) -> NodeInfo:
            return NodeInfo(address, "unreachable")

        nodes = Nodes(SettingsFile(tmp_path / "settings.toml"), EventHub(), ping)
        for number in range(MAX_NODES):
            await nodes.add(f"host{number}:1")
        with pytest.raises(BadRequest, match="most"):
            await nodes.add("one-more:1")

    asyncio.run(run())


@pytest.mark.parametrize("address", ["a:1", "10.0.0.5:50052", "my-host.local:65535", "[::1]:80"])
def test_when_an_address_is_good_then_it_is_kept_as_it_is(address: str) -> None:
    assert checked_address(f" {address} ") == address


@pytest.mark.parametrize("address", ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "http://a:1", "a:1/x", "::1:80"])
def test_when_an_address_is_none_then_it_is_refused(address: str) -> None:
    with pytest.raises(BadRequest):
        checked_address(address)
