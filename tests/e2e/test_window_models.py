"""The models page of the real window: a real host, a hub on loopback, the starter model in a real worker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.models.hub_page import HubPage
from app.ui.models.page import ModelsPage
from app.ui.models.plan_page import PlanPage
from app.ui.window import MainWindow
from runtime.library.starter import find_starter
from runtime.messages.api import InstalledModel
from runtime.options import LoadOptions
from runtime.paths import DataFolder
from tests.fakes.fake_hub import FakeHub, FakeRepo
from tests.support.widgets import texts

pytestmark = pytest.mark.e2e

READY_MS = 90_000
REPO = "someone/SmolLM2-135M-GGUF"
FILE = "SmolLM2-135M-Instruct-Q4_1.gguf"


class Desk:
    """A window on its models page, and waiting for it."""

    def __init__(self, qtbot: QtBot, window: MainWindow, context: AppContext, hub: FakeHub) -> None:
        self.qtbot, self.window, self.context, self.hub = qtbot, window, context, hub
        page = window.page_widget("models")
        assert isinstance(page, ModelsPage)
        self.page = page

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=READY_MS)

    def installed(self, name: str) -> InstalledModel | None:
        return next((one for one in self.context.link.installed if name in one.path), None)

    @property
    def starter(self) -> InstalledModel:
        return next(one for one in self.context.link.installed if one.starter)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    starter = find_starter()
    assert starter is not None
    with FakeHub({REPO: FakeRepo({FILE: starter.read_bytes(), "README.md": b"# A model"})}) as fake:
        yield fake


@pytest.fixture
def desk(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    (tmp_path / "home" / "share").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "share"))
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    context = AppContext(DataFolder(tmp_path / "data"))
    window = MainWindow(context, Appearance(qapp))
    window.first_paint.connect(context.start)
    window.show()
    window.show_page("models")
    one = Desk(qtbot, window, context, hub)
    one.wait(lambda: any(model.state == "ready" for model in context.link.loaded))
    yield one
    window.close()
    context.close()
    qtbot.waitUntil(lambda: context.is_closed, timeout=READY_MS)
    window.deleteLater()


def test_when_a_model_is_judged_loaded_and_compared_then_the_plan_was_right(desk: Desk) -> None:
    starter = desk.starter
    desk.wait(lambda: desk.page.verdicts.plan(starter.id) is not None)
    desk.wait(lambda: "tok/s" in texts(desk.page.installed))
    desk.page.act(starter.id, "plan")
    cover = desk.page.cover
    assert isinstance(cover, PlanPage)
    desk.wait(lambda: cover._plan is not None and cover._plan.method == "dry_run")
    cover.controls.context.edited.emit(2048)
    desk.wait(lambda: cover._plan is not None and cover._plan.resolved.n_ctx == 2048)
    desk.wait(lambda: cover._plan is not None and cover._plan.method == "dry_run")
    assert cover._plan is not None
    planned = {budget.memory.device: budget.memory.total_bytes for budget in cover._plan.budgets}
    cover.load.click()
    desk.wait(
        lambda: any(one.state == "ready" and one.options == LoadOptions(n_ctx=2048) for one in desk.context.link.loaded)
    )
    loaded = next(one for one in desk.context.link.loaded if one.id == starter.id)
    assert loaded.facts is not None
    assert loaded.facts.n_ctx == 2048
    actual = {memory.device: memory.total_bytes for memory in loaded.actual}
    assert actual.keys() == planned.keys()
    for device, size_bytes in planned.items():
        assert abs(actual[device] - size_bytes) <= 0.01 * size_bytes
    desk.wait(lambda: not cover.actual.isHidden() and "All together" in texts(cover.actual))


def test_when_a_model_of_the_hub_is_chosen_then_it_is_judged_fetched_chatted_with_checked_and_removed(
    desk: Desk,
) -> None:
    page = desk.page
    page.show_tab("discover")
    desk.wait(lambda: page.discover._shown_picks)
    page.discover.field.setText("smollm2")
    desk.wait(lambda: any(entry.repo == REPO for entry in page.discover._entries))
    page.open_hub_model(REPO)
    cover = page.cover
    assert isinstance(cover, HubPage)
    desk.wait(lambda: cover.is_judged)
    assert "Runs on CPU" in texts(cover.rows[FILE])
    assert "Best for this computer: Q4_1" in texts(cover.recommended)
    assert not desk.installed("someone")
    cover.recommended.button.click()
    desk.wait(lambda: desk.installed("someone") is not None)
    desk.wait(lambda: cover.recommended.button.text() == "Chat")
    page.show_tab("downloads")
    desk.wait(lambda: "Done" in texts(page.transfers))
    model = desk.installed("someone")
    assert model is not None
    page.act(model.id, "chat")
    desk.wait(lambda: any(one.id == model.id and one.state == "ready" for one in desk.context.link.loaded))
    assert desk.window.page == "chat"
    desk.window.show_page("models")
    page.show_tab("installed")
    page.act(model.id, "unload")
    desk.wait(lambda: desk.context.link.model(model.id) is None)
    page.act(model.id, "verify")
    desk.wait(lambda: "Verified" in texts(page.installed))
    page.act(model.id, "remove")
    assert page.installed._cards[model.id].isHidden()
    desk.context.removals.finish()
    desk.wait(lambda: desk.installed("someone") is None)
    assert not Path(model.path).exists()


def test_when_the_hub_is_gone_then_the_picks_stay_and_the_page_says_why(desk: Desk) -> None:
    desk.hub.stop()
    page = desk.page
    page.show_tab("discover")
    desk.wait(lambda: page.discover._message.text)
    desk.wait(lambda: page.discover._shown_picks)
    assert "Only the models that Deskside knows by itself are shown." in page.discover._message.text
    page.open_hub_model(REPO)
    cover = page.cover
    assert isinstance(cover, HubPage)
    desk.wait(lambda: cover.message.text)
