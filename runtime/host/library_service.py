"""What is on disk, for the event loop: every look and every change of files happens in a thread.

The library owns the facts; this owns who may do what when: files of a loaded model are not touched, settings are
saved before they are acted on, and everyone is told when the list changed.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from runtime.errors import BadRequest
from runtime.host.jobs import JobControl, Jobs
from runtime.host.settings import SettingsFile
from runtime.library.progress import IsCancelled, Report
from runtime.messages.api import HostEvent, InstalledChanged, InstalledModel
from runtime.messages.library import ImportRequest, Job, LibraryState, RemoveAnswer
from runtime.options import LoadOptions, ModelsOptions

ImportHow = Literal["copy", "move", "use_in_place"]
OURS = ("deskside", "folder")
"""Origins of files that we may delete."""


class Files(Protocol):
    """The library. Blocking: called in a thread. Names are ids, short names or paths."""

    def installed(self) -> tuple[InstalledModel, ...]:
        """All models on disk."""
        ...

    @property
    def main(self) -> Path:
        """The main models folder."""
        ...

    def resolve(self, name: str, /) -> InstalledModel:
        """For loading; raises `ModelNotFound`, `ModelLoadFailed`."""
        ...

    def find(self, name: str, /) -> InstalledModel:
        """Also one that cannot be loaded; raises `ModelNotFound`."""
        ...

    def check_silent(self, name: str, /) -> None:
        """For a name that is none of them; raises `FolderSilent` where it may be on a drive that does not answer."""
        ...

    def state(self) -> LibraryState:
        """Folders and room."""
        ...

    def set_options(self, options: ModelsOptions) -> None:
        """Look where these say from now on."""
        ...

    def verify(self, name: str, report: Report, is_cancelled: IsCancelled, /) -> str:
        """Check the hash; the answer is a sentence. Raises `HashMismatch`."""
        ...

    def remove(self, name: str, /) -> RemoveAnswer:
        """To the trash."""
        ...

    def import_path(self, path: str, how: ImportHow, report: Report, is_cancelled: IsCancelled, /) -> str:
        """Bring files in; the answer is a sentence."""
        ...

    def move_main(self, path: str, report: Report, is_cancelled: IsCancelled, /) -> str:
        """Move the main folder's files; the answer is a sentence."""
        ...

    def record_arrival(self, paths: Sequence[Path], sha256: Sequence[str], repo: str = "", /) -> str:
        """Note files of ours; the answer is the model's id."""
        ...


class Transfers(Protocol):
    """Downloads, which write into the main folder."""

    async def hold(self) -> None:
        """Stop all of them for now."""
        ...

    async def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        """Go on; those that wrote below `moved_from` go on below `moved_to`."""
        ...


class LibraryService:
    """Home: the event loop."""

    def __init__(
        self,
        files: Files,
        settings: SettingsFile,
        jobs: Jobs,
        *,
        send: Callable[[HostEvent], None],
        let_go: Callable[[str], Awaitable[None]],
        loaded: Callable[[], Sequence[InstalledModel]],
        transfers: Transfers,
        on_options: Callable[[], Awaitable[None]],
    ) -> None:
        """`let_go` unloads a model by id so that its files can be touched, or raises why not now."""
        self._loaded = loaded
        self._transfers = transfers
        self._files = files
        self._settings = settings
        self._jobs = jobs
        self._send = send
        self._let_go = let_go
        self._on_options = on_options

    # --- facts --------------------------------------------------------------------------------------------

    async def installed(self) -> tuple[InstalledModel, ...]:
        """All models on disk."""
        return tuple(await asyncio.to_thread(self._files.installed))

    async def state(self) -> LibraryState:
        """Folders and room."""
        return await asyncio.to_thread(self._files.state)

    async def find(self, name: str) -> InstalledModel:
        """By id, short name or path.

        Raises:
            ModelNotFound: no such model.
        """
        return await asyncio.to_thread(self._files.find, name)

    # --- settings -----------------------------------------------------------------------------------------

    @property
    def options(self) -> ModelsOptions:
        """What holds for all models."""
        return self._settings.current.models_options

    async def set_options(self, options: ModelsOptions) -> ModelsOptions:
        """Check, save and act.

        Raises:
            BadRequest: a folder that is not absolute.
            StorageFault: they could not be saved; they hold for this run.
        """
        for folder in (*options.folders, *filter(None, (options.main_folder,))):
            if not Path(folder).is_absolute():
                raise BadRequest(f"{folder!r} is not a whole path.", hint="Begin at the root.", param="folders")
        before = self.options
        try:
            self._settings.change(models_options=options)
        finally:
            if options != before:
                await asyncio.to_thread(self._files.set_options, options)
                await self._on_options()
                await self.tell_installed()
        return options

    async def settings(self, name: str) -> LoadOptions:
        """The load options remembered for a model.

        Raises:
            ModelNotFound: no such model.
        """
        return self._settings.load_options((await self.find(name)).id)

    async def remember_settings(self, name: str, options: LoadOptions) -> None:
        """Remember load options for a model; the next load uses them.

        Raises:
            ModelNotFound: no such model.
            StorageFault: they could not be saved; they hold for this run.
        """
        model = await self.find(name)
        self._settings.remember_options(model.id, options)

    # --- folders ------------------------------------------------------------------------------------------

    async def add_folder(self, path: str) -> LibraryState:
        """Search one more folder.

        Raises:
            BadRequest: it is no folder.
        """
        folder = _expanded(path)
        if not await asyncio.to_thread(folder.is_dir):
            raise BadRequest(f"{path} is not a folder.", hint="Choose a folder with GGUF files.", param="path")
        absolute = str(folder)
        if await asyncio.to_thread(_is_no_place_for_models, folder):
            raise BadRequest(
                f"{absolute} is a folder of the system, and too much to search.",
                hint="Choose the folder in which the GGUF files are.",
                param="path",
            )
        if absolute not in self.options.folders:
            await self.set_options(msgspec.structs.replace(self.options, folders=(*self.options.folders, absolute)))
        return await self.state()

    async def remove_folder(self, path: str) -> LibraryState:
        """Search it no more; nothing on disk is touched. An unknown one is no error."""
        wanted = {path, str(_expanded(path))}
        kept = tuple(folder for folder in self.options.folders if folder not in wanted)
        if kept != self.options.folders:
            await self.set_options(msgspec.structs.replace(self.options, folders=kept))
        return await self.state()

    # --- work on files ------------------------------------------------------------------------------------

    async def move_main(self, path: str) -> Job:
        """Begin to move the main folder; it is the new one from the moment the last file has arrived."""
        folder = _expanded(path)
        await self._let_go_below(self._files.main)
        move = self._jobs.in_thread(
            lambda control: self._files.move_main(str(folder), control.report, control.is_cancelled)
        )

        async def work(control: JobControl) -> str:
            before = self._files.main
            await self._transfers.hold()
            try:
                result = await move(control)
                await self.set_options(msgspec.structs.replace(self.options, main_folder=str(folder)))
            except BaseException:
                await self._transfers.release()
                raise
            await self._transfers.release(moved_from=before, moved_to=folder)
            return result

        return self._jobs.start("move", "", f"Moving models to {folder}", work)

    async def import_files(self, request: ImportRequest) -> Job:
        """Begin to bring files in."""
        path = _expanded(request.path)
        if not await asyncio.to_thread(path.exists):
            raise BadRequest(f"There is nothing at {request.path}.", hint="Choose a GGUF file.", param="path")
        bring = self._jobs.in_thread(
            lambda control: self._files.import_path(str(path), request.how, control.report, control.is_cancelled)
        )

        async def work(control: JobControl) -> str:
            result = await bring(control)
            await self.tell_installed()
            return result

        return self._jobs.start("import", "", f"Importing {path.name}", work)

    async def verify(self, name: str) -> Job:
        """Begin to check a model's hash.

        Raises:
            ModelNotFound: no such model.
        """
        model = await self.find(name)
        check = self._jobs.in_thread(lambda control: self._files.verify(model.id, control.report, control.is_cancelled))

        async def work(control: JobControl) -> str:
            try:
                return await check(control)
            finally:
                await self.tell_installed()

        return self._jobs.start("verify", model.id, f"Checking {model.name}", work)

    async def remove(self, name: str) -> RemoveAnswer:
        """Move a model's files to the trash; a loaded one is unloaded first.

        Raises:
            ModelNotFound: no such model.
            Busy: it is answering just now.
            NotAllowed: the files are another program's.
        """
        model = await self.find(name)
        if model.origin in OURS:  # else the library says why not, and the model may stay loaded
            await self._let_go(model.id)
        answer = await asyncio.to_thread(self._files.remove, model.id)
        await self.tell_installed()
        return answer

    async def _let_go_below(self, folder: Path) -> None:
        for model in self._loaded():
            if Path(model.path).is_relative_to(folder):
                await self._let_go(model.id)

    async def tell_installed(self) -> None:
        """Tell everyone what is on disk now."""
        self._send(InstalledChanged(await self.installed()))


_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/run")


def _is_no_place_for_models(folder: Path) -> bool:
    """A whole disk's top, or a folder whose files are not on any disk: reading those may never end."""
    real = folder.resolve()
    if real == Path(real.anchor):
        return True
    return os.name != "nt" and any(real.is_relative_to(system) for system in _SYSTEM_FOLDERS)


def _expanded(path: str) -> Path:
    """The whole path a person means.

    Raises:
        BadRequest: it is not one.
    """
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:  # a person who does not exist
        raise BadRequest(f"{path!r} is no path: {error}.", param="path") from None
    if not folder.is_absolute() or "\0" in path:
        raise BadRequest(f"{path!r} is not a whole path.", hint="Begin at the root.", param="path")
    return folder
