"""Tool servers against real ones of the official package."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil
import pytest

from runtime.errors import BadRequest, ToolNotFound, ToolServerFault
from runtime.messages.tools import (
    MAX_RESULT_CHARS,
    MAX_TOOLS_PER_SERVER,
    ResultLink,
    ResultMedia,
    ResultText,
    ToolCallRequest,
    ToolProgress,
    ToolResult,
    ToolServerConfig,
)
from runtime.tool_servers.child import surroundings
from runtime.tool_servers.server import ServerPolicy
from tests.fakes.keyring import FakeKeyring
from tests.fakes.tool_programs import broken_config, stdio_config
from tests.fakes.tool_server import PICTURE
from tests.tool_servers.conftest import FAST, MakeSide, Shared, Side, http_server

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(150):
            return await work()

    return asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a condition of someone else's
            await asyncio.sleep(0.01)


async def call(side: Side, tool: str, arguments: str = "{}", server: str = "every") -> ToolResult:
    return await side.servers.call(ToolCallRequest(server, tool, arguments), lambda _progress: None)


def text_of(result: ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, ResultText))


def test_when_a_stdio_server_is_added_then_its_tools_can_be_called(shared: Shared) -> None:
    async def work(side: Side) -> None:
        info = await side.servers.wake("every")
        assert (info.state, info.product) == ("ready", "Everything 1.2.3")
        echo = info.tools[0]
        assert (echo.name, echo.call_name, echo.title, echo.read_only) == ("echo", "every__echo", "Echo", True)
        assert '"required":["text"]' in echo.parameters
        assert text_of(await call(side, "echo", '{"text":"hi"}')) == "hi"
        added = await call(side, "add", '{"a":2,"b":40}')
        assert (text_of(added), added.structured) == ("42", '{"sum":42}')
        failed = await call(side, "fail")
        assert failed.is_error
        assert "on purpose" in text_of(failed)
        picture = await call(side, "picture")
        media = picture.parts[1]
        assert isinstance(media, ResultMedia)
        assert (media.media.data, media.media.mime) == (PICTURE, "image/png")
        assert (await call(side, "link")).parts == (ResultLink("https://example.org/a", "a"),)
        huge = await call(side, "huge")
        assert len(text_of(huge)) == MAX_RESULT_CHARS
        assert "934,464 characters" in huge.cut[0]

    shared.run(work)


def test_when_several_calls_run_then_each_gets_its_own_result(shared: Shared) -> None:
    async def work(side: Side) -> None:
        results = await asyncio.gather(*(call(side, "echo", f'{{"text":"{n}"}}') for n in range(20)))
        assert [text_of(result) for result in results] == [str(n) for n in range(20)]

    shared.run(work)


def test_when_a_call_is_cancelled_then_the_server_hears_of_it_and_goes_on(shared: Shared) -> None:
    async def work(side: Side) -> None:
        told: list[ToolProgress] = []
        calling = asyncio.create_task(side.servers.call(ToolCallRequest("every", "slow"), told.append))
        await until(lambda: len(told) > 2)
        assert told[0] == ToolProgress(0.0, "step 0")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: "slow was cancelled" in side.servers.log_lines("every"))
        assert text_of(await call(side, "echo", '{"text":"still here"}')) == "still here"

    shared.run(work)


def test_when_a_tool_is_silent_for_too_long_then_the_call_ends_and_one_that_tells_progress_goes_on(
    shared: Shared,
) -> None:
    async def work(side: Side) -> None:
        server = side.servers._servers["every"]
        patient = server.config
        server.config = msgspec.structs.replace(patient, timeout_s=2.0)
        try:
            slow = asyncio.create_task(call(side, "slow"))
            result = await call(side, "mute")
            assert result.is_error
            assert "gave no answer within 2 s" in text_of(result)
            assert result.duration_s > 1.9
            await asyncio.wait({slow}, timeout=0.5)
            assert not slow.done()
            slow.cancel()
            await asyncio.wait({slow})
        finally:
            server.config = patient

    shared.run(work)


def test_when_the_server_crashes_in_a_call_then_the_call_says_so_and_it_starts_again(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config())
            with pytest.raises(ToolServerFault, match=r"exited with code 3.*about to crash"):
                await call(side, "crash")
            assert text_of(await call(side, "echo", '{"text":"back"}')) == "back"
            assert side.servers.list()[0].restarts == 1

    run(work)


def test_when_a_server_that_crashed_before_ends_without_a_word_then_no_words_of_its_earlier_run_are_told(
    make_side: MakeSide,
) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config())
            with pytest.raises(ToolServerFault, match="about to crash"):
                await call(side, "crash")
            await until(lambda: side.servers.list()[0].state == "ready")
            pid = side.servers.list()[0].pid
            assert pid is not None
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            await until(lambda: side.servers.list()[0].restarts == 2)
            noted = [line for line in side.servers.log_lines("every") if line.startswith("(Deskside)")]
            assert "Its last words" not in noted[-1]

    run(work)


def test_when_the_list_changes_then_the_new_tools_are_told(shared: Shared) -> None:
    async def work(side: Side) -> None:
        await call(side, "grow")
        await until(lambda: any(tool.name == "new-12" for tool in side.servers.list()[0].tools))
        await until(lambda: any(tool.name == "new-12" for tool in side.told[-1][0].tools))

    shared.run(work)


@pytest.mark.parametrize(
    ("mode", "sentence"), [("die", r"exited with code 7\. Its last words: no licence found"), ("noise", "no message")]
)
def test_when_a_program_is_no_server_then_it_is_given_up_with_the_reason(
    make_side: MakeSide, mode: str, sentence: str
) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(broken_config(mode))
            await until(lambda: side.servers.list()[0].state == "failed")
            with pytest.raises(ToolServerFault, match=sentence):
                await call(side, "echo")

    run(work)


def test_when_a_server_hangs_at_the_start_then_it_is_given_up_in_bounded_time(make_side: MakeSide) -> None:
    async def work() -> None:
        policy = ServerPolicy(start_s=0.3, backoff_s=(0.05,))
        async with make_side(policy) as side:
            began_at = time.monotonic()
            await side.servers.add(broken_config("hang"))
            await until(lambda: side.servers.list()[0].state == "failed")
            assert "did not answer within" in side.servers.list()[0].problem
            assert time.monotonic() - began_at < 15

    run(work)


def test_when_a_server_prints_a_greeting_then_it_is_in_the_log_and_the_tools_work(shared: Shared) -> None:
    async def work(side: Side) -> None:
        assert text_of(await call(side, "echo", '{"text":"hi"}')) == "hi"
        assert "(no message) Welcome to Everything!" in side.servers.log_lines("every")

    shared.run(work)


def test_when_a_server_is_ended_then_its_children_end_too(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config(mode="child"))
            await side.servers.wake("every")
            await until(lambda: any(line.startswith("child ") for line in side.servers.log_lines("every")))
            line = next(line for line in side.servers.log_lines("every") if line.startswith("child "))
            child = psutil.Process(int(line.split()[1]))
            server = side.servers.list()[0].pid
            assert server is not None
            assert child.is_running()
            await side.servers.remove("every")
            assert not psutil.pid_exists(server)
            await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)

    run(work)


def test_when_a_server_has_too_many_tools_then_the_rest_is_counted(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config(mode="many"))
            info = await side.servers.wake("every")
            assert len(info.tools) == MAX_TOOLS_PER_SERVER
            assert info.left_out == 200 - MAX_TOOLS_PER_SERVER

    run(work)


def test_when_tools_have_odd_names_or_schemas_then_they_are_legal_or_named(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config(mode="strange"))
            tools = {tool.name: tool for tool in (await side.servers.wake("every")).tools}
            assert tools["get weather/now!"].call_name == "every__get_weather_now"
            assert not tools["get weather/now!"].problem
            assert "characters" in tools["large"].problem
            assert "deep" in tools["deep"].problem
            assert "no object" in tools["list"].problem
            assert len(tools["n" * 100].call_name) == 64

    run(work)


def test_when_a_server_asks_the_client_for_things_then_it_is_refused_politely(shared: Shared) -> None:
    async def work(side: Side) -> None:
        words = text_of(await call(side, "ask")).split(" | ")
        assert len(words) == 3
        assert all("not supported" in word for word in words)

    shared.run(work)


def test_when_a_server_is_started_then_it_gets_its_own_variables_and_few_others(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET_OF_THE_HOST", "x")
    assert "SOME_SECRET_OF_THE_HOST" not in surroundings({})

    async def work(side: Side) -> None:
        names = text_of(await call(side, "variables")).split("\n")
        assert "TOKEN_OF_MINE" in names
        assert "PATH" in names
        assert "PYTHONPATH" not in names

    shared.run(work)


@pytest.mark.parametrize("is_there", [True, False])
def test_when_secrets_are_given_then_settings_and_answers_do_not_hold_them(
    make_side: MakeSide, tmp_path: Path, *, is_there: bool
) -> None:
    async def work() -> None:
        async with make_side(keyring=FakeKeyring(is_there=is_there)) as side:
            info = await side.servers.add(stdio_config(env={"KEY": "s3cret"}, at_start=False))
            assert info.config.env == {"KEY": ""}
            assert side.configs[0].env == {"KEY": ""}
            assert info.secrets == ("keyring" if is_there else "file")
            assert bool(side.keyring.kept) == is_there
            file = tmp_path / "tool-secrets.json"
            assert file.exists() != is_there
            if not is_there and os.name != "nt":
                assert file.stat().st_mode & 0o777 == 0o600
            # Sent back empty, it stays; a new name takes it along.
            await side.servers.change("every", stdio_config("other", env={"KEY": ""}))
            assert side.servers._secrets.get("other")[0].env == {"KEY": "s3cret"}
            assert not side.servers._secrets.get("every")[0].env
            await side.servers.remove("other")
            assert not side.keyring.kept
            assert not file.exists()

    run(work)


def test_when_the_program_is_not_there_then_it_says_which(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            with pytest.raises(ToolServerFault, match='no program "no-such-program"'):
                await side.servers.test(ToolServerConfig("x", command="no-such-program"))
            assert side.configs == ()

    run(work)


def test_when_settings_are_tried_then_nothing_is_kept_and_nothing_runs_on(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            info = await side.servers.test(stdio_config())
            assert info.tools
            assert info.pid is not None
            assert not psutil.pid_exists(info.pid)
            assert side.servers.list() == ()

    run(work)


def test_when_a_server_is_off_or_unknown_then_a_call_says_so(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(stdio_config(enabled=False))
            assert side.servers.list()[0].state == "off"
            with pytest.raises(ToolServerFault, match="switched off"):
                await call(side, "echo")
            with pytest.raises(ToolNotFound):
                await call(side, "echo", server="nobody")
            await side.servers.change("every", stdio_config())
            with pytest.raises(ToolNotFound, match='no tool "nothing"'):
                await call(side, "nothing")
            with pytest.raises(BadRequest, match="no JSON"):
                await call(side, "echo", "{text:")
            with pytest.raises(BadRequest, match="object"):
                await call(side, "echo", "[1]")

    run(work)


def test_when_a_server_speaks_http_then_its_tools_work_and_its_fall_is_noticed(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            with http_server("--http", "--token", "open") as address:
                config = ToolServerConfig("web", "http", url=f"{address}/mcp/")
                with pytest.raises(ToolServerFault, match="who you are"):
                    await side.servers.test(config)
                with pytest.raises(ToolServerFault, match="refused"):
                    await side.servers.test(msgspec.structs.replace(config, headers={"Authorization": "Bearer no"}))
                await side.servers.add(
                    ToolServerConfig("web", "http", url=f"{address}/mcp/", headers={"Authorization": "Bearer open"})
                )
                assert text_of(await call(side, "add", '{"a":1,"b":2}', "web")) == "3"
                await call(side, "grow", server="web")
                await until(lambda: len(side.servers.list()[0].tools) == 13)
                told: list[ToolProgress] = []
                slow = asyncio.create_task(side.servers.call(ToolCallRequest("web", "slow"), told.append))
                await until(lambda: len(told) > 2)
                slow.cancel()
                await asyncio.wait({slow})
                assert text_of(await call(side, "echo", '{"text":"on"}', "web")) == "on"
            with pytest.raises(ToolServerFault, match="cannot be used"):
                await call(side, "echo", '{"text":"gone"}', "web")

    run(work)


def test_when_a_server_speaks_the_older_http_form_then_its_tools_work(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            with http_server("--sse") as address:
                await side.servers.add(ToolServerConfig("old", "sse", url=f"{address}/sse"))
                assert text_of(await call(side, "echo", '{"text":"hi"}', "old")) == "hi"

    run(work)


def test_when_nothing_is_at_the_address_then_it_says_so(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            with pytest.raises(ToolServerFault, match="cannot be reached"):
                await side.servers.test(ToolServerConfig("web", "http", url="http://127.0.0.1:9/mcp"))

    run(work)


def test_when_the_host_starts_then_the_servers_that_are_to_start_with_it_do(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            off = stdio_config("c", enabled=False)
            side.configs = (stdio_config("a"), stdio_config("b", at_start=False), off)
            side.servers.start()
            await until(lambda: side.servers.list()[0].state == "ready")
            assert [info.state for info in side.servers.list()] == ["ready", "idle", "off"]

    run(work)


def test_when_backoff_is_used_up_then_a_call_tries_once_more(make_side: MakeSide, tmp_path: Path) -> None:
    async def work() -> None:
        async with make_side(FAST) as side:
            await side.servers.add(stdio_config(folder=str(tmp_path / "later")))
            await until(lambda: side.servers.list()[0].state == "failed")
            (tmp_path / "later").mkdir()
            assert text_of(await call(side, "echo", '{"text":"now"}')) == "now"

    run(work)
