import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.errors import BadRequest, HubNotFound, StorageFault
from runtime.library.downloads.downloads import Downloads
from runtime.messages.library import Download, DownloadRequest
from tests.fakes.download_rig import FILE, QUICK, REPO, DownloadRig, one_file, some_bytes
from tests.fakes.fake_hub import FakeHub, FakeRepo


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with one_file() as hub:
        yield hub


@pytest.fixture
def rig(fake: FakeHub, tmp_path: Path) -> Iterator[DownloadRig]:
    with DownloadRig(fake, tmp_path / "data ü") as rig:
        yield rig


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_file_when_downloaded_then_stands_whole_under_publisher_and_repository(rig: DownloadRig, fake: FakeHub) -> None:
    added = rig.add()
    assert added.size_bytes == 300_000
    assert added.quantization == "Q4_K_M"
    done = rig.wait(added.id, "done")
    assert done.done_bytes == done.size_bytes
    assert done.model_id == "tiny"
    assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]
    assert rig.files() == {f"{REPO}/{FILE}"}
    assert rig.arrivals[0].paths == (rig.path(),)
    assert rig.arrivals[0].sha256 == (sha256(fake.repos[REPO].files[FILE]),)


def test_file_on_its_way_when_looked_for_then_only_a_partial_file_is_there(rig: DownloadRig, fake: FakeHub) -> None:
    fake.cut_then_wait(100_000)
    added = rig.add()
    rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
    assert rig.files() == {f"{REPO}/{FILE}.partial"}
    assert rig.arrivals == []
    fake.gate.set()
    rig.wait(added.id, "done")


def test_progress_when_told_then_counts_up_to_the_end_and_ends_with_done(rig: DownloadRig) -> None:
    added = rig.add()
    rig.wait(added.id, "done")
    rig.until(
        lambda: rig.told[-1][0] if rig.told and rig.told[-1] else added, lambda download: download.state == "done"
    )
    counts = [told[0].done_bytes for told in rig.told if told]
    assert counts == sorted(counts)


def test_same_file_when_added_twice_then_it_is_one_download(rig: DownloadRig, fake: FakeHub) -> None:
    fake.gate.clear()
    first = rig.add()
    assert rig.add().id == first.id
    assert len(rig.downloads.all()) == 1
    fake.gate.set()
    rig.wait(first.id, "done")


def test_whole_file_that_is_there_when_downloaded_then_it_is_taken_without_fetching(
    rig: DownloadRig, fake: FakeHub
) -> None:
    rig.path().parent.mkdir(parents=True)
    rig.path().write_bytes(fake.repos[REPO].files[FILE])
    rig.wait(rig.add().id, "done")
    assert fake.file_requests() == []
    assert len(rig.arrivals) == 1


def test_other_file_of_that_name_when_downloaded_then_it_is_refused_and_left_alone(rig: DownloadRig) -> None:
    rig.path().parent.mkdir(parents=True)
    rig.path().write_bytes(b"mine")
    with pytest.raises(StorageFault, match="Another file called"):
        rig.add()
    assert rig.path().read_bytes() == b"mine"
    assert rig.downloads.all() == ()


def test_other_file_of_the_same_size_when_downloaded_then_it_fails_and_the_file_stays(rig: DownloadRig) -> None:
    rig.path().parent.mkdir(parents=True)
    rig.path().write_bytes(bytes(300_000))
    failed = rig.wait(rig.add().id, "failed")
    assert failed.failure is not None
    assert failed.failure.kind == "StorageFault"
    assert "left alone" in failed.failure.message
    assert rig.path().read_bytes() == bytes(300_000)


def test_unknown_file_when_added_then_the_hint_tells_what_there_is(rig: DownloadRig) -> None:
    with pytest.raises(HubNotFound, match="no model file") as caught:
        rig.add("Tiny-Q8_0.gguf")
    assert "Q4_K_M" in caught.value.hint


# --- pause, resume, cancel, clear ---------------------------------------------------------------------------


def begun(rig: DownloadRig, fake: FakeHub, *, at: int = 100_000) -> Download:
    """A download that has `at` bytes and waits for the next one."""
    fake.cut_then_wait(at)
    added = rig.add()
    return rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == at)


def test_waiting_for_a_byte_when_paused_then_it_stops_at_once_and_goes_on_from_there(
    rig: DownloadRig, fake: FakeHub
) -> None:
    download = begun(rig, fake)
    rig.until(lambda: rig.now(download.id), lambda _: len(fake.file_requests()) == 2)
    paused = rig.downloads.pause(download.id)
    assert paused.state == "paused"
    rig.until(lambda: rig.now(download.id), lambda _: not running_threads())
    assert rig.partial().stat().st_size == 100_000
    fake.gate.set()
    rig.downloads.resume(download.id)
    rig.wait(download.id, "done")
    assert fake.file_requests()[-1].headers["range"] == "bytes=100000-"
    assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]


def running_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("download-")]


def test_paused_and_resumed_at_once_when_its_thread_still_ends_then_it_goes_on(rig: DownloadRig, fake: FakeHub) -> None:
    download = begun(rig, fake)
    rig.downloads.pause(download.id)
    assert rig.downloads.resume(download.id).state in ("queued", "running")
    fake.gate.set()
    rig.wait(download.id, "done")


def test_cancelled_when_on_its_way_then_nothing_of_it_is_left(rig: DownloadRig, fake: FakeHub) -> None:
    download = begun(rig, fake)
    rig.downloads.cancel(download.id)
    assert rig.downloads.all() == ()
    assert list(rig.models.rglob("*")) == []
    rig.downloads.cancel(download.id)


def test_cancelled_when_paused_then_nothing_of_it_is_left(rig: DownloadRig, fake: FakeHub) -> None:
    download = begun(rig, fake)
    rig.downloads.pause(download.id)
    rig.until(lambda: rig.now(download.id), lambda _: not running_threads())
    rig.downloads.cancel(download.id)
    assert list(rig.models.rglob("*")) == []


def test_cancelled_when_the_folder_holds_other_files_then_they_stay(rig: DownloadRig, fake: FakeHub) -> None:
    rig.path().parent.mkdir(parents=True)
    rig.path("notes.txt").write_text("mine")
    rig.downloads.cancel(begun(rig, fake).id)
    assert rig.files() == {f"{REPO}/notes.txt"}


def test_running_one_when_cleared_then_it_is_refused_and_a_done_one_is_forgotten(
    rig: DownloadRig, fake: FakeHub
) -> None:
    download = begun(rig, fake)
    with pytest.raises(BadRequest, match="on the way"):
        rig.downloads.clear(download.id)
    fake.gate.set()
    rig.wait(download.id, "done")
    rig.downloads.clear(download.id)
    assert rig.downloads.all() == ()
    assert rig.path().exists()
    with pytest.raises(BadRequest, match="no such download"):
        rig.downloads.pause(download.id)


def test_one_that_is_done_when_paused_then_it_stays_done(rig: DownloadRig) -> None:
    added = rig.add()
    rig.wait(added.id, "done")
    assert rig.downloads.pause(added.id).state == "done"
    assert rig.downloads.resume(added.id).state == "done"


def test_all_done_when_cleared_together_then_the_others_stay(rig: DownloadRig, fake: FakeHub) -> None:
    fake.repos["acme/Other-GGUF"] = FakeRepo({"Other-Q8_0.gguf": some_bytes(1000, 2)})
    rig.wait(rig.add("Other-Q8_0.gguf", repo="acme/Other-GGUF").id, "done")
    download = begun(rig, fake)
    rig.downloads.clear()
    assert [each.id for each in rig.downloads.all()] == [download.id]


# --- several ------------------------------------------------------------------------------------------------


def test_more_than_may_run_when_added_then_they_wait_in_order(tmp_path: Path) -> None:
    files = {f"M-Q{n}_0.gguf": some_bytes(50_000, n) for n in (4, 5, 8)}
    with FakeHub({REPO: FakeRepo(files)}) as fake, DownloadRig(fake, tmp_path, max_downloads=1) as rig:
        fake.gate.clear()
        ids = [rig.add(name).id for name in files]
        assert [rig.now(each).state for each in ids] == ["running", "queued", "queued"]
        rig.downloads.configure(msgspec.structs.replace(rig.options, max_downloads=2))
        assert [rig.now(each).state for each in ids] == ["running", "running", "queued"]
        fake.gate.set()
        for each in ids:
            rig.wait(each, "done")
        assert rig.files() == {f"{REPO}/{name}" for name in files}


def test_split_model_with_projector_when_downloaded_then_all_arrive_together(tmp_path: Path) -> None:
    files = {
        "Q4/M-Q4_K_M-00001-of-00002.gguf": some_bytes(70_000, 1),
        "Q4/M-Q4_K_M-00002-of-00002.gguf": some_bytes(60_000, 2),
        "mmproj-F16.gguf": some_bytes(30_000, 3),
    }
    with FakeHub({REPO: FakeRepo(files)}) as fake, DownloadRig(fake, tmp_path) as rig:
        seen: list[set[str]] = []
        fake.on_body = lambda *_: seen.append(rig.files())
        added = rig.add("Q4_K_M")
        assert added.size_bytes == 160_000
        rig.wait(added.id, "done")
        assert all(name.endswith(".partial") for names in seen for name in names)
        assert rig.files() == {f"{REPO}/{name}" for name in files}
        assert [path.name for path in rig.arrivals[0].paths] == [Path(name).name for name in files]


def test_projector_of_two_downloads_when_both_run_then_it_is_fetched_once(tmp_path: Path) -> None:
    files = {
        "M-Q4_K_M.gguf": some_bytes(40_000, 1),
        "M-Q8_0.gguf": some_bytes(50_000, 2),
        "mmproj-F16.gguf": some_bytes(300_000, 3),
    }
    with FakeHub({REPO: FakeRepo(files)}) as fake, DownloadRig(fake, tmp_path) as rig:
        ids = [rig.add(name).id for name in ("Q4_K_M", "Q8_0")]
        for each in ids:
            rig.wait(each, "done")
        assert len([asked for asked in fake.file_requests() if "mmproj" in asked.path]) == 1
        assert rig.files() == {f"{REPO}/{name}" for name in files}


def test_projector_when_not_wanted_then_it_is_not_fetched(tmp_path: Path) -> None:
    files = {"M-Q4_K_M.gguf": some_bytes(40_000, 1), "mmproj-F16.gguf": some_bytes(30_000, 3)}
    with FakeHub({REPO: FakeRepo(files)}) as fake, DownloadRig(fake, tmp_path) as rig:
        rig.wait(rig.add("Q4_K_M", with_projector=False).id, "done")
        assert rig.files() == {f"{REPO}/M-Q4_K_M.gguf"}


# --- starting again, moving ---------------------------------------------------------------------------------


def test_running_one_when_the_program_starts_again_then_it_goes_on_from_its_last_byte(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        download = begun(rig, fake)
    fake.gate.set()
    with rig.again() as second:
        assert second.now(download.id).done_bytes >= 100_000
        second.wait(download.id, "done")
        assert fake.file_requests()[-1].headers["range"] == "bytes=100000-"
        assert second.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_paused_one_when_the_program_starts_again_then_it_stays_paused(fake: FakeHub, tmp_path: Path) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        download = begun(rig, fake)
        rig.downloads.pause(download.id)
    with rig.again() as second:
        assert second.now(download.id).state == "paused"
        assert second.now(download.id).done_bytes == 100_000


def test_catalogue_lost_when_downloaded_again_then_the_bytes_that_are_here_are_used(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        begun(rig, fake)
    fake.gate.set()
    for path in tmp_path.glob("models.sqlite3*"):
        path.unlink()
    with rig.again() as second:
        second.wait(second.add().id, "done")
        assert fake.file_requests()[-1].headers["range"] == "bytes=100000-"


def test_partial_file_of_unknown_origin_when_its_bytes_are_wrong_then_the_file_is_fetched_anew(
    rig: DownloadRig, fake: FakeHub
) -> None:
    rig.partial().parent.mkdir(parents=True)
    rig.partial().write_bytes(b"x" * 200_000)
    rig.wait(rig.add().id, "done")
    assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_machine_restarted_when_resumed_then_bytes_that_were_not_synced_are_fetched_again(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        download = begun(rig, fake)
        rig.downloads.pause(download.id)
    # As a power cut leaves it: longer than what was synced, zeros at the end, written before this boot.
    with rig.partial().open("ab") as file:
        file.write(bytes(50_000))
    second = rig.again()
    item = second.downloads._items[download.id]
    item.record.parts[0].boot_s -= 100_000.0
    with second:
        fake.gate.set()
        second.downloads.resume(download.id)
        second.wait(download.id, "done")
        assert fake.file_requests()[-1].headers["range"] == "bytes=100000-"
        assert second.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_held_when_the_folder_moves_then_downloads_go_on_in_the_new_one(rig: DownloadRig, fake: FakeHub) -> None:
    download = begun(rig, fake)
    rig.downloads.hold()
    assert running_threads() == []
    assert rig.now(download.id).state == "queued"
    moved = rig.data.root / "elsewhere"
    rig.models.rename(moved)
    fake.gate.set()
    rig.downloads.release(moved_from=rig.models, moved_to=moved)
    rig.wait(download.id, "done")
    assert (moved / REPO / FILE).read_bytes() == fake.repos[REPO].files[FILE]


def test_main_folder_when_set_then_files_arrive_there(fake: FakeHub, tmp_path: Path) -> None:
    with DownloadRig(fake, tmp_path / "data", main_folder=tmp_path / "große Platte") as rig:
        rig.wait(rig.add().id, "done")
        assert (tmp_path / "große Platte" / REPO / FILE).is_file()


def test_closed_when_closed_again_then_nothing_happens_and_nothing_runs(rig: DownloadRig, fake: FakeHub) -> None:
    begun(rig, fake)
    rig.downloads.close()
    rig.downloads.close()
    assert running_threads() == []


def test_listener_that_fails_when_a_file_arrives_then_the_download_is_done_all_the_same(
    fake: FakeHub, tmp_path: Path
) -> None:
    rig = DownloadRig(fake, tmp_path)

    def broken(_: object) -> str:
        raise ValueError("a bug of the listener")

    downloads = Downloads(rig.data, rig.catalogue, rig.hub, rig.options, on_arrived=broken, policy=QUICK)
    downloads.start()
    added = downloads.add(DownloadRequest(REPO, FILE))
    rig.until(lambda: downloads.all()[0], lambda download: download.state == "done")
    assert added.id == downloads.all()[0].id
    downloads.close()
    rig.close()
