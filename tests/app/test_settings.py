"""The window's settings file."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.notices import Notices
from app.settings import Settings, WindowSettings
from app.tasks import Lane
from tests.app.conftest import WAIT_MS, Wait


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "window.toml"


@pytest.fixture
def notices(qtbot: QtBot) -> Notices:  # noqa: ARG001 - qtbot brings the event loop
    return Notices()


@pytest.fixture
def make(path: Path, notices: Notices, qtbot: QtBot) -> Iterator[Callable[[], Settings]]:
    lane = Lane("files")
    yield lambda: Settings(path, lane, notices)
    lane.close()
    qtbot.waitUntil(lambda: lane.is_closed, timeout=WAIT_MS)


def test_when_changed_then_it_is_kept(make: Callable[[], Settings], path: Path, wait: Wait) -> None:
    settings = make()
    settings.update(theme="dark", splitters={"chat": (200, 800)}, zoom_percent=125)
    settings.update(page="models")
    wait(path.exists)
    again = make().values
    assert again == WindowSettings(theme="dark", splitters={"chat": (200, 800)}, zoom_percent=125, page="models")
    assert tomllib.loads(path.read_text())["version"] == 1


def test_when_a_field_does_not_exist_then_it_is_a_mistake(make: Callable[[], Settings]) -> None:
    with pytest.raises(TypeError):
        make().update(colour="red")


def test_when_nothing_changes_then_nothing_is_told(make: Callable[[], Settings]) -> None:
    settings = make()
    told: list[WindowSettings] = []
    settings.changed.connect(told.append)
    settings.update(page="chat")
    settings.update(page="server")
    assert [values.page for values in told] == ["server"]


def test_when_a_newer_program_wrote_more_then_it_is_kept(make: Callable[[], Settings], path: Path, wait: Wait) -> None:
    path.write_text('version = 9\npage = "server"\nfuture_setting = [1, 2]\n[future_table]\nx = true\n')
    settings = make()
    assert settings.values.page == "server"
    settings.update(page="chat")
    settings.flush()
    wait(lambda: tomllib.loads(path.read_text())["page"] == "chat")
    raw = tomllib.loads(path.read_text())
    assert (raw["version"], raw["future_setting"], raw["future_table"]) == (9, [1, 2], {"x": True})


@pytest.mark.parametrize("raw", [b"this is = not [toml", b"\xff\xfe\x00"])
def test_when_the_file_is_broken_then_it_is_moved_aside_and_said(
    make: Callable[[], Settings], path: Path, notices: Notices, raw: bytes
) -> None:
    path.write_bytes(raw)
    assert make().values == WindowSettings()
    assert [one.read_bytes() for one in path.parent.glob("window.damaged-*.toml")] == [raw]
    assert "could not be read" in notices.take_waiting()[0].text


def test_when_one_value_is_wrong_then_only_it_is_lost(
    make: Callable[[], Settings], path: Path, notices: Notices
) -> None:
    path.write_text('theme = "pink"\npage = "models"\nzoom_percent = "big"\n')
    assert make().values == WindowSettings(page="models")
    assert len(list(path.parent.glob("window.damaged-*.toml"))) == 1
    assert len(notices.take_waiting()) == 1


def test_when_it_cannot_be_written_then_it_is_said_once_until_it_can(
    make: Callable[[], Settings], path: Path, notices: Notices, wait: Wait
) -> None:
    settings = make()
    said: list[str] = []
    notices.take_waiting()
    notices.said.connect(lambda note: said.append(note.text))
    (path.parent / "window.toml.new").mkdir()  # in the way of the draft
    settings.update(page="models")
    settings.flush()
    wait(lambda: bool(said))
    assert "could not be saved" in said[0]
    (path.parent / "window.toml.new").rmdir()
    settings.update(page="server")
    settings.flush()
    wait(path.exists)
