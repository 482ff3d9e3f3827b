"""What a plan is about: a file on disk, or one of the hub of which only the header is here.

Shapes come from headers, which take up to some hundred milliseconds to read; they are kept while the files stay as they
are.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from runtime.errors import BadRequest, ModelLoadFailed, StorageFault
from runtime.gguf.architecture import ModelShape
from runtime.gguf.facts import read_facts
from runtime.gguf.parts import part_paths, read_shape
from runtime.messages.api import InstalledModel
from runtime.messages.fit import PlanTarget
from runtime.messages.library import HubFile, HubModel
from runtime.options import LoadOptions

MAX_SHAPES = 64
"""Shapes kept; one takes some ten kilobytes."""


class Remote(Protocol):
    """A quantization of the hub whose headers are here as sparse files (`runtime.library.hub.headers`)."""

    @property
    def model(self) -> HubModel:
        """The page."""
        ...

    @property
    def file(self) -> HubFile:
        """The quantization."""
        ...

    @property
    def paths(self) -> tuple[Path, ...]:
        """One sparse file a part."""
        ...

    @property
    def projector(self) -> Path | None:
        """The projector's sparse file."""
        ...

    @property
    def fetched_bytes(self) -> int:
        """What had to be fetched."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as a plan needs it.

    Attributes:
        label: id, or `repo/file`.
        path: its first file, whole or sparse.
        revision: changes when the files do.
        projector: path of the picture or sound part; None without one.
        whole_rows: rows of a picture that must be read in one micro-batch (`runtime.gguf.facts.ProjectorFacts`).
        model_id: as installed; "" for one of the hub.
        fetched_bytes: what had to be fetched for it just now.
    """

    label: str
    shape: ModelShape
    path: Path
    revision: str
    projector: Path | None = None
    projector_bytes: int = 0
    whole_rows: int = 0
    model_id: str = ""
    fetched_bytes: int = 0


class Subjects:
    """Finds them. Home: the event loop; reading happens in threads."""

    def __init__(
        self,
        find: Callable[[str], InstalledModel],
        fetch: Callable[[str, str, str], Awaitable[Remote]],
    ) -> None:
        """`find` blocks (id or path); `fetch` gets a quantization's headers by repository, file and revision."""
        self._find = find
        self._fetch = fetch
        self._shapes: OrderedDict[tuple[str, str], ModelShape] = OrderedDict()

    async def of(self, target: PlanTarget) -> Subject:
        """What this target means.

        Raises:
            BadRequest: it names nothing, or both kinds.
            RuntimeFault: no such model or file, or its header cannot be read.
        """
        if bool(target.model) == bool(target.repo):
            raise BadRequest("Name a model, or a repository and a file.", param="target")
        if target.model:
            return await self.installed(await asyncio.to_thread(self._find, target.model))
        if not target.file:
            raise BadRequest("Name a file of the repository.", param="file")
        return await self.remote(await self._fetch(target.repo, target.file, target.revision))

    async def installed(self, model: InstalledModel) -> Subject:
        """A model on disk.

        Raises:
            RuntimeFault: its header cannot be read.
        """
        projector = Path(model.projector) if model.projector else None
        return await self._subject(model.id, Path(model.path), projector, model_id=model.id)

    async def remote(self, remote: Remote) -> Subject:
        """A model of the hub whose headers are here.

        Raises:
            RuntimeFault: they cannot be read.
        """
        label = f"{remote.model.entry.repo}/{remote.file.name}"
        return await self._subject(label, remote.paths[0], remote.projector, fetched_bytes=remote.fetched_bytes)

    async def _subject(
        self, label: str, path: Path, projector: Path | None, *, model_id: str = "", fetched_bytes: int = 0
    ) -> Subject:
        def read() -> Subject:
            try:
                revision = _revision(path)
                return Subject(
                    label,
                    self._shape(path, revision),
                    path,
                    revision,
                    *_projector(projector),
                    model_id,
                    fetched_bytes,
                )
            except OSError as error:
                raise StorageFault(f"{path.name} cannot be read: {error.strerror or error}.", path=str(path)) from error

        return await asyncio.to_thread(read)

    async def with_options(self, subject: Subject, options: LoadOptions) -> Subject:
        """The same model with the projector that the options choose.

        Raises:
            RuntimeFault: its header cannot be read.
        """
        own = str(subject.projector) if subject.projector is not None else ""
        chosen = options.projector_beside(own)
        if chosen == own:
            return subject
        path, size_bytes, rows = await asyncio.to_thread(_projector, Path(chosen) if chosen else None)
        return replace(subject, projector=path, projector_bytes=size_bytes, whole_rows=rows)

    def _shape(self, path: Path, revision: str) -> ModelShape:
        key = (str(path), revision)
        shape = self._shapes.pop(key, None) or read_shape(path)
        self._shapes[key] = shape
        while len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)
        return shape


def _projector(path: Path | None) -> tuple[Path | None, int, int]:
    """A projector's path, size and `whole_rows`; what is wrong with its content shows in the dry run."""
    if path is None:
        return None, 0, 0
    try:
        facts = read_facts(path).projector
        return path, path.stat().st_size, facts.whole_rows if facts is not None else 0
    except ModelLoadFailed:
        return path, path.stat().st_size, 0
    except OSError as error:
        raise StorageFault(f"{path.name} cannot be read: {error.strerror or error}.", path=str(path)) from error


def _revision(path: Path) -> str:
    stamps = (os.stat(part) for part in part_paths(path))  # noqa: PTH116 - one call, no Path made twice
    return " ".join(f"{stamp.st_size}.{stamp.st_mtime_ns}" for stamp in stamps)
