from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.store.records import Attachment
from app.ui.appearance import Appearance
from app.ui.frame import messages
from app.ui.frame.messages import Toast
from app.ui.theme import DARK, LIGHT, Size
from app.ui.window import MainWindow
from runtime.paths import DataFolder
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.fake_host import FakeHost

PAGES = ("chat", "models", "server", "benchmark", "hardware", "settings")
Ask = Callable[[MainWindow, str], None]


def name_of(widget: QWidget) -> str:
    """What a screen reader would say for a widget."""
    if widget.accessibleName():
        return widget.accessibleName()
    if isinstance(widget, QAbstractButton) and widget.text():
        return widget.text()
    buddies = [label.text() for label in widget.window().findChildren(QLabel) if label.buddy() is widget]
    return buddies[0] if buddies else ""


def ancestors(widget: QWidget) -> list[QWidget]:
    """The widgets around a widget."""
    outer = widget.parentWidget()
    return [] if outer is None else [outer, *ancestors(outer)]


def focusable(root: QWidget) -> list[QWidget]:
    """The controls a keyboard reaches."""
    found = []
    for widget in root.findChildren(QWidget):
        is_inside = widget.objectName().startswith("qt_") or any(
            isinstance(outer, QComboBox | QAbstractItemView) for outer in ancestors(widget)
        )
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and not is_inside and widget.focusProxy() is None:
            found.append(widget)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_when_a_page_is_walked_then_every_control_has_a_name(
    live_window: MainWindow, qtbot: QtBot, page: str, ask: Ask
) -> None:
    if page == "chat":
        ask(live_window, "Hello")
        live_window.resize(1400, 900)
        live_window.chat.toggle_inspector()
    live_window.show_page(page)
    widgets = focusable(live_window.page_widget(page))
    assert widgets or page == "hardware"  # which only shows
    nameless = [
        f"{type(widget).__name__} in {type(widget.parentWidget()).__name__}"
        for widget in widgets
        if not name_of(widget)
    ]
    assert not nameless
    del qtbot


def test_when_the_frame_is_walked_then_every_control_has_a_name(live_window: MainWindow) -> None:
    assert not [type(widget).__name__ for widget in focusable(live_window) if not name_of(widget)]


def test_when_tab_is_pressed_on_the_chat_page_then_the_focus_goes_round_all_controls(live_window: MainWindow) -> None:
    live_window.activateWindow()
    live_window.chat.composer.focus()
    seen: list[QWidget] = []
    for _ in range(60):
        focused = live_window.focusWidget()
        assert focused is not None
        if focused in seen:
            break
        seen.append(focused)
        QTest.keyClick(focused, Qt.Key.Key_Tab)
    kinds = {type(widget).__name__ for widget in seen}
    assert {"ComposerEdit", "QLineEdit", "Switch", "QToolButton"} <= kinds
    assert all(widget.isVisible() for widget in seen)


@pytest.mark.parametrize(("number", "page"), list(enumerate(PAGES, 1)))
def test_when_ctrl_and_a_number_is_pressed_then_that_page_is_shown(
    qtbot: QtBot, window: MainWindow, number: int, page: str
) -> None:
    window.show_page("settings" if page == "chat" else "chat")
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=WAIT_MS)
    QTest.keyClick(window, Qt.Key(Qt.Key.Key_0 + number), Qt.KeyboardModifier.ControlModifier)
    assert window.page == page


def test_when_the_theme_is_forced_then_colours_change_at_once_and_it_is_remembered(
    window: MainWindow, context: AppContext, appearance: Appearance
) -> None:
    window.choose_theme("dark")
    assert appearance.tokens is DARK
    dark = window.grab().toImage().pixelColor(Size.RAIL_W // 2, window.height() // 2)
    window.choose_theme("light")
    assert appearance.tokens is LIGHT
    light = window.grab().toImage().pixelColor(Size.RAIL_W // 2, window.height() // 2)
    assert dark.name() == DARK.frame
    assert light.name() == LIGHT.frame
    assert context.settings.values.theme == "light"
    window.choose_theme("system")


def test_when_the_window_is_small_then_nothing_is_wider_than_it(qtbot: QtBot, live_window: MainWindow) -> None:
    live_window.resize(900, 600)
    for page in PAGES:
        live_window.show_page(page)
        qtbot.wait(1)
        assert live_window.width() == 900
        assert live_window.height() == 600
        for area in live_window.page_widget(page).findChildren(QAbstractScrollArea):
            bar = area.horizontalScrollBar()
            is_text = isinstance(area, QPlainTextEdit)
            assert is_text or bar.maximum() == 0 or not area.isVisible(), (page, type(area).__name__)


def test_when_the_window_is_closed_then_size_and_page_come_back(
    qtbot: QtBot, tmp_path: Path, appearance: Appearance
) -> None:
    first = AppContext(DataFolder(tmp_path))
    window = MainWindow(first, appearance)
    window.show()
    window.resize(780, 640)
    window.show_page("hardware")
    window.close()
    first.close()
    qtbot.waitUntil(lambda: first.is_closed, timeout=WAIT_MS)
    second = AppContext(DataFolder(tmp_path))
    again = MainWindow(second, appearance)
    assert (again.width(), again.height()) == (780, 640)
    assert again.page == "hardware"
    again.close()
    second.close()
    qtbot.waitUntil(lambda: second.is_closed, timeout=WAIT_MS)


def test_when_something_was_said_before_there_was_a_window_then_it_is_shown_with_its_button(
    context: AppContext, appearance: Appearance
) -> None:
    done: list[bool] = []
    context.notices.say(
        "warning", "Settings were moved aside.", action_label="Show", on_action=lambda: done.append(True)
    )
    window = MainWindow(context, appearance)
    window.show()
    assert list(window.toasts.texts) == ["Settings were moved aside."]
    button = next(each for each in window.findChildren(QAbstractButton) if each.text() == "Show")
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert done == [True]
    assert not list(window.toasts.texts)
    window.close()
    window.deleteLater()


def test_when_something_is_said_in_the_chat_then_the_place_to_write_stays_free(
    qtbot: QtBot, live_window: MainWindow
) -> None:
    composer = live_window.chat.composer

    def covered() -> bool:
        place = QRect(composer.mapTo(live_window, QPoint()), composer.size())
        return any(place.intersects(toast.geometry()) for toast in live_window.findChildren(Toast))

    live_window.toasts.show("error", "The file is no picture that can be read, or it is damaged.")
    assert not covered()
    composer.set_text("\n" * 6)
    qtbot.waitUntil(lambda: not covered(), timeout=WAIT_MS)
    live_window.show_page("models")
    toast = live_window.findChildren(Toast)[0]
    assert toast.geometry().bottom() > composer.mapTo(live_window, QPoint()).y()


def test_when_something_is_said_while_a_picture_is_shown_large_then_it_lies_above_it(live_window: MainWindow) -> None:
    picture = Attachment("a" * 64, "image", "image/png", "a.png", 1, 10, 10)
    live_window.viewer.open((picture,), picture.sha256)
    live_window.viewer.said.emit("info", "Saved a.png")
    toast = live_window.findChildren(Toast)[0]
    centre = toast.mapTo(live_window, toast.rect().center())
    found = live_window.childAt(centre)
    assert found is not None
    assert found is toast or toast.isAncestorOf(found)


def test_when_a_notice_holds_until_it_is_withdrawn_then_its_toast_stays_as_long(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SHOWN_MS", {"info": 1, "warning": 1, "error": 1})

    def only_the_lasting_one_is_left() -> bool:
        for toast in live_window.findChildren(Toast):  # one stays while the pointer, wherever that is here, is over it
            toast.leaveEvent(QEvent(QEvent.Type.Leave))
        return live_window.toasts.texts == ("The disk is full.",)

    full = context.notices.say("error", "The disk is full.", lasts=True)
    for at in range(messages.MAX_TOASTS + 2):
        context.notices.say("info", f"Copied {at}")
    qtbot.waitUntil(only_the_lasting_one_is_left, timeout=WAIT_MS)
    context.notices.say("info", "Copied again")
    qtbot.waitUntil(only_the_lasting_one_is_left, timeout=WAIT_MS)
    context.notices.withdraw(full)
    assert live_window.toasts.texts == ()


def test_when_the_host_dies_then_the_banner_says_it_until_it_answers_again(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    context.host.died.emit("The engine ended; it is being started again.")
    assert live_window.banner.text == "The engine ended; it is being started again."
    assert live_window.toasts.texts == ()
    context.link.detach()
    with qtbot.waitSignal(context.link.connected, timeout=WAIT_MS):
        context.link.attach(fake_host.host_file)
    assert live_window.banner.text == ""


def test_when_the_host_cannot_be_kept_running_then_the_banner_offers_to_start_it(
    live_window: MainWindow, context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []
    monkeypatch.setattr(context.host, "retry", lambda: tried.append(True))
    live_window._on_host_failed("The engine ended five times.")
    assert live_window.banner.text == "The engine ended five times."
    next(each for each in live_window.banner.findChildren(QAbstractButton) if each.text() == "Start again").click()
    assert tried == [True]


def test_when_ctrl_k_is_pressed_then_an_action_is_found_by_a_few_letters_and_run(live_window: MainWindow) -> None:
    live_window.open_palette()
    field = live_window.palette_box.findChild(QLineEdit)
    assert field is not None
    QTest.keyClicks(field, "hrdwr")
    assert live_window.palette_box.titles[0] == "Hardware"
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert live_window.page == "hardware"
    assert not live_window.palette_box.isVisible()


def test_when_the_palette_is_left_with_escape_then_the_focus_goes_back(live_window: MainWindow) -> None:
    live_window.chat.composer.focus()
    before = live_window.focusWidget()
    live_window.open_palette()
    field = live_window.palette_box.findChild(QLineEdit)
    assert field is not None
    QTest.keyClick(field, Qt.Key.Key_Escape)
    assert live_window.focusWidget() is before


def test_when_the_palette_lists_models_and_chats_then_both_can_be_chosen(
    qtbot: QtBot, live_window: MainWindow, ask: Ask, context: AppContext
) -> None:
    ask(live_window, "A chat about tea")
    qtbot.waitUntil(lambda: bool(context.conversations.rows), timeout=WAIT_MS)
    live_window.open_palette()
    titles = live_window.palette_box.titles
    assert "Load SmolLM2 135M Instruct" in titles
    assert any(title.startswith("Open chat: A chat about tea") for title in titles)


def test_when_the_api_switch_is_clicked_then_the_host_is_asked_and_the_address_can_be_copied(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost, context: AppContext
) -> None:
    status = live_window.status
    QTest.mouseClick(status._api, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: fake_host.api.running, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: context.link.api is not None and context.link.api.running, timeout=WAIT_MS)
    assert status._address.text() == fake_host.api.addresses[0]
    QTest.mouseClick(status._copy, Qt.MouseButton.LeftButton)
    from PySide6.QtGui import QGuiApplication

    assert QGuiApplication.clipboard().text() == fake_host.api.addresses[0]
    QTest.mouseClick(status._api, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not fake_host.api.running, timeout=WAIT_MS)


def test_when_the_api_cannot_be_turned_on_then_the_switch_goes_back_and_says_why(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost, context: AppContext
) -> None:
    fake_host.api_problem = "Port 1234 is taken by another program."
    QTest.mouseClick(live_window.status._api, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: context.link.api is not None and bool(context.link.api.problem), timeout=WAIT_MS)
    assert not live_window.status._api.isChecked()
    assert live_window.status._api.toolTip() == "Port 1234 is taken by another program."
