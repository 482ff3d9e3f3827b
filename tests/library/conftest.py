from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from send2trash.exceptions import TrashPermissionError

from runtime.library.catalogue import Catalogue
from runtime.library.folder import Library
from runtime.messages.api import InstalledModel
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.library.model_files import put_model, surroundings


class Trash:
    """A folder that takes what is thrown away; `refuses` stands for a disk without a trash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refuses = False
        folder.mkdir()

    def __call__(self, path: str) -> None:
        if self.refuses:
            raise TrashPermissionError(path)
        Path(path).rename(self.folder / f"{len(self.names)}-{Path(path).name}")

    @property
    def names(self) -> list[str]:
        return sorted(path.name.split("-", 1)[1] for path in self.folder.iterdir())


@dataclass
class Shelf:
    """A data folder, a home with other programs in it, and libraries that look at them."""

    home: Path
    data: DataFolder
    trash: Trash
    options: ModelsOptions = ModelsOptions()  # noqa: RUF009 - frozen
    opened: list[Catalogue] = field(default_factory=list)

    def library(self, platform: str = "linux") -> Library:
        catalogue = Catalogue(self.data.catalogue_file)
        self.opened.append(catalogue)
        return Library(
            self.data,
            self.options,
            catalogue,
            starter_path=self.home / "no starter.gguf",
            around=surroundings(self.home, platform),
            to_trash=self.trash,
        )

    def with_options(self, **changes: object) -> None:
        self.options = msgspec.structs.replace(self.options, **changes)

    def put(self, *parts: str, **options: object) -> Path:
        return put_model(self.data.models.joinpath(*parts), **options)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    data = DataFolder(tmp_path / "data ü")
    data.ensure()
    home = tmp_path / "home"
    home.mkdir()
    made = Shelf(home, data, Trash(tmp_path / "trash"))
    yield made
    for catalogue in made.opened:
        catalogue.close()


@pytest.fixture
def rows() -> Callable[[Library], dict[str, InstalledModel]]:
    return lambda library: {model.id: model for model in library.installed()}
