"""API keys as they are kept and used: names, limits, and what each has taken.

The keys are in the settings. What they took is in a file of its own, written at most every `SAVE_EVERY_S` and at the
end: it changes with each request, and the day's count must outlive a restart.
"""

import asyncio
import datetime
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from runtime.atomic_files import write_atomically
from runtime.errors import BadRequest, LimitReached, NotAuthorized
from runtime.host.keys import MAX_KEYS, hash_key, new_key
from runtime.host.settings import SettingsFile, StoredKey
from runtime.messages.api import ApiKeyInfo, NewKeyAnswer
from runtime.options import KeyLimits
from runtime.units import now, now_local
from runtime.unreadable import UNREADABLE

log = logging.getLogger(__name__)

RUN_KEY = "(this run)"
"""Name of the key that the command line gave; no stored key can have it."""

SAVE_EVERY_S = 60.0
_MINUTE_S = 60.0
_CONCURRENT_RETRY_S = 2
_MAX_FILE_BYTES = 1024 * 1024


class KeyUse(msgspec.Struct, omit_defaults=True):
    """What a key has taken; `day` is the date, as 2026-11-30, that `n_tokens_today` is of."""

    used_s: float = 0.0
    n_requests: int = 0
    n_tokens: int = 0
    day: str = ""
    n_tokens_today: int = 0


@dataclass(slots=True)
class _Live:
    """What only this run knows: starts within the last minute (monotonic; kept only where they are limited)."""

    running: int = 0
    started_at: deque[float] = field(default_factory=deque)


class KeyBook:
    """The one owner of keys. Home: the event loop."""

    def __init__(
        self,
        settings: SettingsFile,
        use_file: Path,
        run_key: str | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime.datetime] = now_local,
    ) -> None:
        """`run_key` is one more key for this run alone, without limits."""
        self._settings = settings
        self._use_file = use_file
        self._run_hash = hash_key(run_key) if run_key else ""
        self._clock = clock
        self._today = today
        self._use = _read(use_file)
        self._live: dict[str, _Live] = {}
        self._saving: asyncio.TimerHandle | None = None

    # --- keys ---------------------------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """Names of all keys by their hashes."""
        found = {key.sha256: key.name for key in self._settings.current.keys}
        return {**found, self._run_hash: RUN_KEY} if self._run_hash else found

    def infos(self) -> tuple[ApiKeyInfo, ...]:
        """The stored ones, as others see them."""
        return tuple(map(self._info, self._settings.current.keys))

    def add(self, name: str, limits: KeyLimits) -> NewKeyAnswer:
        """Make a key.

        Raises:
            BadRequest: the name is taken, or there are `MAX_KEYS`.
            StorageFault: it could not be saved; there is no such key then, since nobody was told it.
        """
        keys = self._settings.current.keys
        if any(key.name == name for key in keys):
            raise BadRequest(f"There is a key named {name!r}.", hint="Choose another name.", param="name")
        if len(keys) >= MAX_KEYS:
            raise BadRequest(f"There are {MAX_KEYS} keys.", hint="Delete one first.", param="name")
        key = new_key()
        self._use.pop(name, None)
        self._settings.change_if_saved(keys=(*keys, StoredKey(name, hash_key(key), now(), limits)))
        return NewKeyAnswer(name, key)

    def limit(self, name: str, limits: KeyLimits) -> ApiKeyInfo:
        """Change what a key's holder may take, from the next request on.

        Raises:
            BadRequest: there is none of that name.
            StorageFault: it could not be saved.
        """
        changed = msgspec.structs.replace(self._stored(name), limits=limits)
        keys = tuple(changed if key.name == name else key for key in self._settings.current.keys)
        self._settings.change(keys=keys)
        return self._info(changed)

    def delete(self, name: str) -> None:
        """Forget a key.

        Raises:
            BadRequest: there is none of that name.
            StorageFault: it could not be saved; it is forgotten for this run.
        """
        gone = self._stored(name)
        self._use.pop(name, None)
        self._live.pop(name, None)
        self._settings.change(keys=tuple(key for key in self._settings.current.keys if key is not gone))

    def _stored(self, name: str) -> StoredKey:
        found = next((key for key in self._settings.current.keys if key.name == name), None)
        if found is None:
            raise BadRequest(f"There is no key named {name!r}.", param="name")
        return found

    def _info(self, key: StoredKey) -> ApiKeyInfo:
        use = self._use.get(key.name, KeyUse())
        live = self._live.get(key.name)
        return ApiKeyInfo(
            name=key.name,
            created_s=key.created_s,
            limits=key.limits,
            used_s=use.used_s,
            n_requests=use.n_requests,
            n_running=live.running if live is not None else 0,
            n_tokens=use.n_tokens,
            n_tokens_today=use.n_tokens_today if use.day == self._day() else 0,
        )

    # --- use ----------------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """A request with this key begins; "" is one without a key.

        Raises:
            LimitReached: the key's holder has taken what it may.
        """
        stored = next((key for key in self._settings.current.keys if key.name == name), None)
        if stored is None:
            return
        live = self._live.setdefault(name, _Live())
        self._check(stored, live)
        if stored.limits.requests_per_minute is not None:
            live.started_at.append(self._clock())
        live.running += 1
        use = self._use.setdefault(name, KeyUse())
        use.used_s = now()
        use.n_requests += 1
        self._save_later()

    def end(self, name: str, n_tokens: int) -> None:
        """A request that began is over, having read and written so many tokens."""
        live, use = self._live.get(name), self._use.get(name)
        if live is None or use is None:  # deleted meanwhile
            return
        live.running = max(0, live.running - 1)
        day = self._day()
        if use.day != day:
            use.day, use.n_tokens_today = day, 0
        use.n_tokens += n_tokens
        use.n_tokens_today += n_tokens
        self._save_later()

    def _check(self, key: StoredKey, live: _Live) -> None:
        limits, use = key.limits, self._use.get(key.name, KeyUse())
        if limits.max_concurrent is not None and live.running >= limits.max_concurrent:
            raise _reached(key.name, f"{limits.max_concurrent} requests at once", "max_concurrent", _CONCURRENT_RETRY_S)
        if limits.requests_per_minute is not None:
            at = self._clock()
            while live.started_at and at - live.started_at[0] >= _MINUTE_S:
                live.started_at.popleft()
            if len(live.started_at) >= limits.requests_per_minute:
                # Of those within the minute, so many must go that one fits in.
                next_out = live.started_at[len(live.started_at) - limits.requests_per_minute]
                wait_s = max(1, round(next_out + _MINUTE_S - at + 0.5))
                raise _reached(
                    key.name, f"{limits.requests_per_minute} requests a minute", "requests_per_minute", wait_s
                )
        else:
            live.started_at.clear()
        if limits.tokens_per_day is not None and use.day == self._day() and use.n_tokens_today >= limits.tokens_per_day:
            at_night = self._today()
            midnight = (at_night + datetime.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
            wait_s = max(1, round((midnight - at_night).total_seconds()))
            raise _reached(key.name, f"{limits.tokens_per_day} tokens a day", "tokens_per_day", wait_s)

    def _day(self) -> str:
        return self._today().date().isoformat()

    # --- the file -----------------------------------------------------------------------------------------

    def _save_later(self) -> None:
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_EVERY_S, self.save)

    def save(self) -> None:
        """Write what is not written."""
        if self._saving is None:
            return
        self._saving.cancel()
        self._saving = None
        try:
            write_atomically(self._use_file, msgspec.json.encode(self._use), private=True)
        except OSError as error:  # figures only: nothing else may fail for them
            log.warning("the use of keys could not be saved: %s", error)


def revoked(name: str) -> NotAuthorized:
    """What running requests get whose key was deleted."""
    return NotAuthorized(f"The API key {name!r} was deleted.", hint="Use another key.")


def without_key(host: str) -> str:
    """Why an address that other machines reach is not served without a key, and what to do."""
    return (
        f"The API is off, for programs on this machine too, since {host} can be reached from other machines and there "
        "is no API key. Make a key, or serve this machine alone at 127.0.0.1."
    )


def _read(path: Path) -> dict[str, KeyUse]:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, KeyUse])
    except (OSError, *UNREADABLE):
        return {}


def _reached(name: str, what: str, limit: str, retry_after_s: int) -> LimitReached:
    return LimitReached(
        f"The API key {name!r} may take {what}, and has.",
        hint=f"Try again in {retry_after_s} s, or ask for a higher limit.",
        retry_after_s=retry_after_s,
        limit=limit,
    )
