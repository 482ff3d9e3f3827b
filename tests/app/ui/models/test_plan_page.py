from collections.abc import Callable

import msgspec
import pytest
from PySide6.QtTest import QTest

from app.context import AppContext
from app.ui.models.actual import difference
from app.ui.models.bars import budget_parts, device_names
from app.ui.models.page import ModelsPage
from app.ui.models.plan_controls import context_stops
from app.ui.models.plan_page import PlanPage
from runtime.errors import NotEnoughMemory, to_failure
from runtime.messages.api import InstalledChanged, LoadedModel, ModelChanged, ModelGone, ModelSettings
from runtime.messages.fit import PlanRequest
from runtime.options import LoadOptions
from tests.app.ui.models.conftest import Until
from tests.fakes.answers import MODEL_ID, installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_models import CPU, GB, GPU, NODE, SMALL_GPU, FakeModels
from tests.support.widgets import texts

Open = Callable[..., PlanPage]
BIG = installed_model("big", "Big 12B", size_bytes=8 * GB, n_ctx_train=131_072, n_params=12 * GB)


@pytest.fixture
def open_page(page: ModelsPage, fake_host: FakeHost, until: Until) -> Open:
    def show(model_id: str = "big", *, planned: bool = True) -> PlanPage:
        fake_host.emit(InstalledChanged((installed_model(), BIG)))
        until(lambda: len(page.installed._cards) == 2)
        page.act(model_id, "plan")
        cover = page.cover
        assert isinstance(cover, PlanPage)
        if planned:
            until(lambda: cover._plan is not None and cover._plan.method == "dry_run")
        return cover

    return show


def plans(host: FakeHost) -> list[PlanRequest]:
    return [one for one in host.library.asked.get("/admin/plan", []) if isinstance(one, PlanRequest) and one.exact]


def test_when_the_page_opens_then_verdict_bars_and_sliders_show_the_automatic_plan(open_page: Open) -> None:
    cover = open_page()
    shown = texts(cover)
    for fact in ("All on GPU", "Exact", "NVIDIA GeForce RTX 4070", "System memory", "Conversation", "Kept free"):
        assert fact in shown
    assert cover.controls.context.automatic.isChecked()
    assert cover.controls.context.number.value() == 8192
    assert cover.controls.layers.automatic.isChecked()
    assert cover.controls.layers.number.value() == 37
    assert cover.load.isEnabled()


def test_when_a_slider_is_moved_then_automatic_ends_and_the_bars_move(open_page: Open, until: Until) -> None:
    cover = open_page()
    before = cover.bars._bars["CUDA0"].accessibleDescription()
    cover.controls.context.slider.setValue(cover.controls.context.slider.maximum() - 4)
    assert not cover.controls.context.automatic.isChecked()
    assert cover.controls.options.n_ctx == 32_768
    until(lambda: cover.bars._bars["CUDA0"].accessibleDescription() != before)
    until(lambda: "about 24,600 words, 49 pages" in texts(cover))


def test_when_a_number_is_typed_then_it_counts_exactly(open_page: Open, fake_host: FakeHost, until: Until) -> None:
    cover = open_page()
    field = cover.controls.context.number
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field.lineEdit(), "12345")
    field.editingFinished.emit()
    field.clearFocus()
    until(lambda: cover.controls.options.n_ctx == 12_345)
    until(lambda: plans(fake_host)[-1].options.n_ctx == 12_345)


def test_when_everything_is_set_back_to_automatic_then_nothing_is_fixed(open_page: Open, until: Until) -> None:
    cover = open_page()
    cover.controls.layers.edited.emit(3)
    cover.controls.slots.edited.emit(4)
    until(lambda: "3 of 37" in texts(cover))
    assert cover._automatic.isEnabled()
    cover._automatic.click()
    assert cover.controls.options == LoadOptions()
    until(lambda: "37 of 37" in texts(cover))
    assert not cover._automatic.isEnabled()


def test_when_settings_were_kept_then_the_page_begins_with_them_and_can_keep_others(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.settings["big"] = LoadOptions(n_ctx=4096, type_k="q8_0", type_v="q8_0")
    cover = open_page()
    assert cover.controls.options.n_ctx == 4096
    assert cover.controls.cache.currentData() == "q8_0"
    assert not cover._keep.isEnabled()
    cover.controls.context.edited.emit(2048)
    assert cover._keep.isEnabled()
    cover._keep.click()
    until(lambda: not cover._keep.isEnabled())
    (kept,) = [one for one in fake_host.library.asked["/admin/models/settings"] if isinstance(one, ModelSettings)]
    assert (kept.model, kept.options.n_ctx) == ("big", 2048)


def test_when_it_does_not_fit_then_the_reason_stands_there_and_load_is_off(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.devices = (SMALL_GPU, CPU)
    cover = open_page()
    cover.controls.layers.edited.emit(37)
    until(lambda: "Too large: needs" in texts(cover))
    until(lambda: not cover.load.isEnabled())
    until(lambda: "Missing" in texts(cover))
    assert "Choose a smaller quantization" in texts(cover)
    cover.controls.layers.edited.emit(None)
    until(cover.load.isEnabled)
    assert cover.message.text == ""
    assert fake_host.loads == []


def test_when_it_does_not_fit_then_it_can_be_loaded_anyway_once_and_not_at_the_next_start(
    open_page: Open, fake_host: FakeHost, context: AppContext, until: Until
) -> None:
    fake_host.library.devices = (SMALL_GPU, CPU)
    before = context.settings.values.last_model
    cover = open_page()
    cover.controls.layers.edited.emit(37)
    until(lambda: "may become very slow" in cover.message.text)
    cover.message._button.click()
    until(lambda: bool(fake_host.loads))
    (asked,) = fake_host.loads
    assert (asked.model, asked.anyway) == ("big", True)
    assert asked.options is not None
    assert asked.options.n_gpu_layers == 37
    assert context.settings.values.last_model == before


def test_when_there_is_no_gpu_then_its_slider_is_not_shown(open_page: Open, fake_host: FakeHost) -> None:
    fake_host.library.devices = (CPU,)
    cover = open_page()
    assert cover.controls.layers.isHidden()
    assert not cover.controls.slots.isHidden()


def test_when_it_is_loaded_then_planned_stands_against_actual(
    open_page: Open, fake_host: FakeHost, context: AppContext, until: Until
) -> None:
    fake_host.emit(ModelGone(MODEL_ID))
    cover = open_page()
    assert cover.actual.isHidden()
    cover.controls.context.edited.emit(16_384)
    cover.load.click()
    until(lambda: fake_host.loads and fake_host.loads[-1].options == LoadOptions(n_ctx=16_384))
    until(lambda: any(one.state == "ready" and one.id == "big" for one in context.link.loaded))
    until(lambda: not cover.actual.isHidden())
    for fact in ("Planned", "Actual", "NVIDIA GeForce RTX 4070", "+0.20 %", "exact", "measured 41.7 tok/s"):
        until(lambda fact=fact: fact in texts(cover.actual))  # type: ignore[misc]
    until(lambda: cover.load.text() == "Loaded")
    cover.controls.context.edited.emit(8192)
    assert cover.load.text() == "Load again"


def test_when_the_load_fails_then_the_page_says_why(open_page: Open, fake_host: FakeHost, until: Until) -> None:
    cover = open_page()
    failure = to_failure(NotEnoughMemory("Memory ran out.", hint="Choose a shorter context."))
    fake_host.emit(ModelChanged(LoadedModel("big", "Big 12B", "failed", failure=failure)))
    until(lambda: "Memory ran out. Choose a shorter context." in texts(cover))


def test_when_planning_fails_then_it_can_be_tried_again(open_page: Open, fake_host: FakeHost, until: Until) -> None:
    fake_host.library.failures["/admin/plan"] = to_failure(NotEnoughMemory("The planner is away."))
    cover = open_page(planned=False)
    until(lambda: "The planner is away." in texts(cover))
    fake_host.library.failures.clear()
    cover.message._button.click()
    until(lambda: "All on GPU" in texts(cover))


def test_when_the_speed_is_a_guess_then_the_computer_can_be_measured(
    open_page: Open, fake_host: FakeHost, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_plan = FakeModels.plan
    basis = ["guess"]

    def plan(self: FakeModels, *args: object, **options: object) -> object:
        made = true_plan(self, *args, **options)  # type: ignore[arg-type]
        assert made.speed is not None
        return msgspec.structs.replace(made, speed=msgspec.structs.replace(made.speed, basis=basis[0]))

    monkeypatch.setattr(FakeModels, "plan", plan)
    cover = open_page()
    until(lambda: "was not measured yet" in texts(cover))
    basis[0] = "formula"
    cover.verdict.measure.click()
    until(lambda: "From the measured speed" in texts(cover))
    assert cover.verdict.measure.isHidden()
    assert len(fake_host.library.asked["/admin/machine"]) == 1


def test_when_experts_open_their_part_then_automatic_shows_what_it_came_to(open_page: Open, until: Until) -> None:
    cover = open_page()
    cover.controls._fold.set_open(True)
    rows = cover.controls._rows
    until(lambda: rows["n_batch"]._number is not None and rows["n_batch"]._number.value() == 2048)
    rows["n_batch"].changed.emit("n_batch", 512)
    assert cover.controls.options.n_batch == 512
    rows["type_k"].changed.emit("type_k", "q8_0")
    assert cover.controls.cache.currentText() == "Own choice (q8_0 and f16)"
    names = [cover.controls._draft.itemText(at) for at in range(cover.controls._draft.count())]
    assert names == ["None", "SmolLM2 135M Instruct"]
    cover.controls._draft.activated.emit(1)
    assert cover.controls.options.draft_model == MODEL_ID


def test_when_a_bar_is_built_then_its_parts_add_up_to_what_the_device_holds() -> None:
    plan = FakeModels(devices=(GPU, NODE, CPU)).plan("m", 12 * GB, LoadOptions(n_ctx=32_768))
    for budget in plan.budgets:
        total = sum(part.size_bytes for part in budget_parts(budget))
        assert total + budget.free_bytes == budget.device.total_bytes
    assert [device_names(budget.device)[0] for budget in plan.budgets] == [
        "NVIDIA GeForce RTX 4070",
        "Memory of 192.168.1.30:50052",
        "System memory",
    ]


@pytest.mark.parametrize("n_ctx_train", [512, 2048, 8192, 40_960, 131_072, 1_048_576])
def test_when_stops_are_made_then_they_rise_and_end_at_what_the_model_was_trained_for(n_ctx_train: int) -> None:
    stops = context_stops(n_ctx_train)
    assert list(stops) == sorted(set(stops))
    assert stops[-1] == n_ctx_train
    assert all(stop >= min(1024, n_ctx_train) for stop in stops)


@pytest.mark.parametrize(
    ("planned", "actual", "text"),
    [(100, 100, "exact"), (1000, 1002, "+0.20 %"), (1000, 990, "-1.00 %"), (0, 5, "not planned"), (0, 0, "exact")],
)
def test_when_planned_and_actual_differ_then_the_share_is_told(planned: int, actual: int, text: str) -> None:
    assert difference(planned, actual) == text
