"""The library as the host sees it, for commands that do without a host."""

import contextlib
from collections.abc import Iterator

from runtime.host.settings import saved_models_options
from runtime.library.catalogue import Catalogue
from runtime.library.folder import Library
from runtime.paths import DataFolder


@contextlib.contextmanager
def saved_library(data: DataFolder) -> Iterator[Library]:
    """All folders and programs that the saved settings name, with what the catalogue knows of their files."""
    with contextlib.closing(Catalogue(data.catalogue_file)) as catalogue:
        yield Library(data, saved_models_options(data.settings_file), catalogue)
