"""Folders, making a smaller file, nodes, and the settings that hold for all models."""

import pytest
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.ui.models.folders import FoldersPage
from app.ui.models.page import ModelsPage
from app.ui.models.quantize import OFFERED, SUGGESTED, QuantizePage
from app.ui.pages.nodes import NodesCard
from app.ui.pages.settings import SettingsPage
from app.ui.window import MainWindow
from runtime.errors import BadRequest, StorageFault, to_failure
from runtime.messages.api import InstalledChanged
from runtime.messages.fit import NodeInfo
from runtime.messages.library import HubAccount, MoveRequest, QuantizeRequest
from runtime.options import ModelsOptions
from tests.app.ui.models.conftest import Until, button
from tests.app.ui.test_window import focusable, name_of
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_models import GB, main_folder
from tests.support.widgets import texts

ORIGINAL = installed_model("f16", "Llama 3.2 3B", quantization="F16", n_params=3_212_749_888, size_bytes=6 * GB)


@pytest.fixture
def folders(page: ModelsPage, until: Until) -> FoldersPage:
    page.open_folders()
    cover = page.cover
    assert isinstance(cover, FoldersPage)
    until(lambda: "Downloads go here" in texts(cover))
    return cover


@pytest.fixture
def quantize(page: ModelsPage, fake_host: FakeHost, until: Until) -> QuantizePage:
    fake_host.emit(InstalledChanged((ORIGINAL,)))
    until(lambda: "f16" in page.installed._cards)
    page.act("f16", "quantize")
    cover = page.cover
    assert isinstance(cover, QuantizePage)
    until(lambda: all(row.preview is not None for row in cover.rows.values()))
    return cover


@pytest.fixture
def settings(live_window: MainWindow, until: Until) -> SettingsPage:
    live_window.show_page("settings")
    one = live_window.page_widget("settings")
    assert isinstance(one, SettingsPage)
    until(one.models.isEnabled)
    until(lambda: "Not signed in" in texts(one))
    return one


@pytest.fixture
def nodes(live_window: MainWindow) -> NodesCard:
    live_window.show_page("hardware")
    card = live_window.page_widget("hardware").findChild(NodesCard)
    assert isinstance(card, NodesCard)
    return card


# --- folders


def test_when_folders_are_shown_then_each_tells_its_room_and_can_be_added_and_removed(
    folders: FoldersPage, until: Until
) -> None:
    assert "5 models, 45.2 GB; 120 GB free on this disk" in texts(folders)
    folders.add_folder("/mnt/big")
    until(lambda: "/mnt/big" in texts(folders))
    button(folders, "Search /mnt/big no longer").click()
    until(lambda: "/mnt/big" not in texts(folders))


def test_when_a_folder_cannot_be_added_then_the_reason_stands_there(
    folders: FoldersPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.failures["/admin/library/folders"] = to_failure(StorageFault("There is no such folder."))
    folders.add_folder("/gone")
    until(lambda: "There is no such folder." in texts(folders))


def test_when_the_folder_is_moved_then_the_move_is_shown_until_it_ends(
    folders: FoldersPage, fake_host: FakeHost, until: Until
) -> None:
    folders.move_to("/mnt/big/models")
    until(lambda: "Move the models to /mnt/big/models: 40%, 12.0 s left" in texts(folders))
    assert fake_host.library.asked["/admin/library/move"] == [MoveRequest("/mnt/big/models")]
    fake_host.library.end_job(fake_host, fake_host.library.jobs[0], "Moved.")
    until(folders._job_card.isHidden)


def test_when_a_drive_is_missing_then_its_folder_says_so(page: ModelsPage, fake_host: FakeHost, until: Until) -> None:
    fake_host.library.folders.append(
        main_folder(path="/media/usb", origin="folder", is_main=False, problem="This drive is not connected.")
    )
    page.open_folders()
    until(lambda: page.cover is not None and "This drive is not connected." in texts(page.cover))


def test_when_other_programs_are_left_out_then_the_host_is_told(
    folders: FoldersPage, fake_host: FakeHost, until: Until
) -> None:
    until(folders._others.isChecked)
    folders._others.click()
    until(lambda: not fake_host.library.options.use_other_programs)


# --- a smaller file


def test_when_a_smaller_file_is_considered_then_each_type_tells_size_quality_and_verdict_first(
    quantize: QuantizePage, until: Until
) -> None:
    assert list(quantize.rows) == list(OFFERED)
    shown = texts(quantize.rows["Q4_K_M"])
    assert "2.0 GB  ·  4.9 bits" in shown
    assert "All on GPU" in shown
    assert quantize.chosen is quantize.rows[SUGGESTED]
    until(quantize.make.isEnabled)
    assert "120 GB are free" in texts(quantize)


def test_when_it_is_made_then_the_job_is_shown_under_downloads(
    quantize: QuantizePage, page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    quantize.rows["Q6_K"].choice.setChecked(True)
    quantize.make.click()
    until(lambda: page.tab == "downloads" and page.cover is None)
    assert fake_host.library.asked["/admin/library/quantize"] == [QuantizeRequest("f16", "Q6_K")]
    until(lambda: "Make Q6_K of Llama 3.2 3B" in texts(page.transfers))


def test_when_there_is_no_room_for_it_then_it_cannot_be_made(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.folders = [main_folder(free_bytes=10_000_000)]
    fake_host.emit(InstalledChanged((ORIGINAL,)))
    until(lambda: "f16" in page.installed._cards)
    page.act("f16", "quantize")
    cover = page.cover
    assert isinstance(cover, QuantizePage)
    until(lambda: "There is not enough room: 10.0 MB are free." in texts(cover))
    assert not cover.make.isEnabled()


def test_when_a_type_cannot_be_made_then_its_row_says_why(page: ModelsPage, fake_host: FakeHost, until: Until) -> None:
    failure = to_failure(BadRequest("This file is quantized already."))
    fake_host.library.failures["/admin/library/quantize/preview"] = failure
    fake_host.emit(InstalledChanged((ORIGINAL,)))
    until(lambda: "f16" in page.installed._cards)
    page.act("f16", "quantize")
    cover = page.cover
    assert isinstance(cover, QuantizePage)
    until(lambda: "This file is quantized already." in cover.message.text)
    assert not cover.make.isEnabled()


# --- nodes


def test_when_a_node_is_added_then_it_is_listed_with_its_memory_and_can_be_removed(
    nodes: NodesCard, fake_host: FakeHost, until: Until
) -> None:
    QTest.keyClicks(nodes.field, "192.168.1.30:50052")
    nodes._button.click()
    until(lambda: "14.0 GB of 16.0 GB free, answers in 1 ms" in texts(nodes))
    assert not nodes.field.text()
    button(nodes, "Remove 192.168.1.30:50052").click()
    until(lambda: "14.0 GB of 16.0 GB" not in texts(nodes))
    assert not fake_host.library.nodes


def test_when_an_address_is_wrong_then_the_card_says_so(nodes: NodesCard, until: Until) -> None:
    QTest.keyClicks(nodes.field, "somewhere")
    nodes._button.click()
    until(lambda: "A node is named as address:port." in texts(nodes))
    assert nodes.field.text() == "somewhere"


def test_when_a_node_cannot_be_reached_then_its_row_says_why(
    nodes: NodesCard, fake_host: FakeHost, until: Until
) -> None:
    from runtime.messages.api import NodesChanged

    fake_host.emit(NodesChanged((NodeInfo("10.0.0.5:1", "unreachable", problem="The connection was refused."),)))
    until(lambda: "The connection was refused." in texts(nodes))
    assert "Not reachable" in texts(nodes)


# --- settings


def test_when_settings_of_all_models_are_changed_then_the_host_is_told_at_once(
    settings: SettingsPage, fake_host: FakeHost, until: Until
) -> None:
    card = settings.models
    card.idle.setCurrentIndex(2)
    card.idle.activated.emit(2)
    until(lambda: fake_host.library.options.idle_unload_s == 900)
    card.gpu.activated.emit(3)
    until(lambda: fake_host.library.options.gpu_margin_bytes == GB)
    card.demand.click()
    until(lambda: not fake_host.library.options.load_on_demand)
    card.at_once.setValue(5)
    until(lambda: fake_host.library.options.max_downloads == 5)
    assert fake_host.library.options.idle_unload_s == 900


def test_when_a_value_was_set_elsewhere_then_it_is_shown_and_not_changed(
    settings: SettingsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.options = ModelsOptions(idle_unload_s=7 * 60)
    settings.models.refresh()
    until(lambda: settings.models.idle.currentText() == "7 minutes")
    assert fake_host.library.options.idle_unload_s == 7 * 60


def test_when_a_token_is_given_then_one_is_signed_in_and_can_sign_out(settings: SettingsPage, until: Until) -> None:
    QTest.keyClicks(settings.hub.token, "hf_good")
    settings.hub.button.click()
    until(lambda: "Signed in as ada" in texts(settings.hub))
    assert not settings.hub.token.text()
    button(settings.hub, "Sign out").click()
    until(lambda: "Not signed in" in texts(settings.hub))


def test_when_a_token_is_wrong_then_the_card_says_so(settings: SettingsPage, until: Until) -> None:
    QTest.keyClicks(settings.hub.token, "nonsense")
    settings.hub.button.click()
    until(lambda: "The hub does not know this token." in texts(settings.hub))


def test_when_offline_is_chosen_then_the_host_is_told(
    settings: SettingsPage, fake_host: FakeHost, until: Until
) -> None:
    settings.hub.offline.activated.emit(1)
    until(lambda: fake_host.library.options.offline)
    settings.hub.address.setText("https://mirror.example")
    settings.hub.address.editingFinished.emit()
    until(lambda: fake_host.library.options.hub_endpoint == "https://mirror.example")
    assert fake_host.library.account == HubAccount("https://hub.example")


# --- names


def test_when_pages_over_the_tabs_are_walked_then_every_control_has_a_name(
    page: ModelsPage, fake_host: FakeHost, until: Until, qtbot: QtBot
) -> None:
    fake_host.emit(InstalledChanged((ORIGINAL, installed_model())))
    until(lambda: len(page.installed._cards) == 2)
    nameless: list[str] = []
    for show in ("plan", "quantize", "hub", "folders"):
        if show == "hub":
            page.open_hub_model("google/gemma-3-12b-it-qat-q4_0-gguf")
        elif show == "folders":
            page.open_folders()
        else:
            page.act("f16", show)
        cover = page.cover
        assert cover is not None
        qtbot.waitUntil(lambda cover=cover: len(focusable(cover)) > 2)  # type: ignore[misc]
        nameless += [f"{show}: {type(each).__name__}" for each in focusable(cover) if not name_of(each)]
        page.go_back()
    assert not nameless
