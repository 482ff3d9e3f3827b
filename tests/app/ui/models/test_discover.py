import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.ui.models.discover import MAX_EMPTY_PAGES, repo_in
from app.ui.models.entry_card import EntryCard, entry_facts
from app.ui.models.hub_page import HubPage
from app.ui.models.page import ModelsPage
from runtime.errors import HubOffline, to_failure
from runtime.messages.library import HubEntry, HubSearch
from runtime.messages.library import HubPage as Entries
from tests.app.ui.models.conftest import Until, button
from tests.fakes.fake_host import FakeHost
from tests.fakes.hub_entries import hub_entry
from tests.support.widgets import texts

FAILURE = to_failure(HubOffline("The hub answered with an error.", hint="Try again in a while."))


def names(page: ModelsPage) -> list[str]:
    """Names of the cards that are shown, from top to bottom."""
    view = page.discover
    cards = [card for card in view.findChildren(EntryCard) if card.isVisibleTo(view)]
    return [card.entry.name for card in sorted(cards, key=lambda one: one.mapTo(view, one.rect().topLeft()).y())]


def searches(host: FakeHost) -> list[HubSearch]:
    return [one for one in host.library.asked.get("/admin/hub/search", []) if isinstance(one, HubSearch)]


@pytest.fixture
def discover(page: ModelsPage, until: Until) -> ModelsPage:
    page.show_tab("discover")
    until(lambda: names(page))
    return page


def test_when_the_tab_opens_then_picks_that_suit_this_computer_come_first(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    until(lambda: "Good ones for this computer" in texts(discover.discover))
    shown = names(discover)
    assert "gpt oss 120b" not in shown
    assert "nomic embed text v1.5" not in shown
    button(discover, f"Show all {len(fake_host.library.picks)}").click()
    until(lambda: "gpt oss 120b" in names(discover))
    assert "Good ones to begin with" in texts(discover.discover)


def test_when_the_computer_is_not_known_then_all_picks_are_shown(
    page: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.failures["/admin/machine"] = FAILURE
    page.show_tab("discover")
    until(lambda: len(names(page)) == len(fake_host.library.picks))


def test_when_words_are_typed_then_the_hub_is_searched_after_a_pause_and_the_picks_step_back(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    before = len(searches(fake_host))
    QTest.keyClicks(discover.discover.field, "gemma")
    until(lambda: names(discover) == ["gemma 3 12b it qat q4_0 gguf"])
    assert len(searches(fake_host)) == before + 1
    assert "Terms to accept" in texts(discover.discover)
    assert "Good ones" not in texts(discover.discover)


def test_when_a_filter_is_chosen_then_it_is_asked_for_at_once(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    view = discover.discover
    view._kind.setCurrentIndex(view._kind.findData("embedding"))
    until(lambda: names(discover) == ["nomic embed text v1.5"])
    view._size.setCurrentIndex(1)
    view._sort.setCurrentIndex(view._sort.findData("likes"))
    until(lambda: searches(fake_host)[-1].sort == "likes")
    assert searches(fake_host)[-1].max_params == 4_000_000_000


def test_when_nothing_is_found_then_the_search_can_be_cleared(discover: ModelsPage, until: Until) -> None:
    discover.discover.field.setText("xyzzy")
    until(lambda: "Nothing found" in texts(discover.discover))
    button(discover, "Clear the search").click()
    until(lambda: "Good ones" in texts(discover.discover))
    assert not discover.discover.field.text()


def test_when_the_hub_is_offline_then_it_is_said_and_the_picks_stay(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.offline = "The hub cannot be reached."
    discover.discover.search()
    until(lambda: "The hub cannot be reached. Only the models that Deskside knows" in texts(discover.discover))
    assert names(discover)
    fake_host.library.offline = ""
    button(discover, "Try again").click()
    until(lambda: "cannot be reached" not in texts(discover.discover))


def test_when_the_search_fails_then_the_reason_stands_there_with_the_button_that_helps(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.failures["/admin/hub/search"] = FAILURE
    discover.discover.field.setText("qwen")
    until(lambda: "The hub answered with an error. Try again in a while." in texts(discover.discover))
    fake_host.library.failures.clear()
    button(discover, "Try again").click()
    until(lambda: "Qwen3 8B" in names(discover))


def test_when_there_is_more_then_it_is_fetched_by_the_cursor(
    discover: ModelsPage, fake_host: FakeHost, until: Until
) -> None:
    fake_host.library.found = tuple(hub_entry(f"org/thing-{n}-GGUF", 8_000_000_000) for n in range(3))
    fake_host.library.cursor = "second page"
    discover.discover.field.setText("thing")
    until(lambda: len(names(discover)) == 3 and not discover.discover._more.isHidden())
    button(discover, "Show more").click()
    until(lambda: len(names(discover)) == 6)
    assert searches(fake_host)[-1].cursor == "second page"
    assert discover.discover._more.isHidden()


def test_when_a_filter_leaves_nothing_of_many_pages_then_the_search_ends_by_itself(
    discover: ModelsPage, fake_host: FakeHost, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_host.library, "search", lambda _request: Entries((), "more"))
    before = len(searches(fake_host))
    discover.discover.field.setText("nothing like this")
    until(lambda: "Nothing found" in texts(discover.discover))
    assert len(searches(fake_host)) - before <= MAX_EMPTY_PAGES


def test_when_an_address_is_pasted_then_return_opens_the_model(discover: ModelsPage, until: Until) -> None:
    field = discover.discover.field
    field.setText("https://hub.example/Qwen/Qwen3-8B-GGUF/tree/main")
    QTest.keyClick(field, Qt.Key.Key_Return)
    until(lambda: isinstance(discover.cover, HubPage))
    assert discover.cover is not None
    until(lambda: discover.cover.title.text() == "Qwen3 8B")  # type: ignore[union-attr]


def test_when_a_card_is_pressed_by_keyboard_then_its_page_opens_and_escape_comes_back_to_it(
    discover: ModelsPage, until: Until
) -> None:
    window = discover.window()
    window.activateWindow()
    until(window.isActiveWindow)
    card = discover.discover.findChildren(EntryCard)[0]
    card.setFocus()
    QTest.keyClick(card, Qt.Key.Key_Space)
    until(lambda: discover.cover is not None)
    QTest.keyClick(QApplication.focusWidget() or window, Qt.Key.Key_Escape)
    until(lambda: discover.cover is None)
    assert card.hasFocus()


@pytest.mark.parametrize(
    ("text", "repo"),
    [
        ("Qwen/Qwen3-8B-GGUF", "Qwen/Qwen3-8B-GGUF"),
        (" https://hub.example/org/name/blob/main/a.gguf ", "org/name"),
        ("qwen3 8b", ""),
        ("qwen", ""),
        ("", ""),
    ],
)
def test_when_text_names_a_repository_then_it_is_found_in_it(text: str, repo: str) -> None:
    assert repo_in(text) == repo


def test_when_little_is_known_of_an_entry_then_its_facts_are_few() -> None:
    assert entry_facts(HubEntry(repo="a/b", name="b", publisher="a")) == ""
