"""Small files that are replaced as a whole, so that a crash or a full disk leaves the old one."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write beside the target and replace it, so that it is whole or as it was.

    Args:
        path: the target; its folder is made where it is missing.
        content: what to write.
        private: readable by this person alone (POSIX mode 0600).

    Raises:
        OSError: disk full, no permission.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, raw_beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    beside = Path(raw_beside)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if not private and os.name != "nt":
            beside.chmod(0o644)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
