import inspect
import ssl
from email.utils import format_datetime

import httpx2
import pytest
from huggingface_hub import errors as hf

from runtime.errors import HubFault, HubNotFound, HubOffline, HubRefused
from runtime.library.hub.faults import MAX_RETRY_AFTER_S, fault_of, may_pass, retry_after_s
from runtime.units import now_local

ENDPOINT = "http://hub.test"


def answer(status: int, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers=headers or {}, request=httpx2.Request("GET", ENDPOINT))


def mapped(error: Exception, repo: str = "acme/Tiny") -> HubFault:
    return fault_of(error, endpoint=ENDPOINT, repo=repo)


def http_errors() -> list[type[hf.HfHubHTTPError]]:
    return [
        kind
        for _, kind in inspect.getmembers(hf, inspect.isclass)
        if issubclass(kind, hf.HfHubHTTPError) and kind is not hf.HfHubHTTPError
    ]


@pytest.mark.parametrize("kind", http_errors(), ids=lambda kind: kind.__name__)
def test_error_of_the_hub_library_when_mapped_then_it_is_one_of_ours_with_words(kind: type[hf.HfHubHTTPError]) -> None:
    fault = mapped(kind("said", response=answer(404)))
    assert isinstance(fault, HubFault)
    assert fault.message
    assert not may_pass(fault)


@pytest.mark.parametrize(
    "kind",
    [kind for _, kind in inspect.getmembers(httpx2, inspect.isclass) if issubclass(kind, httpx2.TransportError)],
    ids=lambda kind: kind.__name__,
)
def test_error_of_the_connection_when_mapped_then_it_says_that_the_hub_cannot_be_reached(
    kind: type[httpx2.TransportError],
) -> None:
    fault = mapped(kind("said"))
    assert isinstance(fault, HubFault)
    assert ENDPOINT in fault.message
    assert fault.hint
    assert may_pass(fault) is isinstance(fault, HubOffline)


def test_gated_repository_when_nobody_is_signed_in_then_it_asks_for_a_token() -> None:
    fault = mapped(hf.GatedRepoError("said", response=answer(401)))
    assert isinstance(fault, HubRefused)
    assert fault.details["needs_token"] is True
    assert "sign in" in fault.hint


def test_gated_repository_when_signed_in_then_it_asks_for_patience() -> None:
    fault = mapped(hf.GatedRepoError("said", response=answer(403)))
    assert fault.details["needs_token"] is False
    assert "account" in fault.message


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (hf.RepositoryNotFoundError, "no repository"),
        (hf.RevisionNotFoundError, "no such revision"),
        (hf.RemoteEntryNotFoundError, "no such file"),
    ],
)
def test_what_is_not_there_when_mapped_then_it_says_what(kind: type[hf.HfHubHTTPError], words: str) -> None:
    fault = mapped(kind("said", response=answer(404)))
    assert isinstance(fault, HubNotFound)
    assert words in fault.message


@pytest.mark.parametrize(("status", "passes"), [(429, True), (500, True), (502, True), (503, True), (400, False)])
def test_status_when_mapped_then_only_what_passes_is_tried_again(status: int, passes: bool) -> None:
    assert may_pass(mapped(hf.HfHubHTTPError("said", response=answer(status)))) is passes


def test_wait_in_seconds_when_asked_for_then_it_is_known() -> None:
    fault = mapped(hf.HfHubHTTPError("said", response=answer(429, {"Retry-After": "17"})))
    assert retry_after_s(fault) == 17.0
    assert "17 s" in fault.hint


def test_wait_until_a_date_when_asked_for_then_it_is_counted_from_now() -> None:
    from datetime import timedelta

    when = format_datetime(now_local() + timedelta(seconds=100))
    wait_s = retry_after_s(mapped(hf.HfHubHTTPError("said", response=answer(503, {"Retry-After": when}))))
    assert wait_s is not None
    assert 95 < wait_s < 105


@pytest.mark.parametrize(
    ("raw", "wait_s"), [("x", None), ("", None), ("nan", None), ("1e9", MAX_RETRY_AFTER_S), ("-5", 0)]
)
def test_wait_that_is_none_when_asked_for_then_it_is_left_out_or_bounded(raw: str, wait_s: float | None) -> None:
    fault = mapped(hf.HfHubHTTPError("said", response=answer(429, {"Retry-After": raw})))
    assert retry_after_s(fault) == wait_s


def test_certificate_that_does_not_hold_when_connecting_then_it_says_so() -> None:
    error = httpx2.ConnectError("said")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    fault = mapped(error)
    assert isinstance(fault, HubOffline)
    assert "could not prove who it is" in fault.message
    assert not may_pass(fault)


def test_proxy_that_refuses_when_connecting_then_it_is_named() -> None:
    fault = mapped(httpx2.ProxyError("407 Proxy Authentication Required"))
    assert "proxy" in fault.message
    assert "HTTPS_PROXY" in fault.hint


def test_offline_by_environment_when_asked_then_it_does_not_pass() -> None:
    assert not may_pass(mapped(hf.OfflineModeIsEnabled("said")))


def test_one_of_ours_when_mapped_then_it_stays_itself() -> None:
    fault = HubNotFound("mine")
    assert mapped(fault) is fault
