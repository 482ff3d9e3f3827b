"""Headers of remote files, kept as sparse files that llama.cpp can plan with."""

import contextlib
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runtime.errors import HubChanged, HubFault, StorageFault
from runtime.gguf.remote import RangeSource, read_remote_header
from runtime.gguf.sparse import write_sparse
from runtime.library.hub.faults import may_pass
from runtime.library.hub.hub import Hub
from runtime.library.hub.transport import Place
from runtime.messages.library import HubFile, HubModel

MAX_KEPT_BYTES = 1024 * 1024 * 1024
"""Room the headers may take together; one is 1 to 20 MB."""
MAX_KEPT_SETS = 256
N_TRIES = 3
N_LOCKS = 16
RETRY_S = 0.5
_SIZE_FILE = "kept_bytes"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A quantization of the hub, here as far as a plan needs it.

    Attributes:
        paths: one sparse file a part, in order, named as on the hub; load the first.
        projector: the sparse file of the projector that goes with it, or None.
        fetched_bytes: what this call fetched (0 when it was kept from before).
    """

    model: HubModel
    file: HubFile
    paths: tuple[Path, ...]
    projector: Path | None
    fetched_bytes: int


class HeaderCache:
    """Fetches headers by range requests and keeps them, oldest use goes first. Home thread: any (locked)."""

    def __init__(
        self,
        folder: Path,
        hub: Hub,
        *,
        max_bytes: int = MAX_KEPT_BYTES,
        max_sets: int = MAX_KEPT_SETS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is read yet.

        Args:
            folder: where they are kept (`DataFolder.headers`).
            hub: where they come from.
            max_bytes: room they may take together; the set just fetched stays whatever its size.
            max_sets: how many quantizations are kept.
            pause: waits between tries.
        """
        self._folder = folder
        self._hub = hub
        self._max_bytes = max_bytes
        self._max_sets = max_sets
        self._pause = pause
        self._lock = threading.Lock()
        self._set_locks = tuple(threading.Lock() for _ in range(N_LOCKS))

    def fetch(self, repo: str, file: str, revision: str = "main", *, with_projector: bool = True) -> RemoteFile:
        """Headers of all parts of a quantization.

        Raises:
            HubNotFound, HubRefused, HubOffline, HubChanged, HubFault: as the hub answered.
            NotGguf, ModelLoadFailed: if the file is no GGUF, or its header is damaged.
            StorageFault: if the file system cannot hold sparse files, or is full.
        """
        model, found = self._hub.find_file(repo, file, revision)
        paths, fetched_bytes = self._have(model, found)
        projector: Path | None = None
        if with_projector and found.projector:
            beside = next((each for each in model.projectors if each.name == found.projector), None)
            if beside is not None:
                projector_paths, more_bytes = self._have(model, beside)
                projector = projector_paths[0]
                fetched_bytes += more_bytes
        return RemoteFile(model, found, paths, projector, fetched_bytes)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _have(self, model: HubModel, file: HubFile) -> tuple[tuple[Path, ...], int]:
        folder = self._folder / _key(model, file)
        paths = tuple(folder / PurePosixPath(path).name for path in file.paths)
        with self._set_locks[int(folder.name, 16) % N_LOCKS]:  # two plans of one file fetch it once
            if _is_whole(folder, paths, file):
                with contextlib.suppress(OSError):
                    os.utime(folder)
                return paths, 0
            fetched_bytes = self._fetch_set(model, file, folder, paths)
        with self._lock:
            self._evict(keep=folder.name)
        return paths, fetched_bytes

    def _fetch_set(self, model: HubModel, file: HubFile, folder: Path, paths: tuple[Path, ...]) -> int:
        fetched_bytes = kept_bytes = 0
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            for path, name, size_bytes, sha256 in zip(paths, file.paths, file.sizes_bytes, file.sha256, strict=True):
                source = RangeSource(
                    PurePosixPath(name).name,
                    size_bytes,
                    _Fetch(self._hub, Place(model.entry.repo, model.commit, name), size_bytes, sha256, self._pause),
                )
                try:
                    _, head = read_remote_header(source)
                except OSError as error:
                    raise HubFault(
                        f"The header of {name} could not be fetched: {error}", repo=model.entry.repo
                    ) from error
                write_sparse(head, size_bytes, path)
                fetched_bytes += source.fetched_bytes
                kept_bytes += len(head)
            (folder / _SIZE_FILE).write_text(str(kept_bytes), encoding="ascii")
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StorageFault(
                f"Headers cannot be kept in {self._folder}: {error.strerror or error}.",
                hint="Check that Deskside's data folder may be written.",
                path=str(self._folder),
            ) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return fetched_bytes

    def _evict(self, keep: str) -> None:
        with contextlib.suppress(OSError):
            sets = sorted((child for child in self._folder.iterdir() if child.is_dir()), key=_used_s, reverse=True)
            sets.sort(key=lambda child: child.name != keep)
            kept_bytes = 0
            for number, child in enumerate(sets):
                kept_bytes += _kept_bytes(child)
                is_one_too_many = number >= self._max_sets or kept_bytes > self._max_bytes
                if is_one_too_many and child.name != keep:
                    shutil.rmtree(child, ignore_errors=True)


class _Fetch:
    """Gets a range of one file, with a few tries; notices when the file is another one by now."""

    def __init__(self, hub: Hub, place: Place, size_bytes: int, sha256: str, pause: Callable[[float], None]) -> None:
        self._hub = hub
        self._place = place
        self._size_bytes = size_bytes
        self._sha256 = sha256
        self._pause = pause

    def __call__(self, offset: int, n_bytes: int) -> bytes:
        for attempt in range(1, N_TRIES + 1):
            try:
                return self._once(offset, n_bytes)
            except HubFault as fault:
                if attempt == N_TRIES or not may_pass(fault):
                    raise
                self._pause(RETRY_S * attempt)
        raise AssertionError("the last try returns or raises")

    def _once(self, offset: int, n_bytes: int) -> bytes:
        with self._hub.open_file(self._place, start=offset, n_bytes=n_bytes) as body:
            has_other_hash = body.sha256 and self._sha256 and body.sha256 != self._sha256
            has_other_size = body.total_bytes is not None and body.total_bytes != self._size_bytes
            if has_other_hash or has_other_size:
                raise HubChanged(
                    f"{self._place.path} on the hub is not the file its list names any more.",
                    hint="Open its page again.",
                    repo=self._place.repo,
                    file=self._place.path,
                )
            if body.status not in (200, 206) or not 0 <= body.start <= offset:
                raise HubFault(
                    f"The hub cannot give a part of {self._place.path}.",
                    hint="Try another mirror, or plan after the download.",
                    repo=self._place.repo,
                    status=502,
                )
            skip = offset - body.start  # a server without ranges begins at the start
            parts: list[bytes] = []
            missing = n_bytes
            for chunk in body.chunks():
                part = chunk[skip : skip + missing]
                skip = max(skip - len(chunk), 0)
                parts.append(part)
                missing -= len(part)
                if not missing:
                    break
            return b"".join(parts)


def _key(model: HubModel, file: HubFile) -> str:
    """The same bytes have the same key: hashes where they are known, else the commit."""
    is_known = all(file.sha256)
    marks = file.sha256 if is_known else (model.entry.repo, model.commit)
    raw = "\n".join((*marks, *file.paths, *map(str, file.sizes_bytes)))
    return hashlib.sha256(raw.encode()).hexdigest()[:24]


def _is_whole(folder: Path, paths: tuple[Path, ...], file: HubFile) -> bool:
    try:
        return (folder / _SIZE_FILE).is_file() and all(
            path.stat().st_size == size_bytes for path, size_bytes in zip(paths, file.sizes_bytes, strict=True)
        )
    except OSError:
        return False


def _kept_bytes(folder: Path) -> int:
    try:
        return int((folder / _SIZE_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
