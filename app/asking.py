"""What the parts of the window that ask the host for something share; what changes by itself is in `app.link`."""

from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec
from PySide6.QtCore import QObject

from app.call import Call
from app.link import Failed, HostLink

A = TypeVar("A")
Done = Callable[[A], None]


class Asking(QObject):
    """Home thread: main. Without `failed`, a failure comes as `HostLink.request_failed`.

    Whoever asks has one of its own as its child: answers that come after its end are told to nobody.

    Each method returns the `Call`, so that an answer nobody needs any more can be dropped; `None` without a host.
    """

    ANSWER_TIMEOUT_MS: ClassVar[int]
    """Longest silence before an answer that has a body."""

    def __init__(self, link: HostLink, parent: QObject) -> None:
        super().__init__(parent)
        self._link = link

    def _ask(
        self,
        path: str,
        body: msgspec.Struct | None,
        kind: type[A],
        done: Done[A] | None,
        failed: Failed | None,
        *,
        method: str = "POST",
    ) -> Call | None:
        decode = msgspec.json.Decoder(kind).decode
        timeout_ms = self.ANSWER_TIMEOUT_MS
        return self._link.send(method, path, body, decode, done, failed, timeout_ms=timeout_ms, owner=self)

    def _tell(
        self,
        path: str,
        body: msgspec.Struct,
        done: Callable[[], None] | None,
        failed: Failed | None,
        *,
        method: str = "POST",
    ) -> Call | None:
        def finished(_nothing: None) -> None:
            if done is not None:
                done()

        return self._link.send(method, path, body, _nothing, finished, failed, owner=self)


def _nothing(raw: bytes) -> None:
    """What the answer says is not needed: the change comes as an event."""
