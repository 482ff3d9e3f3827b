import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import BugFault, StorageFault
from runtime.library.catalogue import FORMAT, Catalogue, Migration

NOTES = (
    Migration(1, ("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",)),
    Migration(2, ("ALTER TABLE note ADD COLUMN at_s REAL NOT NULL DEFAULT 0",)),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data ü" / "models.sqlite3"


@pytest.fixture
def opened(path: Path) -> Iterator[Catalogue]:
    catalogue = Catalogue(path)
    catalogue.migrate("notes", NOTES)
    yield catalogue
    catalogue.close()


def add(catalogue: Catalogue, text: str) -> None:
    run(catalogue, "INSERT INTO note (text) VALUES (?)", (text,))


def run(catalogue: Catalogue, statement: str, values: tuple[str, ...] = ()) -> list[Any]:
    return catalogue.run(lambda connection: connection.execute(statement, values).fetchall())


def texts(catalogue: Catalogue) -> list[str]:
    rows = catalogue.run(
        lambda connection: connection.execute("SELECT text FROM note ORDER BY id").fetchall(), writes=False
    )
    return [row[0] for row in rows]


def reopened(path: Path) -> Catalogue:
    catalogue = Catalogue(path)
    catalogue.migrate("notes", NOTES)
    return catalogue


def spoil(path: Path, *, keep_bytes: int = 4096) -> None:
    """Overwrite everything behind the first page with nonsense."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(keep_bytes)
        file.write(b"\xa5" * (size - keep_bytes))


def test_what_was_stored_when_opened_again_then_is_there(path: Path, opened: Catalogue) -> None:
    add(opened, "one")
    opened.close()
    again = reopened(path)
    assert texts(again) == ["one"]
    assert again.problem == ""
    again.close()


def test_work_when_it_fails_then_nothing_of_it_stays(opened: Catalogue) -> None:
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO note (text) VALUES ('half')")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        opened.run(half)
    with pytest.raises(ValueError, match="no"), opened.connection() as connection:
        half(connection)
    assert texts(opened) == []


def test_work_inside_other_work_when_the_outer_fails_then_both_are_undone(opened: Catalogue) -> None:
    def outer(_: sqlite3.Connection) -> None:
        add(opened, "inner")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        opened.run(outer)
    assert texts(opened) == []


def test_older_tables_when_migrated_then_keep_their_rows(path: Path) -> None:
    first = Catalogue(path)
    first.migrate("notes", NOTES[:1])
    run(first, "INSERT INTO note (text) VALUES ('old')")
    first.close()
    again = reopened(path)
    assert run(again, "SELECT text, at_s FROM note") == [("old", 0.0)]
    again.migrate("notes", NOTES)
    assert texts(again) == ["old"]
    again.close()


def test_migration_that_fails_when_applied_then_none_of_its_steps_stay(opened: Catalogue) -> None:
    broken = Migration(3, ("CREATE TABLE extra (x INTEGER) STRICT", "CREATE NONSENSE"))
    with pytest.raises(BugFault):
        opened.migrate("notes", (*NOTES, broken))
    tables = run(opened, "SELECT name FROM sqlite_schema")
    assert ("extra",) not in tables
    opened.migrate("notes", (*NOTES, Migration(3, ("CREATE TABLE extra (x INTEGER) STRICT",))))


@pytest.mark.parametrize("content", [b"not a database at all, only text" * 200, b"SQLite format 3\0" + b"\xff" * 5000])
def test_file_that_is_no_database_when_opened_then_is_kept_aside_and_a_new_one_made(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    catalogue = reopened(path)
    assert "damaged" in catalogue.problem or "newer" in catalogue.problem
    add(catalogue, "new")
    assert texts(catalogue) == ["new"]
    kept = catalogue.aside or path
    assert kept.read_bytes() == content
    catalogue.close()


def test_file_with_damaged_pages_when_read_then_the_rest_is_saved_into_a_new_one(path: Path) -> None:
    catalogue = reopened(path)
    for i in range(400):
        add(catalogue, f"{i} " + "x" * 500)
    catalogue.close()
    size = path.stat().st_size
    spoil(path, keep_bytes=size - 40_000)
    again = reopened(path)
    kept = texts(again)  # meets the damage, and goes on with the new file
    assert 100 < len(kept) < 400
    assert kept[0].startswith("0 ")
    assert again.aside is not None
    assert again.aside.exists()
    assert "damaged" in again.problem
    add(again, "later")
    again.close()
    last = reopened(path)
    assert texts(last)[-1] == "later"
    assert last.problem == ""
    last.close()


def test_damage_when_two_have_the_file_open_then_only_one_new_file_is_made(path: Path) -> None:
    first = reopened(path)
    for i in range(300):
        add(first, f"{i} " + "x" * 400)
    first.close()
    spoil(path, keep_bytes=path.stat().st_size - 40_000)
    first, second = reopened(path), reopened(path)
    saved = texts(first)
    add(first, "after")
    assert texts(second) == [*saved, "after"]
    assert len(list(path.parent.glob("*.damaged-*.sqlite3"))) == 1
    assert [first.aside, second.aside].count(None) == 1
    first.close()
    second.close()


def test_file_of_a_newer_program_when_opened_then_is_left_alone(path: Path, opened: Catalogue) -> None:
    add(opened, "theirs")
    run(opened, f"PRAGMA user_version = {FORMAT + 1}")
    opened.close()
    before = path.read_bytes()
    ours = reopened(path)
    assert "newer" in ours.problem
    add(ours, "ours")
    assert texts(ours) == ["ours"]
    ours.close()
    assert path.read_bytes() == before


def test_folder_that_cannot_be_made_when_opened_then_all_works_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    catalogue = reopened(tmp_path / "file" / "models.sqlite3")
    assert "cannot be used" in catalogue.problem
    assert catalogue.path is None
    add(catalogue, "kept for now")
    assert texts(catalogue) == ["kept for now"]
    catalogue.close()


def test_full_file_when_written_then_says_so_and_keeps_what_was_there(opened: Catalogue) -> None:
    add(opened, "before")
    with opened.connection(writes=False) as connection:
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {n_pages}")
    with pytest.raises(StorageFault, match="disk is full"):
        add(opened, "x" * 100_000)
    assert texts(opened) == ["before"]


def test_many_threads_when_they_write_at_once_then_nothing_is_lost(opened: Catalogue) -> None:
    def write(n: int) -> None:
        for i in range(20):
            add(opened, f"{n}-{i}")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(set(texts(opened))) == 160


def test_two_processes_when_they_write_at_once_then_nothing_is_lost(path: Path, opened: Catalogue) -> None:
    program = """
        import sys
        from pathlib import Path
        from runtime.library.catalogue import Catalogue
        from tests.library.test_catalogue import NOTES, add
        catalogue = Catalogue(Path(sys.argv[1]))
        catalogue.migrate("notes", NOTES)
        for i in range(100):
            add(catalogue, f"{sys.argv[2]}-{i}")
        catalogue.close()
    """
    children = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(path), name]) for name in ("a", "b")
    ]
    for i in range(100):
        add(opened, f"c-{i}")
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    assert sorted(texts(opened)) == sorted(f"{name}-{i}" for name in "abc" for i in range(100))


def test_record_of_steps_when_it_is_behind_the_tables_then_the_file_is_set_aside_and_its_rows_carried_over(
    path: Path, opened: Catalogue
) -> None:
    add(opened, "kept")
    run(opened, "DELETE FROM component", ())
    opened.close()
    again = reopened(path)
    assert again.aside is not None
    assert "damaged" in again.problem
    assert texts(again) == ["kept"]
    again.close()


def test_schema_when_its_text_is_garbled_then_the_file_is_set_aside(path: Path, opened: Catalogue) -> None:
    opened.close()
    raw = path.read_bytes()
    place = raw.index(b"CREATE TABLE", raw.index(b"CREATE TABLE") + 1)
    path.write_bytes(raw[:place] + b"CREATE T\xff\xff\xff" + raw[place + 11 :])
    again = reopened(path)
    assert again.aside is not None
    add(again, "after")
    assert texts(again) == ["after"]
    again.close()
