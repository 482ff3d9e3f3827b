"""Tokens on requests: renewed once when they are old or refused, kept when they changed, given up when dead."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs

import httpx
import pytest

from runtime import units
from runtime.errors import StorageFault
from runtime.tool_servers.sign_in_store import SignIn
from runtime.tool_servers.tokens import MAX_LIFE_S, TokenAuth, ends_at

SIGN_IN = SignIn(
    "https://example.org/mcp", "old", "https://example.org/token", "me", refresh_token="r1", resource="https://r"
)
Answer = Callable[[dict[str, list[str]]], httpx.Response]


class Site:
    """A server that lets only the newest token in, and renews it as it is told."""

    def __init__(self, renew: Answer | None = None) -> None:
        self.good = "new"
        self.renewals: list[httpx.Request] = []
        self.asked: list[str] = []
        self._renew = renew or (lambda _form: httpx.Response(200, json={"access_token": "new", "expires_in": 3600}))

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            self.renewals.append(request)
            await asyncio.sleep(0)  # others get their turn
            return self._renew(parse_qs(request.content.decode()))
        self.asked.append(request.headers["authorization"])
        return httpx.Response(200 if request.headers["authorization"] == f"Bearer {self.good}" else 401)


def run(site: Site, sign_in: SignIn, n_requests: int = 1) -> tuple[list[int], list[SignIn]]:
    """Send requests at once; answers their states and what was kept."""
    kept: list[SignIn] = []

    async def work() -> list[int]:
        transport = httpx.MockTransport(site)
        async with httpx.AsyncClient(transport=transport, auth=TokenAuth(sign_in, kept.append)) as client:
            asked: list[Awaitable[httpx.Response]] = [client.post(sign_in.url, content=b"x") for _ in range(n_requests)]
            return [response.status_code for response in await asyncio.gather(*asked)]

    return asyncio.run(work()), kept


def always(answer: httpx.Response, _form: dict[str, list[str]]) -> httpx.Response:
    return answer


def changed(**fields: object) -> SignIn:
    return SignIn(**{name: getattr(SIGN_IN, name) for name in SIGN_IN.__struct_fields__} | fields)


def test_when_many_requests_find_the_token_refused_then_it_is_renewed_once() -> None:
    site = Site()
    states, kept = run(site, SIGN_IN, 5)
    assert states == [200] * 5
    assert len(site.renewals) == 1
    form = parse_qs(site.renewals[0].content.decode())
    assert form == {
        "grant_type": ["refresh_token"],
        "refresh_token": ["r1"],
        "client_id": ["me"],
        "resource": ["https://r"],
    }
    (after,) = kept
    assert (after.access_token, after.refresh_token) == ("new", "r1"), "one that is not told anew stays"
    assert after.expires_at_s == pytest.approx(units.now() + 3600, abs=60)


def test_when_the_token_is_known_to_be_old_then_it_is_not_sent_first() -> None:
    site = Site()
    assert run(site, changed(expires_at_s=units.now() + 5))[0] == [200]
    assert site.asked == ["Bearer new"]
    site.good = "old"
    assert run(site, changed(expires_at_s=units.now() + 600))[0] == [200]
    assert len(site.renewals) == 1


def test_when_it_cannot_be_renewed_then_the_refusal_stands_and_nothing_is_lost() -> None:
    for answer in (
        httpx.Response(400, json={"error": "invalid_grant"}),
        httpx.Response(503),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"token": "x"}),
        httpx.Response(200, json={"access_token": ""}),
        httpx.Response(200, json={"access_token": "a\u00e9"}),
        httpx.Response(200, json={"access_token": "a\r\nx: y"}),
        httpx.Response(200, content=b'{"x":' + b"[" * 60_000),
    ):
        site = Site(partial(always, answer))
        assert run(site, SIGN_IN) == ([401], [])
    site = Site()
    assert run(site, changed(refresh_token="")) == ([401], [])
    assert site.renewals == []


def test_when_a_secret_is_there_then_it_is_sent_as_the_server_wants() -> None:
    site = Site()
    run(site, changed(client_id="a b", client_secret="s:c", auth_method="client_secret_basic"))
    assert site.renewals[0].headers["authorization"] == "Basic YSUyMGI6cyUzQWM="
    run(site, changed(client_secret="s", auth_method="client_secret_post"))
    assert parse_qs(site.renewals[1].content.decode())["client_secret"] == ["s"]


def test_when_new_tokens_cannot_be_kept_then_they_are_used_all_the_same() -> None:
    async def work() -> int:
        def refuse(_sign_in: SignIn) -> None:
            raise StorageFault("full", hint="")

        transport = httpx.MockTransport(Site())
        async with httpx.AsyncClient(transport=transport, auth=TokenAuth(SIGN_IN, refuse)) as client:
            return (await client.get(SIGN_IN.url)).status_code

    assert asyncio.run(work()) == 200


def test_when_a_life_makes_no_sense_then_the_end_is_unknown_or_bounded() -> None:
    assert ends_at(None) == ends_at(0) == ends_at(-5) == 0
    assert ends_at(1e300) <= units.now() + MAX_LIFE_S
