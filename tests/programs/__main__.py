"""Programs that people point at this server, run against a real host with the starter model.

`python -m tests.programs [FOLDER]` installs them with pip and npm (into FOLDER, where they stay for the next time, or
into a passing one), starts a host, runs the checks beside this file, and ends with 1 if one failed. They are no part of
`make test`, because they are large and other people's. `--only frameworks` runs one of the scripts.
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

PYTHON: dict[str, tuple[str, ...]] = {
    "clients": ("langchain-openai==1.7.4", "litellm==1.110.2", "llama-index-llms-openai-like==0.8.1"),
    "frameworks": ("pydantic-ai-slim[openai,anthropic]==2.68.0", "openai-agents==0.24.0"),
    "structured": (
        "instructor==1.17.0",
        "smolagents[openai]==1.26.0",
        "langchain-anthropic==1.7.10",
        "langchain-ollama==1.1.0",
        "dspy==3.4.1",
    ),
}
"""By script. Each has an environment of its own, since they want different versions of the same packages."""
NODE: dict[str, tuple[str, ...]] = {
    "clients": (
        "openai@6.49.0",
        "ai@6.0.326",
        "@ai-sdk/openai@3.0.141",
        "@ai-sdk/openai-compatible@2.0.92",
        "zod@4.6.7",
    ),
    "more": (
        "@anthropic-ai/sdk@1.14.0",
        "ollama@0.6.4",
        "@langchain/openai@1.6.0",
        "@langchain/core@1.4.0",
        "zod@4.6.7",
    ),
}
HERE = Path(__file__).parent


def prepare_python(folder: Path, script: str) -> list[str]:
    """A virtual environment with the programs; the command that runs their checks."""
    home = folder / f"python-{script}"
    if not home.exists():
        venv.create(home, with_pip=True)
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PYTHON[script]], check=True)
    return [str(python), str(HERE / f"{script}.py")]


def prepare_node(folder: Path, script: str) -> list[str]:
    """A folder with the programs; the command that runs their checks.

    Raises:
        FileNotFoundError: Node.js is not installed.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("Node.js with npm is needed for the programs of npm.")
    home = folder / f"node-{script}"
    home.mkdir(exist_ok=True)
    (home / "package.json").write_text('{"private": true}')
    subprocess.run([npm, "install", "--silent", "--no-fund", "--no-audit", *NODE[script]], check=True, cwd=home)
    return [node, str(shutil.copy(HERE / f"{script}.mjs", home))]  # imports are found beside it


def main() -> int:
    """Install, start, run, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the programs are kept")
    parser.add_argument("--only", choices=sorted({*PYTHON, *NODE}), help="run these scripts alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskside-programs-") as passing:
        folder: Path = (given.folder or Path(passing)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        commands = [prepare_python(folder, script) for script in PYTHON if given.only in (None, script)]
        commands += [prepare_node(folder, script) for script in NODE if given.only in (None, script)]
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
