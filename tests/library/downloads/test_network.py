"""The hub and the network at their worst: nothing is lost, nothing wrong arrives, and messages say what happened."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from runtime.messages.library import Download
from tests.fakes.download_rig import FILE, REPO, DownloadRig, one_file, patient, some_bytes
from tests.fakes.fake_hub import TOKEN, FakeHub, FakeRepo, Refusal


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with one_file() as hub:
        yield hub


@pytest.fixture
def rig(fake: FakeHub, tmp_path: Path) -> Iterator[DownloadRig]:
    with DownloadRig(fake, tmp_path) as rig:
        yield rig


def whole(rig: DownloadRig) -> Download:
    """Download the file and check that it is the right one."""
    done = rig.wait(rig.add().id, "done", "failed")
    assert done.state == "done", done.failure
    assert rig.path().read_bytes() == rig.fake.repos[REPO].files[FILE]
    assert rig.files() == {f"{REPO}/{FILE}"}
    return done


def has_reached(n_bytes: int, download: Download) -> bool:
    return download.done_bytes >= n_bytes


def failed(rig: DownloadRig, kind: str) -> Download:
    """Download the file, which must fail so, and check that it is not listed."""
    found = rig.wait(rig.add().id, "failed", "done")
    assert found.failure is not None
    assert found.failure.kind == kind, found.failure
    assert found.failure.message
    assert found.failure.hint
    assert not rig.path().exists()
    assert rig.arrivals == []
    return found


# --- cuts ---------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_cut_at_fifty_random_points_when_downloaded_then_the_file_is_right(tmp_path: Path) -> None:
    rng = random.Random(50)
    with one_file(6_000_000) as fake, DownloadRig(fake, tmp_path) as rig:
        fake.piece_bytes = 8192
        fake.cuts.extend(rng.choice((0, 1, rng.randrange(1, 200_000))) for _ in range(50))
        whole(rig)
        ranges = [asked.headers.get("range", "bytes=0-") for asked in fake.file_requests()]
        assert len(ranges) == 51
        starts = [int(each.removeprefix("bytes=").removesuffix("-")) for each in ranges]
        assert starts == sorted(starts)
        # Every byte came once: what was cut off is asked for from exactly where it ended.
        assert fake.sent_bytes <= 6_000_000


@pytest.mark.e2e
def test_hub_that_restarts_again_and_again_when_downloaded_then_the_file_is_right(tmp_path: Path) -> None:
    with one_file(4_000_000) as fake, DownloadRig(fake, tmp_path) as rig:
        fake.piece_bytes, fake.pace = 40_000, 0.005
        added = rig.add()
        for step in range(1, 5):
            rig.until(lambda: rig.now(added.id), partial(has_reached, step * 600_000))
            fake.stop()
            fake.start()
        rig.wait(added.id, "done")
        assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]
        assert len({asked.headers.get("range") for asked in fake.file_requests()}) == 5


def test_hub_that_stays_away_when_downloaded_then_it_fails_in_words_and_keeps_its_bytes(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path, policy=patient(give_up_s=0.3)) as rig:
        fake.cut_then_wait(100_000)
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
        fake.stop()
        gone = rig.wait(added.id, "failed")
        assert gone.failure is not None
        assert gone.failure.kind == "HubOffline"
        assert "cannot be reached" in gone.failure.message or "broke off" in gone.failure.message
        assert gone.done_bytes == 100_000
        fake.start()
        fake.gate.set()
        rig.downloads.resume(added.id)
        rig.wait(added.id, "done")
        assert fake.file_requests()[-1].headers["range"] == "bytes=100000-"


def test_hub_away_when_waited_for_then_it_says_so_and_names_no_time(fake: FakeHub, tmp_path: Path) -> None:
    with DownloadRig(fake, tmp_path, policy=patient(first_wait_s=20.0, longest_wait_s=20.0)) as rig:
        fake.cuts.append(100_000)
        added = rig.add()
        waiting = rig.until(lambda: rig.now(added.id), lambda download: bool(download.waiting))
        assert waiting.state == "running"
        assert "broke off" in waiting.waiting
        assert "Trying again in" in waiting.waiting
        assert waiting.left_s is None
        assert rig.downloads.pause(added.id).waiting == ""


def test_silence_in_the_middle_when_longer_than_the_read_timeout_then_it_connects_again(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path, read_s=0.3) as rig:
        fake.cut_then_wait(100_000)
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda _: len(fake.file_requests()) >= 3)
        fake.gate.set()
        rig.wait(added.id, "done")


@pytest.mark.e2e
def test_a_byte_at_a_time_when_downloaded_then_speed_is_honest_and_pausing_takes_no_time(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        fake.drip = 0.2
        added = rig.add()
        slow = rig.until(lambda: rig.now(added.id), lambda download: download.left_s is not None)
        assert 0 < slow.speed_bps < 50
        assert slow.left_s is not None
        assert slow.left_s > 300_000 / 50
        paused = rig.downloads.pause(added.id)
        assert paused.state == "paused"
        here = rig.until(lambda: rig.now(added.id), lambda _: rig.downloads._items[added.id].thread is None)
        assert here.done_bytes == rig.partial().stat().st_size > 0
        fake.drip = 0.0
        rig.downloads.resume(added.id)
        rig.wait(added.id, "done")
        assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]


# --- answers that are not the rest of the file --------------------------------------------------------------


def test_hub_without_ranges_when_cut_then_what_is_here_is_skipped_and_the_file_is_right(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.knows_ranges = False
    fake.cuts.extend([120_000, 200_000])
    whole(rig)


def test_unsatisfiable_range_when_resumed_then_the_file_is_read_from_the_start(rig: DownloadRig, fake: FakeHub) -> None:
    fake.cuts.append(100_000)
    size = len(fake.repos[REPO].files[FILE])

    def refuse_once(_path: str, _start: int) -> None:
        fake.on_body = lambda *_: None
        fake.second_refusals.append(Refusal(416, {"Content-Range": f"bytes */{size}"}))

    fake.on_body = refuse_once
    whole(rig)
    assert "range" not in fake.file_requests()[-1].headers


def test_unsatisfiable_range_of_another_length_when_resumed_then_the_file_was_changed(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.linked = False
    fake.second_refusals.append(Refusal(416, {"Content-Range": "bytes */12345"}))
    failed(rig, "HubChanged")


def test_more_than_announced_when_downloaded_then_it_is_refused_and_thrown_away(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.linked = False
    fake.extra_bytes = 70_000
    found = failed(rig, "HubFault")
    assert "more of" in found.failure.message  # type: ignore[union-attr]
    assert rig.files() == set()


# --- changes and wrong bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [True, False])
def test_file_changed_midway_when_resumed_then_it_is_noticed_and_resuming_fetches_the_new_one(
    rig: DownloadRig, fake: FakeHub, linked: bool
) -> None:
    fake.linked = linked
    fake.redirects = linked
    fake.cut_then_wait(100_000)
    added = rig.add()
    rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
    rig.downloads.pause(added.id)
    fake.gate.set()
    fake.repos[REPO].files[FILE] = some_bytes(300_000, seed=99)
    rig.downloads.resume(added.id)
    changed = rig.wait(added.id, "failed")
    assert changed.failure is not None
    assert changed.failure.kind == "HubChanged"
    assert "Resume" in changed.failure.hint
    assert not rig.path().exists()
    rig.downloads.resume(added.id)
    rig.wait(added.id, "done")
    assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_file_of_another_size_when_resumed_then_the_change_is_noticed(rig: DownloadRig, fake: FakeHub) -> None:
    fake.cut_then_wait(100_000)
    added = rig.add()
    rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
    rig.downloads.pause(added.id)
    fake.gate.set()
    fake.repos[REPO].files[FILE] = some_bytes(400_000, seed=98)
    rig.downloads.resume(added.id)
    assert rig.wait(added.id, "failed").failure.kind == "HubChanged"  # type: ignore[union-attr]
    rig.downloads.resume(added.id)
    assert rig.wait(added.id, "done").size_bytes == 400_000


def test_new_commit_without_the_file_when_resumed_then_it_says_that_the_file_is_gone(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.cut_then_wait(100_000)
    added = rig.add()
    rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
    rig.downloads.pause(added.id)
    fake.gate.set()
    fake.repos[REPO] = FakeRepo({"New-Q8_0.gguf": b"x" * 100}, commit="c" * 40)
    rig.downloads.resume(added.id)
    assert rig.wait(added.id, "failed").failure.kind == "HubNotFound"  # type: ignore[union-attr]
    rig.downloads.resume(added.id)
    gone = rig.until(lambda: rig.now(added.id), lambda download: "any more" in str(download.failure))
    assert gone.failure is not None
    rig.downloads.cancel(added.id)
    assert rig.files() == set()


def test_wrong_bytes_of_the_right_size_when_downloaded_then_they_are_thrown_away(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.wrong_bytes = lambda _, data: data[:-1] + bytes([data[-1] ^ 1])
    found = failed(rig, "HashMismatch")
    assert rig.files() == set()
    assert len(fake.file_requests()) == 1
    fake.wrong_bytes = lambda _, data: data
    rig.downloads.resume(found.id)
    rig.wait(found.id, "done")
    assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]


def test_wrong_bytes_in_a_first_connection_when_resumed_then_the_file_is_fetched_once_more_by_itself(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.cuts.append(100_000)
    bodies: list[int] = []
    fake.on_body = lambda _, start: bodies.append(start)
    fake.wrong_bytes = lambda _, data: data if len(bodies) >= 1 else b"?" + data[1:]
    whole(rig)
    assert bodies == [0, 100_000, 0]


def test_list_with_a_wrong_hash_when_downloaded_then_the_file_never_arrives(rig: DownloadRig, fake: FakeHub) -> None:
    fake.linked = False
    fake.etag = lambda *_: "opaque-etag"
    fake.repos[REPO].told_sha256[FILE] = "0" * 64
    failed(rig, "HashMismatch")


def test_hub_that_tells_no_hash_when_downloaded_then_the_size_is_all_that_is_checked(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.repos[REPO].without_lfs = True
    fake.linked = False
    fake.etag = lambda *_: "opaque-etag"
    fake.cuts.append(100_000)
    whole(rig)
    assert rig.arrivals[0].sha256 == ("",)
    # Without a hash the validator guards what is put together.
    assert fake.asked[-1].headers["if-range"] == '"opaque-etag"'


# --- hosts and tokens ---------------------------------------------------------------------------------------


def test_redirect_to_another_host_when_signed_in_then_the_token_does_not_go_there(
    rig: DownloadRig, fake: FakeHub
) -> None:
    fake.repos[REPO].gated = "auto"
    rig.hub.sign_in(TOKEN)
    fake.cuts.append(100_000)
    whole(rig)
    there = [asked for asked in fake.asked if asked.on_second_host]
    assert len(there) == 2
    assert all("authorization" not in asked.headers for asked in there)
    assert all(asked.host.startswith("localhost") for asked in there)
    assert all(asked.headers["authorization"] == f"Bearer {TOKEN}" for asked in fake.file_requests())


def test_gated_model_when_nobody_is_signed_in_then_it_says_what_to_do(rig: DownloadRig, fake: FakeHub) -> None:
    fake.repos[REPO].gated = "manual"
    found = failed(rig, "HubRefused")
    assert "gated" in found.failure.message  # type: ignore[union-attr]
    assert "sign in" in found.failure.hint  # type: ignore[union-attr]
    rig.hub.sign_in(TOKEN)
    rig.downloads.resume(found.id)
    rig.wait(found.id, "done")


def test_signed_address_that_expired_when_resumed_then_a_new_one_is_asked_for(rig: DownloadRig, fake: FakeHub) -> None:
    fake.second_refusals.extend([Refusal(403), Refusal(403)])
    whole(rig)
    assert len(fake.file_requests()) == 3


# --- busy and broken hubs -----------------------------------------------------------------------------------


def test_too_many_requests_when_downloaded_then_it_waits_as_long_as_asked(rig: DownloadRig, fake: FakeHub) -> None:
    fake.refusals.append(Refusal(429, {"Retry-After": "1"}))
    added = rig.add()
    waiting = rig.until(lambda: rig.now(added.id), lambda download: bool(download.waiting))
    assert "too often" in waiting.waiting
    assert "in 1.0 s" in waiting.waiting
    rig.wait(added.id, "done")


def test_long_wait_asked_for_when_paused_then_it_stops_at_once(rig: DownloadRig, fake: FakeHub) -> None:
    fake.refusals.append(Refusal(429, {"Retry-After": "1800"}))
    added = rig.add()
    rig.until(lambda: rig.now(added.id), lambda download: "30 min" in download.waiting)
    rig.downloads.pause(added.id)
    rig.until(lambda: rig.now(added.id), lambda _: rig.downloads._items[added.id].thread is None)
    rig.downloads.resume(added.id)
    rig.wait(added.id, "done")


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_error_of_the_hub_when_it_passes_then_the_download_goes_on(
    rig: DownloadRig, fake: FakeHub, status: int
) -> None:
    fake.refusals.append(Refusal(status))
    whole(rig)


def test_errors_without_end_when_downloaded_then_it_gives_up_in_words(fake: FakeHub, tmp_path: Path) -> None:
    policy = patient(first_wait_s=0.0, longest_wait_s=0.0, max_refusals=5)
    with DownloadRig(fake, tmp_path, policy=policy) as rig:
        fake.refusals.extend(Refusal(503) for _ in range(20))
        found = failed(rig, "HubFault")
        assert "503" in found.failure.message  # type: ignore[union-attr]
        assert len(fake.file_requests()) == 5


def test_refusal_that_will_not_pass_when_downloaded_then_it_fails_at_once(rig: DownloadRig, fake: FakeHub) -> None:
    fake.refusals.append(Refusal(403))
    failed(rig, "HubRefused")
    assert len(fake.file_requests()) == 1


@pytest.mark.parametrize(
    "path", ["../../evil.gguf", "/etc/evil.gguf", "a/../../b.gguf", "C:\\evil.gguf", "con.gguf", "a\\..\\b.gguf"]
)
def test_name_that_leads_out_of_the_folder_when_listed_then_it_is_not_offered(tmp_path: Path, path: str) -> None:
    repo = FakeRepo({path: some_bytes(1000), FILE: some_bytes(1000)})
    with FakeHub({REPO: repo}) as fake, DownloadRig(fake, tmp_path / "data") as rig:
        model, _ = rig.hub.find_file(REPO, FILE)
        assert [file.name for file in model.files] == [FILE]
        rig.wait(rig.add().id, "done")
        assert rig.files() == {f"{REPO}/{FILE}"}


def test_failed_for_want_of_a_connection_when_the_program_starts_again_then_it_goes_on(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path, policy=patient(give_up_s=0.1)) as rig:
        added = rig.add()
        fake.stop()
        rig.wait(added.id, "failed", "done")
    fake.start()
    with rig.again() as second:
        second.wait(added.id, "done")


def test_offline_when_chosen_and_taken_back_then_downloads_go_on(fake: FakeHub, tmp_path: Path) -> None:
    with DownloadRig(fake, tmp_path) as rig:
        fake.cut_then_wait(100_000)
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
        rig.downloads.pause(added.id)
        offline = msgspec.structs.replace(rig.options, offline=True)
        rig.hub.configure(offline)
        rig.downloads.configure(offline)
        rig.downloads.resume(added.id)
        stopped = rig.wait(added.id, "failed")
        assert stopped.failure is not None
        assert "stay offline" in stopped.failure.message
        fake.gate.set()
        rig.hub.configure(rig.options)
        rig.downloads.configure(rig.options)
        rig.wait(added.id, "done")


def test_changed_file_when_the_hub_goes_away_before_its_new_list_came_then_it_is_still_asked_for(
    fake: FakeHub, tmp_path: Path
) -> None:
    with DownloadRig(fake, tmp_path, policy=patient(give_up_s=0.0)) as rig:
        fake.cut_then_wait(100_000)
        added = rig.add()
        rig.until(lambda: rig.now(added.id), lambda download: download.done_bytes == 100_000)
        rig.downloads.pause(added.id)
        fake.gate.set()
        fake.repos[REPO].files[FILE] = some_bytes(300_000, seed=97)
        rig.downloads.resume(added.id)
        rig.until(lambda: rig.now(added.id), lambda download: "HubChanged" in str(download.failure))
        fake.stop()
        rig.downloads.resume(added.id)
        rig.until(lambda: rig.now(added.id), lambda download: "HubOffline" in str(download.failure))
        fake.start()
        rig.downloads.resume(added.id)
        rig.wait(added.id, "done")
        assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]
