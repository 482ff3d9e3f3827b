import msgspec
import pytest
from PySide6.QtWidgets import QAbstractButton

from app.ui.models.page import ModelsPage
from app.ui.models.transfers import DownloadRow, download_line
from runtime.errors import DiskFull, to_failure
from runtime.messages.api import InstalledChanged
from runtime.messages.library import Download, Job
from tests.app.ui.models.conftest import Until, button
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost
from tests.support.widgets import texts

GB = 10**9
NAME = "Model-Q4_K_M.gguf"
RUNNING = Download("d1", "org/repo", NAME, "Q4_K_M", "running", 1_200_000_000, 5 * GB, 24.6e6, 151.0)
FULL = to_failure(DiskFull("The disk is full.", hint="Make room, then try again."))


@pytest.fixture
def tab(page: ModelsPage) -> ModelsPage:
    page.show_tab("downloads")
    return page


def put(host: FakeHost, **changes: object) -> None:
    host.library.put_download(host, msgspec.structs.replace(RUNNING, **changes))


def row(page: ModelsPage) -> DownloadRow:
    (one,) = page.transfers._downloads.values()
    return one


def test_when_nothing_is_on_its_way_then_the_tab_leads_to_discover(tab: ModelsPage) -> None:
    assert "Nothing is on its way" in texts(tab.transfers)
    button(tab.transfers, "Discover models").click()
    assert tab.tab == "discover"


def test_when_a_download_runs_then_progress_speed_and_time_left_are_told_and_the_tab_counts_it(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    put(fake_host)
    until(lambda: "1.2 of 5.0 GB  ·  24.6 MB a second  ·  2 min 31 s left" in texts(tab.transfers))
    assert row(tab).bar.value() == 240
    assert tab._buttons["downloads"].text() == "Downloads (1)"


def test_when_nothing_comes_then_no_time_is_guessed(tab: ModelsPage, fake_host: FakeHost, until: Until) -> None:
    put(fake_host, speed_bps=0.0, left_s=None, stalled_s=21.0)
    until(lambda: "nothing has come for 21.0 s" in texts(tab.transfers))
    assert "Stalled" in texts(tab.transfers)
    assert "left" not in texts(tab.transfers)


def test_when_pause_is_pressed_then_it_pauses_and_can_go_on(tab: ModelsPage, fake_host: FakeHost, until: Until) -> None:
    put(fake_host)
    until(lambda: tab.transfers._downloads)
    pressed = row(tab)
    button(tab.transfers, "Pause: Model-Q4_K_M").click()
    until(lambda: "Paused" in texts(tab.transfers))
    assert row(tab) is pressed
    button(tab.transfers, "Go on: Model-Q4_K_M").click()
    until(lambda: "Downloading" in texts(tab.transfers))


def test_when_a_download_failed_then_it_says_why_and_offers_another_try(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    put(fake_host, state="failed", failure=FULL)
    until(lambda: "The disk is full. Make room, then try again." in texts(tab.transfers))
    button(tab.transfers, "Try again: Model-Q4_K_M").click()
    until(lambda: "Downloading" in texts(tab.transfers))
    assert "The disk is full" not in texts(tab.transfers)


def test_when_it_is_cancelled_then_it_is_gone(tab: ModelsPage, fake_host: FakeHost, until: Until) -> None:
    put(fake_host)
    until(lambda: tab.transfers._downloads)
    button(tab.transfers, "Cancel and delete what was fetched: Model-Q4_K_M").click()
    until(lambda: not tab.transfers._downloads)
    assert "/admin/downloads/cancel" in fake_host.library.asked
    until(lambda: "Nothing is on its way" in texts(tab.transfers))


def test_when_it_is_done_then_a_chat_is_one_press_away_and_the_list_can_be_tidied(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.emit(InstalledChanged((installed_model("new", "New"),)))
    put(fake_host, state="done", done_bytes=5_000_000_000, model_id="new")
    until(lambda: "Done" in texts(tab.transfers))
    wanted: list[str] = []
    tab.chat_wanted.connect(wanted.append)
    until(lambda: "new" in {model.id for model in tab._link.installed})
    button(tab.transfers, "Chat: Model-Q4_K_M").click()
    assert wanted == ["new"]
    button(tab.transfers, "Take finished ones off the list").click()
    until(lambda: not tab.transfers._downloads)


def test_when_many_are_on_their_way_then_what_moves_stands_on_top(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    for number, state in enumerate(("done", "queued", "running", "failed", "running")):
        put(fake_host, id=f"d{number}", name=f"m{number}.gguf", state=state)
    until(lambda: list(tab.transfers._downloads) == ["d4", "d2", "d3", "d1", "d0"])
    until(lambda: "2 running, 49.2 MB a second together" in texts(tab.transfers))


def test_when_work_on_files_runs_then_it_is_listed_and_can_be_cancelled(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    job = fake_host.library.start_job(fake_host, "move", "", "Move the models to /big")
    until(lambda: "40%  ·  reading  ·  412 MB a second  ·  12.0 s left" in texts(tab.transfers))
    button(tab.transfers, "Cancel: Move the models to /big").click()
    until(lambda: "Cancelled" in texts(tab.transfers))
    fake_host.library.put_job(fake_host, msgspec.structs.replace(job, state="failed", failure=FULL))
    until(lambda: "The disk is full. Make room, then try again." in texts(tab.transfers))


def test_when_a_result_has_a_long_hash_then_it_can_break_and_is_whole(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    digest = "ab" * 32
    fake_host.library.put_job(fake_host, Job("j", "verify", "m", "Check", "done", result=f"The SHA-256 is {digest}."))
    until(lambda: "The SHA-256 is" in texts(tab.transfers))
    assert digest in texts(tab.transfers).replace("\u200b", "")


def test_when_every_state_is_shown_then_each_button_has_a_name(
    tab: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    for state in ("queued", "running", "paused", "verifying", "done", "failed"):
        put(fake_host, state=state)
        until(lambda state=state: tab.transfers._downloads and tab._link.downloads[0].state == state)  # type: ignore[misc]
        buttons = [each for each in row(tab).findChildren(QAbstractButton) if each.isVisibleTo(row(tab))]
        assert buttons or state == "done"
        assert all("Model-Q4_K_M" in each.accessibleName() for each in buttons)


def test_when_sizes_are_shown_then_both_have_the_unit_of_the_whole() -> None:
    assert download_line(msgspec.structs.replace(RUNNING, state="paused", done_bytes=20_000_000)) == "0.0 of 5.0 GB"
