"""Checking model files against the hashes they were announced with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import HashMismatch, StorageFault
from runtime.library.copying import hash_file
from runtime.library.disk import DiskFile, look_at
from runtime.library.files import Verified
from runtime.library.listing import Entry, plain
from runtime.library.progress import IsCancelled, Meter, Report


@dataclass(frozen=True, slots=True)
class Check:
    """What the check of one file found. `expected` is "" where no hash is known."""

    file: DiskFile
    sha256: str
    expected: str

    @property
    def verified(self) -> Verified:
        """As the catalogue keeps it."""
        if not self.expected:
            return ""
        return "ok" if self.sha256 == self.expected else "bad"


def expected_hashes(entry: Entry) -> dict[Path, str]:
    """What each file's hash should be: as announced, else as it was when it was last read and had this very stamp."""
    found = {}
    for file in entry.all_files:
        known = entry.known.get(file.path)
        announced = known.expected if known is not None else ""
        found[file.path] = entry.expected.get(file.path, "") or announced or (known.sha256 if known is not None else "")
    return found


def check_files(
    files: Sequence[DiskFile], expected: Mapping[Path, str], report: Report, is_cancelled: IsCancelled
) -> list[Check]:
    """Read all files and compare.

    Raises:
        StorageFault: if one cannot be read, or changed meanwhile.
        Cancelled: when told to stop.
    """
    meter = Meter(sum(file.stamp.size_bytes for file in files), report, is_cancelled)
    checks = []
    for file in files:
        meter.stage(f"Checking {plain(file.path.name)}")
        sha256 = hash_file(file.path, meter)
        after = look_at(file.path)
        if after is None or after.stamp != file.stamp:
            raise StorageFault(
                f"{plain(file.path.name)} was changed while it was checked.",
                hint="Check it again when nothing writes to it.",
                path=plain(str(file.path)),
            )
        checks.append(Check(file, sha256, expected.get(file.path, "").lower()))
    return checks


def sentence(checks: Sequence[Check], *, were_announced: bool) -> str:
    """What to tell a person.

    Args:
        checks: of all files of one model.
        were_announced: the hashes came with the files, not from an earlier check.

    Raises:
        HashMismatch: if a file is not what it should be.
    """
    for check in checks:
        if check.verified == "bad":
            raise HashMismatch(
                f"{plain(check.file.path.name)} is damaged: its bytes are not the ones "
                + ("it was announced with." if were_announced else "it had when it was last checked."),
                hint="Download the model again.",
                path=plain(str(check.file.path)),
                expected=check.expected,
                found=check.sha256,
            )
    if all(check.verified == "ok" for check in checks):
        what = "The file is" if len(checks) == 1 else f"All {len(checks)} files are"
        return f"{what} as announced (SHA-256)." if were_announced else f"{what} unchanged since the last check."
    unknown = [check for check in checks if not check.expected]
    if len(checks) == 1:
        return f"No hash is known to compare with. The SHA-256 is {unknown[0].sha256}; later checks compare with it."
    return (
        f"For {len(unknown)} of {len(checks)} files no hash is known to compare with; "
        "theirs are remembered, and later checks compare with them."
    )
