"""A disk that is full, too small or refuses: real file systems where this machine allows to mount one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import DiskFull, StorageFault
from tests.fakes.download_rig import FILE, QUICK, REPO, DownloadRig, one_file, some_bytes
from tests.fakes.fake_hub import FakeHub, FakeRepo

MOUNT_BYTES = 2 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small disk"
    place.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux may mount a file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let tests mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.e2e
def test_disk_that_fills_up_when_downloading_then_it_fails_in_words_and_goes_on_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    # The disk looks roomy at first, as one does that another program fills in the meantime.
    policy = replace(QUICK, free=lambda _: 10**12)
    with one_file(1_500_000) as fake, DownloadRig(fake, tmp_path, main_folder=small_disk, policy=policy) as rig:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(1_200_000))
        full = rig.wait(rig.add().id, "failed")
        assert full.failure is not None
        assert full.failure.kind == "DiskFull"
        assert "is full" in full.failure.message
        assert "resume" in full.failure.hint
        kept = rig.partial().stat().st_size
        assert 0 < kept == full.done_bytes
        assert not rig.path().exists()
        ballast.unlink()
        rig.downloads.resume(full.id)
        rig.wait(full.id, "done")
        assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]
        assert fake.file_requests()[-1].headers["range"] == f"bytes={kept}-"


@pytest.mark.e2e
def test_data_folder_on_the_disk_that_fills_up_when_started_again_then_no_download_is_forgotten(
    small_disk: Path,
) -> None:
    policy = replace(QUICK, free=lambda _: 10**12)
    with one_file(1_000_000) as fake, DownloadRig(fake, small_disk / "data", policy=policy) as rig:
        fake.cut_then_wait(50_000)
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 50_000)
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(65_536)):
                    pass
            except OSError:
                pass
        assert shutil.disk_usage(small_disk).free == 0
        fake.gate.set()
        full = rig.wait(added.id, "failed")
        assert full.failure is not None
        assert full.failure.kind == "DiskFull"
        rig.close()
        second = rig.again()
        assert [download.id for download in second.downloads.all()] == [added.id]
        ballast.unlink()
        with second:
            if second.now(added.id).state == "failed":
                second.downloads.resume(added.id)
            second.wait(added.id, "done")
            assert second.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_too_large_for_the_disk_when_added_then_it_is_refused_with_the_figures(tmp_path: Path) -> None:
    policy = replace(QUICK, free=lambda _: 400_000, reserve_bytes=200_000)
    with one_file(300_000) as fake, DownloadRig(fake, tmp_path, policy=policy) as rig:
        with pytest.raises(DiskFull, match="400 kB are free") as caught:
            rig.add()
        assert caught.value.details["free_bytes"] == 400_000
        assert "300 kB are needed" in caught.value.hint
        assert "200 kB are kept free" in caught.value.hint
        assert rig.downloads.all() == ()
        assert fake.file_requests() == []


def test_room_that_others_need_when_added_then_it_counts(tmp_path: Path) -> None:
    repo = FakeRepo({FILE: some_bytes(300_000), "Tiny-Q8_0.gguf": some_bytes(300_000, 2)})
    policy = replace(QUICK, free=lambda _: 500_000)
    with FakeHub({REPO: repo}) as fake, DownloadRig(fake, tmp_path, policy=policy) as rig:
        fake.gate.clear()
        rig.add()
        with pytest.raises(DiskFull) as caught:
            rig.add("Tiny-Q8_0.gguf")
        assert "300 kB for downloads that run" in caught.value.hint
        fake.gate.set()


def test_room_that_shrinks_when_downloading_then_it_ends_before_the_disk_is_full(tmp_path: Path) -> None:
    left = [10**9]
    policy = replace(QUICK, free=lambda _: left[0], reserve_bytes=1000)
    with one_file(300_000) as fake, DownloadRig(fake, tmp_path, policy=policy) as rig:
        fake.gate.clear()
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda _: bool(fake.file_requests()))
        left[0] = 500
        fake.gate.set()
        full = rig.wait(added.id, "failed")
        assert full.failure is not None
        assert full.failure.kind == "DiskFull"
        left[0] = 10**9
        rig.downloads.resume(added.id)
        rig.wait(added.id, "done")


def test_folder_that_cannot_be_made_when_added_then_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with one_file() as fake, DownloadRig(fake, tmp_path / "data", main_folder=tmp_path / "a file" / "models") as rig:
        with pytest.raises(StorageFault, match="cannot be written"):
            rig.add()
        assert rig.downloads.all() == ()


def test_file_too_large_for_the_file_system_when_downloaded_then_it_names_the_reason(tmp_path: Path) -> None:
    """A limit on the size of files stands for FAT32, in a process of its own."""
    if sys.platform == "win32":
        pytest.skip("there is no such limit to set")
    script = f"""
import resource, signal, sys
from pathlib import Path
from tests.fakes.download_rig import DownloadRig, one_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with one_file(3_000_000) as fake, DownloadRig(fake, Path({str(tmp_path)!r})) as rig:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    found = rig.wait(rig.add().id, "failed", "done")
    print(found.state, found.failure.kind, found.failure.message)
"""
    root = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert ran.stdout.startswith("failed StorageFault")
    assert "cannot hold a file as large as" in ran.stdout
