"""A download as it is remembered, and where."""

import logging
from pathlib import Path, PurePosixPath

import msgspec

from runtime.errors import Failure
from runtime.library.catalogue import Catalogue, Migration
from runtime.library.hub.names import below
from runtime.messages.library import DownloadState
from runtime.unreadable import UNREADABLE

PARTIAL = ".partial"
"""Ending of a file that is not whole; such files are never looked at as models."""

MIGRATIONS = (Migration(1, ("CREATE TABLE download (id TEXT PRIMARY KEY, record BLOB NOT NULL) STRICT",)),)

_log = logging.getLogger(__name__)


class Part(msgspec.Struct, omit_defaults=True):
    """One file of a download. Changed only by the thread that runs it.

    Attributes:
        remote: its path in the repository.
        local: its path below the root, with slashes.
        sha256: announced hash, "" when the hub tells none.
        etag: validator of the first body, kept where no hash was told with it.
        checked_ns: modification time of the partial file when its hash was found right; 0 before.
        synced_bytes: so much is on the disk for certain, also after a power cut.
        boot_s: when the machine that wrote it last was started (seconds since 1970); 0 when nothing was written yet.
    """

    remote: str
    local: str
    size_bytes: int
    sha256: str = ""
    etag: str = ""
    checked_ns: int = 0
    synced_bytes: int = 0
    boot_s: float = 0.0
    is_projector: bool = False

    def forget_bytes(self) -> None:
        """Nothing is here (any more)."""
        self.etag = ""
        self.checked_ns = self.synced_bytes = 0
        self.boot_s = 0.0


class Record(msgspec.Struct, omit_defaults=True):
    """All files of one quantization on their way. `order` rises with each one added.

    `is_stale`: the last try found that the hub's files are not what is written here; the next one asks for its list.
    """

    id: str
    order: int
    repo: str
    revision: str
    commit: str
    name: str
    quantization: str
    root: str
    parts: list[Part]
    state: DownloadState = "queued"
    started_s: float = 0.0
    model_id: str = ""
    failure: Failure | None = None
    is_stale: bool = False

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(part.size_bytes for part in self.parts)

    def target(self, part: Part) -> Path:
        """Where a file arrives."""
        return below(Path(self.root), PurePosixPath(part.local))

    def partial(self, part: Part) -> Path:
        """Where it is until it is whole."""
        target = self.target(part)
        return target.with_name(target.name + PARTIAL)


class Store:
    """Records in the catalogue. Home thread: any; every call touches the disk.

    Raises (all methods): StorageFault, DiskFull if the catalogue cannot be read or written.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        catalogue.migrate("downloads", MIGRATIONS)

    def load(self) -> list[Record]:
        """All of them, oldest first; one that does not read is left where it is."""
        rows = self._catalogue.run(
            lambda connection: connection.execute("SELECT id, record FROM download").fetchall(), writes=False
        )
        found = []
        for download_id, raw in rows:
            try:
                found.append(msgspec.msgpack.decode(raw, type=Record))
            except UNREADABLE as error:
                _log.warning("download %s does not read: %s", download_id, error)
        return sorted(found, key=lambda record: record.order)

    def save(self, download_id: str, raw: bytes) -> None:
        """Write one, encoded by `encode`."""
        self._catalogue.run(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO download (id, record) VALUES (?, ?)", (download_id, raw)
            )
        )

    def forget(self, download_id: str) -> None:
        """Remove one."""
        self._catalogue.run(lambda connection: connection.execute("DELETE FROM download WHERE id = ?", (download_id,)))


def encode(record: Record) -> bytes:
    """The stored form."""
    return msgspec.msgpack.encode(record)
