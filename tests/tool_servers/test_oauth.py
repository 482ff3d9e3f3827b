"""Signing in to a tool server that asks who you are: a real one, and the person's browser played by the test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest

from runtime.errors import BadRequest, ToolNotFound, ToolServerFault
from runtime.messages.tools import ResultText, ToolCallRequest, ToolServerConfig, ToolServerInfo
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.oauth import check_address
from runtime.tool_servers.sign_in_store import SignIn
from tests.fakes.keyring import FakeKeyring
from tests.fakes.oauth_server import OAuthServer, oauth_server
from tests.tool_servers.conftest import MakeSide, Side

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(100):
            return await work()

    return asyncio.run(bounded())


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as made:
        yield made


async def until(side: Side, *states: str) -> ToolServerInfo:
    async with asyncio.timeout(30):
        while (info := side.servers.list()[0]).state not in states:  # noqa: ASYNC110 - a condition of someone else's
            await asyncio.sleep(0.01)
    return info


async def browse(url: str) -> httpx.Response:
    """What the person's browser does; the server asks them nothing."""
    async with httpx.AsyncClient(follow_redirects=True, timeout=30) as client:
        return await client.get(url)


async def signed_in(side: Side, server: OAuthServer) -> ToolServerInfo:
    await side.servers.add(ToolServerConfig("notes", "http", url=server.url))
    await until(side, "failed")
    page = await browse(await side.servers.sign_in("notes"))
    assert page.status_code == 200
    assert "You can go back to Deskside" in page.text
    return await until(side, "ready")


async def who(side: Side) -> str:
    result = await side.servers.call(ToolCallRequest("notes", "who"), lambda _progress: None)
    return "".join(part.text for part in result.parts if isinstance(part, ResultText))


def kept(side: Side) -> SignIn:
    return msgspec.json.decode(side.keyring.kept["Deskside tool sign-ins", "notes"], type=SignIn)


def test_when_a_server_asks_who_you_are_then_a_sign_in_by_browser_lets_its_tools_work(
    make_side: MakeSide, server: OAuthServer
) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(ToolServerConfig("notes", "http", url=server.url))
            asks = await until(side, "failed")
            assert asks.needs_sign_in
            assert "who you are" in asks.problem
            assert server.provider.clients == {}, "nothing is registered before the person wants it"
            with pytest.raises(ToolServerFault, match="who you are"):
                await who(side)

            url = await side.servers.sign_in("notes")
            waits = side.servers.list()[0]
            assert (waits.state, waits.sign_in_url) == ("signing_in", url)
            assert (await browse(url)).status_code == 200
            ready = await until(side, "ready")
            assert ready.config.signed_in
            assert not ready.needs_sign_in
            assert await who(side) == "Deskside with notes"
            (asked,) = server.provider.asked
            assert asked.code_challenge
            assert asked.resource == server.url
            assert kept(side).refresh_token in server.provider.refresh
            assert side.configs[0].signed_in
            assert kept(side).access_token not in str(side.configs)
            assert kept(side).access_token not in str(side.told)

    run(work)


def test_when_the_host_starts_again_then_the_sign_in_holds_and_is_renewed(
    make_side: MakeSide, server: OAuthServer
) -> None:
    keyring = FakeKeyring()

    async def first() -> tuple[ToolServerConfig, ...]:
        async with make_side(keyring=keyring) as side:
            await signed_in(side, server)
            return side.configs

    configs = run(first)

    async def again() -> None:
        async with make_side(keyring=keyring) as side:
            side.configs = configs
            server.provider.forget_access()
            before = kept(side)
            assert await who(side) == "Deskside with notes"
            assert server.provider.n_renewed == 1
            after = kept(side)
            assert after.access_token != before.access_token
            assert after.refresh_token != before.refresh_token
            assert len(server.provider.asked) == 1, "the person is not asked again"

    run(again)


def test_when_a_token_is_old_then_it_is_renewed_before_it_is_refused(make_side: MakeSide, server: OAuthServer) -> None:
    async def work() -> None:
        server.provider.life_s = 20  # less than the time before the end at which it is renewed
        async with make_side() as side:
            await signed_in(side, server)
            before = server.provider.n_renewed
            assert before >= 1
            assert await who(side) == "Deskside with notes"
            assert server.provider.n_renewed > before

    run(work)


def test_when_the_sign_in_is_taken_back_then_the_person_is_told_and_can_sign_in_again(
    make_side: MakeSide, server: OAuthServer
) -> None:
    async def work() -> None:
        async with make_side() as side:
            await signed_in(side, server)
            server.provider.forget_access()
            server.provider.refuses_renewal = True
            with pytest.raises(ToolServerFault, match="lost while the tool ran"):
                await who(side)
            lost = await until(side, "failed")
            assert lost.needs_sign_in
            assert "has ended" in lost.problem
            assert (await browse(await side.servers.sign_in("notes"))).status_code == 200
            await until(side, "ready")
            assert await who(side) == "Deskside with notes"
            assert len(server.provider.clients) == 1, "registered once, for the same address on loopback"

    run(work)


def test_when_the_person_refuses_then_it_says_so(make_side: MakeSide, server: OAuthServer) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(ToolServerConfig("notes", "http", url=server.url))
            await until(side, "failed")
            for error, words in (
                ("access_denied", "refused in the browser"),
                ("server_error", "server_error: said no"),
            ):
                server.provider.refuse = error
                page = await browse(await side.servers.sign_in("notes"))
                assert "You are not signed in" in page.text
                info = await until(side, "failed")
                assert words in info.problem
                assert info.needs_sign_in
                assert not info.config.signed_in
            server.provider.refuse = ""
            server.provider.refuses_codes = True
            await browse(await side.servers.sign_in("notes"))
            assert "gave no token" in (await until(side, "failed")).problem
            assert not any("sign-ins" in service for service, _ in side.keyring.kept)

    run(work)


def test_when_nobody_comes_or_it_is_stopped_then_it_says_so_and_the_page_is_gone(
    make_side: MakeSide, server: OAuthServer
) -> None:
    async def work() -> None:
        async with make_side(sign_in_s=0.5) as side:
            await side.servers.add(ToolServerConfig("notes", "http", url=server.url))
            await until(side, "failed")
            url = await side.servers.sign_in("notes")
            info = await until(side, "failed")
            assert info.problem == "Nobody signed in within 500 ms."
            with pytest.raises(httpx.ConnectError):
                await browse(url)
        async with make_side() as side:
            side.configs = (ToolServerConfig("notes", "http", url=server.url),)
            url = await side.servers.sign_in("notes")
            await side.servers.cancel_sign_in("notes")
            assert side.servers.list()[0].problem == "The sign-in was stopped."
            with pytest.raises(httpx.ConnectError):
                await browse(url)
            await side.servers.cancel_sign_in("notes")  # nothing to stop: nothing happens
            url = await side.servers.sign_in("notes")
            await side.servers.remove("notes")
            with pytest.raises(httpx.ConnectError):
                await browse(url)
            with pytest.raises(ToolNotFound):
                await side.servers.sign_in("notes")

    run(work)


def test_when_strangers_come_to_the_page_then_the_sign_in_goes_on(make_side: MakeSide, server: OAuthServer) -> None:
    async def work() -> None:
        async with make_side() as side:
            await side.servers.add(ToolServerConfig("notes", "http", url=server.url))
            await until(side, "failed")
            url = await side.servers.sign_in("notes")
            query = parse_qs(urlsplit(url).query)
            back, state = query["redirect_uri"][0], query["state"][0]
            async with httpx.AsyncClient() as client:
                for address, headers, status in (
                    (f"{back}?code=stolen&state=guess", {}, 400),
                    (f"{back}?code=stolen", {}, 400),
                    (f"{back}?code=stolen&state={state}", {"host": "evil.example"}, 400),
                    (back.replace("/callback", "/favicon.ico"), {}, 404),
                ):
                    assert (await client.get(address, headers=headers)).status_code == status
                assert (await client.post(f"{back}?code=stolen&state={state}")).status_code == 405
            port = urlsplit(back).port
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /" + b"x" * 100_000)
            writer.close()
            assert (await browse(url)).status_code == 200
            await until(side, "ready")

    run(work)


def test_when_signed_out_or_moved_to_another_address_then_the_tokens_are_gone(
    make_side: MakeSide, server: OAuthServer
) -> None:
    async def work() -> None:
        async with make_side() as side:
            config = (await signed_in(side, server)).config
            renamed = msgspec.structs.replace(config, name="mine", signed_in=False)
            await side.servers.change("notes", renamed)
            assert (await until(side, "ready")).config.signed_in
            assert [name for service, name in side.keyring.kept if "sign-ins" in service] == ["mine"]

            await side.servers.sign_out("mine")
            assert (await until(side, "failed")).needs_sign_in
            assert side.keyring.kept == {}

            await browse(await side.servers.sign_in("mine"))
            await until(side, "ready")
            moved = msgspec.structs.replace(renamed, url=f"{server.url}/other", enabled=False, signed_in=True)
            assert not (await side.servers.change("mine", moved)).config.signed_in
            assert side.keyring.kept == {}

    run(work)


def test_when_a_server_knows_no_sign_in_then_it_says_what_helps(make_side: MakeSide) -> None:
    async def work() -> None:
        async with make_side() as side:
            with oauth_server(registers=False) as strict:
                side.configs = (ToolServerConfig("notes", "http", url=strict.url),)
                with pytest.raises(ToolServerFault, match="register by themselves") as refused:
                    await side.servers.sign_in("notes")
                assert "Authorization" in refused.value.hint
            side.configs = (ToolServerConfig("notes", "http", url="http://127.0.0.1:9/mcp"),)
            with pytest.raises(ToolServerFault, match="cannot be reached"):
                await side.servers.sign_in("notes")
            side.configs = (ToolServerConfig("notes", command="x"),)
            with pytest.raises(BadRequest, match="takes no sign-in"):
                await side.servers.sign_in("notes")

    run(work)


@pytest.mark.parametrize(
    ("address", "server_url", "is_allowed"),
    [
        ("https://login.example.org/authorize", "https://example.org/mcp", True),
        ("http://login.example.org/authorize", "https://example.org/mcp", False),
        ("http://example.org/authorize", "https://example.org/mcp", False),
        ("http://nas.local/authorize", "http://nas.local/mcp", True),
        ("https://127.0.0.1/admin", "https://example.org/mcp", False),
        ("http://localhost:8080/authorize", "http://127.0.0.1:9000/mcp", True),
        ("https://login.example.org/authorize", "http://127.0.0.1:9000/mcp", True),
        ("file:///etc/passwd", "https://example.org/mcp", False),
        ("javascript:alert(1)", "https://example.org/mcp", False),
    ],
)
def test_when_a_sign_in_leads_somewhere_then_tokens_stay_encrypted(
    address: str, server_url: str, is_allowed: bool
) -> None:
    if is_allowed:
        check_address(address, server_url)
        return
    with pytest.raises(Lost):
        check_address(address, server_url)


def test_when_there_is_no_keyring_then_the_sign_in_is_in_a_private_file(
    make_side: MakeSide, server: OAuthServer, tmp_path: Path
) -> None:
    async def work() -> None:
        async with make_side(keyring=FakeKeyring(is_there=False)) as side:
            await signed_in(side, server)
            file = tmp_path / "tool-sign-ins.json"
            assert "refresh_token" in file.read_text()
            assert file.stat().st_mode & 0o077 == 0
            await side.servers.remove("notes")
            assert not file.exists()

    run(work)
