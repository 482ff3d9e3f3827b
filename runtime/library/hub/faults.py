"""What huggingface_hub, its HTTP library and the hub's answers raise, as errors of ours.

The one place where foreign exceptions of the hub are mapped; a test holds that none is missed.
"""

import email.utils
import ssl
from datetime import UTC, datetime

import httpx2
from huggingface_hub import errors as hf

from runtime.errors import HubFault, HubNotFound, HubOffline, HubRefused
from runtime.units import now

MAX_RETRY_AFTER_S = 3600.0
"""A hub may ask for more; a person would rather be told."""
TOO_MANY_REQUESTS = 429
_PASSING = frozenset({408, 425, TOO_MANY_REQUESTS, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524})


def may_pass(fault: HubFault) -> bool:
    """Whether the same request may work a little later: the network, a busy or restarting hub."""
    if isinstance(fault, HubOffline):
        return not fault.details.get("chosen", False) and not fault.details.get("is_lasting", False)
    return int(fault.details.get("status", 0)) in _PASSING


def retry_after_s(fault: HubFault) -> float | None:
    """How long the hub asked to wait; `None` if it did not."""
    wait_s = fault.details.get("retry_after_s")
    return None if wait_s is None else float(wait_s)


def offline_by_choice(endpoint: str) -> HubOffline:
    """The person, or the environment, said not to contact the hub."""
    return HubOffline(
        "Deskside is set to stay offline.",
        hint="Switch Offline off in the settings to reach the hub.",
        endpoint=endpoint,
        chosen=True,
    )


def fault_of(error: Exception, *, endpoint: str, repo: str = "") -> HubFault:
    """Map an error raised while the hub was asked.

    Args:
        error: of huggingface_hub, httpx2 or ours (which comes back as it is).
        endpoint: which hub, for the person.
        repo: what was asked about; "" when it was no repository.
    """
    if isinstance(error, HubFault):
        return error
    if isinstance(error, hf.OfflineModeIsEnabled):
        return offline_by_choice(endpoint)
    if isinstance(error, hf.HfHubHTTPError | httpx2.HTTPStatusError):
        return _answered(error, endpoint, repo)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return HubFault(
            f"The hub at {endpoint} leads to an address that cannot be asked: {error}.",
            hint="Check the hub address in the settings.",
            endpoint=endpoint,
        )
    if isinstance(error, httpx2.TransportError | httpx2.StreamError | OSError):
        return _unreachable(error, endpoint)
    return HubFault(f"The hub at {endpoint} gave an answer that is not understood: {error}", endpoint=endpoint)


def _unreachable(error: Exception, endpoint: str) -> HubOffline:
    if isinstance(error, httpx2.ProxyError):
        sentence = f"The proxy does not let Deskside reach the hub at {endpoint}: {error}."
        hint = "Check HTTPS_PROXY and NO_PROXY in the environment."
    elif isinstance(_root(error), ssl.SSLError):
        sentence = f"The hub at {endpoint} could not prove who it is: {_root(error)}."
        hint = "A proxy that reads encrypted traffic, or a wrong clock, is the usual reason."
    elif isinstance(error, httpx2.TimeoutException):
        sentence = f"The hub at {endpoint} did not answer in time."
        hint = "Check the connection; Deskside tries again."
    elif isinstance(error, httpx2.ConnectError):
        sentence = f"The hub at {endpoint} cannot be reached: {_root(error)}."
        hint = "Check the connection, or set a mirror as hub address."
    else:
        sentence = f"The connection to the hub at {endpoint} broke off."
        hint = "Check the connection; Deskside tries again."
    # A certificate that does not hold will not hold in a minute.
    return HubOffline(sentence, hint=hint, endpoint=endpoint, is_lasting=isinstance(_root(error), ssl.SSLError))


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return error


def _answered(error: hf.HfHubHTTPError | httpx2.HTTPStatusError, endpoint: str, repo: str) -> HubFault:
    status = error.response.status_code
    what = repo or "what was asked for"
    if isinstance(error, hf.GatedRepoError):
        if status == 401:  # noqa: PLR2004 - Unauthorized
            return HubRefused(
                f"{what} is gated: its publisher wants to know who downloads it.",
                hint="Accept its terms on the hub's page, then sign in here with an access token.",
                repo=repo,
                needs_token=True,
                status=status,
            )
        return HubRefused(
            f"{what} is gated, and your account has no access to it yet.",
            hint="Accept its terms on the hub's page and wait until its publisher agrees.",
            repo=repo,
            needs_token=False,
            status=status,
        )
    if isinstance(error, hf.DisabledRepoError):
        return HubRefused(f"{what} was disabled by the hub.", repo=repo, needs_token=False, status=status)
    if isinstance(error, hf.RevisionNotFoundError):
        return HubNotFound(f"{what} has no such revision (any more).", repo=repo, status=status)
    if isinstance(error, hf.EntryNotFoundError):
        return HubNotFound(f"{what} has no such file (any more).", repo=repo, status=status)
    if isinstance(error, hf.RepositoryNotFoundError) or (status in (404, 410) and repo):
        return HubNotFound(
            f"There is no repository {what} on the hub, or it is private.",
            hint="Check the name; for a private one, sign in with an access token.",
            repo=repo,
            status=status,
        )
    return _by_status(error.response, endpoint, repo)


def _by_status(response: httpx2.Response, endpoint: str, repo: str) -> HubFault:
    status = response.status_code
    if status == TOO_MANY_REQUESTS:
        wait_s = _asked_wait_s(response.headers.get("Retry-After", ""))
        when = "Try again later." if wait_s is None else f"Try again in {wait_s:.0f} s."
        extra = {} if wait_s is None else {"retry_after_s": wait_s}
        return HubFault(
            "The hub was asked too often from here.",
            hint=f"{when} Signing in raises the limit.",
            endpoint=endpoint,
            status=status,
            **extra,
        )
    if status in (401, 403):
        said = response.headers.get("X-Error-Message", "")
        return HubRefused(
            f"The hub refused{f' {repo}' if repo else ''}{f': {said[:200]}' if said else ''}.",
            hint="Sign in with an access token that may read it.",
            repo=repo,
            needs_token=status == 401,  # noqa: PLR2004
            status=status,
        )
    if status in (404, 410):
        return HubNotFound("The hub does not have what was asked for.", repo=repo, status=status)
    wait_s = _asked_wait_s(response.headers.get("Retry-After", ""))
    extra = {} if wait_s is None else {"retry_after_s": wait_s}
    return HubFault(
        f"The hub at {endpoint} answered with an error ({status}).",
        hint="Try again later." if status in _PASSING else "",
        endpoint=endpoint,
        status=status,
        **extra,
    )


def _asked_wait_s(raw: str) -> float | None:
    """`Retry-After`: seconds or a date (RFC 9110, 10.2.3)."""
    if not raw:
        return None
    try:
        wait_s = float(raw)
    except ValueError:
        try:
            when = email.utils.parsedate_to_datetime(raw)
        except ValueError:
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        wait_s = (when - datetime.fromtimestamp(now(), UTC)).total_seconds()
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S) if wait_s == wait_s else None  # noqa: PLR0124 - not a number
