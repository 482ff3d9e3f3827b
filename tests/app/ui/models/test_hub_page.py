from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.ui.models.hub_page import HubPage
from app.ui.models.page import ModelsPage
from runtime.errors import DiskFull, HubNotFound, HubRefused, to_failure
from runtime.messages.api import InstalledChanged
from runtime.messages.library import DownloadRequest, HubAccount, HubModel, VerdictRequest
from tests.app.ui.models.conftest import Until, button
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_models import CPU, SMALL_GPU
from tests.fakes.hub_entries import QUANTS
from tests.support.widgets import texts

REPO = "Qwen/Qwen3-8B-GGUF"
Q8, Q4 = "Qwen3-8B-Q8_0.gguf", "Qwen3-8B-Q4_K_M.gguf"
Open = Callable[..., HubPage]


@pytest.fixture
def open_page(page: ModelsPage, until: Until) -> Open:
    def show(repo: str = REPO, *, judged: bool = True) -> HubPage:
        page.show_tab("discover")
        page.open_hub_model(repo)
        cover = page.cover
        assert isinstance(cover, HubPage)
        if judged:
            until(lambda: cover.is_judged)
        return cover

    return show


def asked(host: FakeHost, path: str) -> list[object]:
    return list(host.library.asked.get(path, []))


def test_when_the_page_opens_then_every_version_has_its_size_quality_verdict_and_speed(open_page: Open) -> None:
    cover = open_page()
    assert len(cover.rows) == len(QUANTS)
    shown = texts(cover.rows[Q4])
    for fact in ("Q4_K_M", "5.0 GB", "4.9 bits", "Good", "All on GPU, 6.5 of 12.0 GB", "Very fast, about 75.7 tok/s"):
        assert fact in shown


def test_when_versions_are_judged_then_one_is_recommended_with_its_reason_and_one_press_fetches_it(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    cover = open_page()
    assert "Best for this computer: Q8_0" in texts(cover.recommended)
    assert "The best quality that fits" in texts(cover.recommended)
    assert not cover.rows[Q8]._star.isHidden()
    assert cover.rows[Q4]._star.isHidden()
    assert cover.recommended.button.text() == "Download 8.7 GB"
    cover.recommended.button.click()
    until(lambda: asked(fake_host, "/admin/downloads"))
    assert asked(fake_host, "/admin/downloads") == [DownloadRequest(REPO, Q8)]
    until(lambda: cover.recommended.button.text() == "Show download")
    until(lambda: cover.rows[Q8].button.text() == "24 %")


def test_when_context_and_cache_change_then_all_rows_are_judged_for_them(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    cover = open_page()
    assert cover.controls is not None
    fake_host.library.devices = (SMALL_GPU, CPU)
    cover.controls.context.edited.emit(32_768)
    until(lambda: "layers on GPU" in texts(cover.rows[Q4]))
    cover.controls.cache.setCurrentIndex(cover.controls.cache.findData("q8_0"))
    cover.controls.cache.activated.emit(cover.controls.cache.currentIndex())
    until(lambda: len(asked(fake_host, "/admin/hub/verdicts")) >= 3)
    last = asked(fake_host, "/admin/hub/verdicts")[-1]
    assert isinstance(last, VerdictRequest)
    assert (last.options.n_ctx, last.options.type_k, last.options.type_v) == (32_768, "q8_0", "q8_0")


def test_when_a_slider_moves_fast_then_the_host_is_not_flooded_and_the_last_value_wins(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    cover = open_page()
    assert cover.controls is not None
    before = len(asked(fake_host, "/admin/hub/verdicts"))
    for n_ctx in range(2048, 2248):
        cover.controls.context.edited.emit(n_ctx)

    def last() -> int | None:
        one = asked(fake_host, "/admin/hub/verdicts")[-1]
        assert isinstance(one, VerdictRequest)
        return one.options.n_ctx

    until(lambda: last() == 2247)
    assert len(asked(fake_host, "/admin/hub/verdicts")) - before <= 3


def test_when_a_row_is_pressed_then_its_details_open_with_bars_and_hash(open_page: Open) -> None:
    cover = open_page()
    row = cover.rows[Q4]
    QTest.mouseClick(row, Qt.MouseButton.LeftButton, pos=QPoint(row.width() // 2, 4))
    assert row.is_open
    shown = texts(row)
    assert "NVIDIA GeForce RTX 4070" in shown
    assert "Conversation" in shown
    assert "SHA-256 abab" in shown
    row.arrow.click()
    assert not row.is_open


def test_when_no_version_suits_then_it_is_said_with_the_rule(open_page: Open, fake_host: FakeHost) -> None:
    fake_host.library.devices = (CPU,)
    cover = open_page("ggml-org/gpt-oss-120b-GGUF")
    assert cover.recommended.isHidden()
    assert "None of these versions suits this computer. Looked for: The best quality" in texts(cover)
    row = next(iter(cover.rows.values()))
    assert "Too large: needs" in texts(row)
    assert row.button.property("kind") == "quiet"


def test_when_the_terms_must_be_accepted_then_the_page_says_how(
    open_page: Open, fake_host: FakeHost, page: ModelsPage, until: Until
) -> None:
    wanted: list[str] = []
    page.page_wanted.connect(wanted.append)
    cover = open_page("google/gemma-3-12b-it-qat-q4_0-gguf")
    until(lambda: "wants its terms accepted first" in texts(cover))
    button(cover, "Sign in…").click()
    assert wanted == ["settings"]
    page.go_back()
    fake_host.library.account = HubAccount("https://hub.example", True, "ada")
    cover = open_page("google/gemma-3-12b-it-qat-q4_0-gguf")
    until(lambda: "you are signed in as ada" in texts(cover))


def test_when_a_model_reads_pictures_then_its_projector_can_be_left_out(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    cover = open_page("google/gemma-3-12b-it-qat-q4_0-gguf")
    assert cover._pictures.text() == "Fetch the part that reads pictures as well (851 MB)"
    cover._pictures.setChecked(False)
    name = next(iter(cover.rows))
    cover.rows[name].button.click()
    until(lambda: asked(fake_host, "/admin/downloads"))
    (request,) = asked(fake_host, "/admin/downloads")
    assert isinstance(request, DownloadRequest)
    assert not request.with_projector


def test_when_there_is_no_room_then_the_page_says_so_at_once(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    cover = open_page()
    full = DiskFull("There is not enough room: 8.7 GB are needed, 3.2 GB are free.", hint="Make room first.")
    fake_host.library.failures["/admin/downloads"] = to_failure(full)
    cover.rows[Q8].button.click()
    until(lambda: "8.7 GB are needed, 3.2 GB are free. Make room first." in texts(cover))
    assert cover.rows[Q8].button.text() == "Download"


@pytest.mark.parametrize(
    ("fault", "help_"),
    [
        (HubNotFound("There is no such repository.", hint="Look at the spelling."), "Try again"),
        (HubRefused("This model is private.", hint="Sign in."), "Sign in…"),
    ],
)
def test_when_the_hub_refuses_then_the_reason_stands_there_with_the_button_that_helps(
    open_page: Open, fake_host: FakeHost, until: Until, fault: HubRefused, help_: str
) -> None:
    fake_host.library.failures["/admin/hub/model"] = to_failure(fault)
    cover = open_page(judged=False)
    until(lambda: fault.message in texts(cover))
    assert button(cover, help_).isEnabled()


def test_when_judging_fails_then_the_rows_stay_and_it_can_be_tried_again(
    open_page: Open, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.failures["/admin/hub/verdicts"] = to_failure(HubNotFound("A header is missing."))
    cover = open_page(judged=False)
    until(lambda: "A header is missing." in texts(cover))
    until(lambda: len(cover.rows) == len(QUANTS))
    fake_host.library.failures.clear()
    button(cover, "Try again").click()
    until(lambda: "All on GPU" in texts(cover.rows[Q4]))


def test_when_a_repository_has_no_file_for_us_then_the_page_says_what_to_look_for(
    open_page: Open, fake_host: FakeHost, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = fake_host.library.picks[0]
    monkeypatch.setattr(fake_host.library, "hub_model", lambda _repo: HubModel(entry, "0" * 40, ()))
    cover = open_page(judged=False)
    until(lambda: "This repository has no GGUF file" in texts(cover))


def test_when_a_version_arrives_then_its_button_offers_a_chat(
    open_page: Open, fake_host: FakeHost, page: ModelsPage, until: Until
) -> None:
    cover = open_page()
    cover.rows[Q4].button.click()
    until(lambda: cover.rows[Q4].button.text() == "24 %")
    download = fake_host.library.downloads[0]
    import msgspec

    fake_host.emit(InstalledChanged((installed_model("qwen3-8b-q4_k_m", "Qwen3 8B"),)))
    done = msgspec.structs.replace(download, state="done", model_id="qwen3-8b-q4_k_m")
    fake_host.library.put_download(fake_host, done)
    until(lambda: cover.rows[Q4].button.text() == "Chat")
    wanted: list[str] = []
    page.chat_wanted.connect(wanted.append)
    cover.rows[Q4].button.click()
    assert wanted == ["qwen3-8b-q4_k_m"]


def test_when_the_page_is_left_while_answers_are_on_their_way_then_nothing_happens_to_it(
    open_page: Open, fake_host: FakeHost, page: ModelsPage, until: Until
) -> None:
    fake_host.library.held = {"/admin/hub/verdicts"}
    cover = open_page(judged=False)
    until(lambda: asked(fake_host, "/admin/hub/verdicts"))
    page.go_back()
    fake_host.library.held = set()
    fake_host.release()
    again = open_page()
    assert again is not cover
