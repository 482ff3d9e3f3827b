"""Reading Linux's sysfs and the file-descriptor records of processes: plain files, each of which may be missing.

Formats: kernel documentation, "Naming and data format standards for sysfs files" (hwmon) and "DRM client usage stats".
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_DISPLAY_CLASS = 0x03
_MAX_CARDS = 64
_MAX_FDS = 4096  # of one process; a process with more is counted up to here
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_text(path: Path) -> str | None:
    """The stripped text of a file; `None` when it is missing or refuses (sysfs files may fail on every read)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """A whole number, decimal or `0x...`; `None` when there is none."""
    text = read_text(path)
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def read_scaled(path: Path, divisor: float) -> float | None:
    """A number in a smaller unit, such as millidegrees, divided by `divisor`."""
    value = read_int(path)
    return None if value is None else value / divisor


def read_bytes(path: Path) -> bytes:
    """The bytes of a binary file; empty when it is missing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card of the kernel's display subsystem. `path` is `.../card0`, `device` its PCI device."""

    path: Path
    device: Path
    device_id: int
    pci_bus_id: str
    driver: str


def cards(sys_root: Path, pci_vendor: int) -> tuple[Card, ...]:
    """The cards of one maker, in the kernel's order."""
    found: list[tuple[int, Card]] = []
    for path in _listed(sys_root / "class" / "drm"):
        match = re.fullmatch(r"card(\d+)", path.name)
        device = path / "device"
        if match is None or read_int(device / "vendor") != pci_vendor:
            continue
        bus_id, driver = _uevent(device)
        card = Card(path, device, read_int(device / "device") or 0, bus_id, driver)
        found.append((int(match.group(1)), card))
    return tuple(card for _, card in sorted(found, key=lambda one: one[0]))[:_MAX_CARDS]


def has_display_adapter(sys_root: Path, pci_vendor: int) -> bool:
    """Whether a display adapter of that maker is on the PCI bus, with or without a driver."""
    return any(
        read_int(device / "vendor") == pci_vendor and (read_int(device / "class") or 0) >> 16 == _DISPLAY_CLASS
        for device in _listed(sys_root / "bus" / "pci" / "devices")
    )


def hwmon(device: Path) -> Path | None:
    """The folder of the card's sensors, if it has one."""
    found = _listed(device / "hwmon")
    return found[0] if found else None


def labelled_sensor(folder: Path, kind: str, labels: Collection[str]) -> Path | None:
    """The `<kind>N_input` file whose `<kind>N_label` is one of `labels`, first label first."""
    by_label: dict[str, Path] = {}
    for label_file in sorted(folder.glob(f"{kind}*_label")):
        text = read_text(label_file)
        if text is not None:
            by_label.setdefault(text.lower(), label_file.with_name(label_file.name.replace("_label", "_input")))
    return next((by_label[label] for label in labels if label in by_label), None)


def pci_name(vendor: int, device: int, databases: Collection[Path]) -> str:
    """The device's name in the system's PCI database (`pci.ids`); empty when it is not there."""
    for database in databases:
        try:
            with database.open(encoding="utf-8", errors="replace") as lines:
                return _find_pci_name(lines, f"{vendor:04x}", f"{device:04x}")
        except OSError:
            continue
    return ""


PCI_DATABASES = (Path("/usr/share/hwdata/pci.ids"), Path("/usr/share/misc/pci.ids"))
"""Where distributions keep the list of PCI names."""


def fdinfo_memory_bytes(proc_root: Path, pids: Collection[int], pci_bus_id: str, keys: Collection[str]) -> int | None:
    """GPU memory that processes hold on one card, from the first of `keys` that the driver writes.

    `None` when no process has the card open, or none tells.
    """
    total: int | None = None
    seen: set[tuple[int, str]] = set()
    for pid in pids:
        for record in _records(proc_root / str(pid) / "fdinfo"):
            if record.get("drm-pdev", "").lower() != pci_bus_id.lower():
                continue
            client = (pid, record.get("drm-client-id", ""))
            value = next((record[key] for key in keys if key in record), None)
            if value is None or client in seen:
                continue  # a duplicate of a descriptor has the same client and the same memory
            seen.add(client)
            number, _, unit = value.partition(" ")
            if number.isdigit():
                total = (total or 0) + int(number) * _UNITS.get(unit.strip(), 1)
    return total


def _records(folder: Path) -> Iterator[dict[str, str]]:
    for path in _listed(folder)[:_MAX_FDS]:
        text = read_text(path)
        if text and "drm-pdev" in text:
            pairs = (line.partition(":") for line in text.splitlines())
            yield {key.strip(): value.strip() for key, _, value in pairs}


def _find_pci_name(lines: Iterator[str], vendor: str, device: str) -> str:
    inside = False
    for line in lines:
        if line.startswith(("#", "\t\t")) or not line.strip():
            continue
        if line.startswith("\t"):
            if inside and line[1:5] == device:
                return line[5:].strip()
        elif inside:
            break
        else:
            inside = line[:4] == vendor
    return ""


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _uevent(device: Path) -> tuple[str, str]:
    pairs = (line.partition("=") for line in (read_text(device / "uevent") or "").splitlines())
    values = {key: value for key, _, value in pairs}
    return values.get("PCI_SLOT_NAME", ""), values.get("DRIVER", "")
