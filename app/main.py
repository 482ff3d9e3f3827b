"""Composition root of the desktop program: the window first, everything else after its first paint."""

import argparse
import os
import sys
from collections.abc import Sequence

from PySide6.QtCore import QTimer
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
    window.show()
    return app.exec()
