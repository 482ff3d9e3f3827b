"""Which models of the built-in catalogue a person should see first: those that suit this computer. No Qt here.

A coarse choice from parameters alone, for the order of a list; the verdict on a model comes from the planner.
"""

import re

from runtime.messages.fit import Machine
from runtime.messages.library import HubEntry

BYTES_PER_PARAMETER = 0.6125
"""Of the usual version (Q4_K_M, 4.9 bits a weight on average)."""

ROOM = 1.25
"""A model takes this much more than its file: conversation and computation."""

TARGET_TPS = 8.0
"""Tokens a second from which answers come faster than people read."""

UNKNOWN_READ_BPS = 20e9
"""Bytes a second system memory is taken to give before it was measured: two channels of slow DDR4, in practice."""

RAM_SHARE = 0.6
"""Most of the free system memory that a first model should take."""

MOST = 6

QUICK_SHARE = 4
"""The quick one has at least this part of the largest one's parameters: a toy would disappoint."""

_ACTIVE = re.compile(r"\bA(\d+(?:\.\d+)?)B\b", re.IGNORECASE)
"""Names of mixtures of experts tell the parameters used for each token: `30B A3B`."""


def active_params(entry: HubEntry) -> float:
    """Parameters read for each token; all of them when the name tells nothing else."""
    found = _ACTIVE.search(entry.name) or _ACTIVE.search(entry.repo)
    total = float(entry.n_params or 0)
    return min(total, float(found.group(1)) * 1e9) if found else total


def suits(entry: HubEntry, machine: Machine) -> bool:
    """Whether the usual version fits and answers faster than people read, as far as its parameters tell."""
    if not entry.n_params:
        return False
    size_bytes = entry.n_params * BYTES_PER_PARAMETER
    gpu_bytes = sum(one.free_bytes for one in machine.devices if one.kind == "gpu")
    if size_bytes * ROOM <= gpu_bytes:
        return True
    if size_bytes * ROOM > machine.ram_free_bytes * RAM_SHARE:
        return False
    read_bps = UNKNOWN_READ_BPS
    if machine.speed is not None and machine.speed.memory_bps:
        cpu = next((one.name for one in machine.devices if one.kind == "cpu"), "CPU")
        read_bps = machine.speed.memory_bps.get(cpu, read_bps)
    return active_params(entry) * BYTES_PER_PARAMETER * TARGET_TPS <= read_bps


def suggest(entries: tuple[HubEntry, ...], machine: Machine, most: int = MOST) -> tuple[HubEntry, ...]:
    """The largest that suit, one of each publisher and size first, and a small quick one as the last.

    Models that only serve programs (embeddings) are left to the whole list.
    """
    usable = [one for one in entries if one.kind in ("chat", "vision") and suits(one, machine)]
    usable.sort(key=lambda one: -(one.n_params or 0))
    if len(usable) <= most:
        return tuple(usable)
    first: list[HubEntry] = []
    seen: set[str] = set()
    for one in usable:
        family = one.name.split(" ")[0].casefold()
        if family not in seen:
            seen.add(family)
            first.append(one)
    rest = [one for one in usable if one not in first]
    chosen = (first + rest)[: most - 1]
    least = (usable[0].n_params or 0) / QUICK_SHARE
    quick = next((one for one in reversed(usable) if one not in chosen and (one.n_params or 0) >= least), None)
    return (*chosen, quick) if quick is not None else tuple(chosen)
