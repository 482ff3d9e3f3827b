"""Which layer is on which device: llama.cpp's rule, and the packing that makes the most of it.

Units are the repeating layers 0 to `n_layer - 1` and, as the last, the output layer. llama.cpp puts the last
`n_gpu_layers` units on the devices, in runs in the order of the devices, and the units before them on the processor
(`load_tensors` in `llama-model.cpp`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.messages.load import ResolvedLoad

CPU = "CPU"


def unit_devices(n_layer: int, resolved: ResolvedLoad) -> tuple[str, ...]:
    """The device of every unit.

    llama.cpp divides in 32-bit floats; so does this, since a share may fall exactly on a border.
    """
    n_units = n_layer + 1
    devices = resolved.devices
    n_gpu = min(resolved.n_gpu_layers, n_units) if devices else 0
    if not n_gpu:
        return (CPU,) * n_units
    shares = list(resolved.tensor_split[: len(devices)])
    shares += [0.0] * (len(devices) - len(shares))
    if not any(shares):
        shares = [1.0] * len(devices)
    ends = np.cumsum(np.asarray(shares, dtype=np.float32), dtype=np.float32)
    ends = ends / ends[-1]
    at = np.arange(n_gpu, dtype=np.float32) / np.float32(n_gpu)
    chosen = np.minimum(np.searchsorted(ends, at, side="right"), len(devices) - 1)
    return (CPU,) * (n_units - n_gpu) + tuple(devices[index] for index in chosen.tolist())


def units_on(n_layer: int, resolved: ResolvedLoad) -> dict[str, int]:
    """How many units each device holds; devices without any are left out."""
    counts: dict[str, int] = {}
    for name in unit_devices(n_layer, resolved):
        counts[name] = counts.get(name, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Room:
    """What a device can take: `units_bytes` for units, and `output_bytes` less when it holds the output layer."""

    units_bytes: int
    output_bytes: int = 0


def pack(unit_bytes: Sequence[int], rooms: Sequence[Room]) -> tuple[int, ...] | None:
    """Units on each device, filled in order with as many as it can take; None when some are left over.

    The last device that takes any is the one with the output layer.
    """
    counts: list[int] = []
    at, n_units = 0, len(unit_bytes)
    for room in rooms:
        left, start = room.units_bytes, at
        while at < n_units:
            need = unit_bytes[at] + (room.output_bytes if at == n_units - 1 else 0)
            if need > left:
                break
            left -= unit_bytes[at]
            at += 1
        counts.append(at - start)
    return tuple(counts) if at == n_units else None


def pack_even(unit_bytes: Sequence[int], rooms: Sequence[Room]) -> tuple[int, ...] | None:
    """As `pack`, but no device is fuller than it must be: for devices that are about as fast as each other."""
    if pack(unit_bytes, rooms) is None:
        return None
    low, high = 0.0, 1.0
    for _step in range(12):  # finer than one layer of any model
        middle = (low + high) / 2
        tried = [Room(int(room.units_bytes * middle), room.output_bytes) for room in rooms]
        if pack(unit_bytes, tried) is None:
            low = middle
        else:
            high = middle
    return pack(unit_bytes, [Room(int(room.units_bytes * high), room.output_bytes) for room in rooms])
