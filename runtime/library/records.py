"""What loads and answers taught: planned against actual of the last load of a model, and measured speeds.

Both are bounded; the oldest go first. A value that no longer reads (written by another version) is left out.
"""

import logging
import sqlite3
from typing import TypeVar

import msgspec

from runtime import units
from runtime.library.catalogue import Catalogue, Migration
from runtime.messages.fit import LoadRecord
from runtime.unreadable import UNREADABLE

R = TypeVar("R", bound=msgspec.Struct)

MAX_LOADS = 1000
"""Models whose last load is remembered."""
MAX_SPEEDS_PER_KEY = 64
"""Measured runs kept of one key; enough for a robust middle, few enough that a new driver shows soon."""
MAX_SPEEDS = 5000

MIGRATIONS = (
    Migration(
        1,
        (
            "CREATE TABLE load (model TEXT PRIMARY KEY, at_s REAL NOT NULL, record BLOB NOT NULL) STRICT",
            "CREATE INDEX load_by_time ON load (at_s)",
            """
            CREATE TABLE speed (
                seq INTEGER PRIMARY KEY, key TEXT NOT NULL, at_s REAL NOT NULL, record BLOB NOT NULL
            ) STRICT
            """,
            "CREATE INDEX speed_by_key ON speed (key, seq)",
        ),
    ),
)

_log = logging.getLogger(__name__)
_load = msgspec.msgpack.Decoder(LoadRecord)


class Records:
    """Reads and writes them. Home thread: any; every call touches the disk.

    Raises (all methods): StorageFault if the catalogue cannot be read or written.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        catalogue.migrate("records", MIGRATIONS)

    # --- loads --------------------------------------------------------------------------------------------

    def save_load(self, record: LoadRecord) -> None:
        """Remember the last load of `record.model` (an id)."""
        raw = msgspec.msgpack.encode(record)
        keep = "SELECT model FROM load ORDER BY at_s DESC LIMIT -1 OFFSET ?"

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO load VALUES (?, ?, ?)", (record.model, record.at_s, raw))
            connection.execute(f"DELETE FROM load WHERE model IN ({keep})", (MAX_LOADS,))  # noqa: S608

        self._catalogue.run(work)

    def load(self, model: str) -> LoadRecord | None:
        """The last load of that model; `None` if it was never loaded."""
        row = self._catalogue.run(
            lambda connection: connection.execute("SELECT record FROM load WHERE model = ?", (model,)).fetchone(),
            writes=False,
        )
        if row is None:
            return None
        try:
            return _load.decode(row[0])
        except UNREADABLE as error:
            _log.warning("the load record of %s was left out: %s", model, error)
            return None

    def used_s(self) -> dict[str, float]:
        """When each model was last loaded (seconds since 1970), by id."""
        rows = self._catalogue.run(
            lambda connection: connection.execute("SELECT model, at_s FROM load").fetchall(), writes=False
        )
        return dict(rows)

    # --- speeds -------------------------------------------------------------------------------------------

    def add_speed(self, key: str, run: msgspec.Struct) -> None:
        """Remember a measured run under a key of the caller's (devices, model, quantization, ...)."""
        raw = msgspec.msgpack.encode(run)
        old = "SELECT seq FROM speed WHERE key = ? ORDER BY seq DESC LIMIT -1 OFFSET ?"
        oldest = "SELECT seq FROM speed ORDER BY seq DESC LIMIT -1 OFFSET ?"

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO speed (key, at_s, record) VALUES (?, ?, ?)", (key, units.now(), raw))
            connection.execute(f"DELETE FROM speed WHERE seq IN ({old})", (key, MAX_SPEEDS_PER_KEY))  # noqa: S608
            connection.execute(f"DELETE FROM speed WHERE seq IN ({oldest})", (MAX_SPEEDS,))  # noqa: S608

        self._catalogue.run(work)

    def speeds(self, kind: type[R], key: str | None = None) -> tuple[R, ...]:
        """Measured runs of one key, or of all, oldest first."""
        where, values = ("WHERE key = ?", (key,)) if key is not None else ("", ())
        rows = self._catalogue.run(
            lambda connection: connection.execute(
                f"SELECT record FROM speed {where} ORDER BY seq",  # noqa: S608
                values,
            ).fetchall(),
            writes=False,
        )
        decoder = msgspec.msgpack.Decoder(kind)
        found: list[R] = []
        for (raw,) in rows:
            try:
                found.append(decoder.decode(raw))
            except UNREADABLE as error:
                _log.warning("a measured speed was left out: %s", error)
        return tuple(found)
