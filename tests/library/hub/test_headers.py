import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.errors import HubChanged, HubFault, HubNotFound, HubOffline, ModelLoadFailed, NotGguf, StorageFault
from runtime.gguf.facts import facts_of
from runtime.gguf.header import read_header
from runtime.gguf.source import FileSource
from runtime.library.hub.headers import HeaderCache
from runtime.library.hub.hub import Hub
from runtime.library.starter import find_starter
from runtime.paths import DataFolder
from tests.fakes.download_rig import hub_for
from tests.fakes.fake_hub import FakeHub, FakeRepo, Refusal
from tests.support.gguf_files import write_tiny_model

REPO = "acme/Tiny-GGUF"


def tiny(tmp_path: Path, file_name: str, *, padding: int = 400_000, **options: object) -> bytes:
    """A whole file with room for weights behind its header."""
    data = write_tiny_model(tmp_path / file_name, **options).read_bytes()  # type: ignore[arg-type]
    return data + bytes(padding)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    files = {
        "M-Q4_K_M.gguf": tiny(tmp_path, "a.gguf", name="Four"),
        "M-Q8_0.gguf": tiny(tmp_path, "b.gguf", name="Eight"),
    }
    with FakeHub({REPO: FakeRepo(files)}) as hub:
        yield hub


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


@pytest.fixture
def hub(fake: FakeHub, data: DataFolder) -> Iterator[Hub]:
    hub = hub_for(fake, data)
    yield hub
    hub.close()


@pytest.fixture
def cache(hub: Hub, data: DataFolder) -> HeaderCache:
    return HeaderCache(data.headers, hub, pause=lambda _: None)


def taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def name_in(path: Path) -> str:
    with FileSource(path) as source:
        return facts_of(read_header(source), path.name).name


@pytest.mark.e2e
def test_starter_model_when_only_its_header_is_fetched_then_a_plan_sees_the_whole_file(data: DataFolder) -> None:
    starter = find_starter()
    assert starter is not None
    with FakeHub({REPO: FakeRepo({"Starter-Q4_1.gguf": starter.read_bytes()})}) as fake:
        hub = hub_for(fake, data)
        remote = HeaderCache(data.headers, hub).fetch(REPO, "Q4_1")
        size_bytes = starter.stat().st_size
        assert remote.fetched_bytes < size_bytes / 10
        assert remote.paths[0].stat().st_size == size_bytes
        assert taken(remote.paths[0]) < size_bytes / 10
        with FileSource(remote.paths[0]) as there, FileSource(starter) as here:
            assert facts_of(read_header(there), "x.gguf") == facts_of(read_header(here), "x.gguf")
            assert there.read_at(0, 1_700_000) == here.read_at(0, 1_700_000)
        hub.close()


def test_header_when_fetched_again_then_nothing_is_fetched(cache: HeaderCache, fake: FakeHub, data: DataFolder) -> None:
    first = cache.fetch(REPO, "Q4_K_M")
    assert first.fetched_bytes > 0
    n_asked = len(fake.asked)
    assert cache.fetch(REPO, "Q4_K_M").fetched_bytes == 0
    assert HeaderCache(data.headers, cache._hub).fetch(REPO, "Q4_K_M").paths == first.paths
    assert len(fake.asked) == n_asked


def test_split_model_with_projector_when_fetched_then_every_part_is_there(data: DataFolder, tmp_path: Path) -> None:
    files = {
        "Q4/M-Q4_0-00001-of-00002.gguf": tiny(tmp_path, "a.gguf", split=(0, 2)),
        "Q4/M-Q4_0-00002-of-00002.gguf": tiny(tmp_path, "b.gguf", split=(1, 2)),
        "mmproj-F16.gguf": tiny(tmp_path, "c.gguf", architecture="clip", general_type="mmproj"),
    }
    with FakeHub({REPO: FakeRepo(files)}) as fake:
        hub = hub_for(fake, data)
        remote = HeaderCache(data.headers, hub).fetch(REPO, "Q4_0")
        assert [path.name for path in remote.paths] == ["M-Q4_0-00001-of-00002.gguf", "M-Q4_0-00002-of-00002.gguf"]
        assert len({path.parent for path in remote.paths}) == 1
        assert remote.projector is not None
        assert remote.projector.stat().st_size == len(files["mmproj-F16.gguf"])
        assert HeaderCache(data.headers, hub).fetch(REPO, "Q4_0", with_projector=False).projector is None
        hub.close()


def test_two_plans_of_one_file_when_made_at_once_then_it_is_fetched_once(cache: HeaderCache) -> None:
    fetched: list[int] = []
    threads = [
        threading.Thread(target=lambda: fetched.append(cache.fetch(REPO, "Q4_K_M").fetched_bytes)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(fetched)[:3] == [0, 0, 0]
    assert sorted(fetched)[3] > 0


def test_more_than_may_be_kept_when_fetched_then_the_one_not_used_longest_goes(hub: Hub, data: DataFolder) -> None:
    cache = HeaderCache(data.headers, hub, max_sets=1)
    first = cache.fetch(REPO, "Q4_K_M").paths[0]
    os.utime(first.parent, (1, 1))
    second = cache.fetch(REPO, "Q8_0").paths[0]
    assert not first.exists()
    assert second.exists()


def test_room_that_is_too_small_when_fetched_then_the_last_one_stays_all_the_same(hub: Hub, data: DataFolder) -> None:
    cache = HeaderCache(data.headers, hub, max_bytes=1)
    first = cache.fetch(REPO, "Q4_K_M").paths[0]
    second = cache.fetch(REPO, "Q8_0").paths[0]
    assert not first.exists()
    assert second.exists()
    cache.clear()
    assert not data.headers.exists()


def test_header_cut_short_on_this_disk_when_fetched_then_it_is_fetched_anew(cache: HeaderCache) -> None:
    path = cache.fetch(REPO, "Q4_K_M").paths[0]
    with path.open("r+b") as file:
        file.truncate(10)
    assert cache.fetch(REPO, "Q4_K_M").fetched_bytes > 0
    assert name_in(path) == "Four"


def test_file_changed_after_it_was_listed_when_fetched_then_it_is_noticed(
    cache: HeaderCache, fake: FakeHub, tmp_path: Path
) -> None:
    cache.fetch(REPO, "Q8_0")
    fake.repos[REPO].files["M-Q4_K_M.gguf"] = tiny(tmp_path, "new.gguf", name="New")
    with pytest.raises(HubChanged, match="not the file its list names"):
        cache.fetch(REPO, "Q4_K_M")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(b"<html>" * 50_000, NotGguf), (b"GGUF\x03\0\0\0" + b"\xff" * 300_000, ModelLoadFailed)],
)
def test_file_that_is_none_when_fetched_then_it_is_said_and_nothing_is_kept(
    data: DataFolder, raw: bytes, kind: type[Exception]
) -> None:
    with FakeHub({REPO: FakeRepo({"M-Q4_0.gguf": raw})}) as fake:
        hub = hub_for(fake, data)
        with pytest.raises(kind):
            HeaderCache(data.headers, hub).fetch(REPO, "Q4_0")
        assert list(data.headers.iterdir()) == []
        hub.close()


def test_hub_without_ranges_when_fetched_then_the_beginning_is_enough(cache: HeaderCache, fake: FakeHub) -> None:
    fake.knows_ranges = False
    assert name_in(cache.fetch(REPO, "Q4_K_M").paths[0]) == "Four"


def test_connection_that_breaks_when_fetched_then_it_is_tried_again(cache: HeaderCache, fake: FakeHub) -> None:
    fake.refusals.append(Refusal(503))
    fake.cuts.append(100)
    assert name_in(cache.fetch(REPO, "Q4_K_M").paths[0]) == "Four"


def test_connection_that_keeps_breaking_when_fetched_then_it_ends(cache: HeaderCache, fake: FakeHub) -> None:
    fake.cuts.extend([100] * 5)
    with pytest.raises(HubFault):
        cache.fetch(REPO, "Q4_K_M")
    assert len(fake.file_requests()) == 3


def test_hub_that_is_away_when_fetched_then_it_says_so(cache: HeaderCache, fake: FakeHub) -> None:
    cache._hub.find_file(REPO, "Q4_K_M")
    fake.stop()
    with pytest.raises(HubOffline):
        cache.fetch(REPO, "Q4_K_M")
    fake.start()


def test_file_that_is_not_there_when_fetched_then_it_says_so(cache: HeaderCache) -> None:
    with pytest.raises(HubNotFound, match="no model file"):
        cache.fetch(REPO, "Q2_K")


def test_folder_that_cannot_be_written_when_fetched_then_it_says_so(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(StorageFault, match="cannot be"):
        HeaderCache(tmp_path / "a file" / "headers", hub).fetch(REPO, "Q4_K_M")
