"""Presets."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.notices import Notices
from app.presets import NO_PRESET, Preset, Presets
from app.settings import Settings
from app.store import StoreLane
from app.tasks import Lane
from runtime.options import GenerateOptions
from tests.app.conftest import WAIT_MS, Wait


@pytest.fixture
def store(qtbot: QtBot, tmp_path: Path) -> Iterator[StoreLane]:
    one = StoreLane(tmp_path / "c.sqlite3", Notices())
    yield one
    one.close()
    qtbot.waitUntil(lambda: one.is_closed, timeout=WAIT_MS)


@pytest.fixture
def settings(qtbot: QtBot, tmp_path: Path) -> Iterator[Settings]:
    lane = Lane("files")
    yield Settings(tmp_path / "window.toml", lane, Notices())
    lane.close()
    qtbot.waitUntil(lambda: lane.is_closed, timeout=WAIT_MS)


def test_when_saved_then_they_are_there_the_next_time(store: StoreLane, settings: Settings, wait: Wait) -> None:
    presets = Presets(store, settings)
    pirate = presets.save_new("  Pirate ", "Arr.", GenerateOptions(max_tokens=5))
    twin = presets.save_new("Pirate", "", GenerateOptions())
    nameless = presets.save_new("", "", GenerateOptions())
    presets.save(replace(pirate, system_prompt="Arr!"))
    assert [one.name for one in presets.all] == ["Pirate", "Pirate 2", "Preset"]
    again = Presets(store, settings)
    again.load()
    wait(lambda: len(again.all) == 3)
    assert again.get(pirate.id) == Preset(pirate.id, "Pirate", "Arr!", GenerateOptions(max_tokens=5))
    assert again.all == (replace(pirate, system_prompt="Arr!"), twin, nameless)


def test_when_the_default_is_deleted_then_there_is_none_and_undo_brings_the_preset_back(
    store: StoreLane, settings: Settings, qtbot: QtBot
) -> None:
    presets = Presets(store, settings)
    pirate = presets.save_new("Pirate", "Arr.", GenerateOptions())
    with qtbot.waitSignal(presets.default_changed, timeout=WAIT_MS) as heard:
        presets.set_default(pirate.id)
    assert heard.args == [pirate.id]
    assert presets.default == pirate
    presets.delete(pirate.id)
    presets.delete("unknown")
    assert (presets.all, presets.default) == ((), NO_PRESET)
    presets.undo_delete(pirate.id)
    assert presets.all == (pirate,)
