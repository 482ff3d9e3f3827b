import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from runtime.errors import HubFault, HubOffline
from runtime.library.hub.transport import MAX_CONNECTIONS, Base, Place, Timeouts, Transport
from tests.fakes.fake_hub import FakeHub, FakeRepo

PLACE = Place("acme/Tiny", "main", "a file ü.gguf")
DATA = bytes(range(256)) * 1000


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub({"acme/Tiny": FakeRepo({PLACE.path: DATA})}) as hub:
        yield hub


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport(Timeouts(connect_s=2.0, read_s=5.0))
    yield transport
    transport.close()


def base(fake: FakeHub) -> Base:
    return Base(fake.endpoint, lambda: "hf_secret")


def test_file_when_opened_then_all_of_it_comes_with_what_the_hub_says_of_it(
    transport: Transport, fake: FakeHub
) -> None:
    with transport.open_file(base(fake), PLACE) as body:
        assert (body.status, body.start, body.total_bytes) == (200, 0, len(DATA))
        assert body.sha256 == fake.repos["acme/Tiny"].sha256(PLACE.path)
        assert b"".join(body.chunks()) == DATA


def test_part_when_opened_then_only_it_comes(transport: Transport, fake: FakeHub) -> None:
    with transport.open_file(base(fake), PLACE, start=1000, n_bytes=50) as body:
        assert (body.status, body.start, body.total_bytes) == (206, 1000, len(DATA))
        assert b"".join(body.chunks()) == DATA[1000:1050]


def test_part_behind_the_end_when_opened_then_it_is_told_without_an_error(transport: Transport, fake: FakeHub) -> None:
    with transport.open_file(base(fake), PLACE, start=10**6) as body:
        assert (body.status, body.total_bytes) == (416, len(DATA))


def test_token_when_redirected_to_another_host_then_it_stays_with_the_hub(transport: Transport, fake: FakeHub) -> None:
    with transport.open_file(base(fake), PLACE) as body:
        list(body.chunks())
    assert [("authorization" in asked.headers, asked.on_second_host) for asked in fake.asked] == [
        (True, False),
        (False, True),
    ]


def test_token_when_led_away_and_back_then_it_does_not_come_back(transport: Transport, fake: FakeHub) -> None:
    path = f"/acme/Tiny/resolve/main/{PLACE.path}"
    hops = iter([f"{fake.second_endpoint}/hop", f"{fake.endpoint}{path}"])
    fake.redirect_by = lambda: next(hops, None)
    with transport.open_file(base(fake), PLACE) as body:
        assert b"".join(body.chunks()) == DATA
    assert ["authorization" in asked.headers for asked in fake.asked] == [True, False, False]


def test_token_when_redirected_on_the_same_host_then_it_is_sent(transport: Transport, fake: FakeHub) -> None:
    hops = iter([f"{fake.endpoint}/acme/Tiny/resolve/main/{PLACE.path}?again=1"])
    fake.redirect_by = lambda: next(hops, None)
    with transport.open_file(base(fake), PLACE) as body:
        list(body.chunks())
    assert ["authorization" in asked.headers for asked in fake.asked] == [True, True]


def test_circle_of_redirects_when_followed_then_it_ends(transport: Transport, fake: FakeHub) -> None:
    fake.redirect_by = lambda: f"{fake.endpoint}/acme/Tiny/resolve/main/x.gguf"
    fake.repos["acme/Tiny"].files["x.gguf"] = DATA
    with pytest.raises(HubFault, match="in circles"), transport.open_file(base(fake), PLACE):
        pass


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/y", "http://", "http://[::bad"])
def test_redirect_to_what_is_no_web_address_when_followed_then_it_is_refused(
    transport: Transport, fake: FakeHub, target: str
) -> None:
    fake.redirect_to = target
    with pytest.raises(HubFault), transport.open_file(base(fake), PLACE):
        pass


def test_reader_that_waits_when_cut_from_another_thread_then_it_returns_at_once(
    transport: Transport, fake: FakeHub
) -> None:
    fake.gate.clear()
    with transport.open_file(base(fake), PLACE) as body:
        timer = threading.Timer(0.1, body.cut)
        timer.start()
        begun_s = time.monotonic()
        with pytest.raises(HubOffline):
            list(body.chunks())
        assert time.monotonic() - begun_s < 2.0
        timer.join()
    fake.gate.set()


def test_compressed_answer_when_a_file_is_opened_then_it_is_refused(transport: Transport, fake: FakeHub) -> None:
    fake.extra_headers = {"Content-Encoding": "gzip"}
    with pytest.raises(HubFault, match="encoding that was not asked for"), transport.open_file(base(fake), PLACE):
        pass


def test_connections_when_many_files_are_opened_then_none_is_left_behind(transport: Transport, fake: FakeHub) -> None:
    for _ in range(20):
        with transport.open_file(base(fake), PLACE, n_bytes=10) as body:
            list(body.chunks())
    for _ in range(MAX_CONNECTIONS + 5):  # one that was left behind would be missing in the end
        with transport.open_file(base(fake), PLACE) as body:
            next(body.chunks())


def test_repository_that_was_renamed_when_opened_then_the_hash_told_behind_the_redirect_counts(
    transport: Transport, fake: FakeHub
) -> None:
    hops = iter([f"{fake.endpoint}/acme/Tiny/resolve/main/{PLACE.path}"])
    fake.redirect_by = lambda: next(hops, None)
    with transport.open_file(base(fake), PLACE) as body:
        assert body.sha256 == fake.repos["acme/Tiny"].sha256(PLACE.path)


def test_hash_told_by_a_file_server_when_opened_then_it_is_not_the_hubs_word(
    transport: Transport, fake: FakeHub
) -> None:
    fake.linked = False
    with transport.open_file(base(fake), PLACE) as body:
        assert body.sha256 == ""
        assert body.etag == fake.repos["acme/Tiny"].sha256(PLACE.path)


def test_proxy_of_the_environment_when_set_then_the_hub_is_asked_through_it(
    fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", fake.endpoint)
    fake.redirects = False
    transport = Transport()
    with transport.open_file(Base("http://hub.invalid", lambda: ""), PLACE) as body:
        assert b"".join(body.chunks()) == DATA
    assert fake.asked[0].host == "hub.invalid"
    transport.close()


def test_closed_while_a_file_comes_when_read_on_then_it_ends_in_words(fake: FakeHub) -> None:
    transport = Transport()
    fake.gate.clear()
    with transport.open_file(base(fake), PLACE) as body:
        transport.close()
        fake.gate.set()
        with contextlib.suppress(HubOffline):  # whether it still comes is the connection's affair; a crash is not
            list(body.chunks())
    with pytest.raises(HubOffline, match="closing"), transport.open_file(base(fake), PLACE):
        pass
