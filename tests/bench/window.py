"""Start to first painted window, against an empty `QMainWindow`: fresh processes in turn, medians, and their ratio.

The clock starts before the interpreter does. Every run has a data folder of its own.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
MOST_RATIO = 4.0
"""Bound of the ratio: the whole program may take at most so many times an empty window of the same toolkit."""

EMPTY = """
import sys, time
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QMainWindow

class Window(QMainWindow):
    def paintEvent(self, event):
        super().paintEvent(event)
        QTimer.singleShot(0, painted)

def painted():
    print(time.clock_gettime(time.CLOCK_MONOTONIC) if hasattr(time, "clock_gettime") else time.monotonic(), flush=True)
    app.quit()

app = QApplication(sys.argv)
window = Window()
window.resize(1280, 800)
window.show()
app.exec()
"""

FULL = """
import os, sys, time
from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.paths import resolve_data_folder
from PySide6.QtWidgets import QApplication

def painted():
    print(time.clock_gettime(time.CLOCK_MONOTONIC) if hasattr(time, "clock_gettime") else time.monotonic(), flush=True)
    os._exit(0)  # the background threads are not waited for: only the start is measured

app = QApplication(sys.argv)
window = MainWindow(AppContext(resolve_data_folder(sys.argv[1], None)), Appearance(app))
window.first_paint.connect(painted)
window.show()
app.exec()
"""


def once(program: str, folder: str) -> float:
    """Milliseconds from before the process to its first painted window."""
    environ = os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start as a person has it: compiled once, the first time
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, folder], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    return (float(done.stdout.split()[0]) - began_s) * 1000


def main() -> int:
    """Print the medians and the ratio; 1 if it is over the bound."""
    empty, full = [], []
    with tempfile.TemporaryDirectory() as folder:
        once(EMPTY, folder)
        once(FULL, folder)  # the first start of both compiles and fills the disk's cache
        for _ in range(RUNS):
            empty.append(once(EMPTY, folder))
            full.append(once(FULL, folder))
    small, large = statistics.median(empty), statistics.median(full)
    ratio = min(full) / min(empty)  # the best of each: a busy machine only ever adds
    print("start to first painted window (median of", RUNS, "fresh processes, offscreen):")
    print(f"  empty QMainWindow {small:7.0f} ms   (best {min(empty):.0f})")
    print(f"  Deskside          {large:7.0f} ms   (best {min(full):.0f})")
    print(f"  ratio of the best {ratio:7.2f}      (bound {MOST_RATIO})")
    return 0 if ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
