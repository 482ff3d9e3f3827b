"""Composition root of the desktop program: the window first, everything else after its first paint."""

import argparse
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from PySide6.QtCore import QSocketNotifier, QTimer
from PySide6.QtWidgets import QApplication, QMessageBox

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.paths import ENV_DATA_DIR, resolve_data_folder


def main(argv: Sequence[str] | None = None) -> int:
    """Run the desktop program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="deskside", description="The Deskside window.")
    parser.add_argument("--data-dir", help="folder for models, chats and settings")
    parsed, for_qt = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))
    app = QApplication([sys.argv[0], *for_qt])
    app.setApplicationName("Deskside")
    app.setApplicationDisplayName("Deskside")
    app.setDesktopFileName("deskside")
    app.setQuitOnLastWindowClosed(False)  # the window hides at once; the program ends when all is saved
    appearance = Appearance(app)
    folder = resolve_data_folder(parsed.data_dir, os.environ.get(ENV_DATA_DIR))
    try:
        context = AppContext(folder)
    except OSError as error:
        QMessageBox.critical(
            None,
            "Deskside",
            app.tr("The data folder {folder} cannot be used: {why}").format(folder=folder.root, why=error),
        )
        return 1
    window = MainWindow(context, appearance)
    window.first_paint.connect(context.start)
    window.close_wanted.connect(context.close)
    context.closed.connect(lambda: QTimer.singleShot(0, app.quit))
    quitter = SignalQuitter(window.close)
    window.show()
    code = app.exec()
    quitter.restore()
    return code


class SignalQuitter:
    """Closes the window politely on Ctrl+C in the terminal, and when the system asks the program to end.

    Python runs signal handlers only when it gets to run; the wake-up socket lets Qt's event loop notice at once.
    """

    def __init__(self, on_signal: Callable[[], object]) -> None:
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs
        for end in (self._ours, theirs):
            end.setblocking(False)
        self._notifier = QSocketNotifier(self._ours.fileno(), QSocketNotifier.Type.Read)
        self._notifier.activated.connect(self._drain)
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in self._before:
            signal.signal(number, lambda _number, _frame: on_signal())
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ours.recv(64)

    def restore(self) -> None:
        """Put the handlers back."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._notifier.setEnabled(False)
        self._ours.close()
        self._theirs.close()
