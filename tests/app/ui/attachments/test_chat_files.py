"""Pictures and files in the chat: pasted, dropped, chosen; sent, shown, opened; and a model that cannot see."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent, QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.attachments.tile import FileTile
from app.ui.window import MainWindow
from runtime.messages.api import InstalledChanged, LoadedModel, ModelChanged
from runtime.messages.shared import PicturePart
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import Reply, installed_model, ready_model, words
from tests.fakes.fake_host import FakeHost

Ask = Callable[[MainWindow, str], None]


def seeing() -> LoadedModel:
    model = ready_model()
    assert model.facts is not None
    return msgspec.structs.replace(model, facts=msgspec.structs.replace(model.facts, can_see=True))


def picture(width: int = 320, height: int = 200, colour: str = "#cc3344") -> QImage:
    made = QImage(width, height, QImage.Format.Format_RGB32)
    made.fill(QColor(colour))
    return made


@pytest.fixture
def seeing_window(qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost) -> MainWindow:
    fake_host.emit(ModelChanged(seeing()))
    qtbot.waitUntil(
        lambda: any(model.facts is not None and model.facts.can_see for model in context.link.loaded), timeout=WAIT_MS
    )
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    return live_window


def paste(window: MainWindow, image: QImage) -> None:
    QGuiApplication.clipboard().setImage(image)
    window.chat.composer.field.setFocus()
    window.chat.composer.field.paste()


def drop(window: MainWindow, paths: list[Path]) -> None:
    source = QMimeData()
    source.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    centre, area = window.chat._centre, window.chat._drop_area
    spot = QPoint(100, 100)
    enter = QDragEnterEvent(
        spot, Qt.DropAction.CopyAction, source, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(centre, enter)
    assert area.isVisible()
    let_go = QDropEvent(
        QPointF(spot), Qt.DropAction.CopyAction, source, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    area.dropEvent(let_go)  # Qt delivers one only at the end of a drag of its own
    assert not area.isVisible()


def tiles(window: MainWindow, turn: int = 0) -> list[FileTile]:
    parts = window.chat.transcript.turns[turn].parts
    assert parts is not None
    return parts.files


def press(parent: object, name: str) -> None:
    assert isinstance(parent, object)
    buttons = parent.findChildren(QAbstractButton)  # type: ignore[attr-defined]
    next(one for one in buttons if name in (one.accessibleName(), one.text())).click()


def test_when_a_picture_is_pasted_and_sent_then_the_model_gets_it_and_the_transcript_shows_it(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    window = seeing_window
    fake_host.replies.append(Reply(words("A red field.")))
    paste(window, picture())
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    assert window.chat.composer.tray.isVisible()
    assert window.chat.composer.button.isEnabled()  # a picture alone can be sent
    QTest.keyClicks(window.chat.composer.field, "What is it?")
    QTest.keyClick(window.chat.composer.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(context.session.messages()) == 2 and not context.session.is_busy, timeout=WAIT_MS)
    asked = fake_host.chats[-1].messages[-1]
    assert [type(part).__name__ for part in asked.parts] == ["PicturePart", "TextPart"]
    first = asked.parts[0]
    assert isinstance(first, PicturePart)
    assert first.media.mime == "image/png"
    assert not window.chat.composer.tray.isVisible()
    assert context.session.draft.files == ()
    qtbot.waitUntil(lambda: window.chat.transcript.is_settled, timeout=WAIT_MS)
    (tile,) = tiles(window)
    assert tile.isVisible()
    assert tile.accessibleName() == "Picture, 320 by 200 pixels"
    inside = tile.rect().center()

    def is_drawn() -> bool:
        return tile.grab().toImage().pixelColor(inside).name() == QColor("#cc3344").name()

    qtbot.waitUntil(is_drawn, timeout=WAIT_MS)
    tile.click()
    assert window.viewer.isVisible()
    qtbot.waitUntil(
        lambda: window.viewer.grab().toImage().pixelColor(window.viewer.rect().center()).name() == "#cc3344",
        timeout=WAIT_MS,
    )
    QTest.keyClick(window.viewer, Qt.Key.Key_Escape)
    assert not window.viewer.isVisible()


def test_when_files_are_dropped_then_they_wait_in_the_tray_and_can_be_taken_out(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("# Notes", encoding="utf-8")
    picture().save(str(tmp_path / "cat.png"))
    (tmp_path / "tool.exe").write_bytes(b"MZ\0\0")
    drop(seeing_window, [tmp_path / "notes.md", tmp_path / "cat.png", tmp_path / "tool.exe"])
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 2, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: any("tool.exe" in text for text in seeing_window.toasts.texts), timeout=WAIT_MS)
    tray = seeing_window.chat.composer.tray
    press(tray, "Remove notes.md")
    assert [one.name for one in context.session.draft.files] == ["cat.png"]
    assert [one.name for one in tray.files] == ["cat.png"]
    press(tray, "Remove cat.png")
    assert not tray.isVisible()


def test_when_a_text_file_is_sent_then_its_text_goes_under_its_name(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, fake_host: FakeHost, tmp_path: Path
) -> None:
    (tmp_path / "sum.py").write_text("print(1 + 1)\n", encoding="utf-8")
    drop(seeing_window, [tmp_path / "sum.py"])
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    seeing_window.chat.send("What does it print?")
    qtbot.waitUntil(lambda: bool(fake_host.chats), timeout=WAIT_MS)
    assert fake_host.chats[-1].messages[-1].content == "sum.py:\n```py\nprint(1 + 1)\n```\n\nWhat does it print?"
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    assert context.session.messages()[0].text == "What does it print?"


def test_when_the_model_cannot_see_then_it_is_said_at_once_and_nothing_is_lost(
    qtbot: QtBot,
    live_window: MainWindow,
    context: AppContext,
    fake_host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    menus: list[QMenu] = []
    monkeypatch.setattr(QMenu, "popup", lambda menu, _at: menus.append(menu))  # a virtual screen has no popups
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    paste(live_window, picture())
    composer = live_window.chat.composer
    qtbot.waitUntil(lambda: bool(composer.tray.obstacle), timeout=WAIT_MS)
    assert "SmolLM2 135M Instruct cannot see pictures." in composer.tray.obstacle
    QTest.keyClicks(composer.field, "What is it?")
    assert not composer.button.isEnabled()
    QTest.keyClick(composer.field, Qt.Key.Key_Return)
    assert context.session.messages() == ()
    assert (composer.text, len(context.session.draft.files)) == ("What is it?", 1)
    wanted: list[bool] = []
    live_window.chat.vision_models_wanted.disconnect()
    live_window.chat.vision_models_wanted.connect(lambda: wanted.append(True))
    press(composer.tray, "Choose a vision model")
    assert wanted == [True]  # none is installed: some are offered
    fake_host.emit(InstalledChanged((installed_model(), installed_model("eyes", "Eyes", is_vision=True))))
    qtbot.waitUntil(lambda: len(context.link.installed) == 2, timeout=WAIT_MS)
    press(composer.tray, "Choose a vision model")
    (menu,) = menus
    assert [action.text().split()[0] for action in menu.actions() if action.text()] == ["Eyes", "All"]
    menu.close()
    fake_host.emit(ModelChanged(seeing()))
    qtbot.waitUntil(lambda: not composer.tray.obstacle, timeout=WAIT_MS)
    QTest.keyClick(composer.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(context.session.messages()) == 2, timeout=WAIT_MS)


def test_when_an_earlier_picture_cannot_be_seen_then_the_answer_says_so(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    paste(seeing_window, picture())
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    ask(seeing_window, "What is it?")
    fake_host.emit(ModelChanged(ready_model()))
    qtbot.waitUntil(
        lambda: all(model.facts is not None and not model.facts.can_see for model in context.link.loaded),
        timeout=WAIT_MS,
    )
    ask(seeing_window, "Thanks")
    assert fake_host.chats[-1].messages[0].content == "[picture]\n\nWhat is it?"
    assert "was not sent" in context.session.messages()[-1].notice
    context.session.regenerate(context.session.messages()[1].id)
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    error = context.session.messages()[-1].error
    assert error is not None
    assert error.details["needs"] == "image"


def test_when_the_window_comes_back_then_draft_and_pictures_are_there(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, ask: Ask
) -> None:
    paste(seeing_window, picture())
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    ask(seeing_window, "What is it?")
    first = context.session.conversation_id
    paste(seeing_window, picture(colour="#00aa00"))
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    seeing_window.chat.new_chat()
    qtbot.waitUntil(lambda: not context.session.is_loading and context.session.draft.files == (), timeout=WAIT_MS)
    assert not seeing_window.chat.composer.tray.isVisible()
    seeing_window.chat.open_conversation(first)
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: seeing_window.chat.transcript.is_settled, timeout=WAIT_MS)
    assert seeing_window.chat.composer.tray.isVisible()
    assert len(tiles(seeing_window)) == 1
    exported: list[str] = []
    context.conversations.export_markdown(first, exported.append)
    qtbot.waitUntil(lambda: bool(exported), timeout=WAIT_MS)
    assert "*Picture (320 x 200)*" in exported[0]


def test_when_a_question_with_a_picture_is_edited_then_the_picture_stays_with_it(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    paste(seeing_window, picture())
    qtbot.waitUntil(lambda: len(context.session.draft.files) == 1, timeout=WAIT_MS)
    ask(seeing_window, "What is it?")
    seeing_window.chat.edit_last()
    assert not seeing_window.chat.composer.attach.isEnabled()
    seeing_window.chat.send("What colour is it?")
    qtbot.waitUntil(lambda: len(fake_host.chats) == 2, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    assert len(context.session.messages()[0].attachments) == 1
    assert len(fake_host.chats[-1].messages[-1].parts) == 2


def test_when_text_is_pasted_then_it_is_text(seeing_window: MainWindow, context: AppContext) -> None:
    source = QMimeData()
    source.setText("hello")
    source.setImageData(picture())  # as spreadsheets do
    seeing_window.chat.composer.field.insertFromMimeData(source)
    assert seeing_window.chat.composer.text == "hello"
    assert context.session.draft.files == ()


def test_when_a_person_types_beside_a_picture_then_the_picture_is_counted_once(
    qtbot: QtBot, seeing_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    def with_pictures() -> list[bool]:
        return [any(message.parts for message in count.messages) for count in fake_host.counts]

    paste(seeing_window, picture())
    qtbot.waitUntil(lambda: with_pictures()[-2:] == [True, False], timeout=WAIT_MS)
    told: list[int] = []
    context.session.draft_counted.connect(lambda used, _limit: told.append(used))
    QTest.keyClicks(seeing_window.chat.composer.field, "What is it?")
    qtbot.waitUntil(lambda: bool(told), timeout=WAIT_MS)
    assert with_pictures().count(True) == 1
    assert seeing_window.chat.composer._count.text()
