"""Tool servers over the private API, with a real server of the official package."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from runtime.client import HostClient
from runtime.errors import BadRequest, ToolNotFound, ToolServerFault
from runtime.host.settings import SettingsFile
from runtime.messages.api import ToolsChanged
from runtime.messages.tools import (
    ResultText,
    ToolCallEvent,
    ToolCallFailed,
    ToolCallRequest,
    ToolProgress,
    ToolReturned,
    ToolServerConfig,
    ToolServerInfo,
)
from runtime.paths import DataFolder
from tests.fakes.oauth_server import oauth_server
from tests.fakes.tool_programs import broken_config, stdio_config
from tests.host.conftest import RunningHost

T = TypeVar("T")


@pytest.fixture(scope="module")
def tooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """A host with one tool server that runs."""
    host = RunningHost(DataFolder(tmp_path_factory.mktemp("tools") / "data"))
    ask(host, lambda client: client.add_tool_server(stdio_config(env={"KEY": "s3cret"})))
    ask(host, lambda client: client.start_tool_server("every"))
    yield host
    host.close()


def ask(host: RunningHost, work: Callable[[HostClient], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with HostClient(host.address, host.token) as client, asyncio.timeout(120):
            return await work(client)

    return asyncio.run(connected())


async def events_of(client: HostClient, tool: str, arguments: str = "{}", server: str = "every") -> list[ToolCallEvent]:
    async with client.call_tool(ToolCallRequest(server, tool, arguments, "call-1")) as events:
        return [event async for event in events]


def test_when_a_tool_is_called_then_its_result_comes_and_secrets_stand_nowhere(tooled: RunningHost) -> None:
    (returned,) = ask(tooled, lambda client: events_of(client, "echo", '{"text":"hi"}'))
    assert isinstance(returned, ToolReturned)
    assert returned.result.parts == (ResultText("hi"),)
    (info,) = ask(tooled, lambda client: client.tool_servers())
    assert info.state == "ready"
    assert info.config.env == {"KEY": ""}
    settings = tooled.data.settings_file
    assert "s3cret" not in settings.read_text()
    assert SettingsFile(settings).current.tool_servers == (info.config,)
    names = ask(tooled, lambda client: events_of(client, "variables"))[0]
    assert isinstance(names, ToolReturned)
    assert "KEY" in str(names.result.parts[0])


def test_when_a_call_runs_long_then_progress_comes_and_closing_it_cancels_it(tooled: RunningHost) -> None:
    async def work(client: HostClient) -> list[ToolCallEvent]:
        heard: list[ToolCallEvent] = []
        async with client.call_tool(ToolCallRequest("every", "slow")) as events:
            async for event in events:
                heard.append(event)
                if len(heard) == 2:
                    break
        return heard

    heard = ask(tooled, work)
    assert all(isinstance(event, ToolProgress) for event in heard)
    tooled.until(lambda: "slow was cancelled" in ask(tooled, lambda client: client.tool_server_log("every")))


def test_when_a_call_cannot_be_made_then_the_stream_says_why(tooled: RunningHost) -> None:
    for tool, server in (("nothing", "every"), ("echo", "nobody")):
        (failed,) = ask(tooled, partial(events_of, tool=tool, server=server))
        assert isinstance(failed, ToolCallFailed)
        assert failed.failure.kind == "ToolNotFound"
    (wrong,) = ask(tooled, lambda client: events_of(client, "echo", "{"))
    assert isinstance(wrong, ToolCallFailed)
    assert wrong.failure.kind == "BadRequest"


def test_when_servers_are_changed_then_everyone_who_listens_hears_of_it(tooled: RunningHost) -> None:
    added = ask(tooled, lambda client: client.import_tool_servers('{"off": {"command": "x", "disabled": true}}'))
    assert [info.state for info in added] == ["off"]
    tooled.wait_for(lambda event: isinstance(event, ToolsChanged) and len(event.tool_servers) == 2)
    with pytest.raises(BadRequest, match="already"):
        ask(tooled, lambda client: client.add_tool_server(stdio_config("off")))
    renamed = ask(tooled, lambda client: client.change_tool_server("off", stdio_config("on", at_start=False)))
    assert (renamed.config.name, renamed.state) == ("on", "idle")
    ask(tooled, lambda client: client.remove_tool_server("on"))
    with pytest.raises(ToolNotFound):
        ask(tooled, lambda client: client.remove_tool_server("on"))
    with pytest.raises(ToolServerFault, match="no licence found"):
        ask(tooled, lambda client: client.test_tool_server(broken_config("die", "x")))
    assert len(ask(tooled, lambda client: client.tool_servers())) == 1


def test_when_asked_on_the_public_listener_then_there_are_no_tool_routes(tooled: RunningHost) -> None:
    for path in ("/admin/tools", "/admin/tools/call", "/admin/tools/servers"):
        assert tooled.public.post(path, json={}).status_code in {404, 405}
    assert tooled.private.get("/admin/tools", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_when_the_host_ends_then_its_servers_end_and_the_next_one_starts_them(tmp_path: Path) -> None:
    import psutil

    data = DataFolder(tmp_path / "data")
    first = RunningHost(data)
    try:
        ask(first, lambda client: client.add_tool_server(stdio_config()))
        info = ask(first, lambda client: client.start_tool_server("every"))
    finally:
        first.close()
    assert info.pid is not None
    assert not psutil.pid_exists(info.pid)
    second = RunningHost(data)
    try:
        second.until(lambda: ask(second, lambda client: client.tool_servers())[0].state == "ready", timeout_s=60)
    finally:
        second.close()


def test_when_a_sign_in_goes_through_the_host_then_its_routes_begin_stop_and_end_it(tooled: RunningHost) -> None:
    def state() -> ToolServerInfo:
        return next(one for one in ask(tooled, lambda client: client.tool_servers()) if one.config.name == "notes")

    with oauth_server() as server:
        ask(tooled, lambda client: client.add_tool_server(ToolServerConfig("notes", "http", url=server.url)))
        tooled.until(lambda: state().needs_sign_in)
        url = ask(tooled, lambda client: client.begin_tool_sign_in("notes"))
        assert (state().state, state().sign_in_url) == ("signing_in", url)
        ask(tooled, lambda client: client.cancel_tool_sign_in("notes"))
        assert state().problem == "The sign-in was stopped."
        assert httpx.get(
            ask(tooled, lambda client: client.begin_tool_sign_in("notes")), follow_redirects=True
        ).is_success
        tooled.until(lambda: state().state == "ready")
        (who,) = ask(tooled, lambda client: events_of(client, "who", server="notes"))
        assert isinstance(who, ToolReturned)
        assert who.result.parts[0] == ResultText("Deskside with notes")
        assert ask(tooled, lambda client: client.sign_out_of_tool_server("notes")).config.signed_in is False
        ask(tooled, lambda client: client.remove_tool_server("notes"))
    with pytest.raises(ToolNotFound):
        ask(tooled, lambda client: client.begin_tool_sign_in("notes"))
    with pytest.raises(BadRequest, match="takes no sign-in"):
        ask(tooled, lambda client: client.begin_tool_sign_in("every"))
