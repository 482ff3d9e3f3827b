"""States in files: what is written, found, bounded, and thrown away."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.paths import STATES_NOTE
from runtime.scheduler.hostcache import SavedState
from runtime.units import now
from runtime.worker import state_disk, state_file
from runtime.worker.state_disk import StateDisk
from tests.support.waiting import wait_until

KEY = "0123456789abcdef0123456789abcdef"
TOKENS = tuple(range(300))
PICTURE = (*range(280), *(-(7 << 40) - index for index in range(20)))


def state_of(size: int = 100_000, fill: int = 7) -> memoryview:
    return memoryview(bytes([fill]) * size)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., StateDisk]]:
    made: list[StateDisk] = []

    def build(key: str = KEY, max_bytes: int = 10_000_000, **more: object) -> StateDisk:
        chosen = {"prefixes_do": True, "least_free_bytes": 0, "folder": tmp_path / "states", **more}
        folder = chosen.pop("folder")
        store = StateDisk(folder, key, Path("/models/a.gguf"), max_bytes, **chosen)  # type: ignore[arg-type]
        store.start()
        made.append(store)
        return store

    yield build
    for store in made:
        store.close(10.0)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.state"))


def put(store: StateDisk, tokens: tuple[int, ...], state: memoryview) -> None:
    store.offer(tokens, state)
    wait_until(lambda: not store._shared.to_write and not store._shared.pending_bytes)


def fetch(store: StateDisk, tokens: tuple[int, ...], *, least: int = 1, whole: bool = False) -> SavedState | None:
    ticket = store.seek(tokens, len(tokens), least, whole=whole)
    if not ticket:
        return None
    wait_until(lambda: not store.is_coming(ticket))
    return store.take(ticket)


def test_when_a_state_was_written_then_the_next_process_finds_it_by_its_beginning(
    make: Callable[..., StateDisk],
) -> None:
    first = make()
    put(first, TOKENS, state_of())
    first.close(10.0)
    saved = fetch(make(), (*TOKENS[:290], 9_999, 8))
    assert saved is not None
    assert saved.tokens == TOKENS
    assert saved.state == state_of()


def test_when_a_prompt_has_pictures_then_their_placeholders_are_kept(make: Callable[..., StateDisk]) -> None:
    put(make(), PICTURE, state_of())
    saved = fetch(make(), (*PICTURE, 5))
    assert saved is not None
    assert saved.tokens == PICTURE


def test_when_too_little_is_common_then_nothing_is_fetched(make: Callable[..., StateDisk]) -> None:
    store = make()
    put(store, TOKENS, state_of())
    assert fetch(store, (*TOKENS[:100], 9_999), least=101) is None
    assert fetch(store, (*TOKENS[:100], 9_999), least=100) is not None
    assert fetch(store, TOKENS[:200], whole=True) is None


def test_when_the_key_is_another_then_nothing_is_found(make: Callable[..., StateDisk]) -> None:
    put(make(), TOKENS, state_of())
    assert fetch(make(key="f" * 32), TOKENS) is None


def test_when_files_of_another_key_lie_in_the_folder_then_they_are_deleted(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    put(make(), TOKENS, state_of())
    other = tmp_path / "states" / ("f" * 32)
    other.mkdir()
    (file,) = files(tmp_path / "states")
    file.rename(other / file.name)
    assert fetch(make(key="f" * 32), TOKENS) is None
    assert not files(tmp_path / "states")


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _flip_at(offset: int) -> Callable[[Path], None]:
    def flip(file: Path) -> None:
        raw = bytearray(file.read_bytes())
        raw[offset] ^= 1
        file.write_bytes(raw)

    return flip


def _replace_by(raw: bytes) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        file.write_bytes(raw)

    return replace


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": _cut,
    "empty": lambda file: os.truncate(file, 0),
    "state": _flip_at(-1000),
    "digest": _flip_at(-1),
    "magic": _flip_at(0),
    "length of the head": _flip_at(10),
    "head": _flip_at(14),
    "tokens": _flip_at(200),
    "text": _replace_by(b"something else altogether" * 10),
    "endless head": _replace_by(state_file.MAGIC + b"\xff\xff\xff\xff" + b"x" * 100),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_when_a_file_is_damaged_then_it_is_deleted_and_nothing_comes_of_it(
    make: Callable[..., StateDisk], tmp_path: Path, damage: str
) -> None:
    put(make(), TOKENS, state_of())
    (file,) = files(tmp_path / "states")
    DAMAGES[damage](file)
    assert fetch(make(), TOKENS) is None
    assert not files(tmp_path / "states")


def test_when_a_file_is_damaged_after_it_was_listed_then_it_is_deleted_too(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    store = make()
    put(store, TOKENS, state_of())
    (file,) = files(tmp_path / "states")
    _flip_at(-1000)(file)
    assert fetch(store, TOKENS) is None
    assert not files(tmp_path / "states")
    assert not store.holds(TOKENS)


def test_when_a_file_vanished_then_it_is_not_found(make: Callable[..., StateDisk], tmp_path: Path) -> None:
    store = make()
    put(store, TOKENS, state_of())
    files(tmp_path / "states")[0].unlink()
    assert fetch(store, TOKENS) is None
    assert not store.holds(TOKENS)


def test_when_the_bound_is_reached_then_what_was_used_longest_ago_goes_whoever_wrote_it(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    other = make(key="a" * 32, max_bytes=350_000)
    put(other, TOKENS, state_of())
    store = make(max_bytes=350_000)
    prompts = [tuple(range(index * 1_000, index * 1_000 + 300)) for index in range(1, 5)]
    for index, tokens in enumerate(prompts[:2]):
        put(store, tokens, state_of())
        used = now() - 1_000 + index
        os.utime(store._folder / state_file.name_of(state_file.packed(tokens)), (used, used))
    os.utime(other._folder / state_file.name_of(state_file.packed(TOKENS)), (now() - 2_000, now() - 2_000))
    assert fetch(store, prompts[0]) is not None  # used just now
    put(store, prompts[2], state_of())
    assert not list(other._folder.glob("*.state"))
    put(store, prompts[3], state_of())
    assert [store.holds(tokens) for tokens in prompts] == [True, False, True, True]
    assert sum(file.stat().st_size for file in files(tmp_path / "states")) <= 350_000


def test_when_a_state_alone_is_over_the_bound_then_it_is_not_written(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    store = make(max_bytes=50_000)
    put(store, TOKENS, state_of())
    assert not files(tmp_path / "states")


def test_when_a_longer_state_comes_then_the_shorter_one_goes(make: Callable[..., StateDisk], tmp_path: Path) -> None:
    store = make()
    put(store, TOKENS[:280], state_of())
    put(store, TOKENS, state_of())
    assert len(files(tmp_path / "states")) == 1
    assert store.holds(TOKENS[:280])
    put(store, TOKENS[:280], state_of())
    assert len(files(tmp_path / "states")) == 1


def test_when_a_memory_cannot_be_cut_then_both_lengths_are_kept(make: Callable[..., StateDisk], tmp_path: Path) -> None:
    store = make(prefixes_do=False)
    put(store, TOKENS, state_of())
    put(store, TOKENS[:280], state_of())
    assert len(files(tmp_path / "states")) == 2


def test_when_it_is_written_then_only_the_owner_may_read_it_and_a_note_says_for_which_model(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    put(make(), TOKENS, state_of())
    root = tmp_path / "states"
    assert (root / KEY / STATES_NOTE).read_text("utf-8") == str(Path("/models/a.gguf"))
    if os.name != "nt":
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, root / KEY)}
        assert modes == {0o700}
        assert stat.S_IMODE(files(root)[0].stat().st_mode) == 0o600


def test_when_a_process_died_while_writing_then_its_part_is_cleared_away_later(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    folder = tmp_path / "states" / KEY
    folder.mkdir(parents=True)
    old, young = folder / "a.state.1.part", folder / "b.state.2.part"
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (1, 1))
    store = make()
    wait_until(lambda: store._shared.is_scanned)
    assert not old.exists()
    assert young.exists()


def test_when_the_disk_is_nearly_full_then_storing_ends_with_one_line_and_the_rest_goes_on(
    make: Callable[..., StateDisk], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(make(), TOKENS, state_of())
    store = make(least_free_bytes=2**60)
    with caplog.at_level("WARNING"):
        put(store, tuple(range(1_000, 1_300)), state_of())
        put(store, tuple(range(2_000, 2_300)), state_of())
    assert [record.getMessage() for record in caplog.records].count(
        "prompts are not stored on disk any more until the model is loaded again: the disk is nearly full"
    ) == 1
    assert store.max_bytes == 0
    assert not files(tmp_path / "states")  # they gave way, as other files need the room


def test_when_a_state_was_not_used_for_a_month_then_it_goes_whichever_model_it_is_for(
    make: Callable[..., StateDisk], tmp_path: Path
) -> None:
    put(make(key="a" * 32), TOKENS, state_of())
    (old,) = files(tmp_path / "states")
    put(make(), TOKENS, state_of())
    unused = now() - state_disk.MAX_UNUSED_S - 60
    os.utime(old, (unused, unused))
    store = make()
    assert fetch(store, TOKENS) is not None
    assert not old.exists()


@pytest.mark.e2e
def test_when_the_disk_is_full_while_writing_then_nothing_half_is_left(
    make: Callable[..., StateDisk], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "small disk"
    place.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux may mount a file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=2097152", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let tests mount a file system")
    try:
        store = make(folder=place / "states", least_free_bytes=-(10**12))  # as if another program filled it meanwhile
        put(store, TOKENS, state_of(500_000))
        with caplog.at_level("WARNING"):
            put(store, tuple(range(1_000, 1_300)), state_of(5_000_000))
        assert "No space left" in caplog.text
        assert [path.name for path in (place / "states" / KEY).iterdir() if path.suffix == ".part"] == []
        saved = fetch(store, TOKENS)
        assert saved is not None
        assert saved.state.nbytes == 500_000
        store.close(10.0)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_when_the_disk_hangs_then_nobody_waits_longer_than_patience_lasts(
    make: Callable[..., StateDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    put(store, TOKENS, state_of())
    may_go_on = threading.Event()
    monkeypatch.setattr(state_file, "read", lambda *_: may_go_on.wait(20.0) and state_of())
    monkeypatch.setattr(state_disk, "PATIENCE_S", 2.0)
    ticket = store.seek(TOKENS, len(TOKENS), 1, whole=False)
    assert store.is_coming(ticket)
    wait_until(lambda: not store.is_coming(ticket))
    assert store.take(ticket) is None
    may_go_on.set()


def test_when_the_process_is_about_to_end_then_what_would_take_too_long_is_left_out(
    make: Callable[..., StateDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_disk, "STOP_BYTES_PER_S", 50_000)
    store = make()
    small = tuple(range(1_000, 1_300))
    store.store_all([SavedState(TOKENS, state_of(1_000_000)), SavedState(small, state_of(1_000))], within_s=4.0)
    assert not store.holds(TOKENS)
    assert store.holds(small)
    store.store_all([SavedState(TOKENS, state_of(1_000))], within_s=0.0)
    assert not store.holds(TOKENS)


def test_when_the_folder_cannot_be_made_then_it_is_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file" / "states"
    assert state_disk.start_states(folder, lambda: KEY, Path("a.gguf"), 1_000, prefixes_do=True) is None


def test_when_it_is_switched_off_then_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    assert state_disk.start_states(folder, lambda: KEY, Path("a.gguf"), 0, prefixes_do=True) is None
    assert not folder.exists()


def test_when_nobody_said_how_much_then_it_is_a_share_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 0

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    for free, expected in ((100 * 2**30, 5 * 2**30), (10**13, 8 * 2**30), (2**30, 0)):
        Usage.free = free
        assert state_disk.automatic_bytes(tmp_path) == expected


def test_when_more_waits_to_be_written_than_memory_has_for_it_then_the_rest_is_dropped(
    make: Callable[..., StateDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_disk, "MAX_PENDING_BYTES", 250_000)
    store = make()
    wait_until(lambda: store._shared.is_scanned)
    with store._writing:  # the first one is being written all the while
        store.offer(TOKENS, state_of())
        wait_until(lambda: not store._shared.to_write)
        for index in range(1, 6):
            store.offer(tuple(range(index * 1_000, index * 1_000 + 300)), state_of())
        assert sum(saved.state.nbytes for saved in store._shared.to_write) <= 250_000
