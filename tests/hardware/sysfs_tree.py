"""Builds the files of a graphics card as Linux shows them."""

from collections.abc import Mapping
from pathlib import Path


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content + "\n")


def add_card(sys_root: Path, number: int, ids: tuple[int, int], bus_id: str, driver: str) -> Path:
    """Add a card; returns its folder (`card<number>`)."""
    card = sys_root / "class" / "drm" / f"card{number}"
    vendor, device = ids
    write(
        card / "device",
        {"vendor": f"{vendor:#06x}", "device": f"{device:#06x}", "uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={bus_id}"},
    )
    (sys_root / "class" / "drm" / f"card{number}-DP-1").mkdir()
    return card


def add_fdinfo(proc_root: Path, pid: int, number: int, lines: dict[str, str]) -> None:
    write(proc_root / str(pid) / "fdinfo", {str(number): "\n".join(f"{key}:\t{value}" for key, value in lines.items())})
