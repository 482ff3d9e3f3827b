from collections.abc import Callable

import pytest

from app import removals as module
from app.link import HostLink
from app.models_link import ModelsLink
from app.notices import Note, Notices
from app.removals import Removals
from runtime.errors import StorageFault, to_failure
from tests.app.conftest import Wait
from tests.fakes.fake_host import FakeHost

Make = Callable[[int], Removals]


@pytest.fixture
def notes() -> list[Note]:
    return []


@pytest.fixture
def make(live_link: HostLink, notes: list[Note], monkeypatch: pytest.MonkeyPatch) -> Make:
    notices = Notices(live_link)
    notices.take_waiting()
    notices.said.connect(notes.append)

    def build(undo_ms: int) -> Removals:
        monkeypatch.setattr(module, "UNDO_MS", undo_ms)
        return Removals(live_link, ModelsLink(live_link, live_link), notices, live_link)

    return build


def test_when_a_model_is_removed_then_it_goes_after_the_time_to_undo(
    make: Make, live_link: HostLink, fake_host: FakeHost, notes: list[Note], wait: Wait
) -> None:
    removals = make(1)
    (model,) = live_link.installed
    removals.remove(model)
    assert removals.pending == {model.id}
    assert "98.4 MB" in notes[0].text
    assert notes[0].action_label == "Undo"
    wait(lambda: not live_link.installed)
    wait(lambda: not removals.pending)
    assert not fake_host.installed


def test_when_it_is_undone_then_the_host_never_hears_of_it(
    make: Make, live_link: HostLink, fake_host: FakeHost, notes: list[Note]
) -> None:
    removals = make(60_000)
    (model,) = live_link.installed
    removals.remove(model)
    removals.remove(model)
    assert len(notes) == 1
    removals.undo(model.id)
    removals.undo(model.id)
    assert not removals.pending
    assert "/admin/library/remove" not in fake_host.library.asked


def test_when_the_window_closes_then_what_waits_is_carried_out(
    make: Make, live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    removals = make(60_000)
    removals.remove(live_link.installed[0])
    removals.finish()
    wait(lambda: not fake_host.installed)


def test_when_it_cannot_be_removed_then_it_is_said_and_the_model_is_back(
    make: Make, live_link: HostLink, fake_host: FakeHost, notes: list[Note], wait: Wait
) -> None:
    fault = StorageFault("The folder is read-only.", hint="Change its permissions.")
    fake_host.library.failures["/admin/library/remove"] = to_failure(fault)
    removals = make(1)
    removals.remove(live_link.installed[0])
    wait(lambda: len(notes) == 2)
    assert "The folder is read-only. Change its permissions." in notes[1].text
    assert notes[1].level == "error"
    assert not removals.pending
