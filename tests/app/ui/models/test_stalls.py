"""Long lists of models never hold the window up."""

import msgspec
import pytest

from app.ui.models.hub_page import HubPage
from app.ui.models.page import ModelsPage
from runtime.messages.api import InstalledChanged
from runtime.messages.library import HubModel
from tests.app.ui.conftest import Heartbeat
from tests.app.ui.models.conftest import Until
from tests.app.ui.test_stalls import STALL_S, calmest
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.hub_entries import hub_entry

N_MODELS = 150
N_VERSIONS = 30


def test_when_150_models_are_installed_and_one_goes_then_the_window_never_stalls(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    models = tuple(installed_model(f"m{n}", f"Model {n}") for n in range(N_MODELS))

    def measure() -> Heartbeat:
        heartbeat = Heartbeat()
        fake_host.emit(InstalledChanged(models))
        until(lambda: len(page.installed._cards) == N_MODELS)
        until(lambda: all(page.verdicts.plan(one.id) is not None for one in models))
        fake_host.emit(InstalledChanged(models[1:]))
        until(lambda: len(page.installed._cards) == N_MODELS - 1)
        heartbeat.stop()
        fake_host.emit(InstalledChanged(()))
        until(lambda: not page.installed._cards)
        return heartbeat

    heartbeat = calmest(measure)
    assert max(heartbeat.gaps_s) < STALL_S, heartbeat.long


def test_when_a_search_finds_many_models_then_the_window_never_stalls(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    page.show_tab("discover")
    asked = iter(range(10))

    def measure() -> Heartbeat:
        n = next(asked)
        fake_host.library.found = tuple(hub_entry(f"org{n}/thing-{i}-GGUF", 8_000_000_000) for i in range(60 - n))
        heartbeat = Heartbeat()
        page.discover.field.setText(f"thing {n}")
        until(lambda: page.discover._list.count() == 60 - n)
        heartbeat.stop()
        return heartbeat

    heartbeat = calmest(measure)
    assert max(heartbeat.gaps_s) < STALL_S, heartbeat.long


def test_when_a_model_with_30_versions_is_judged_while_a_slider_moves_then_the_window_never_stalls(
    page: ModelsPage, fake_host: FakeHost, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fake_host.library.hub_model("Qwen/Qwen3-8B-GGUF")
    files = tuple(msgspec.structs.replace(whole.files[n % 8], name=f"v{n}.gguf") for n in range(N_VERSIONS))
    many = HubModel(whole.entry, whole.commit, files)
    monkeypatch.setattr(fake_host.library, "hub_model", lambda _repo: many)

    def measure() -> Heartbeat:
        heartbeat = Heartbeat()
        page.open_hub_model("Qwen/Qwen3-8B-GGUF")
        cover = page.cover
        assert isinstance(cover, HubPage)
        until(lambda: cover.is_judged)
        assert cover.controls is not None
        for n_ctx in (2048, 4096, 16_384, 32_768):
            cover.controls.context.edited.emit(n_ctx)
            until(lambda n_ctx=n_ctx: cover._verdicts.rows[0].plan.resolved.n_ctx == n_ctx)  # type: ignore[misc, union-attr]
        heartbeat.stop()
        return heartbeat

    heartbeat = calmest(measure)
    assert max(heartbeat.gaps_s) < STALL_S, heartbeat.long
