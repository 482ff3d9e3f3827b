"""The certificate that the public listener shows: opened, watched, renewed."""

import asyncio
import datetime
import ssl
from pathlib import Path

from runtime.messages.api import Certificate
from runtime.options import ApiOptions


class ApiCertificate:
    """Home: the event loop; files are read in threads."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where our own is kept."""
        self._folder = folder
        self._options = ApiOptions()
        self._seen: tuple[float, ...] = ()
        self.shown: Certificate | None = None
        """What is shown now; None without TLS."""

    async def open(self, options: ApiOptions) -> ssl.SSLContext | None:
        """The context that these options ask for, made or read; None without TLS.

        Raises:
            WorldFault: a file is missing or wrong, or ours cannot be written.
        """
        self._options = options
        self.shown = None
        if options.tls == "off":
            return None
        return await self._open()

    async def renewed(self) -> ssl.SSLContext | None:
        """A new context where the files changed or ours would soon expire, else None.

        Raises:
            WorldFault: as `open`; what was shown before stays.
        """
        if self._options.tls == "off" or not await asyncio.to_thread(self._is_stale):
            return None
        return await self._open()

    async def _open(self) -> ssl.SSLContext:
        context, shown, self._seen = await asyncio.to_thread(self._open_now, self._options)
        self.shown = shown
        return context

    def _open_now(self, options: ApiOptions) -> tuple[ssl.SSLContext, Certificate, tuple[float, ...]]:
        # Late: the library costs start-up time, and most people never encrypt.
        from runtime.host.tls import TlsFiles, ensure_own, open_files, own_files

        now = datetime.datetime.now(datetime.UTC)
        is_own = options.tls == "own"
        if is_own:
            files = own_files(self._folder)
            ensure_own(files, now)
        else:
            files = TlsFiles(Path(options.certificate_file), Path(options.key_file))
        seen = files.stamp()
        return (*open_files(files, now, is_own=is_own), seen)

    def _is_stale(self) -> bool:
        from runtime.host.tls import TlsFiles, ensure_own, own_files

        if self._options.tls == "own":
            files = own_files(self._folder)
            return ensure_own(files, datetime.datetime.now(datetime.UTC)) or files.stamp() != self._seen
        return TlsFiles(Path(self._options.certificate_file), Path(self._options.key_file)).stamp() != self._seen
