"""Rules that the source tree keeps: size of modules, pinned requirements, nothing of one machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 600
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-test.lock", ROOT / "installers" / "build.lock"]


def tracked_files() -> list[Path]:
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).exists()]


def test_when_a_module_grows_then_it_stays_within_600_lines() -> None:
    modules = [path for top in ("app", "runtime", "installers", "tests") for path in (ROOT / top).rglob("*.py")]
    assert modules
    long = {str(path.relative_to(ROOT)): count for path in modules if (count := line_count(path)) > MOST_LINES}
    assert long == {}


def line_count(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_when_requirements_are_locked_then_each_has_hashes_and_no_address_stands_there(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    pins = re.findall(r"(?m)^[A-Za-z0-9._-]+==.*$", text)
    assert pins
    assert all(pin.endswith("\\") for pin in pins)
    assert "--hash=sha256:" in text


def test_when_a_test_is_named_then_it_says_when_and_then() -> None:
    odd = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"(?m)^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8")):
            odd += [] if re.fullmatch(r"test_\w+?_then_\w+", name) else [f"{path.relative_to(ROOT)}::{name}"]
    assert odd == []


def test_when_files_are_tracked_then_none_speaks_of_one_machine() -> None:
    # Written in pieces so that this file does not find itself.
    words = ["/".join(("", "work", "")), "/".join(("", "root", "")), "py" + "pi.org", "python" + "hosted"]
    found = []
    for path in tracked_files():
        if path.suffix in {".png", ".svg", ".ico", ".gguf", ".icns"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word in text]
    assert found == []
