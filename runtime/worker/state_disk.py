"""Prompt states on disk: what lost its place in memory, found again also by the next process.

One folder for all models, `<folder>/<key>/<tokens>.state`, with a note in each subfolder of the model file it is for,
so that whoever removes a model can remove its states. The bound is that of the whole folder: before a file is
written, those used longest ago go, whoever wrote them; several workers may do so at once, and a file that is gone
is a state not found.

All file work is on one thread; the engine's only leaves and picks up. The index (the tokens of each file) is in
memory, bounded by `MAX_FILES` and `MAX_INDEX_BYTES`. States that wait to be written are bounded by
`MAX_PENDING_BYTES`; what comes beyond is dropped.
"""

import logging
import os
import shutil
import stat
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runtime.paths import STATES_NOTE
from runtime.scheduler.hostcache import SavedState
from runtime.scheduler.prefix import Tokens, common_prefix
from runtime.units import format_bytes, now
from runtime.worker import state_file

MAX_FILES = 256
"""In the whole folder."""
MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_PENDING_BYTES = 1024 * 1024 * 1024
LEAST_FREE_BYTES = 1024 * 1024 * 1024
"""Left free on the disk; states give way to other files."""
AUTOMATIC_SHARE = 20
"""Automatic is one part in so many of what is free on the disk,"""
AUTOMATIC_MOST_BYTES = 8 * 1024**3
"""at most this much,"""
AUTOMATIC_LEAST_BYTES = 256 * 1024**2
"""and nothing where it would be less than this."""
MAX_UNUSED_S = 30 * 86_400.0
"""A state that nobody used for so long goes: it holds what was said, perhaps in a conversation deleted since."""
PATIENCE_S = 15.0
"""A prompt whose state is not there by then is read; the disk may hang, or sleep."""
STOP_BYTES_PER_S = 400e6
"""What a disk is trusted to write when the process is about to end."""
PART_AGE_S = 3600.0
"""An unfinished file this old was left by a process that died."""

_log = logging.getLogger(__name__)


def automatic_bytes(folder: Path) -> int:
    """How much of the disk to use when nobody said."""
    try:
        share = shutil.disk_usage(folder).free // AUTOMATIC_SHARE
    except OSError:
        return 0
    return 0 if share < AUTOMATIC_LEAST_BYTES else min(share, AUTOMATIC_MOST_BYTES)


@dataclass(slots=True)
class _Seek:
    tokens: tuple[int, ...]
    least: int
    whole: bool
    until_s: float
    is_coming: bool = True
    found: SavedState | None = None


@dataclass(slots=True)
class _Entry:
    raw_tokens: bytes
    path: Path


@dataclass(slots=True)
class _Shared:
    """Guarded by the store's condition."""

    is_scanned: bool = False
    is_closed: bool = False
    is_full: bool = False
    next_ticket: int = 1
    pending_bytes: int = 0
    index: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    seeks: dict[int, _Seek] = field(default_factory=dict)
    to_read: deque[int] = field(default_factory=deque)
    to_write: deque[SavedState] = field(default_factory=deque)


class StateDisk:
    """A `StateStore` in a folder. `start` it; `close` it when the engine has stopped.

    Args:
        folder: for all models; made if it is not there.
        key: of this model and its parameters (`state_key`).
        model_path: told in the note.
        max_bytes: bound of the folder.
        prefixes_do: whether any beginning of a state can be used (not for memory that cannot be cut); then a longer
            state replaces a shorter one.
        on_arrival: called on the store's thread when something that was sought is there, or is not to be had.
        least_free_bytes: left free on the disk.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        model_path: Path,
        max_bytes: int,
        *,
        prefixes_do: bool,
        on_arrival: Callable[[], None] = lambda: None,
        least_free_bytes: int = LEAST_FREE_BYTES,
    ) -> None:
        self._root = folder
        self._folder = folder / key
        self._key = key
        self._model_path = model_path
        self._max_bytes = max_bytes
        self._prefixes_do = prefixes_do
        self.on_arrival = on_arrival
        self._least_free_bytes = least_free_bytes
        self._condition = threading.Condition()
        self._writing = threading.Lock()
        self._shared = _Shared()
        self._thread = threading.Thread(target=self._work, name="states", daemon=True)

    def start(self) -> None:
        """Begin to look at what is there."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Write what waits, for at most `timeout_s` seconds, and take no more."""
        with self._condition:
            self._shared.is_closed = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # --- the engine's thread ---

    @property
    def max_bytes(self) -> int:
        """See `StateStore.max_bytes`."""
        return 0 if self._shared.is_full else self._max_bytes

    def holds(self, tokens: tuple[int, ...]) -> bool:
        """See `StateStore.holds`."""
        raw = state_file.packed(tokens)
        with self._condition:
            return self._holds(raw)

    def _holds(self, raw: bytes) -> bool:
        index = self._shared.index
        if state_file.name_of(raw) in index:
            return True
        return self._prefixes_do and any(entry.raw_tokens.startswith(raw) for entry in index.values())

    def offer(self, tokens: tuple[int, ...], state: memoryview) -> None:
        """See `StateStore.offer`."""
        with self._condition:
            shared = self._shared
            is_too_much = shared.to_write and shared.pending_bytes + state.nbytes > MAX_PENDING_BYTES
            if shared.is_closed or is_too_much or state.nbytes > self.max_bytes:
                return
            shared.to_write.append(SavedState(tokens, state))
            shared.pending_bytes += state.nbytes
            self._condition.notify_all()

    def store_all(self, states: Iterable[SavedState], within_s: float) -> None:
        """Write states now, on the calling thread, for as long as there is time; for when the engine has stopped."""
        until_s = time.monotonic() + within_s
        for saved in states:
            left_s = until_s - time.monotonic()
            if saved.state.nbytes < left_s * STOP_BYTES_PER_S:
                self._write(saved)
            else:
                _log.info("a prompt of %d tokens is not stored: it would take too long", len(saved.tokens))
            if left_s <= 0:
                return

    def seek(self, tokens: Tokens, limit: int, least: int, *, whole: bool) -> int:
        """See `StateStore.seek`."""
        wanted = _Seek(tuple(tokens[:limit]), least, whole, time.monotonic() + PATIENCE_S)
        with self._condition:
            shared = self._shared
            if shared.is_closed or (shared.is_scanned and self._best(wanted) is None):
                return 0
            ticket = shared.next_ticket
            shared.next_ticket += 1
            shared.seeks[ticket] = wanted
            shared.to_read.append(ticket)
            self._condition.notify_all()
            return ticket

    def is_coming(self, ticket: int) -> bool:
        """See `StateStore.is_coming`."""
        with self._condition:
            seek = self._shared.seeks.get(ticket)
            return seek is not None and seek.is_coming and time.monotonic() < seek.until_s

    def take(self, ticket: int) -> SavedState | None:
        """See `StateStore.take`."""
        with self._condition:
            seek = self._shared.seeks.pop(ticket, None)
            return None if seek is None else seek.found

    def refuse(self, saved: SavedState) -> None:
        """See `StateStore.refuse`."""
        self._forget(state_file.name_of(state_file.packed(saved.tokens)), "llama.cpp did not take it")

    def _best(self, wanted: _Seek) -> str | None:
        """Name of the best entry; the condition is held."""
        raw = state_file.packed(wanted.tokens)
        best, best_length = None, max(wanted.least, 1) - 1
        for name, entry in self._shared.index.items():
            shared = common_prefix(entry.raw_tokens, raw) // state_file.TOKEN_BYTES
            if shared > best_length and not (wanted.whole and shared * state_file.TOKEN_BYTES < len(entry.raw_tokens)):
                best, best_length = name, shared
        return best

    # --- the store's thread ---

    def _work(self) -> None:
        try:
            self._scan()
        except OSError as error:
            _log.warning("stored prompts cannot be looked at: %s", error)
        with self._condition:
            self._shared.is_scanned = True
        while (job := self._next()) is not None:
            if isinstance(job, SavedState):
                self._write(job)
                with self._condition:
                    self._shared.pending_bytes = sum(waiting.state.nbytes for waiting in self._shared.to_write)
            else:
                self._fetch(job)

    def _next(self) -> _Seek | SavedState | None:
        """The next job; what is waited for comes first."""
        with self._condition:
            shared = self._shared
            while True:
                while shared.to_read:
                    seek = shared.seeks.get(shared.to_read.popleft())
                    if seek is not None:
                        return seek
                if shared.to_write:
                    return shared.to_write.popleft()
                if shared.is_closed:
                    return None
                self._condition.wait()

    def _scan(self) -> None:
        """Learn what is there for this model; take away what is no state."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for used_s, _size, path in _state_files(self._root):
            if now() - used_s > MAX_UNUSED_S:
                _delete(path, "")
        if not self._folder.is_dir():
            return
        found: list[tuple[float, Path, bytes]] = []
        for path in self._folder.iterdir():
            if path.name == STATES_NOTE:
                continue
            try:
                status = path.lstat()
                if path.suffix == ".part" and now() - status.st_mtime < PART_AGE_S:
                    continue
                found.append((status.st_mtime, path, self._tokens_of(path, status.st_mode)))
            except state_file.NotAStateError as error:
                _delete(path, str(error))
            except OSError as error:
                _log.warning("a stored prompt cannot be read: %s", error)
        found.sort(key=lambda row: row[0], reverse=True)
        kept: list[_Entry] = []
        index_bytes = 0
        for _used_s, path, raw in found[:MAX_FILES]:
            index_bytes += len(raw)
            if index_bytes > MAX_INDEX_BYTES:
                break
            kept.append(_Entry(raw, path))
        with self._condition:
            self._shared.index.update((entry.path.name, entry) for entry in reversed(kept))

    def _tokens_of(self, path: Path, mode: int) -> bytes:
        raw = state_file.read_head(path, self._key) if path.suffix == ".state" and stat.S_ISREG(mode) else b""
        if not raw or state_file.name_of(raw) != path.name:
            raise state_file.NotAStateError("it is none of ours")
        return raw

    def _fetch(self, seek: _Seek) -> None:
        with self._condition:
            name = self._best(seek)
            entry = self._shared.index.get(name) if name is not None else None
        found = self._read(entry) if entry is not None else None
        with self._condition:
            seek.found = found
            seek.is_coming = False
        self.on_arrival()

    def _read(self, entry: _Entry) -> SavedState | None:
        path = entry.path
        try:
            if 2 * path.stat().st_size > psutil.virtual_memory().available:
                _log.info("a stored prompt is not read: there is too little memory for it")
                return None
            state = state_file.read(path, self._key, entry.raw_tokens)
            os.utime(path)
        except state_file.NotAStateError as error:
            self._forget(path.name, str(error))
            return None
        except OSError as error:
            _log.info("a stored prompt cannot be read: %s", error)
            with self._condition:
                self._shared.index.pop(path.name, None)
            return None
        return SavedState(state_file.unpacked(entry.raw_tokens), state)

    def _forget(self, name: str, why: str) -> None:
        with self._condition:
            entry = self._shared.index.pop(name, None)
        if entry is not None:
            _delete(entry.path, why)

    # --- any thread, one at a time ---

    def _write(self, saved: SavedState) -> None:
        with self._writing:
            self._write_one(saved)

    def _write_one(self, saved: SavedState) -> None:
        raw = state_file.packed(saved.tokens)
        path = self._folder / state_file.name_of(raw)
        with self._condition:
            if self._holds(raw) or self._shared.is_full:
                return
        size_bytes = state_file.file_bytes(len(saved.tokens), saved.state.nbytes, self._key)
        try:
            self._open_folder()
            if size_bytes > self._max_bytes:
                return
            if not self._make_room(size_bytes):
                self._stop_writing("the disk is nearly full")
                return
            state_file.write(path, self._key, raw, saved.state)
        except OSError as error:
            self._stop_writing(str(error))
            return
        shorter: list[_Entry] = []
        with self._condition:
            index = self._shared.index
            if self._prefixes_do:
                names = [name for name, entry in index.items() if raw.startswith(entry.raw_tokens)]
                shorter = [index.pop(name) for name in names]
            index[path.name] = _Entry(raw, path)
            while sum(len(entry.raw_tokens) for entry in index.values()) > MAX_INDEX_BYTES and len(index) > 1:
                index.popitem(last=False)
        for entry in shorter:
            _delete(entry.path, "")

    def _open_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._root, self._folder):
            folder.chmod(0o700)
        note = self._folder / STATES_NOTE
        text = str(self._model_path)
        if not note.is_file() or note.read_text("utf-8", "replace") != text:
            note.write_text(text, "utf-8")
            note.chmod(0o600)

    def _make_room(self, size_bytes: int) -> bool:
        """Delete what was used longest ago until the file fits under all bounds. False: it does not."""
        files = sorted(_state_files(self._root))
        total = sum(size for _used_s, size, _path in files)
        free = shutil.disk_usage(self._root).free - self._least_free_bytes
        for _used_s, size, path in files:
            if total + size_bytes <= self._max_bytes and len(files) < MAX_FILES and size_bytes <= free:
                return True
            self._forget_path(path)
            files = files[1:]
            total -= size
            free += size
        return size_bytes <= free

    def _forget_path(self, path: Path) -> None:
        if path.parent == self._folder:
            with self._condition:
                self._shared.index.pop(path.name, None)
        _delete(path, "")

    def _stop_writing(self, why: str) -> None:
        with self._condition:
            was_full, self._shared.is_full = self._shared.is_full, True
            self._shared.to_write.clear()
            self._shared.pending_bytes = 0
        if not was_full:
            _log.warning("prompts are not stored on disk any more until the model is loaded again: %s", why)


def _state_files(root: Path) -> list[tuple[float, int, Path]]:
    """Time of last use, size and path of every state of every model."""
    found: list[tuple[float, int, Path]] = []
    for path in root.glob("*/*.state"):
        try:
            status = path.lstat()
        except OSError:
            continue
        found.append((status.st_mtime, status.st_size, path))
    return found


def _delete(path: Path, why: str) -> None:
    if why:
        _log.warning("the stored prompt %s is deleted: %s", path.name, why)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.info("the stored prompt %s cannot be deleted: %s", path.name, error)


def start_states(
    folder: Path | None, key: Callable[[], str], model_path: Path, max_bytes: int | None, *, prefixes_do: bool
) -> StateDisk | None:
    """The store of a loaded model, started; None where it is switched off or there is no room.

    Args:
        folder: where states are; None keeps none.
        key: makes the key; called only if it is needed.
        model_path: the model's file.
        max_bytes: the option; None is automatic, 0 is off.
        prefixes_do: see `StateDisk`.
    """
    if folder is None or max_bytes == 0:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        bound = automatic_bytes(folder) if max_bytes is None else max_bytes
        store = StateDisk(folder, key(), model_path, bound, prefixes_do=prefixes_do) if bound else None
    except OSError as error:
        _log.warning("prompts are not stored on disk: %s", error)
        return None
    if store is not None:
        _log.info("prompts are stored on disk, %s at most", format_bytes(bound))
        store.start()
    return store
