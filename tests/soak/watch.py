"""What a long run does to the processes: memory and open files, as slopes of time."""

import contextlib
import statistics
from collections.abc import Sequence

import msgspec
import psutil

MIB = 2**20
MAX_POINTS = 400
"""Of a process; when more were taken, every second one is dropped, so that slopes stay cheap."""


class Trend(msgspec.Struct, frozen=True):
    """A quantity over the later part of a process's life."""

    name: str
    first: float
    last: float
    slope_per_min: float
    minutes: float


class Watched:
    """One process, read now and then. Times are seconds of the monotonic clock."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._process = psutil.Process(pid)
        self._memory: list[tuple[float, float]] = []
        self._files: list[tuple[float, float]] = []

    def read(self, now_s: float) -> None:
        """Take a reading; one of a process that is gone takes none."""
        with contextlib.suppress(psutil.Error):
            self._memory.append((now_s, private_bytes(self._process) / MIB))
            self._files.append((now_s, float(open_files(self._process))))
        if len(self._memory) > MAX_POINTS:
            self._memory, self._files = self._memory[::2], self._files[::2]

    def trends(self, warm_up_s: float) -> tuple[Trend, ...]:
        """Memory (MiB) and open files after the warm-up; nothing of a life that was too short to tell."""
        found = (
            trend(f"{self.name}: {what}", [point for point in points if point[0] >= points[0][0] + warm_up_s])
            for what, points in (("MiB", self._memory), ("open files", self._files))
            if points
        )
        return tuple(one for one in found if one is not None)


def private_bytes(process: psutil.Process) -> int:
    """Memory that is the process's own: mapped weights come and go with the system's file cache."""
    info = process.memory_info()
    return int(info.rss - getattr(info, "shared", 0))


def open_files(process: psutil.Process) -> int:
    """File descriptors, or handles on Windows."""
    if hasattr(process, "num_fds"):
        return int(process.num_fds())
    return int(process.num_handles())  # type: ignore[attr-defined,unused-ignore] # Windows only


def trend(name: str, points: Sequence[tuple[float, float]]) -> Trend | None:
    """Median of all slopes between two points (Theil and Sen): single peaks, such as a long prompt, do not show."""
    if len(points) < 5:
        return None
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] > earlier[0]
    ]
    third = max(1, len(points) // 3)
    return Trend(
        name=name,
        first=statistics.median(value for _, value in points[:third]),
        last=statistics.median(value for _, value in points[-third:]),
        slope_per_min=60 * statistics.median(slopes),
        minutes=(points[-1][0] - points[0][0]) / 60,
    )
