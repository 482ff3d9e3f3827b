"""What the tests of the desktop core share."""

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from pytestqt.qtbot import QtBot

from app.link import HostLink
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
