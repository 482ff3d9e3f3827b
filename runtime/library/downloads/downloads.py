"""All downloads: which wait, which run, what they fetched."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from runtime import units
from runtime.errors import BadRequest, HubOffline, RuntimeFault, StorageFault, to_failure
from runtime.library.catalogue import Catalogue
from runtime.library.downloads.live import Live
from runtime.library.downloads.record import Part, Record, Store, encode
from runtime.library.downloads.run import STALE, Arrival, Claims, Policy, Run, Surroundings, parts_of, renew
from runtime.library.downloads.space import device_of, disk_fault, full, nearest
from runtime.library.downloads.stop import Stop, Stopped, StopReason
from runtime.library.hub.hub import Hub
from runtime.messages.library import Download, DownloadRequest, HubModelRequest
from runtime.options import ModelsOptions
from runtime.paths import DataFolder

MAX_UNFINISHED = 500
MAX_DONE = 200
"""Finished ones that stay listed; the oldest go."""
EVENT_GAP_S = 0.25
TICK_S = 0.5
"""How often a running one is looked at: a stalled one must show that it stalls."""
SAVE_AGAIN_S = 5.0
JOIN_S = 15.0

_UNFINISHED = ("queued", "running", "verifying", "paused", "failed")
_ON_THE_WAY = ("queued", "running", "verifying")

_log = logging.getLogger(__name__)


class _Item:
    """A record with what belongs to it at run time. Guarded by the manager's lock."""

    def __init__(self, record: Record, clock: Callable[[], float], keep: Callable[[Record], None]) -> None:
        self.record = record
        self.live = Live(record, clock, lambda: keep(record))
        self.stop: Stop | None = None
        self.thread: threading.Thread | None = None
        self.is_cancelled = False

    def described(self) -> Download:
        return self.live.described(self.record)


class Downloads:
    """Runs up to `options.max_downloads` at once; the others wait in order. Home thread: any (locked).

    State is in the catalogue, so that a new start goes on where the last one ended, however it ended. How far a file is
    is told by its length on the disk alone.
    """

    def __init__(
        self,
        folder: DataFolder,
        catalogue: Catalogue,
        hub: Hub,
        options: ModelsOptions,
        *,
        on_change: Callable[[tuple[Download, ...]], None] = lambda _: None,
        on_arrived: Callable[[Arrival], str] = lambda _: "",
        policy: Policy | None = None,
    ) -> None:
        """Read what is remembered; nothing runs before `start`.

        Args:
            folder: `folder.models`, or `options.main_folder`, is where files arrive.
            catalogue: where state is kept.
            hub: where files come from.
            options: `max_downloads`, `main_folder` and `offline` are read.
            on_change: called on a thread of ours with all downloads, at most four times a second.
            on_arrived: called on a thread of ours before a download is done; answers the model's id.
            policy: how long to try on, what to leave free.

        Raises:
            StorageFault: if the catalogue cannot be used.
        """
        self._folder = folder
        self._store = Store(catalogue)
        self._hub = hub
        self._options = options
        self._on_change = on_change
        self._on_arrived = on_arrived
        self._policy = policy = policy or Policy()
        self._around = Surroundings(hub, Claims(), policy)
        self._lock = threading.RLock()
        self._save_lock = threading.Lock()
        self._unsaved: set[str] = set()
        self._is_started = self._is_held = False
        self._closing = threading.Event()
        self._changed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="downloads", daemon=True)
        self._items: dict[str, _Item] = {}
        for record in self._store.load():
            if record.state in ("running", "verifying") or _was_offline(record):
                record.state, record.failure = "queued", None
            self._items[record.id] = self._item(record)

    # --- for everyone -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Go on with what ran or waited when the program last ended."""
        with self._lock:
            if self._is_started or self._closing.is_set():
                return
            self._is_started = True
            self._ticker.start()
            self._schedule()

    def configure(self, options: ModelsOptions) -> None:
        """Take over a changed number of downloads or main folder (for downloads added from now on).

        Downloads that ended because the program was set offline go on when it is no more.
        """
        with self._lock:
            was_offline, self._options = self._options.offline, options
            if was_offline and not options.offline:
                for item in self._items.values():
                    if _was_offline(item.record):
                        item.record.state, item.record.failure = "queued", None
            self._schedule()

    def all(self) -> tuple[Download, ...]:
        """Every download, oldest first. Asks nobody: may be called on an event loop."""
        with self._lock:
            return tuple(item.described() for item in self._items.values())

    def add(self, request: DownloadRequest) -> Download:
        """Queue one; the one that is already there if it is the same. Blocks on the hub.

        Raises:
            HubNotFound, HubRefused, HubOffline, HubFault: as the hub answered.
            DiskFull: if it cannot fit beside what is already on the way.
            StorageFault: if another file of that name is in the way, or the folder cannot be written.
            BadRequest: if too many wait already.
        """
        model, file = self._hub.find_file(request.repo, request.file, request.revision)
        parts = parts_of(model, file, with_projector=request.with_projector)
        with self._lock:
            root = Path(self._options.main_folder) if self._options.main_folder else self._folder.models
            same = self._same(request.repo, file.name, model.commit)
            if same is not None:
                return same.described()
            if sum(item.record.state in _UNFINISHED for item in self._items.values()) >= MAX_UNFINISHED:
                raise BadRequest(
                    f"{MAX_UNFINISHED} downloads wait already.", hint="Let some of them end first.", param="file"
                )
            order = max((item.record.order for item in self._items.values()), default=0) + 1
        record = Record(
            id=uuid.uuid4().hex[:12],
            order=order,
            repo=request.repo,
            revision=request.revision,
            commit=model.commit,
            name=file.name,
            quantization=file.quantization,
            root=str(root.absolute()),
            parts=parts,
            started_s=units.now(),
        )
        item = self._item(record)
        self._check_can_begin(item)
        self._store.save(record.id, encode(record))
        with self._lock:
            same = self._same(record.repo, record.name, record.commit)
            if same is None:
                self._items[record.id] = item
        if same is not None:  # added twice at the same moment
            self._store.forget(record.id)
            return same.described()
        self._forget_oldest_done(record)
        self._schedule()
        with self._lock:
            return item.described()

    def pause(self, download_id: str) -> Download:
        """Stop, keeping what was fetched; one that is done stays done.

        Raises:
            BadRequest: if there is no such download.
        """
        with self._lock:
            item = self._find(download_id)
            if item.record.state in _ON_THE_WAY:
                item.record.state = "paused"
                self._stop(item, "pause")
        self._keep(item.record)
        self._schedule()
        return item.described()

    def resume(self, download_id: str) -> Download:
        """Queue a paused or failed one again; after HubChanged or HashMismatch with the hub's present list.

        Raises:
            BadRequest: if there is no such download.
        """
        with self._lock:
            item = self._find(download_id)
            if item.record.state in ("paused", "failed"):
                item.record.state = "queued"
        self._keep(item.record)
        self._schedule()
        return item.described()

    def cancel(self, download_id: str) -> None:
        """Stop it, delete what was fetched, forget it. An unknown id is no error."""
        with self._lock:
            item = self._items.pop(download_id, None)
            if item is None:
                return
            item.is_cancelled = True
            self._stop(item, "cancel")
            thread = item.thread
        if thread is not None:
            thread.join(JOIN_S)  # it deletes what it wrote when it ends
        else:
            self._delete(item)
        self._forget(download_id)
        self._schedule()

    def clear(self, download_id: str = "") -> None:
        """Forget one that is done or failed (with what a failed one left). "" forgets all that are done.

        Raises:
            BadRequest: if it is still on the way, or if there is no such download.
        """
        with self._lock:
            if not download_id:
                chosen = [item for item in self._items.values() if item.record.state == "done"]
            else:
                chosen = [self._find(download_id)]
                if chosen[0].record.state not in ("done", "failed"):
                    raise BadRequest("That download is still on the way.", hint="Cancel it first.", param="id")
            for item in chosen:
                del self._items[item.record.id]
        for item in chosen:
            if item.record.state != "done":
                self._delete(item)
            self._forget(item.record.id)
        self._schedule()

    def hold(self) -> None:
        """Stop all transfers and start none until `release`, while the folder moves. Waits until no file is open.

        Raises:
            StorageFault: if one does not end.
        """
        with self._lock:
            self._is_held = True
            threads = [item.thread for item in self._items.values() if item.thread is not None]
            for item in self._items.values():
                self._stop(item, "hold")
        for thread in threads:
            thread.join(JOIN_S)
            if thread.is_alive():
                self.release()
                raise StorageFault(
                    "A download does not let go of its file.", hint="Pause all downloads, then try again."
                )

    def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        """Go on after `hold`; downloads that wrote below `moved_from` go on below `moved_to`."""
        moved: list[_Item] = []
        with self._lock:
            self._is_held = False
            for item in self._items.values():
                if moved_from is not None and moved_to is not None and Path(item.record.root) == moved_from.absolute():
                    item.record.root = str(moved_to.absolute())
                    moved.append(item)
        for item in moved:
            item.live.look_again(item.record)
            self._keep(item.record)
        self._schedule()

    def close(self) -> None:
        """Stop all transfers; what ran goes on at the next start. Idempotent."""
        with self._lock:
            self._closing.set()
            self._changed.set()
            threads = [item.thread for item in self._items.values() if item.thread is not None]
            for item in self._items.values():
                self._stop(item, "close")
        for thread in threads:
            thread.join(JOIN_S)
        if self._ticker.is_alive() and threading.current_thread() is not self._ticker:
            self._ticker.join(JOIN_S)
        self._save_unsaved()

    # --- running ------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Start what may run now."""
        self._changed.set()
        with self._lock:
            if not self._is_started or self._is_held or self._closing.is_set():
                return
            n_running = sum(item.thread is not None for item in self._items.values())
            for item in self._items.values():
                if n_running >= self._options.max_downloads:
                    return
                if item.record.state != "queued" or item.thread is not None:
                    continue
                item.record.state = "running"
                item.stop = Stop()
                item.thread = threading.Thread(
                    target=self._run, args=(item, item.stop), name=f"download-{item.record.id}", daemon=True
                )
                item.thread.start()
                n_running += 1

    def _run(self, item: _Item, stop: Stop) -> None:
        """Body of a download's thread."""
        record = item.record
        try:
            self._keep(record)
            self._run_once(item, stop)
        except Stopped:
            with self._lock:
                if stop.reason in ("hold", "close") and record.state == "running":
                    record.state = "queued"
        except Exception as error:  # noqa: BLE001 - top of a thread
            if not isinstance(error, RuntimeFault):
                _log.exception("download %s ended with a bug", record.id)
            with self._lock:
                if record.state == "running":
                    record.state, record.failure = "failed", to_failure(error)
                    record.is_stale = record.is_stale or isinstance(error, STALE)
        finally:
            self._around.claims.give_all(record.id)
            with self._lock:
                item.thread = item.stop = None
                is_cancelled, is_done = item.is_cancelled, record.state == "done"
            if is_cancelled:
                self._delete(item)
            else:
                if not is_done:
                    item.live.look_again(record)
                self._keep(record)
            self._schedule()

    def _run_once(self, item: _Item, stop: Stop) -> None:
        record = item.record
        if record.is_stale:
            renew(record, self._hub.model(HubModelRequest(record.repo, record.revision), fresh=True))
            item.live.look_again(record)
        with self._lock:
            record.failure = None
        self._keep(record)
        run = Run(record, item.live, stop, self._around)
        run.fetch()
        arrival = run.arrive()
        # From here on it is whole: neither a pause nor a failing listener takes that back.
        model_id = ""
        try:
            model_id = self._on_arrived(arrival)
        except Exception:  # noqa: BLE001 - a listener's bug must not undo an arrival
            _log.exception("the arrival of %s could not be told", record.name)
        with self._lock:
            record.state, record.model_id = "done", model_id

    def _stop(self, item: _Item, reason: StopReason) -> None:
        if item.stop is not None:
            item.stop.request(reason)

    # --- parts --------------------------------------------------------------------------------------------

    def _item(self, record: Record) -> _Item:
        return _Item(record, self._policy.clock, self._keep)

    def _find(self, download_id: str) -> _Item:
        item = self._items.get(download_id)
        if item is None:
            raise BadRequest("There is no such download (any more).", param="id")
        return item

    def _same(self, repo: str, name: str, commit: str) -> _Item | None:
        for item in self._items.values():
            record = item.record
            if (record.repo, record.name, record.commit) == (repo, name, commit) and record.state != "done":
                return item
        return None

    def _check_can_begin(self, item: _Item) -> None:
        """Refuse at once what could only fail later.

        Raises:
            DiskFull, StorageFault: it could not.
        """
        record = item.record
        for part in record.parts:
            target = record.target(part)
            with contextlib.suppress(OSError):
                if target.stat().st_size != part.size_bytes:
                    raise StorageFault(
                        f"Another file called {target.name} is in {target.parent} already.",
                        hint="Move or remove that file, then download again.",
                        path=str(target),
                    )
        root = Path(record.root)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_fault(error, root / record.name) from error
        with self._lock:
            outstanding = [
                (other.record.root, other.record.size_bytes - other.live.done_bytes)
                for other in self._items.values()
                if other.record.state in _ON_THE_WAY
            ]
        devices = {place: device_of(Path(place)) for place in {record.root, *(place for place, _ in outstanding)}}
        others_bytes = sum(n_bytes for place, n_bytes in outstanding if devices[place] == devices[record.root])
        missing_bytes = record.size_bytes - item.live.done_bytes
        free = self._policy.free(root)
        if missing_bytes > 0 and free - others_bytes - missing_bytes < self._policy.reserve_bytes:
            fault = full(nearest(root), missing_bytes + others_bytes + self._policy.reserve_bytes, free)
            missing, others, kept = map(units.format_bytes, (missing_bytes, others_bytes, self._policy.reserve_bytes))
            fault.hint = f"{missing} are needed, {others} for downloads that run, and {kept} are kept free."
            raise fault

    def _delete(self, item: _Item) -> None:
        """Remove what a download left, but for files that another one still fetches; then folders that are empty."""
        record = item.record
        with self._lock:
            wanted = {
                other.record.partial(part)
                for other in self._items.values()
                if other is not item and other.record.state in _UNFINISHED
                for part in other.record.parts
            }
        for part in record.parts:
            path = record.partial(part)
            if path in wanted:
                continue
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            _remove_empty(path.parent, Path(record.root), part)

    def _forget_oldest_done(self, added: Record) -> None:
        """Keep the list of finished ones short, and none beside a new download of the same file."""
        with self._lock:
            done = [item.record for item in self._items.values() if item.record.state == "done"]
            gone = [record for record in done if (record.repo, record.name) == (added.repo, added.name)]
            gone += [record for record in done if record not in gone][: max(len(done) - MAX_DONE, 0)]
            for record in gone:
                del self._items[record.id]
        for record in gone:
            self._forget(record.id)

    # --- keeping ------------------------------------------------------------------------------------------

    def _keep(self, record: Record) -> None:
        """Write a record down; when that fails (a full disk) it is tried again later, and the download goes on."""
        with self._save_lock:
            with self._lock:
                if record.id not in self._items:
                    return
                raw = encode(record)
            try:
                self._store.save(record.id, raw)
                self._unsaved.discard(record.id)
            except RuntimeFault as fault:
                _log.warning("download %s is not written down yet: %s", record.id, fault)
                self._unsaved.add(record.id)

    def _forget(self, download_id: str) -> None:
        with self._save_lock:
            self._unsaved.discard(download_id)
            try:
                self._store.forget(download_id)
            except RuntimeFault as fault:
                _log.warning("download %s is still written down: %s", download_id, fault)

    def _save_unsaved(self) -> None:
        with self._lock:
            waiting = [item.record for item in self._items.values() if item.record.id in self._unsaved]
        for record in waiting:
            self._keep(record)

    # --- telling ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Body of the thread that tells what changed."""
        told: tuple[Download, ...] | None = None
        saved_s = self._policy.clock()
        while not self._closing.is_set():
            with self._lock:
                is_busy = any(item.thread is not None for item in self._items.values()) or bool(self._unsaved)
            self._changed.wait(TICK_S if is_busy else None)
            self._changed.clear()
            if self._policy.clock() - saved_s >= SAVE_AGAIN_S:
                saved_s = self._policy.clock()
                self._save_unsaved()
            now = self.all()
            if now != told:
                told = now
                try:
                    self._on_change(now)
                except Exception:  # noqa: BLE001 - a listener's bug must not end this thread
                    _log.exception("nobody could be told about the downloads")
            self._closing.wait(EVENT_GAP_S)


def _was_offline(record: Record) -> bool:
    """Whether it ended only because nothing could be reached."""
    failure = record.failure
    return record.state == "failed" and failure is not None and failure.kind == HubOffline.__name__


def _remove_empty(folder: Path, root: Path, part: Part) -> None:
    """Remove the folders that a part made, as long as nothing is in them."""
    for place in (folder, *folder.parents)[: part.local.count("/")]:
        if place == root or root not in place.parents:
            return
        try:
            place.rmdir()
        except OSError:
            return


__all__ = ["Arrival", "Downloads", "Policy"]
