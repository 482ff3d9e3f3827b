"""What is kept of API keys, and what their holders may take."""

import asyncio
import datetime
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from runtime.errors import BadRequest, LimitReached, StorageFault
from runtime.host.key_book import RUN_KEY, KeyBook
from runtime.host.keys import MAX_KEYS, find_key
from runtime.host.settings import SettingsFile
from runtime.options import KeyLimits


class Rig:
    """A book with a clock that is set by hand."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.folder = folder
        self.at_s = 1000.0
        self.day = datetime.datetime(2026, 11, 30, 22, 0, tzinfo=datetime.UTC)
        self.book = self.open()

    def open(self, run_key: str | None = None) -> KeyBook:
        settings = SettingsFile(self.folder / "settings.toml")
        self.book = KeyBook(
            settings, self.folder / "key-use.json", run_key, clock=lambda: self.at_s, today=lambda: self.day
        )
        return self.book

    def refused(self, name: str) -> LimitReached:
        with pytest.raises(LimitReached) as told:
            self.book.begin(name)
        return told.value


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with asyncio.Runner() as runner:
        yield Rig(tmp_path, runner)


def within(rig: Rig, name: str, n: int) -> None:
    """Begin so many requests."""

    async def begin() -> None:
        for _ in range(n):
            rig.book.begin(name)

    rig.runner.run(begin())


def ended(rig: Rig, name: str, n_tokens: int) -> None:
    """One is over."""

    async def end() -> None:
        rig.book.end(name, n_tokens)

    rig.runner.run(end())


def test_when_a_key_is_made_then_it_is_found_by_name_and_kept_only_as_a_hash(rig: Rig) -> None:
    made = rig.book.add("editor", KeyLimits(max_concurrent=2))
    assert find_key(made.key, rig.book.names()) == "editor"
    assert made.key not in (rig.folder / "settings.toml").read_text()
    again = rig.open(run_key="from the command line")
    assert find_key(made.key, again.names()) == "editor"
    assert find_key("from the command line", again.names()) == RUN_KEY
    (info,) = again.infos()
    assert (info.name, info.limits, info.used_s) == ("editor", KeyLimits(max_concurrent=2), 0.0)


def test_when_a_name_is_taken_unknown_or_one_too_many_then_it_is_refused(rig: Rig) -> None:
    for number in range(MAX_KEYS):
        rig.book.add(f"key {number}", KeyLimits())
    with pytest.raises(BadRequest, match="There are 64 keys"):
        rig.book.add("one more", KeyLimits())
    with pytest.raises(BadRequest, match="There is a key named"):
        rig.book.add("key 3", KeyLimits())
    with pytest.raises(BadRequest, match="no key named"):
        rig.book.limit("nobody", KeyLimits())
    with pytest.raises(BadRequest, match="no key named"):
        rig.book.delete("nobody")


def test_when_the_minute_is_full_then_the_time_to_come_back_is_true(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits(requests_per_minute=3))
    within(rig, "editor", 2)
    rig.at_s += 20
    within(rig, "editor", 1)
    told = rig.refused("editor")
    assert told.details["limit"] == "requests_per_minute"
    wait_s = int(told.details["retry_after_s"])
    assert 40 <= wait_s <= 41
    rig.at_s += wait_s - 2
    rig.refused("editor")
    rig.at_s += 2
    within(rig, "editor", 2)
    rig.refused("editor")


def test_when_too_many_run_at_once_then_one_that_ends_makes_room(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits(max_concurrent=2))
    within(rig, "editor", 2)
    assert rig.refused("editor").details["limit"] == "max_concurrent"
    assert rig.book.infos()[0].n_running == 2
    ended(rig, "editor", 5)
    within(rig, "editor", 1)


def test_when_the_day_is_used_up_then_the_next_day_is_free_and_a_restart_is_not(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits(tokens_per_day=100))
    within(rig, "editor", 1)
    ended(rig, "editor", 150)
    told = rig.refused("editor")
    assert (told.details["limit"], told.details["retry_after_s"]) == ("tokens_per_day", 7200)
    rig.book.save()
    rig.open()
    rig.refused("editor")
    rig.day += datetime.timedelta(hours=3)
    within(rig, "editor", 1)
    (info,) = rig.book.infos()
    assert (info.n_tokens, info.n_tokens_today, info.n_requests) == (150, 0, 2)
    assert info.used_s > 0


def test_when_limits_are_lifted_then_the_next_request_passes(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits(requests_per_minute=1))
    within(rig, "editor", 1)
    rig.refused("editor")
    assert rig.book.limit("editor", KeyLimits()).limits == KeyLimits()
    within(rig, "editor", 5)


def test_when_a_key_is_deleted_while_it_is_used_then_a_new_one_of_its_name_begins_at_nothing(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits())
    within(rig, "editor", 3)
    rig.book.delete("editor")
    ended(rig, "editor", 10)
    rig.book.add("editor", KeyLimits(max_concurrent=1))
    (info,) = rig.book.infos()
    assert (info.n_requests, info.n_running, info.n_tokens) == (0, 0, 0)


def test_when_the_file_of_uses_is_damaged_then_counting_begins_anew(rig: Rig) -> None:
    rig.book.add("editor", KeyLimits())
    (rig.folder / "key-use.json").write_bytes(b'{"editor": [')
    assert rig.open().infos()[0].n_requests == 0
    within(rig, "editor", 1)
    rig.book.save()
    assert rig.open().infos()[0].n_requests == 1


def test_key_when_it_cannot_be_saved_then_nobody_needs_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(StorageFault):
            rig.book.add("editor", KeyLimits())
    assert rig.book.names() == {}
    assert rig.book.add("editor", KeyLimits()).name == "editor"
