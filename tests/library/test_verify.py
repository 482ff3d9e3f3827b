from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import HashMismatch, StorageFault
from runtime.library import copying, verify
from runtime.library.folder import Library
from runtime.library.progress import Cancelled, Meter, Progress
from runtime.messages.api import InstalledModel
from tests.library.conftest import Shelf
from tests.library.model_files import OllamaStore, put_model, put_projector, sha256_of

Rows = Callable[[Library], dict[str, InstalledModel]]


def test_downloaded_file_when_checked_then_is_as_announced(shelf: Shelf) -> None:
    path = shelf.put("a", "b", "m-Q8_0.gguf")
    library = shelf.library()
    assert library.record_arrival([path], [sha256_of(path)], "a/b") == "m-q8_0"
    seen: list[Progress] = []
    assert library.verify("m-q8_0", seen.append) == "The file is as announced (SHA-256)."
    assert seen[-1].fraction == 1.0
    assert [progress.fraction for progress in seen] == sorted(progress.fraction for progress in seen)
    assert "m-Q8_0.gguf" in seen[-1].stage


def test_file_that_rotted_when_checked_then_says_so_and_remembers(shelf: Shelf, rows: Rows) -> None:
    path = shelf.put("m-Q8_0.gguf")
    library = shelf.library()
    expected = sha256_of(path)
    library.record_arrival([path], [expected])
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(HashMismatch, match="damaged") as caught:
        library.verify("m-q8_0")
    assert caught.value.details == {"path": str(path), "expected": expected, "found": sha256_of(path)}
    assert rows(library)["m-q8_0"].verified == "bad"
    assert rows(shelf.library())["m-q8_0"].verified == "bad"
    raw[-1] ^= 1
    path.write_bytes(raw)
    library.verify("m-q8_0")
    assert rows(library)["m-q8_0"].verified == "ok"


def test_file_put_there_by_hand_when_checked_twice_then_is_compared_with_the_first_time(shelf: Shelf) -> None:
    import os

    path = shelf.put("m.gguf")
    library = shelf.library()
    assert sha256_of(path) in library.verify("m")
    assert library.verify("m") == "The file is unchanged since the last check."
    status = path.stat()
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk would do it
    with pytest.raises(HashMismatch, match="last checked"):
        library.verify("m")


def test_set_with_projector_when_checked_then_all_files_are_read(shelf: Shelf, rows: Rows) -> None:
    paths = [shelf.put("a", "b", f"Big-Q8_0-0000{i}-of-00002.gguf", split=(i - 1, 2)) for i in (1, 2)]
    projector = put_projector(shelf.data.models / "a" / "b" / "mmproj-F16.gguf")
    library = shelf.library()
    library.record_arrival([*paths, projector], [sha256_of(path) for path in (*paths, projector)])
    assert library.verify("big-q8_0") == "All 3 files are as announced (SHA-256)."
    projector.write_bytes(projector.read_bytes()[:-1] + b"\x07")
    with pytest.raises(HashMismatch, match="mmproj"):
        library.verify("big-q8_0")
    assert rows(library)["big-q8_0"].verified == "bad"


def test_blob_of_ollama_when_checked_then_its_name_is_the_hash(shelf: Shelf, tmp_path: Path) -> None:
    store = OllamaStore(shelf.home / ".ollama" / "models")
    digest = store.put_blob(put_model(tmp_path / "x.gguf"))
    store.put_manifest("x", "1b", ("model", digest))
    library = shelf.library()
    assert "as announced" in library.verify("x-1b")
    blob = store.folder / "blobs" / digest.replace(":", "-")
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x07")
    with pytest.raises(HashMismatch):
        library.verify("x-1b")


def test_check_when_cancelled_then_nothing_is_remembered(shelf: Shelf, rows: Rows) -> None:
    path = shelf.put("m.gguf")
    library = shelf.library()
    library.record_arrival([path], ["0" * 64])
    with pytest.raises(Cancelled):
        library.verify("m", is_cancelled=lambda: True)
    assert rows(library)["m"].verified == "ok"


def test_file_that_changes_or_goes_while_it_is_read_when_checked_then_says_so(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shelf.put("m.gguf")
    library = shelf.library()
    library.installed()
    real = copying.hash_file

    def change(file: Path, meter: Meter) -> str:
        found = real(file, meter)
        file.write_bytes(file.read_bytes() + b"more")
        return found

    monkeypatch.setattr(verify, "hash_file", change)
    with pytest.raises(StorageFault, match="changed while"):
        library.verify("m")

    def vanish(file: Path, meter: Meter) -> str:
        file.unlink()
        return real(file, meter)

    monkeypatch.setattr(verify, "hash_file", vanish)
    with pytest.raises(StorageFault, match="cannot be read"):
        library.verify("m")
    assert not path.exists()
    assert library.installed() == ()
