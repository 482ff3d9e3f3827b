"""The page that a browser comes back to after a sign-in."""

import asyncio

import pytest

from runtime.tool_servers.redirect import Redirect


@pytest.mark.parametrize("target", ["//[::1/callback", "/callback?" + "a=1&" * 80])
def test_when_the_address_is_none_then_the_page_says_so_and_waits_on(target: str) -> None:
    async def visit() -> bytes:
        redirect = Redirect()
        await redirect.open()
        redirect.state = "s"
        place = redirect.uri.removeprefix("http://").partition("/")[0]
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, told: faults.append(told))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(place.partition(":")[2]))
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
        await redirect.close()
        assert faults == []
        return said

    assert asyncio.run(visit()).startswith(b"HTTP/1.1 400 ")
