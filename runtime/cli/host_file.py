"""Which host runs on a data folder, and what is asked of it."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import psutil

from runtime.host.ownership import read_host_file
from runtime.messages.api import HostFile
from runtime.paths import DataFolder

if TYPE_CHECKING:
    from runtime.client.host_client import HostClient

_CONNECT_TIMEOUT_S = 2.0

Offline = TypeVar("Offline")


def running_host(data: DataFolder) -> HostFile | None:
    """The host of this folder, if it lives and listens.

    A host that was killed leaves its file behind, and its process number may belong to another program since.
    """
    host = read_host_file(data)
    if host is None or not psutil.pid_exists(host.pid):
        return None
    try:
        place = urlsplit(host.address)
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=_CONNECT_TIMEOUT_S):
            return host
    except (OSError, ValueError):
        return None


@contextlib.asynccontextmanager
async def host_or(
    data: DataFolder, offline: Callable[[DataFolder], contextlib.AbstractAsyncContextManager[Offline]]
) -> "AsyncIterator[HostClient | Offline]":
    """The host of this folder, or where none runs what does the same to the folder itself."""
    host = running_host(data)
    if host is None:
        async with offline(data) as stand_in:
            yield stand_in
        return
    from runtime.client.host_client import HostClient  # late: most commands need none

    async with HostClient(host.address, host.token) as client:
        yield client
