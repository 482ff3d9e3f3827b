"""The hub and downloads, for the event loop.

The real parts import a large library, so they are made in a thread on first use, never while the host starts.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.errors import BadRequest, HostUnreachable
from runtime.host.subjects import Remote
from runtime.messages.api import DownloadsChanged, HostEvent
from runtime.messages.library import (
    Download,
    DownloadRequest,
    HubAccount,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
)
from runtime.options import ModelsOptions

log = logging.getLogger(__name__)


class HubSource(Protocol):
    """The hub. Blocking: called in a thread."""

    def search(self, request: HubSearch) -> HubPage:
        """One page of results."""
        ...

    def picks(self) -> HubPage:
        """The built-in catalogue."""
        ...

    def model(self, request: HubModelRequest) -> HubModel:
        """One repository."""
        ...

    def account(self) -> HubAccount:
        """Who is signed in."""
        ...

    def sign_in(self, token: str) -> HubAccount:
        """Sign in, or out with an empty token."""
        ...

    def configure(self, options: ModelsOptions) -> None:
        """Take over changed options."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class DownloadQueue(Protocol):
    """Downloads, with threads of their own. Blocking: called in a thread, but for `all`."""

    def start(self) -> None:
        """Go on with what ran when the program last ended."""
        ...

    def configure(self, options: ModelsOptions) -> None:
        """Take over changed options."""
        ...

    def all(self) -> tuple[Download, ...]:
        """All that were not cleared, oldest first; asks nobody."""
        ...

    def add(self, request: DownloadRequest) -> Download:
        """Queue one; asks the hub for the files."""
        ...

    def pause(self, download_id: str) -> Download:
        """Keep what was fetched."""
        ...

    def resume(self, download_id: str) -> Download:
        """Go on."""
        ...

    def cancel(self, download_id: str) -> None:
        """Delete what was fetched."""
        ...

    def clear(self, download_id: str) -> None:
        """Take an ended one off the list."""
        ...

    def hold(self) -> None:
        """Stop all transfers and start none until `release`, while the folder moves."""
        ...

    def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        """Go on after `hold`."""
        ...

    def close(self) -> None:
        """Stop; running ones go on at the next start."""
        ...


class HeaderSource(Protocol):
    """Headers of remote files. Blocking: called in a thread."""

    def fetch(self, repo: str, file: str, revision: str = "main") -> Remote:
        """Headers of all parts of a quantization and of its projector, as sparse files."""
        ...


@dataclass(frozen=True, slots=True)
class HubParts:
    """What the service works on."""

    hub: HubSource
    downloads: DownloadQueue
    headers: HeaderSource


DownloadsTold = Callable[[tuple[Download, ...]], None]
"""Called on any thread with all downloads, at most four times a second."""

MakeHub = Callable[[ModelsOptions, DownloadsTold], HubParts]

WARM_UP_AFTER_S = 2.0
"""Downloads of the run before go on so long after the start: the window comes first."""


class HubService:
    """Home: the event loop."""

    def __init__(
        self,
        make: MakeHub,
        options: Callable[[], ModelsOptions],
        send: Callable[[HostEvent], None],
        *,
        has_downloads: Callable[[], bool],
        on_done: Callable[[], None],
    ) -> None:
        """Make nothing yet.

        Args:
            make: is called in a thread when something is first asked for.
            options: as they are now.
            send: gets events.
            has_downloads: whether the run before left downloads; called in a thread.
            on_done: called when a download has arrived.
        """
        self._has_downloads = has_downloads
        self._on_done = on_done
        self._make = make
        self._options = options
        self._send = send
        self._parts: asyncio.Task[HubParts] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._is_closed = False
        self.latest: tuple[Download, ...] = ()
        """All downloads, as last told."""

    async def parts(self) -> HubParts:
        """The real parts, made on the first call.

        Raises:
            HostUnreachable: the host is ending.
        """
        if self._is_closed:
            raise HostUnreachable("Deskside is ending.", hint="Start it again.", address="")
        if self._parts is None:
            self._parts = asyncio.create_task(self._made(), name="make the hub")
        try:
            return await asyncio.shield(self._parts)
        except Exception:
            self._parts = None  # tried again next time
            raise

    async def _made(self) -> HubParts:
        loop = asyncio.get_running_loop()

        def told(downloads: tuple[Download, ...]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                loop.call_soon_threadsafe(self._take, downloads)

        def make() -> HubParts:
            parts = self._make(self._options(), told)
            parts.downloads.start()
            return parts

        parts = await asyncio.to_thread(make)
        self._take(parts.downloads.all())
        return parts

    def _take(self, downloads: tuple[Download, ...]) -> None:
        if downloads != self.latest:
            done_before = {one.id for one in self.latest if one.state == "done"}
            self.latest = downloads
            if any(one.state == "done" and one.id not in done_before for one in downloads):
                self._on_done()
            self._send(DownloadsChanged(downloads))

    def start(self) -> None:
        """Go on with the downloads of the run before, a little later."""
        self._warming = asyncio.create_task(self._warm_up(), name="go on with downloads")

    async def _warm_up(self) -> None:
        await asyncio.sleep(WARM_UP_AFTER_S)
        try:
            if await asyncio.to_thread(self._has_downloads):
                await self.parts()
        except Exception as error:  # whoever asks for it is told; the host goes on
            log.exception("the hub could not be made", exc_info=error)

    async def configure(self) -> None:
        """Take over changed options, if anything was made by the old ones."""
        if self._parts is not None:
            parts = await self.parts()
            await asyncio.to_thread(parts.hub.configure, self._options())
            await asyncio.to_thread(parts.downloads.configure, self._options())

    async def close(self) -> None:
        """Stop the downloads; they go on at the next start."""
        self._is_closed = True
        if self._warming is not None:
            self._warming.cancel()
        if self._parts is not None:
            with contextlib.suppress(Exception):
                parts = await self._parts
                await asyncio.to_thread(parts.downloads.close)
                await asyncio.to_thread(parts.hub.close)

    # --- the hub ------------------------------------------------------------------------------------------

    async def search(self, request: HubSearch) -> HubPage:
        """One page of results."""
        return await asyncio.to_thread((await self.parts()).hub.search, request)

    async def picks(self) -> HubPage:
        """The built-in catalogue."""
        return await asyncio.to_thread((await self.parts()).hub.picks)

    async def model(self, request: HubModelRequest) -> HubModel:
        """One repository."""
        return await asyncio.to_thread((await self.parts()).hub.model, request)

    async def headers(self, repo: str, file: str, revision: str) -> Remote:
        """Headers of a quantization."""
        return await asyncio.to_thread((await self.parts()).headers.fetch, repo, file, revision)

    async def account(self) -> HubAccount:
        """Who is signed in."""
        return await asyncio.to_thread((await self.parts()).hub.account)

    async def sign_in(self, token: str) -> HubAccount:
        """Sign in, or out with an empty token."""
        return await asyncio.to_thread((await self.parts()).hub.sign_in, token.strip())

    # --- downloads ----------------------------------------------------------------------------------------

    async def downloads(self) -> tuple[Download, ...]:
        """All that were not cleared."""
        return (await self.parts()).downloads.all()

    async def download(self, request: DownloadRequest) -> Download:
        """Queue one; the one that is there already if it is the same."""
        return await asyncio.to_thread((await self.parts()).downloads.add, request)

    async def pause(self, download_id: str) -> Download:
        """Keep what was fetched."""
        return await asyncio.to_thread((await self.parts()).downloads.pause, download_id)

    async def resume(self, download_id: str) -> Download:
        """Go on."""
        return await asyncio.to_thread((await self.parts()).downloads.resume, download_id)

    async def cancel(self, download_id: str) -> Download:
        """Stop it and delete what was fetched; the answer is how it stood.

        Raises:
            BadRequest: there is no such download.
        """
        downloads = (await self.parts()).downloads
        before = _named(downloads, download_id)
        await asyncio.to_thread(downloads.cancel, download_id)
        return before

    async def hold(self) -> None:
        """Stop all transfers for now: the folder moves."""
        await asyncio.to_thread((await self.parts()).downloads.hold)

    async def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        """Go on after `hold`; those that wrote below `moved_from` go on below `moved_to`."""
        downloads = (await self.parts()).downloads
        await asyncio.to_thread(lambda: downloads.release(moved_from=moved_from, moved_to=moved_to))

    async def clear(self, download_id: str) -> Download:
        """Take an ended one off the list; the answer is how it stood.

        Raises:
            BadRequest: there is no such download, or it is still on the way.
        """
        downloads = (await self.parts()).downloads
        before = _named(downloads, download_id)
        await asyncio.to_thread(downloads.clear, download_id)
        return before


def _named(downloads: DownloadQueue, download_id: str) -> Download:
    for download in downloads.all():
        if download.id == download_id:
            return download
    raise BadRequest("There is no such download.", hint="It may have been cleared already.", param="id")
