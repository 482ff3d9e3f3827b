"""One short request: a reply that is waited for and told once."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot
from PySide6.QtNetwork import QNetworkReply


class Call(QObject):
    """Home thread: main. Deletes itself and the reply afterwards.

    It goes with its parent: then the request is still carried out, and nothing is told.

    An object and not a function connected to `finished`: Qt would hold such a function, with all it refers to, until
    the reply is destroyed; when that reference is the last one to the owner of the network manager, the manager would
    be destroyed inside its own reply's destructor (seen as a crash in QtNetwork).
    """

    def __init__(self, reply: QNetworkReply, tell: Callable[[QNetworkReply], None], parent: QObject) -> None:
        super().__init__(parent)
        self._reply = reply
        self._tell: Callable[[QNetworkReply], None] | None = tell
        reply.finished.connect(self._finish)
        reply.finished.connect(reply.deleteLater)  # also when nobody waits any more

    def drop(self) -> None:
        """Abort; nothing is told. Does nothing once it was told."""
        if self._tell is not None:
            self._tell = None
            self._reply.abort()

    @Slot()
    def _finish(self) -> None:
        tell, self._tell = self._tell, None
        self.deleteLater()
        if tell is not None:
            tell(self._reply)
