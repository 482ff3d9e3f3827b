"""The library: what models are on disk, and the only one who changes their files.

Looking costs one directory listing a folder and one header read for each file that is new or changed; everything else
comes from memory or the catalogue. Files still on the way (`*.partial`) are not looked at; damaged ones are listed with
what is wrong, and never loaded. Nothing of another program is ever moved, changed or deleted.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runtime.errors import BadRequest, FolderSilent, ModelLoadFailed, ModelNotFound, RuntimeFault, StorageFault
from runtime.library import importing, lookup, moving, verify
from runtime.library.catalogue import Catalogue
from runtime.library.disk import MODEL_SUFFIX, DiskFile, is_below, look_at, walk
from runtime.library.facts import is_lasting
from runtime.library.files import FileTable
from runtime.library.foreign import Surroundings
from runtime.library.listing import OWN, Entry, describe, list_models, plain
from runtime.library.looking import Looker
from runtime.library.patience import Lane, words_for
from runtime.library.progress import IsCancelled, Report, ignore, never
from runtime.library.records import Records
from runtime.library.removal import ToTrash, remove_files, send_to_trash
from runtime.library.roots import Root, Roots, find_roots, main_folder
from runtime.library.scan import Reader, Seen, Sight, entries_of, entry_at, look, settle
from runtime.library.starter import find_starter
from runtime.library.states import remove_states
from runtime.messages.api import InstalledModel
from runtime.messages.fit import LoadRecord
from runtime.messages.library import LibraryState, ModelFolder, RemoveAnswer
from runtime.options import ModelsOptions
from runtime.paths import DataFolder

_log = logging.getLogger(__name__)

RETRY_SILENT_S = 10
"""Told to who asks for a model in a folder that does not answer."""

Listed = Mapping[str, tuple[Entry, InstalledModel]]


class Library:
    """Finds models and looks after their files. Home thread: any (locked); every call reads the disk.

    Attributes:
        records: loads and speeds, kept in the catalogue; `None` without one.
    """

    def __init__(
        self,
        folder: DataFolder,
        options: ModelsOptions | None = None,
        catalogue: Catalogue | None = None,
        *,
        starter_path: Path | None = None,
        around: Surroundings | None = None,
        to_trash: ToTrash = send_to_trash,
    ) -> None:
        """Remember where to look; no folder is read yet.

        Args:
            folder: its `models` folder is searched, at any depth.
            options: other folders and programs to look at; `None` looks at the data folder alone.
            catalogue: remembers headers, hashes and loads over starts; `None` remembers them while this object lives.
            starter_path: file of the starter model; by default the one installed with the program.
            around: where other programs keep things; by default this machine's.
            to_trash: moves a file to the trash.
        """
        self._folder = folder
        self._options = options
        self._starter_path = starter_path if starter_path is not None else find_starter()
        self._around = around if around is not None or options is None else Surroundings.here()
        self._to_trash = to_trash
        self._lock = threading.RLock()
        self._table = FileTable(catalogue)
        self._reader = Reader(self._table)
        self._looker = Looker(self._table.has_reading)
        self._roots_lane = Lane(self._roots)
        self._moves = moving.MoveTable(catalogue)
        self.records = Records(catalogue) if catalogue is not None else None
        self._last: tuple[object, Seen, Listed] | None = None
        self._finish_move()

    # --- what is there ------------------------------------------------------------------------------------

    def installed(self) -> tuple[InstalledModel, ...]:
        """All models on disk, the starter first, then by name. Folders that cannot be read are told by `state`."""
        return tuple(model for _, model in self._scan().values())

    def find(self, name_or_path: str) -> InstalledModel:
        """The model of that id (in any case), file name, file stem or path; also a unique beginning of an id.

        Raises:
            ModelNotFound: if there is none; the hint tells the nearest names.
        """
        return self._find(name_or_path)[1]

    def resolve(self, name_or_path: str) -> InstalledModel:
        """As `find`, for loading.

        Raises:
            NotGguf, FileTruncated, ModelLoadFailed, StorageFault: if the file cannot be loaded.
            ModelNotFound: as `find`.
        """
        entry, model = self._find(name_or_path)
        if model.problem:
            fault = entry.fault()
            raise fault or ModelLoadFailed(f"{model.id} cannot be loaded: {model.problem}", path=model.path)
        return model

    def files(self, name_or_path: str) -> tuple[Path, ...]:
        """The parts of a model in order, without its projector.

        Raises:
            ModelNotFound: as `find`.
        """
        return tuple(file.path for file in self._find(name_or_path)[0].files)

    def state(self) -> LibraryState:
        """Every folder that is searched, with the room its models take and what is wrong with it."""
        listed = self._scan()
        with self._lock:
            seen = self._last[1] if self._last is not None else self._look()
        sight = seen.sight
        folders = []
        used_bytes = 0
        for root, listing in zip(sight.roots.searched, sight.listings, strict=True):
            entries = [entry for entry, _ in listed.values() if entry.root == root.path and entry.origin != "starter"]
            if not root.is_told and not entries and not listing.problem:
                continue
            size_bytes = sum(entry.size_bytes for entry in entries)
            used_bytes += size_bytes
            is_not_made = root.is_main and root.path not in seen.there and self._is_default(root.path)
            problem = "" if is_not_made else listing.problem
            folders.append(
                ModelFolder(
                    path=plain(str(root.path)),
                    origin=root.origin,
                    used_bytes=size_bytes,
                    free_bytes=seen.free_bytes.get(root.path, 0),
                    n_models=len(entries),
                    is_main=root.is_main,
                    problem=problem,
                )
            )
        used_bytes += sum(entry.size_bytes for entry, _ in listed.values() if entry.in_place)
        return LibraryState(tuple(folders), used_bytes, seen.free_bytes.get(self.main, 0))

    def check_silent(self, name: str) -> None:
        """For a name that is none of the models that were found. Does not look.

        Raises:
            FolderSilent: the model may be where nothing answered the last time anyone looked.
        """
        if self._looker.silent:
            raise FolderSilent(
                f"No model called {plain(name)[:200]!r} is found, but {plain(words_for(self._looker.silent))}",
                path=plain(self._looker.silent[0]),
                retry_after_s=RETRY_SILENT_S,
            )

    @property
    def main(self) -> Path:
        """Where downloads and imports arrive."""
        return main_folder(self._folder, self._options)

    def load_record(self, model_id: str) -> LoadRecord | None:
        """Planned against actual of the last load of a model; `None` if it was never loaded.

        Raises:
            StorageFault: if the catalogue cannot be read.
        """
        return self.records.load(model_id) if self.records is not None else None

    # --- changes ------------------------------------------------------------------------------------------

    def set_options(self, options: ModelsOptions) -> None:
        """Look where these say from now on; a move to the new main folder is finished."""
        with self._lock:
            self._options = options
            if self._around is None:
                self._around = Surroundings.here()
            self._finish_move()

    def record_arrival(self, paths: Sequence[Path], sha256: Sequence[str], repo: str = "") -> str:
        """Files that we put there and whose hashes were checked ("" unknown): downloads, quantized models.

        Returns:
            The id of the model they are or belong to; "" if there is none (a projector alone).

        Raises:
            StorageFault: if a file is gone.
        """
        with self._lock:
            for path, hash_ in zip(paths, sha256, strict=True):
                file = look_at(path)
                if file is None:
                    raise StorageFault(f"{plain(path.name)} is gone.", path=plain(str(path)))
                self._table.note_ours(file, hash_, is_checked=True, repo=repo)
        wanted = set(paths)
        for entry, model in self._scan().values():
            if any(file.path in wanted for file in entry.files):
                return model.id
        return ""

    def verify(self, name_or_path: str, report: Report = ignore, is_cancelled: IsCancelled = never) -> str:
        """Check every file of a model against its hash; remembers what was found.

        Returns:
            A sentence for a person.

        Raises:
            HashMismatch: if a file is damaged. Details: `path`, `expected`, `found`.
            StorageFault: if a file cannot be read, or changed meanwhile.
            ModelNotFound: as `find`.
            Cancelled: when told to stop.
        """
        entry, _ = self._find(name_or_path)
        expected = verify.expected_hashes(entry)
        checks = verify.check_files(entry.all_files, expected, report, is_cancelled)
        with self._lock:
            for check in checks:
                self._table.note_hash(check.file, check.sha256, check.verified)
            settle(self._table, [check.file for check in checks])
            self._last = None
        announced = any(
            entry.expected.get(file.path) or ((known := entry.known.get(file.path)) is not None and known.expected)
            for file in entry.all_files
        )
        return verify.sentence(checks, were_announced=announced)

    def remove(self, name_or_path: str) -> RemoveAnswer:
        """Move a model's files to the trash. One that was brought in where it is, is only listed no more.

        Prompts stored for it are deleted.

        Raises:
            NotAllowed: if its files belong to another program.
            StorageFault: if a file cannot be moved.
            ModelNotFound: as `find`.
        """
        entry, model = self._find(name_or_path)
        if entry.in_place:
            with self._lock:
                self._table.drop_in_place([file.path for file in entry.all_files])
                self._last = None
            remove_states(self._folder.states, model.path)
            return RemoveAnswer(0, (), in_trash=False)
        importing.check_may_move(entry)
        files = list(entry.files)
        if entry.projector is not None:
            others = (other for other, _ in self._scan().values() if other.path != entry.path)
            in_use = {other.projector.path for other in others if other.projector is not None}
            if entry.projector.path not in in_use:
                with self._lock:
                    files += [file for file in (entry.projector, *entry.spares) if self._is_own(file, entry)]
        try:
            answer = remove_files(files, entry.root, self._to_trash)  # not locked: a trash on another disk takes long
        finally:
            with self._lock:
                self._last = None
        with self._lock:
            self._table.forget([file.path for file in files])
        remove_states(self._folder.states, model.path)
        return answer

    def import_path(
        self,
        path: str,
        how: importing.ImportHow = "copy",
        report: Report = ignore,
        is_cancelled: IsCancelled = never,
    ) -> str:
        """Bring a model file, or every model below a folder, into the library.

        Args:
            path: of a file (with its other parts and projector) or a folder.
            how: `copy` and `move` put them below the main folder; `use_in_place` lists them where they are.
            report: hears how far it is.
            is_cancelled: asked whether to stop.

        Returns:
            A sentence for a person.

        Raises:
            BadRequest: if there is no model.
            NotGguf, FileTruncated, ModelLoadFailed: if the one file named cannot be loaded.
            NotAllowed, DiskFull, StorageFault, HashMismatch, Cancelled: as `importing.bring`.
        """
        source = Path(path).expanduser()
        entries = self._importable(source)
        with self._lock:
            main = self.main
            there = {file.identity for entry, _ in self._scan().values() for file in entry.files}
        if how == "use_in_place":
            fresh = [entry for entry in entries if any(file.identity not in there for file in entry.files)]
            with self._lock:
                self._table.add_in_place([file.path.absolute() for entry in fresh for file in entry.all_files])
                self._last = None
            return f"Listed {_named(fresh)} without copying." if fresh else f"Already listed: {_named(entries)}."
        coming = [entry for entry in entries if not is_below(entry.files[0].real, os.path.realpath(main))]
        if not coming:
            return f"Already in the models folder: {_named(entries)}."
        brought = importing.bring(coming, main, how, report, is_cancelled)
        with self._lock:
            for one in brought:
                self._table.note_ours(one.file, one.sha256, is_checked=one.was_announced)
            self._last = None
        return f"{'Moved' if how == 'move' else 'Copied'} {_named(coming)} to {plain(str(main))}."

    def move_main(self, path: str, report: Report = ignore, is_cancelled: IsCancelled = never) -> str:
        """Put all own files of the main folder below another one. The caller then saves the new main folder.

        What was copied is deleted from the old folder by the `set_options` that names the new one. After a failure
        both folders are searched, and the same call goes on.

        Returns:
            A sentence for a person.

        Raises:
            BadRequest, DiskFull, StorageFault: see `moving`.
            Cancelled: when told to stop; all is as before.
        """
        source, target = self.main, Path(path).expanduser()
        moving.check_target(source, target)
        with self._lock:
            entries = [entry for entry, _ in self._scan().values() if entry.root == source and entry.origin in OWN]
            files = [file for entry in entries for file in (*entry.all_files, *entry.spares)]
            files += moving.files_along(source)
        unique = list({file.path: file for file in files}.values())
        before = {file.path: self._table.at(file.path) for file in unique}
        try:
            done = moving.move(unique, moving.Move(source, target), self._moves, report, is_cancelled)
        finally:
            with self._lock:
                self._last = None
        with self._lock:
            for old, (file, sha256) in done.items():
                self._table.note_moved(file, before[old], sha256)
        return f"Moved {_named(entries)} to {plain(str(target))}."

    # --- inside -------------------------------------------------------------------------------------------

    def _roots(self) -> Roots:
        opened = self._moves.open
        also = [] if opened is None else [opened.source, opened.target]
        return find_roots(self._folder, self._options, self._around, also)

    def _look(self) -> Seen:
        roots, silent = self._answering_roots()
        return look(self._looker, roots, self._table.in_place(), self._starter_path, silent)

    def _answering_roots(self) -> tuple[Roots, tuple[str, ...]]:
        """Where to look, and what did not answer when that was found out."""
        self._roots_lane.begin()
        answer = self._roots_lane.finish(time.monotonic())
        if answer.value is not None:
            return answer.value, answer.silent
        # Not even where to look could be found out; the main folder's lane says why.
        return Roots((Root(self.main, "deskside", is_main=True),), ()), answer.silent

    def _scan(self) -> Listed:
        with self._lock:
            try:
                self._table.refresh()
                used_s = self.records.used_s() if self.records is not None else {}
            except StorageFault as fault:
                _log.warning("the catalogue could not be read: %s", fault.message)
                used_s = {}
            seen = self._look()
            sight = self._without_moved(seen.sight)
            seen = replace(seen, sight=sight)
            marker = (sight, used_s, self._table.revision)
            is_read_now = any(is_lasting(reading) for reading in seen.readings.values())
            if self._last is not None and self._last[0] == marker and not is_read_now:
                self._last = (marker, seen, self._last[2])
                return self._last[2]
            self._reader.offer(seen.readings)
            entries = entries_of(sight, self._reader)
            listed = list_models(entries, self._starter_path, used_s)
            for entry, model in listed.values():
                self._table.note_model(entry.path, model.id)
            settle(self._table, sight.files)
            self._last = ((sight, used_s, self._table.revision), seen, listed)
            return listed

    def _without_moved(self, sight: Sight) -> Sight:
        """While a move is open, files are listed where the whole of them is: in the folder that is in use."""
        opened = self._moves.open
        if opened is None:
            return sight
        hidden = self._moves.copies() if self.main == opened.source else self._moves.originals()
        return sight.without(lambda file: file.path in hidden)

    def _find(self, name_or_path: str) -> tuple[Entry, InstalledModel]:
        listed = self._scan()
        found = lookup.by_name(name_or_path, (model for _, model in listed.values()))
        if found is not None:
            return listed[found.id]
        if self._looker.is_silent(name_or_path):
            self.check_silent(name_or_path)
        path, is_file, is_there = lookup.as_path(name_or_path)
        if not is_file:
            self.check_silent(name_or_path)
            raise lookup.not_found(name_or_path, path, (model for _, model in listed.values()), is_there=is_there)
        absolute = path.absolute()
        for entry, model in listed.values():
            if any(file.path == absolute for file in entry.files):
                return entry, model
        file = look_at(absolute)
        if file is None:
            raise ModelNotFound(f"There is no model file {plain(name_or_path)}.", model=plain(name_or_path))
        for entry, model in listed.values():
            if entry.files[0].identity == file.identity:
                return entry, model
        with self._lock:
            entry = self._entry_at(file)
        return entry, describe(entry, {model.id for _, model in listed.values()})

    def _entry_at(self, file: DiskFile) -> Entry:
        beside = [one for one in walk(file.path.parent).files if one.path.parent == file.path.parent]
        if file.path not in {one.path for one in beside}:
            beside.append(file)  # its name does not end as a model's does
        return entry_at(file, beside, self._answering_roots()[0], self._reader)

    def _importable(self, source: Path) -> list[Entry]:
        if source.is_dir():
            with self._lock:
                roots = Roots((Root(source.absolute(), "folder"),), self._answering_roots()[0].foreign)
                seen = look(Looker(self._table.has_reading), roots, (), None)
                self._reader.offer(seen.readings)
                entries = entries_of(seen.sight, self._reader)
            usable = [
                entry
                for entry in entries
                if entry.fault() is None
                and (facts := entry.facts()) is not None
                and facts.kind in ("chat", "embedding")
            ]
            if not usable:
                if seen.sight.listings[0].problem:
                    raise StorageFault(seen.sight.listings[0].problem, path=plain(str(source)))
                raise BadRequest(
                    f"There is no whole GGUF model in {plain(str(source))}.",
                    hint="Choose another folder.",
                    param="path",
                )
            return usable
        if not source.is_file():
            raise BadRequest(f"There is no file {plain(str(source))}.", hint="Choose a GGUF file.", param="path")
        entry, _ = self._find(str(source))
        fault = entry.fault()
        if fault is not None:
            raise fault
        return [entry]

    def _is_own(self, file: DiskFile, entry: Entry) -> bool:
        known = self._table.get(file)
        is_ours = known is not None and known.is_ours
        return self._answering_roots()[0].owner(file.real, entry.origin, is_ours=is_ours) in OWN

    def _is_default(self, path: Path) -> bool:
        return path == self._folder.models

    def _finish_move(self) -> None:
        """Bring a move that is open to its end: forwards when the new folder is in use, else back to the start."""
        opened = self._moves.open
        if opened is None:
            return
        try:
            if self.main == opened.target:
                self._moves.finish()
            else:
                self._moves.take_back()
        except RuntimeFault as fault:
            _log.warning("the move of the models folder could not be brought to its end: %s", fault.message)
        self._last = None


def _named(entries: Sequence[Entry]) -> str:
    """`model.gguf` for one, `3 models` for several; a blob without a telling name goes by the model's."""
    if len(entries) != 1:
        return f"{len(entries)} models"
    path = entries[0].path
    return plain(path.name if path.suffix.lower() == MODEL_SUFFIX else entries[0].stem)
