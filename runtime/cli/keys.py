"""`deskside keys`: list, make, limit and remove API keys.

A host that runs on the data folder is asked; without one the settings are changed directly.
"""

import argparse
import asyncio
import contextlib
import datetime
import json

import msgspec

from runtime.cli import exit_codes
from runtime.cli.host_file import host_or
from runtime.cli.terminal import Terminal, neutralise, table
from runtime.cli.values import option_sentence
from runtime.errors import BadRequest
from runtime.messages.api import ApiKeyInfo, ApiState, NewKey, NewKeyAnswer
from runtime.options import KeyLimits
from runtime.paths import DataFolder
from runtime.units import format_count

_HEAD = ("NAME", "MADE", "LAST USED", "REQUESTS", "TOKENS", "LIMITS")


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Do the action.

    Raises:
        RuntimeFault: what it could not do.
    """
    return asyncio.run(_run(parsed, data, terminal))


async def _run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    async with host_or(data, lambda data: contextlib.nullcontext(_Offline(data))) as keys:
        match parsed.action:
            case "add":
                wanted = _new_key(parsed)
                made = await keys.add_key(wanted.name, wanted.limits)
                if parsed.json:
                    terminal.line(json.dumps(msgspec.to_builtins(made)))
                else:
                    terminal.say(f"This is the key {neutralise(made.name)}. It is shown this once:")
                    terminal.line(made.key)
            case "limit":
                info = await keys.limit_key(parsed.name, _limits(parsed))
                terminal.line(f"{neutralise(info.name)}: {_limits_text(info.limits)}.")
            case "remove":
                state = await keys.delete_key(parsed.name)
                terminal.line(f"Removed {neutralise(parsed.name)}.")
                if state.options.enabled and not state.keys and state.problem:
                    terminal.warn(state.problem)
            case _:
                _list(await keys.api(), terminal, as_json=parsed.json)
    return exit_codes.OK


def _limits(parsed: argparse.Namespace) -> KeyLimits:
    given = {field: getattr(parsed, field) for field in KeyLimits.__struct_fields__}
    for field, value in given.items():
        try:
            msgspec.convert({field: value}, KeyLimits)
        except msgspec.ValidationError:
            flag = f"--{field.replace('_', '-')}"
            sentence = option_sentence(KeyLimits, field)
            raise BadRequest(f"{flag} {value} is out of range: {sentence}", param=field) from None
    return msgspec.convert(given, KeyLimits)


def _new_key(parsed: argparse.Namespace) -> NewKey:
    try:
        return msgspec.convert({"name": parsed.name, "limits": _limits(parsed)}, NewKey)
    except msgspec.ValidationError:
        raise BadRequest(
            f"{parsed.name!r} cannot be the name of a key.",
            hint="Use 1 to 64 letters, digits, spaces, dots and hyphens.",
        ) from None


def _list(state: ApiState, terminal: Terminal, *, as_json: bool) -> None:
    keys = state.keys
    if as_json:
        terminal.line(json.dumps(msgspec.to_builtins(keys), indent=2))
        return
    if not keys:
        told = state.problem or "No key yet: programs on this machine need none."
        terminal.line(f"{told} `deskside keys add NAME` makes one.")
        return
    head, *lines = table([_HEAD, *map(_row, keys)], right=frozenset({3, 4}))
    terminal.line(head, "bold")
    for line in lines:
        terminal.line(line)


def _row(info: ApiKeyInfo) -> tuple[str, ...]:
    return (
        neutralise(info.name),
        _day(info.created_s),
        _day(info.used_s) if info.used_s else "never",
        str(info.n_requests),
        format_count(info.n_tokens),
        _limits_text(info.limits),
    )


def _limits_text(limits: KeyLimits) -> str:
    said = [
        f"{limits.requests_per_minute} a minute" if limits.requests_per_minute else "",
        f"{limits.max_concurrent} at once" if limits.max_concurrent else "",
        f"{format_count(limits.tokens_per_day)} tokens a day" if limits.tokens_per_day else "",
    ]
    return ", ".join(filter(None, said)) or "no limits"


def _day(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M")


class _Offline:
    """The settings without a host: what `HostClient` offers, as far as it is used here."""

    def __init__(self, data: DataFolder) -> None:
        from runtime.host.key_book import KeyBook
        from runtime.host.settings import SettingsFile

        self._settings = SettingsFile(data.settings_file)
        self._book = KeyBook(self._settings, data.key_use_file, None)

    async def api(self) -> ApiState:
        from runtime.host.access import is_loopback
        from runtime.host.key_book import without_key

        options, keys = self._settings.current.api, self._book.infos()
        is_closed = options.enabled and not keys and not is_loopback(options.host)
        return ApiState(options, running=False, keys=keys, problem=without_key(options.host) if is_closed else "")

    async def add_key(self, name: str, limits: KeyLimits) -> NewKeyAnswer:
        return self._book.add(name, limits)

    async def limit_key(self, name: str, limits: KeyLimits) -> ApiKeyInfo:
        return self._book.limit(name, limits)

    async def delete_key(self, name: str) -> ApiState:
        self._book.delete(name)
        return await self.api()
