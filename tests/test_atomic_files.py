from pathlib import Path

import pytest

from runtime.atomic_files import write_atomically


def test_when_written_privately_then_only_the_owner_reads(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "host.json"
    write_atomically(target, b"x", private=True)
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(target.parent.iterdir()) == [target]


def test_when_it_cannot_be_replaced_then_the_old_one_stays_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "settings.toml"
    write_atomically(target, b"old")

    def full(_handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
