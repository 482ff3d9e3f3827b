from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtTest import QTest

from app.context import AppContext
from app.ui.models.card import facts_line
from app.ui.models.import_dialog import ImportDialog
from app.ui.models.installed import InstalledView
from app.ui.models.page import ModelsPage
from app.ui.window import MainWindow
from runtime.errors import StorageFault, to_failure
from runtime.messages.api import InstalledChanged, InstalledModel
from tests.app.ui.models.conftest import Until, button
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_models import CPU, GB
from tests.support.widgets import texts


def show(host: FakeHost, page: ModelsPage, until: Until, *models: InstalledModel) -> None:
    host.emit(InstalledChanged(models))
    until(lambda: set(page.installed._cards) == {model.id for model in models})


def actions(page: ModelsPage, model_id: str) -> dict[str, str]:
    return {action: refusal for action, _, _, refusal in page.installed._cards[model_id].menu_actions()}


def test_when_models_are_installed_then_each_is_listed_with_its_facts(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    broken = installed_model("broken", "Broken", problem="The file ends too early.")
    show(fake_host, page, until, installed_model(), broken)
    until(lambda: "The file ends too early." in texts(page))  # cards come one after the other
    shown = texts(page)
    for fact in (
        "SmolLM2 135M Instruct",
        "HuggingFaceTB",
        "135M parameters",
        "Q4_1",
        "98.4 MB",
        "8,192 tokens context",
    ):
        assert fact in shown
    until(lambda: "2 models on this computer" in texts(page))
    assert page.installed._cards["broken"]._buttons["load"].isHidden()


def test_when_the_list_is_seen_then_every_card_says_whether_its_model_fits_and_how_fast(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    show(fake_host, page, until, installed_model(), installed_model("huge", "Huge", size_bytes=80 * GB))
    until(lambda: "All on GPU" in texts(page))
    until(lambda: "Too large: needs" in texts(page))
    assert "tok/s" in texts(page.installed._cards[installed_model().id])
    assert "tok/s" not in texts(page.installed._cards["huge"])


def test_when_room_is_known_then_it_stands_above_the_list(page: ModelsPage, until: Until) -> None:
    until(lambda: "120 GB free" in texts(page))


def test_when_a_model_is_unloaded_and_loaded_from_its_card_then_the_host_does_it(
    page: ModelsPage, fake_host: FakeHost, context: AppContext, until: Until
) -> None:
    (card,) = page.installed._cards.values()
    QTest.mouseClick(card._buttons["unload"], Qt.MouseButton.LeftButton)
    until(lambda: not context.link.loaded)
    assert not card._buttons["load"].isHidden()
    QTest.mouseClick(card._buttons["load"], Qt.MouseButton.LeftButton)
    until(lambda: context.link.loaded and context.link.loaded[0].state == "ready")
    assert fake_host.loads
    until(lambda: "Loaded" in texts(card))
    assert context.settings.values.last_model == card.model.id


def test_when_a_model_is_loaded_beside_the_others_then_they_stay(
    page: ModelsPage, fake_host: FakeHost, context: AppContext, until: Until
) -> None:
    show(fake_host, page, until, installed_model(), installed_model("two", "Two"))
    assert actions(page, "two")["beside"] == ""
    page.act("two", "beside")
    until(lambda: len(context.link.loaded) == 2)
    assert not fake_host.loads[-1].replace


def test_when_no_model_is_installed_then_the_page_leads_to_discover(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.emit(InstalledChanged(()))
    until(lambda: "Choose one under Discover" in texts(page))
    button(page, "Discover models").click()
    assert page.tab == "discover"


def test_when_words_are_typed_into_the_filter_then_only_models_with_them_stay(page: ModelsPage) -> None:
    (card,) = page.installed._cards.values()
    QTest.keyClicks(page.installed._filter, "smol q4")
    assert not card.isHidden()
    QTest.keyClicks(page.installed._filter, " qwen")
    assert card.isHidden()
    assert "No model has these words" in texts(page)
    button(page, "Show all").click()
    assert not card.isHidden()


def test_when_the_order_is_changed_then_the_cards_follow_and_are_the_same_ones(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    models = [installed_model(f"m{n}", f"Model {n}", size_bytes=n * GB, used_s=float(100 - n)) for n in (1, 2, 3)]
    show(fake_host, page, until, *models)
    before = dict(page.installed._cards)

    def order() -> list[str]:
        column = page.installed._list
        return [column.itemAt(at).widget().model.id for at in range(column.count())]  # type: ignore[union-attr]

    until(lambda: order() == ["m1", "m2", "m3"])
    page.installed._sort.setCurrentIndex(page.installed._sort.findData("size"))
    until(lambda: order() == ["m3", "m2", "m1"])
    assert page.installed._cards == before


def test_when_a_model_is_removed_then_its_card_goes_at_once_and_undo_brings_it_back(
    page: ModelsPage, live_window: MainWindow, fake_host: FakeHost, until: Until
) -> None:
    show(fake_host, page, until, installed_model("mine", "Mine"))
    page.act("mine", "remove")
    card = page.installed._cards["mine"]
    assert card.isHidden()
    assert any("goes to the trash" in text for text in live_window.toasts.texts)
    button(live_window, "Undo").click()
    assert not card.isHidden()
    assert "/admin/library/remove" not in fake_host.library.asked


@pytest.mark.parametrize(
    ("model", "action", "refusal"),
    [
        (installed_model("o", "O", origin="ollama"), "remove", "belongs to Ollama"),
        (installed_model("s", "S", origin="starter"), "remove", "came with Deskside"),
        (installed_model("q", "Q", quantization="Q4_K_M"), "quantize", "F32, F16 or BF16"),
        (installed_model("f", "F", quantization="BF16"), "quantize", ""),
        (installed_model("d", "D"), "remove", ""),
    ],
)
def test_when_something_cannot_be_done_with_a_file_then_the_menu_says_why(
    page: ModelsPage, fake_host: FakeHost, until: Until, model: InstalledModel, action: str, refusal: str
) -> None:
    show(fake_host, page, until, model)
    found = actions(page, model.id)[action]
    assert (refusal in found) if refusal else not found
    menu = page.installed._cards[model.id].make_menu()
    assert len([entry for entry in menu.actions() if not entry.isSeparator()]) == len(actions(page, model.id))
    menu.deleteLater()


def test_when_a_loaded_model_should_be_removed_then_it_must_be_unloaded_first(page: ModelsPage, until: Until) -> None:
    model_id = installed_model().id
    until(lambda: page.installed._cards[model_id]._state == "ready")
    page.installed._cards[model_id].model = installed_model(starter=False)
    assert actions(page, model_id)["remove"] == "Unload it first."


def test_when_a_file_is_checked_then_its_card_shows_how_far(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    page.act(installed_model().id, "verify")
    (card,) = page.installed._cards.values()
    until(lambda: "Check SmolLM2 135M Instruct: 40%, 12.0 s left" in texts(card))
    fake_host.library.end_job(fake_host, fake_host.library.jobs[0], "Every byte is right.")
    until(lambda: "40%" not in texts(card))


def test_when_a_file_is_imported_then_the_way_chosen_is_asked_for(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    page.installed.offer_import("/home/ada/Größe 7B.gguf")
    dialog = page.findChild(ImportDialog)
    assert dialog is not None
    dialog.choices["use_in_place"].setChecked(True)
    dialog.start.click()
    until(lambda: page.findChild(ImportDialog) is None)
    (asked,) = fake_host.library.asked["/admin/library/import"]
    assert msgspec.to_builtins(asked) == {"path": "/home/ada/Größe 7B.gguf", "how": "use_in_place"}


def test_when_an_import_is_refused_then_the_dialog_stays_and_says_why(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    failure = to_failure(StorageFault("There is no such file.", hint="Choose another one."))
    fake_host.library.failures["/admin/library/import"] = failure
    dialog = ImportDialog(page._link, "/gone.gguf", page)
    dialog.open()
    dialog.start.click()
    until(lambda: "There is no such file. Choose another one." in texts(dialog))
    assert dialog.isVisible()
    assert dialog.start.isEnabled()
    dialog.reject()
    dialog.deleteLater()


def test_when_a_file_is_dropped_then_only_one_model_file_or_folder_is_taken(tmp_path: Path) -> None:
    model = tmp_path / "a b.gguf"
    model.touch()
    cases = {str(model): [model], str(tmp_path): [tmp_path], "": [tmp_path / "x.txt"]}
    for wanted, paths in cases.items():
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
        assert InstalledView._dropped(data) == wanted


def test_when_facts_are_unknown_then_the_line_leaves_them_out() -> None:
    bare = InstalledModel("a", "A", "a.gguf", 1000, problem="The file is broken.")
    assert facts_line(bare) == "1.0 kB"


def test_when_the_host_is_lost_before_models_were_told_then_the_page_says_it_starts(
    window: MainWindow,
) -> None:
    window.show_page("models")
    assert "The engine is starting" in texts(window.page_widget("models"))


def test_when_there_is_only_a_processor_then_the_verdict_says_so(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.devices = (CPU,)
    show(fake_host, page, until, installed_model("other", "Other"))
    until(lambda: "Runs on CPU" in texts(page))
