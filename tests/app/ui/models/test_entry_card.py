"""A repository in a list."""

from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.ui.appearance import Appearance
from app.ui.models.entry_card import EntryCard
from tests.fakes.hub_entries import hub_entry


def test_when_a_page_is_full_then_cards_are_not_squeezed(qtbot: QtBot, appearance: Appearance) -> None:
    del appearance  # its stylesheet is what squeezed them
    page = QWidget()
    qtbot.addWidget(page)
    column = QVBoxLayout(page)
    cards = [EntryCard(hub_entry(f"a/b{at}", 10**9, note="Small and quick.")) for at in range(4)]
    for card in cards:
        column.addWidget(card)
    page.resize(500, 40)
    page.show()
    qtbot.waitExposed(page)
    qtbot.waitUntil(lambda: all(card.height() >= card.sizeHint().height() for card in cards))
    assert page.minimumSizeHint().height() >= 4 * cards[0].sizeHint().height()
