"""Stands between the host and the library until the library can do all of it."""

import shutil

from runtime.errors import WorldFault
from runtime.host.library_service import ImportHow
from runtime.library.folder import Library
from runtime.library.progress import IsCancelled, Report
from runtime.messages.api import InstalledModel
from runtime.messages.library import LibraryState, ModelFolder, RemoveAnswer
from runtime.options import ModelsOptions


class PlainFiles:
    """Home: any thread."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.installed = library.installed
        self.resolve = library.resolve
        self.find = library.find

    def state(self) -> LibraryState:
        models: tuple[InstalledModel, ...] = self._library.installed()
        folder = self._library._models_path
        usage = shutil.disk_usage(folder if folder.exists() else folder.parent)
        used = sum(model.size_bytes for model in models)
        main = ModelFolder(str(folder), "deskside", used, usage.free, len(models), is_main=True)
        return LibraryState((main,), used, usage.free)

    def set_options(self, options: ModelsOptions) -> None:
        pass

    def verify(self, model_id: str, report: Report, is_cancelled: IsCancelled) -> str:
        raise WorldFault("Not yet.")

    def remove(self, model_id: str) -> RemoveAnswer:
        raise WorldFault("Not yet.")

    def import_path(self, path: str, how: ImportHow, report: Report, is_cancelled: IsCancelled) -> str:
        raise WorldFault("Not yet.")

    def move_main(self, path: str, report: Report, is_cancelled: IsCancelled) -> str:
        raise WorldFault("Not yet.")
