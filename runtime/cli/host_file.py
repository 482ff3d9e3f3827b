"""Which host runs on a data folder."""

import socket
from urllib.parse import urlsplit

import psutil

from runtime.host.ownership import read_host_file
from runtime.messages.api import HostFile
from runtime.paths import DataFolder

_CONNECT_TIMEOUT_S = 2.0


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
