"""Plans while sliders move: at most one request of a kind at a time, the newest options win, exact after a pause."""

import pytest
from pytestqt.qtbot import QtBot

from app.link import HostLink
from app.models_link import ModelsLink
from app.plan_watch import PlanWatch, Verdicts
from runtime.errors import HubOffline, to_failure
from runtime.messages.api import InstalledChanged
from runtime.messages.fit import MemoryPlan, PlanRequest, PlanTarget
from runtime.options import LoadOptions
from tests.app.conftest import WAIT_MS, Wait
from tests.fakes.answers import MODEL_ID, installed_model
from tests.fakes.fake_host import FakeHost

FAILURE = to_failure(HubOffline("The planner is away.", hint="Try again."))


@pytest.fixture
def watch(live_link: HostLink) -> PlanWatch:
    return PlanWatch(ModelsLink(live_link, live_link), PlanTarget(model=MODEL_ID), live_link)


def requests(host: FakeHost) -> list[PlanRequest]:
    return [one for one in host.library.asked.get("/admin/plan", []) if isinstance(one, PlanRequest)]


def test_when_options_change_then_a_formula_comes_at_once_and_exact_figures_after_a_pause(
    watch: PlanWatch, wait: Wait
) -> None:
    plans: list[MemoryPlan] = []
    watch.planned.connect(plans.append)
    watch.ask(LoadOptions(n_ctx=2048))
    wait(lambda: len(plans) == 2)
    assert [plan.method for plan in plans] == ["formula", "dry_run"]
    assert {plan.resolved.n_ctx for plan in plans} == {2048}


def test_when_a_slider_moves_fast_then_only_the_newest_options_wait_and_the_last_plan_is_theirs(
    watch: PlanWatch, wait: Wait, fake_host: FakeHost
) -> None:
    fake_host.library.held = {"/admin/plan"}
    plans: list[MemoryPlan] = []
    watch.planned.connect(plans.append)
    for n_ctx in range(1024, 1124):
        watch.ask(LoadOptions(n_ctx=n_ctx))
    wait(lambda: bool(requests(fake_host)))
    fake_host.library.held = set()
    fake_host.release()
    wait(lambda: bool(plans) and plans[-1].method == "dry_run")
    assert plans[-1].resolved.n_ctx == 1123
    assert all(plan.resolved.n_ctx == 1123 for plan in plans)
    assert len(requests(fake_host)) <= 3


def test_when_planning_fails_then_it_is_told_once_and_a_later_answer_counts(
    watch: PlanWatch, wait: Wait, fake_host: FakeHost, qtbot: QtBot
) -> None:
    fake_host.library.failures["/admin/plan"] = FAILURE
    with qtbot.waitSignal(watch.failed, timeout=WAIT_MS) as told:
        watch.ask(LoadOptions())
    assert told.args == [FAILURE]
    fake_host.library.failures.clear()
    plans: list[MemoryPlan] = []
    watch.planned.connect(plans.append)
    watch.ask(LoadOptions(), at_once=True)
    wait(lambda: len(plans) == 1)
    assert plans[0].method == "dry_run"


def test_when_it_is_stopped_then_nothing_is_told_any_more(watch: PlanWatch, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.library.held = {"/admin/plan"}
    plans: list[MemoryPlan] = []
    watch.planned.connect(plans.append)
    watch.ask(LoadOptions())
    wait(lambda: bool(requests(fake_host)))
    watch.stop()
    fake_host.release()
    other: list[MemoryPlan] = []
    fake_host.library.held = set()
    ModelsLink(watch._models._link, watch).plan(PlanRequest(PlanTarget(model=MODEL_ID)), other.append)
    wait(lambda: bool(other))
    assert not plans


def test_when_the_list_is_watched_then_every_usable_model_is_judged_one_after_another(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    verdicts = Verdicts(live_link, ModelsLink(live_link, live_link), live_link)
    models = (
        *(installed_model(f"m{n}", f"Model {n}") for n in range(5)),
        installed_model("broken", "Broken", problem="The file ends too early."),
        installed_model("part", "Part", kind="projector"),
    )
    fake_host.emit(InstalledChanged(models))
    wait(lambda: len(live_link.installed) == 7)
    assert not requests(fake_host)
    verdicts.set_watched(True)
    wait(lambda: all(verdicts.plan(f"m{n}") is not None for n in range(5)))
    assert verdicts.plan("broken") is None
    assert verdicts.plan("part") is None
    assert all(not one.exact for one in requests(fake_host))


def test_when_one_verdict_fails_then_the_others_still_come(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    verdicts = Verdicts(live_link, ModelsLink(live_link, live_link), live_link)
    fake_host.emit(InstalledChanged((installed_model("one", "One"), installed_model("two", "Two"))))
    wait(lambda: len(live_link.installed) == 2)
    fake_host.installed = [installed_model("two", "Two")]  # the host no longer knows the first one
    verdicts.set_watched(True)
    wait(lambda: verdicts.plan("two") is not None)
    assert verdicts.plan("one") is None
