"""`python -m tests.pictures OUT [page ...]`: pictures of the real window on a virtual screen.

Every page, every state of the models page, the server page and of files in the chat, in light and dark, at 1280x800,
900x600 and at twice the scale, with a pretended host behind it.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

SHOTS = (("1280x800", 1280, 800, 1), ("900x600", 900, 600, 1), ("2x", 1280, 800, 2))

MODULES = tuple(f"tests.pictures.{name}" for name in ("shoot", "models", "files", "server", "forms", "tools"))


def main() -> int:
    """Take all pictures, each size in a process of its own (the scale is fixed when Qt starts)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("only", nargs="*")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, width, height, scale in SHOTS:
        environ = os.environ | {
            "QT_SCALE_FACTOR": str(scale),
            "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen"),
        }
        for module in MODULES:
            sizes = [str(chosen.out), name, str(width), str(height)]
            command = [sys.executable, "-m", module, *sizes, *chosen.only]
            failed |= subprocess.run(command, env=environ, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
