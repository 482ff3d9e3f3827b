"""All downloads: which wait, which run, what they fetched."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.library.hub.hub import Hub
from runtime.messages.library import Download, DownloadRequest
from runtime.options import ModelsOptions
from runtime.paths import DataFolder


@dataclass(frozen=True, slots=True)
class Arrival:
    """Files that arrived whole: `paths` in order (projector last), with the checked hash of each ("" unknown)."""

    repo: str
    quantization: str
    paths: tuple[Path, ...]
    sha256: tuple[str, ...]


class Downloads:
    """Runs up to `options.max_downloads` at once; the others wait in order. Home thread: any (locked).

    State is in the catalogue, so that a new start goes on where the last one ended, however it ended.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: DataFolder,
        catalogue: object,
        hub: Hub,
        options: ModelsOptions,
        *,
        on_change: Callable[[tuple[Download, ...]], None] = lambda _: None,
        on_arrived: Callable[[Arrival], str] = lambda _: "",
    ) -> None:
        """Read what is remembered; nothing runs before `start`.

        Args:
            folder: `folder.models`, or `options.main_folder`, is where files arrive.
            catalogue: `runtime.library.catalogue.Catalogue`.
            hub: where files come from.
            options: `max_downloads` and `main_folder` are read.
            on_change: called on a thread of ours with all downloads, at most four times a second.
            on_arrived: called on a thread of ours before a download is done; answers the model's id.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Go on with what ran or waited when the program last ended."""
        raise NotImplementedError

    def configure(self, options: ModelsOptions) -> None:
        """Take over a changed number of downloads or main folder (for downloads added from now on)."""
        raise NotImplementedError

    def all(self) -> tuple[Download, ...]:
        """Every download, oldest first. Asks nobody: may be called on an event loop."""
        raise NotImplementedError

    def add(self, request: DownloadRequest) -> Download:
        """Queue one; the one that is already there if it is the same. Blocks on the hub.

        Raises:
            HubNotFound, HubRefused, HubOffline, HubFault: as the hub answered.
            DiskFull: if it cannot fit beside what is already on the way.
            StorageFault: if another file of that name is in the way, or the folder cannot be written.
            BadRequest: if too many wait already.
        """
        raise NotImplementedError

    def pause(self, download_id: str) -> Download:
        """Stop, keeping what was fetched; one that is done stays done.

        Raises:
            BadRequest: if there is no such download.
        """
        raise NotImplementedError

    def resume(self, download_id: str) -> Download:
        """Queue a paused or failed one again; after HubChanged or HashMismatch it starts from zero.

        Raises:
            BadRequest: if there is no such download.
        """
        raise NotImplementedError

    def cancel(self, download_id: str) -> None:
        """Stop it, delete what was fetched, forget it. An unknown id is no error."""
        raise NotImplementedError

    def clear(self, download_id: str) -> None:
        """Forget one that is done or failed (with what a failed one left). "" forgets all that are done.

        Raises:
            BadRequest: if it is still on the way.
        """
        raise NotImplementedError

    def hold(self) -> None:
        """Stop all transfers and start none until `release`, while the folder moves. Waits until no file is open."""
        raise NotImplementedError

    def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        """Go on after `hold`; downloads that wrote below `moved_from` go on below `moved_to`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all transfers; what ran goes on at the next start. Idempotent."""
        raise NotImplementedError
