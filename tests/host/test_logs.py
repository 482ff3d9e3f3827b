"""Log files, bounded."""

import logging
from pathlib import Path

import pytest

from runtime.host import logs
from runtime.host.logs import OLDER_FILES, HostLogs


def test_when_much_is_logged_then_files_are_rotated_and_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 1000)
    opened = HostLogs(tmp_path, to_stderr=False)
    try:
        for number in range(200):
            logging.getLogger("runtime.host.test").info("line %d", number)
            opened.worker_line("model", f"says {number}")
    finally:
        opened.close()
    for name in ("host.log", "worker.log"):
        files = sorted(tmp_path.glob(f"{name}*"))
        assert len(files) == OLDER_FILES + 1
        assert all(file.stat().st_size <= 1000 for file in files)
    assert "line 199" in (tmp_path / "host.log").read_text()
    assert "[model] says 199" in (tmp_path / "worker.log").read_text()
    assert "says" not in (tmp_path / "host.log").read_text()


def test_when_closed_then_logging_is_as_before(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    HostLogs(tmp_path, to_stderr=True).close()
    assert (root.level, root.handlers) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_when_the_disk_is_full_then_lines_are_dropped_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("host.log", "worker.log"):
        (tmp_path / name).symlink_to("/dev/full")
    opened = HostLogs(tmp_path, to_stderr=False)
    logging.getLogger("runtime.host.test").info("lost")
    opened.worker_line("model", "lost too")
    opened.close()
    assert capsys.readouterr().err == ""
