"""What the probes are asked and what they print, one line of JSON each."""

import msgspec

from runtime.errors import Failure
from runtime.messages.fit import Measured
from runtime.messages.load import ComputeDevice, ResolvedLoad


class DeviceReport(msgspec.Struct, frozen=True):
    """A device of llama.cpp. Memory in bytes; an integrated GPU may report 0 of both."""

    name: str
    description: str
    is_gpu: bool
    free_bytes: int
    total_bytes: int


class EngineReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The engine that is installed. `features` are the processor features it was compiled to use, such as AVX2.

    `compute` are the devices a model can be put on, in llama.cpp's order with the processor last; `nodes` that were
    asked for are among them, and those that did not answer are in `problems`, by address.
    """

    version: str
    devices: tuple[DeviceReport, ...]
    features: tuple[str, ...]
    can_offload: bool
    compute: tuple[ComputeDevice, ...] = ()
    problems: dict[str, str] = {}


class DryRun(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Load this file without allocating, and say what it would take.

    Attributes:
        path: the GGUF file, of a split model its first part. Only its header is read: of a file that is not here a
            sparse file with the header (`runtime.gguf.sparse`) serves as well.
        resolved: the load to try.
        projector: path of the projector (`mmproj`) to count too; empty is none.
        revision: changes when the file at `path` does; the model kept from the dry run before is used again only
            while path and revision are the same.
    """

    path: str
    resolved: ResolvedLoad
    projector: str = ""
    revision: str = ""


class ListDevices(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """List the devices, those of these nodes (`host:port`) included."""

    nodes: tuple[str, ...] = ()


ProbeRequest = DryRun | ListDevices


class DryRunAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Either `measured` or `failure`. `took_s` is the probe's own time."""

    measured: Measured | None = None
    failure: Failure | None = None
    took_s: float = 0.0


class DevicesAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Answer to `ListDevices`."""

    report: EngineReport


ProbeAnswer = DryRunAnswer | DevicesAnswer
