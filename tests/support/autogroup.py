"""Processes with sessions of their own are scheduled as groups (sched(7), "The autogroup feature")."""

import contextlib
from pathlib import Path


def put_like_this_process(pid: int) -> None:
    """Give a worker, which has a session of its own, the priority of this session; nothing where there are no groups.

    So that a measurement on a shared machine, started with a raised priority, is one of all its processes.
    """
    mine, its = Path("/proc/self/autogroup"), Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError):
        its.write_text(mine.read_text(encoding="ascii").split()[-1], encoding="ascii")
