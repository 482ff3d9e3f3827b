import sys
from pathlib import Path

import pytest

from runtime.cli.qt_libraries import (
    PLUGINS,
    can_load,
    distribution_family,
    install_command,
    main,
    missing_libraries,
    needed_by_qt,
    qt_folder,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Qt brings its libraries elsewhere")

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
MINT = 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'
FEDORA = "ID=fedora\n"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'
ARCH = "ID=arch\n"
TUMBLEWEED = 'ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n'


def release(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "os-release"
    path.write_text(text)
    return path


@linux_only
def test_when_the_installed_qt_is_read_then_the_libraries_known_to_be_needed_are_found() -> None:
    folder = qt_folder()
    assert folder is not None
    needed = needed_by_qt(folder, "xcb")
    for soname in ("libxcb-cursor.so.0", "libxcb-icccm.so.4", "libxcb-keysyms.so.1", "libxkbcommon-x11.so.0"):
        assert soname in needed
    assert "libEGL.so.1" in needed
    assert not any(soname.startswith(("libQt6", "libpyside", "libicu")) for soname in needed)


@linux_only
@pytest.mark.parametrize("plugin", sorted(PLUGINS))
@pytest.mark.parametrize("text", [DEBIAN, FEDORA, ARCH, TUMBLEWEED])
def test_when_everything_is_missing_then_every_library_has_a_package(tmp_path: Path, plugin: str, text: str) -> None:
    folder = qt_folder()
    assert folder is not None
    c_library = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2", "ld-linux")
    sonames = [name for name in needed_by_qt(folder, plugin) if not name.startswith(c_library)]
    assert install_command(sonames, release(tmp_path, text))


@linux_only
def test_when_some_are_missing_then_the_exact_command_is_told(tmp_path: Path) -> None:
    gone = {"libxcb-cursor.so.0", "libEGL.so.1", "libxcb-icccm.so.4"}
    missing = missing_libraries("xcb", os_release=release(tmp_path, DEBIAN), loads=lambda name: name not in gone)
    assert missing is not None
    assert set(missing.sonames) == gone
    assert missing.command == "sudo apt-get install libegl1 libxcb-cursor0 libxcb-icccm4"
    assert "libxcb-cursor.so.0" in missing.sentence


@linux_only
def test_when_nothing_is_missing_then_there_is_nothing_to_say() -> None:
    assert missing_libraries("xcb", loads=lambda _: True) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (DEBIAN, "sudo apt-get install libxcb-icccm4"),
        (MINT, "sudo apt-get install libxcb-icccm4"),
        (FEDORA, "sudo dnf install xcb-util-wm"),
        (ROCKY, "sudo dnf install xcb-util-wm"),
        (ARCH, "sudo pacman -S xcb-util-wm"),
        (TUMBLEWEED, "sudo zypper install libxcb-icccm4"),
        ("ID=plan9\n", ""),
        ("ID='unclosed\n", ""),
    ],
)
def test_when_a_distribution_is_known_then_its_package_is_named(tmp_path: Path, text: str, command: str) -> None:
    assert install_command(["libxcb-icccm.so.4"], release(tmp_path, text)) == command


def test_when_a_library_is_not_known_then_no_half_command_is_told(tmp_path: Path) -> None:
    assert install_command(["libxcb-icccm.so.4", "libnew.so.1"], release(tmp_path, DEBIAN)) == ""


def test_when_there_is_no_os_release_then_the_family_is_not_known(tmp_path: Path) -> None:
    assert distribution_family(tmp_path / "missing") is None


def test_when_a_library_does_not_exist_then_it_cannot_be_loaded() -> None:
    assert not can_load("libsurely-not-there.so.99")


def test_when_the_plugin_is_unknown_then_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "xcb" in capsys.readouterr().err
