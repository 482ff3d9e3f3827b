"""Where the host of a data folder says it is, read without loading an HTTP client."""

import msgspec
import psutil

from runtime.messages.api import HostFile
from runtime.paths import DataFolder


def read_host_file(data: DataFolder) -> HostFile | None:
    """The file of the running host; `None` when there is none (a host that was killed leaves its file behind)."""
    try:
        return msgspec.json.decode(data.host_file.read_bytes(), type=HostFile)
    except (OSError, msgspec.DecodeError):
        return None


def running_host(data: DataFolder) -> HostFile | None:
    """The host of this folder, if the process its file names still lives."""
    host = read_host_file(data)
    return host if host is not None and psutil.pid_exists(host.pid) else None
