"""Headers of remote files, kept as sparse files that llama.cpp can plan with."""

from dataclasses import dataclass
from pathlib import Path

from runtime.library.hub.hub import Hub
from runtime.messages.library import HubFile, HubModel


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

    def __init__(self, folder: Path, hub: Hub) -> None:
        """Keep headers in `folder` (`DataFolder.headers`)."""
        raise NotImplementedError

    def fetch(self, repo: str, file: str, revision: str = "main", *, with_projector: bool = True) -> RemoteFile:
        """Headers of all parts of a quantization.

        Raises:
            HubNotFound, HubRefused, HubOffline, HubChanged, HubFault: as the hub answered.
            NotGguf, ModelLoadFailed: if the file is no GGUF, or its header is damaged.
            StorageFault: if the file system cannot hold sparse files, or is full.
        """
        raise NotImplementedError
