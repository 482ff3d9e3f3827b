import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli.window import has_display, platform_plugins, silent_display, window_command
from runtime.paths import DataFolder


def test_when_linux_names_no_display_then_there_is_none() -> None:
    assert not has_display({}, "linux")
    assert not has_display({"DISPLAY": ""}, "linux")


@pytest.mark.parametrize("name", ["DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"])
def test_when_linux_names_one_then_there_is_one(name: str) -> None:
    assert has_display({name: "x"}, "linux")


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_when_the_system_always_has_one_then_nothing_is_asked(system: str) -> None:
    assert has_display({}, system)


@pytest.mark.parametrize(
    ("environ", "plugins"),
    [
        ({"DISPLAY": ":0"}, ("xcb",)),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0", "XDG_SESSION_TYPE": "wayland"}, ("wayland", "xcb")),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0", "XDG_SESSION_TYPE": "x11"}, ("xcb",)),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ("wayland",)),
        ({"QT_QPA_PLATFORM": "offscreen:size=800x600"}, ("offscreen",)),
        ({"QT_QPA_PLATFORM": "wayland;xcb"}, ("wayland", "xcb")),
    ],
)
def test_when_the_session_is_known_then_the_plugins_are_those_qt_takes(
    environ: dict[str, str], plugins: tuple[str, ...]
) -> None:
    assert platform_plugins(environ) == plugins


def test_when_the_window_is_started_then_it_gets_the_data_folder(tmp_path: Path) -> None:
    assert window_command(DataFolder(tmp_path)) == [sys.executable, "-m", "app", "--data-dir", str(tmp_path)]


@pytest.mark.skipif(sys.platform != "linux", reason="displays of Linux")
def test_when_the_display_does_not_answer_then_it_is_named(tmp_path: Path) -> None:
    assert silent_display({"DISPLAY": ":9753"}) == ":9753"
    assert silent_display({"QT_QPA_PLATFORM": "offscreen"}) == ""
    wayland = {"WAYLAND_DISPLAY": "wayland-7", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert silent_display(wayland) == "wayland-7"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "wayland-7"))
        assert silent_display(wayland) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="system libraries of Linux")
def test_when_a_library_is_missing_then_the_install_command_is_printed_and_the_code_is_1(tmp_path: Path) -> None:
    # A Qt of our own making asks for a library that no system has.
    folder = tmp_path / "PySide6"
    plugin = folder / "Qt" / "plugins" / "platforms" / "libqxcb.so"
    plugin.parent.mkdir(parents=True)
    (folder / "__init__.py").touch()
    source = tmp_path / "empty.c"
    source.write_text("int answer(void) { return 42; }\n")
    stub = tmp_path / "libgone.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libxcb-gone.so.9", "-o", stub, source], check=True)
    subprocess.run(["cc", "-shared", "-Wl,--no-as-needed", "-o", plugin, source, f"-L{tmp_path}", "-lgone"], check=True)

    environ = {key: value for key, value in os.environ.items() if key not in {"QT_QPA_PLATFORM", "WAYLAND_DISPLAY"}}
    environ |= {"PYTHONPATH": str(tmp_path), "DISPLAY": ":0"}
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.cli.main", "--data-dir", str(tmp_path / "data")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "libxcb-gone.so.9" in ended.stderr
    assert "Install" in ended.stderr
    assert "Traceback" not in ended.stderr
