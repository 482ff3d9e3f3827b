"""What the probes print, as one line of JSON on standard output."""

import msgspec


class DeviceReport(msgspec.Struct, frozen=True):
    """A device of llama.cpp. Memory in bytes; an integrated GPU may report 0 of both."""

    name: str
    description: str
    is_gpu: bool
    free_bytes: int
    total_bytes: int


class EngineReport(msgspec.Struct, frozen=True):
    """The engine that is installed. `features` are the processor features it was compiled to use, such as AVX2."""

    version: str
    devices: tuple[DeviceReport, ...]
    features: tuple[str, ...]
    can_offload: bool
