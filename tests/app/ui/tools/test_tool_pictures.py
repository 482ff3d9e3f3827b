"""Pictures that tools return, in the window: made to fit, in the card, given to a model that sees."""

from collections.abc import Callable

import msgspec
import pytest
from PySide6.QtCore import QRect
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.store.records import ToolSetup
from app.tool_results import pixels_for
from app.ui.transcript.parts import TurnParts
from app.ui.window import MainWindow
from runtime.messages.api import ModelChanged
from runtime.messages.shared import MediaPart, PicturePart
from runtime.messages.tools import ResultMedia, ResultText, ToolResult, ToolReturned
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import Reply, calls, ready_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_tools import Script, files_server
from tests.support.pictures import png

READ = ("files__read_file", '{"path":"a.txt"}')
Shown = Callable[..., TurnParts]


@pytest.fixture
def shown(live_window: MainWindow, context: AppContext, fake_host: FakeHost, qtbot: QtBot) -> Shown:
    """Have a tool return these files; answers the parts of its card."""

    def make(*pictures: bytes, can_see: bool) -> TurnParts:
        model = ready_model()
        assert model.facts is not None
        facts = msgspec.structs.replace(model.facts, can_see=can_see)
        fake_host.emit(ModelChanged(msgspec.structs.replace(model, facts=facts)))
        fake_host.tools.show(fake_host, files_server())
        session = context.session
        qtbot.waitUntil(
            lambda: (
                bool(context.tools.servers)
                and [one.facts for one in context.link.loaded] == [facts]
                and not session.is_loading
            ),
            timeout=WAIT_MS,
        )
        context.tools.set_default(ToolSetup(servers=("files",)))
        fake_host.replies.append(Reply(calls(READ)))
        media = [ResultMedia(MediaPart("image", one, "image/png")) for one in pictures]
        fake_host.tools.scripts.append(Script((ToolReturned(ToolResult((ResultText("Look:"), *media))),)))
        live_window.chat.send("do it")
        qtbot.waitUntil(lambda: len(session.messages()) == 3, timeout=WAIT_MS)
        session.tools.allow(session.messages()[2].id, "once")
        qtbot.waitUntil(lambda: not session.is_busy, timeout=WAIT_MS)
        turn = next(one for one in live_window.chat.transcript.turns if one.is_tool)
        qtbot.waitUntil(lambda: turn.parts is not None and bool(turn.parts.files), timeout=WAIT_MS)
        qtbot.waitUntil(lambda: live_window.chat.transcript.is_settled, timeout=WAIT_MS)
        assert turn.parts is not None
        return turn.parts

    return make


def test_when_a_tool_returns_pictures_then_they_lie_in_its_card_and_the_model_sees_them(
    shown: Shown, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    first, second = png(1600, 900, seed=1), png(90, 60, seed=2)
    parts = shown(first, second, first, b"no picture", can_see=True)
    assert parts.tool is not None
    assert len(parts.files) == 2
    opened: list[tuple[str, str]] = []
    parts.file_wanted.connect(lambda message, sha256: opened.append((message, sha256)))
    rects: list[QRect] = []
    for tile in parts.files:
        assert tile.isVisible()
        assert parts.tool.geometry().contains(tile.geometry())
        assert not any(rect.intersects(tile.geometry()) for rect in rects)
        rects.append(tile.geometry())
        under = tile.parentWidget()
        assert under is not None
        assert under.childAt(tile.geometry().center()) is tile, "the card does not lie over it"
        tile.click()
    assert [sha256 for _, sha256 in opened] == [tile.attachment.sha256 for tile in parts.files]

    sent = fake_host.chats[-1].messages[-1]
    assert sent.role == "tool"
    assert sent.content.startswith("Look:\n[picture (image/png), shown to the person]")
    assert "A picture of the tool was left out" in sent.content
    seen = [part.media.data for part in sent.parts if isinstance(part, PicturePart)]
    assert seen[1] == second
    large = parts.files[0].attachment
    assert len(seen) == 2
    assert large.width_px * large.height_px <= pixels_for(4, 4096), "four pictures leave half of the context free"
    assert large.width_px > 800
    parts.tool.result_fold.click()
    qtbot.waitUntil(lambda: parts.tool is not None and parts.tool.geometry().contains(parts.files[0].geometry()))
    assert not parts.tool.result.geometry().translated(parts.tool.pos()).intersects(parts.files[0].geometry())
    del context


def test_when_the_model_cannot_see_then_pictures_are_shown_and_only_named_to_it(
    shown: Shown, fake_host: FakeHost
) -> None:
    parts = shown(png(90, 60), can_see=False)
    assert len(parts.files) == 1
    sent = fake_host.chats[-1].messages[-1]
    assert (sent.content, sent.parts) == ("Look:\n[picture (image/png), shown to the person]", ())
