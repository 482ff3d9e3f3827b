"""Programs that people point at this server, run against a real host with the starter model.

`python -m tests.programs [FOLDER]` installs them with pip and npm (into FOLDER, where they stay for the next time, or
into a passing one), starts a host, runs `clients.py` and `clients.mjs`, and ends with 1 if a check failed. They are no
part of `make test`, because they are large and other people's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest

PYTHON = ("langchain-openai==1.7.4", "litellm==1.110.2", "llama-index-llms-openai-like==0.8.1")
NODE = ("openai@6.49.0", "ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/openai-compatible@2.0.92", "zod@4.6.7")
HERE = Path(__file__).parent


def prepare_python(folder: Path) -> list[str]:
    """A virtual environment with the programs; the command that runs their checks."""
    home = folder / "python"
    if not home.exists():
        venv.create(home, with_pip=True)
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PYTHON], check=True)
    return [str(python), str(HERE / "clients.py")]


def prepare_node(folder: Path) -> list[str]:
    """A folder with the programs; the command that runs their checks.

    Raises:
        FileNotFoundError: Node.js is not installed.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("Node.js with npm is needed for the programs of npm.")
    home = folder / "node"
    home.mkdir(exist_ok=True)
    (home / "package.json").write_text('{"private": true}')
    subprocess.run([npm, "install", "--silent", "--no-fund", "--no-audit", *NODE], check=True, cwd=home)
    script = shutil.copy(HERE / "clients.mjs", home)  # imports are found beside it
    return [node, str(script)]


def main() -> int:
    """Install, start, run, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the programs are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskside-programs-") as passing:
        folder: Path = (given.folder or Path(passing)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        commands = [prepare_python(folder), prepare_node(folder)]
        host = HostUnderTest(DataFolder(Path(passing) / "data"))
        try:
            host.open_api()
            host.load_starter(n_ctx=2048, n_parallel=4)
            codes = [
                subprocess.run([*command, host.address, host.model], check=False).returncode for command in commands
            ]
        finally:
            host.close()
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
