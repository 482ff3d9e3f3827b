"""Quantities for people, and the one place that asks for the time of day.

Memory and files are shown in base 1000 with SI names (GB), as download pages and disks do; llama.cpp's own
log lines use MiB, which only the engine's diagnostics repeat.
"""

import datetime as _datetime
import time as _time

_STEPS = ("B", "kB", "MB", "GB", "TB", "PB")


def now() -> float:
    """Seconds since the epoch, wall clock. Durations use `time.monotonic` instead."""
    return _time.time()


def now_local() -> _datetime.datetime:
    """The local time of day with its zone."""
    return _datetime.datetime.now().astimezone()


def local_date(at_s: float) -> _datetime.date:
    """The local day of a time in seconds since the epoch."""
    return _datetime.datetime.fromtimestamp(at_s).astimezone().date()


def format_bytes(size_bytes: float | None) -> str:
    """`98362432` -> `98.4 MB`; `None` -> `not available`."""
    if size_bytes is None:
        return "not available"
    size = float(size_bytes)
    for step in _STEPS[:-1]:
        if abs(size) < 999.5:  # noqa: PLR2004 - the value that still prints as three digits
            return f"{size:.0f} {step}" if step == "B" or abs(size) >= 100 else f"{size:.1f} {step}"  # noqa: PLR2004
        size /= 1000
    return f"{size:.1f} {_STEPS[-1]}"


def format_count(count: float | None) -> str:
    """`134515008` -> `135M`; `4096` -> `4,096`; `None` -> `not available`."""
    if count is None:
        return "not available"
    for limit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= limit:
            scaled = count / limit
            return f"{scaled:.1f}{name}" if scaled < 10 else f"{scaled:.0f}{name}"  # noqa: PLR2004
    return f"{count:,.0f}"


def format_duration(duration_s: float | None) -> str:
    """`0.0123` -> `12 ms`; `3.21` -> `3.2 s`; `75` -> `1 min 15 s`; `None` -> `not available`."""
    if duration_s is None:
        return "not available"
    if duration_s < 1:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 60:  # noqa: PLR2004
        return f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_speed(speed_tps: float | None) -> str:
    """Tokens a second: `131.4` -> `131 tok/s`; `8.25` -> `8.3 tok/s`; `None` -> `not available`."""
    if speed_tps is None:
        return "not available"
    return f"{speed_tps:.0f} tok/s" if speed_tps >= 100 else f"{speed_tps:.1f} tok/s"  # noqa: PLR2004
