"""What the tests of the desktop core share."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from pytestqt.qtbot import QtBot

from app.answering import Answering
from app.conversations import Conversations
from app.link import HostLink
from app.media import Media
from app.notices import Notices
from app.presets import Presets
from app.saver import Saver
from app.session import ChatSession
from app.settings import Settings
from app.speed import Speed
from app.store import StoreLane
from app.tasks import Lane
from app.tool_book import ToolBook
from app.transcript import MessageView
from tests.fakes.fake_host import FakeHost

WAIT_MS = 10_000
"""Longest wait for something that comes in milliseconds on an idle machine."""


class Wait(Protocol):
    """Waits on the event loop until a condition holds."""

    def __call__(self, condition: Callable[[], bool]) -> None: ...


@pytest.fixture
def wait(qtbot: QtBot) -> Wait:
    def until(condition: Callable[[], bool]) -> None:
        qtbot.waitUntil(condition, timeout=WAIT_MS)

    return until


@pytest.fixture
def fake_host() -> Iterator[FakeHost]:
    with FakeHost() as host:
        yield host


@pytest.fixture
def link(qtbot: QtBot, fake_host: FakeHost) -> Iterator[HostLink]:  # noqa: ARG001 - qtbot brings the event loop
    """A link that is not attached yet."""
    one = HostLink()
    yield one
    one.detach()


@pytest.fixture
def live_link(link: HostLink, fake_host: FakeHost, qtbot: QtBot) -> HostLink:
    """A connected link."""
    with qtbot.waitSignal(link.connected, timeout=WAIT_MS):
        link.attach(fake_host.host_file)
    return link


Ask = Callable[[str], MessageView]


@dataclass
class Desk:
    """Everything a session needs, and what it told."""

    session: ChatSession
    conversations: Conversations
    presets: Presets
    answering: Answering
    saver: Saver
    store: StoreLane
    notices: Notices
    speed: Speed
    path: Path
    told: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def shown(self) -> tuple[MessageView, ...]:
        return self.session.messages()

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.shown]

    @property
    def states(self) -> list[str]:
        return [message.state for message in self.shown]

    def names(self) -> list[object]:
        return [one[0] for one in self.told]


@pytest.fixture
def desk(qtbot: QtBot, live_link: HostLink, tmp_path: Path) -> Iterator[Desk]:
    notices = Notices()
    files = Lane("files")
    path = tmp_path / "conversations.sqlite3"
    store = StoreLane(path, notices)
    settings = Settings(tmp_path / "window.toml", files, notices)
    presets = Presets(store, settings)
    conversations = Conversations(store)
    saver = Saver(store, notices)
    speed = Speed()
    tools = ToolBook(live_link, settings, saver)
    answering = Answering(live_link, presets, saver, Media(store, saver), tools, speed)
    session = ChatSession(store, saver, live_link, conversations, presets, answering, notices)
    desk = Desk(session, conversations, presets, answering, saver, store, notices, speed, path)
    session.message_added.connect(lambda one: desk.told.append(("added", one)))
    session.message_changed.connect(lambda one: desk.told.append(("changed", one)))
    session.messages_removed.connect(lambda ids: desk.told.append(("removed", ids)))
    session.text_appended.connect(lambda one, thought, text: desk.told.append(("text", one, thought, text)))
    session.busy_changed.connect(lambda busy: desk.told.append(("busy", busy)))
    session.reset.connect(lambda: desk.told.append(("reset",)))
    yield desk
    session.close()
    store.close()
    files.close()
    qtbot.waitUntil(lambda: store.is_closed and files.is_closed, timeout=WAIT_MS)


@pytest.fixture
def ask(desk: Desk, wait: Wait) -> Callable[[str], MessageView]:
    """Send a question and wait for its answer."""

    def send(text: str) -> MessageView:
        assert desk.session.send(text)
        wait(lambda: not desk.session.is_busy)
        return desk.shown[-1]

    return send


@pytest.fixture(autouse=True, scope="session")
def _collect_by_hand() -> Iterator[None]:
    """See `app.garbage`: a pretended host runs on threads of this process, which must not free Qt objects."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _collect_after() -> Iterator[None]:
    yield
    gc.collect()
