import msgspec
import pytest

from app.arrivals import Arrivals
from app.link import HostLink
from app.notices import Note, Notices
from runtime.errors import DiskFull, to_failure
from runtime.messages.api import DownloadsChanged, JobChanged
from runtime.messages.library import Download, Job
from tests.app.conftest import Wait
from tests.fakes.fake_host import FakeHost

RUNNING = Download("d1", "org/repo", "Model-Q4_K_M.gguf", "Q4_K_M", "running", 10, 100)
FULL = to_failure(DiskFull("The disk is full.", hint="Make room."))


@pytest.fixture
def notices(live_link: HostLink) -> Notices:
    one = Notices(live_link)
    one.take_waiting()
    return one


@pytest.fixture
def notes(notices: Notices) -> list[Note]:
    kept: list[Note] = []
    notices.said.connect(kept.append)
    return kept


def test_when_a_download_is_done_then_it_is_said_and_offers_a_chat(
    live_link: HostLink, fake_host: FakeHost, notices: Notices, notes: list[Note], wait: Wait
) -> None:
    arrivals = Arrivals(live_link, notices, live_link)
    wanted: list[str] = []
    arrivals.chat_wanted.connect(wanted.append)
    fake_host.emit(DownloadsChanged((RUNNING,)))
    wait(lambda: bool(live_link.downloads))
    assert not notes
    done = msgspec.structs.replace(RUNNING, state="done", done_bytes=100, model_id="model-q4")
    fake_host.emit(DownloadsChanged((done,)))
    wait(lambda: len(notes) == 1)
    assert "Model-Q4_K_M was downloaded" in notes[0].text
    notices.activate(notes[0].id)
    assert wanted == ["model-q4"]


def test_when_a_download_fails_then_the_reason_is_said_and_the_list_is_offered(
    live_link: HostLink, fake_host: FakeHost, notices: Notices, notes: list[Note], wait: Wait
) -> None:
    arrivals = Arrivals(live_link, notices, live_link)
    shown: list[bool] = []
    arrivals.shown_wanted.connect(lambda: shown.append(True))
    fake_host.emit(DownloadsChanged((RUNNING,)))
    fake_host.emit(DownloadsChanged((msgspec.structs.replace(RUNNING, state="failed", failure=FULL),)))
    wait(lambda: len(notes) == 1)
    assert "The disk is full. Make room." in notes[0].text
    notices.activate(notes[0].id)
    assert shown


def test_when_the_list_is_seen_then_what_it_shows_is_not_said_as_well(
    live_link: HostLink, fake_host: FakeHost, notices: Notices, notes: list[Note], wait: Wait
) -> None:
    arrivals = Arrivals(live_link, notices, live_link)
    arrivals.set_watched(True)
    fake_host.emit(DownloadsChanged((RUNNING,)))
    fake_host.emit(DownloadsChanged((msgspec.structs.replace(RUNNING, state="failed", failure=FULL),)))
    wait(lambda: bool(live_link.downloads) and live_link.downloads[0].state == "failed")
    assert not notes


def test_when_downloads_had_ended_before_the_window_opened_then_nothing_is_said(
    link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.library.downloads = [msgspec.structs.replace(RUNNING, state="done")]
    notices = Notices(link)
    notices.take_waiting()
    notes: list[Note] = []
    notices.said.connect(notes.append)
    Arrivals(link, notices, link)
    link.attach(fake_host.host_file)
    wait(lambda: bool(link.downloads))
    fake_host.emit(JobChanged(Job("j1", "verify", "m", "Check", "running")))
    wait(lambda: bool(link.jobs))
    assert not notes


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "done", "result": "Every byte is right."}, "Every byte is right."),
        ({"state": "failed", "failure": FULL}, "Check it: The disk is full. Make room."),
    ],
)
def test_when_a_job_ends_then_its_result_is_said(
    live_link: HostLink,
    fake_host: FakeHost,
    notices: Notices,
    notes: list[Note],
    wait: Wait,
    changes: dict[str, object],
    text: str,
) -> None:
    Arrivals(live_link, notices, live_link)
    job = Job("j1", "verify", "m", "Check it", "running")
    fake_host.emit(JobChanged(job))
    fake_host.emit(JobChanged(msgspec.structs.replace(job, **changes)))
    wait(lambda: len(notes) == 1)
    assert notes[0].text == text
