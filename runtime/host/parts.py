"""What a host stands on, and the real ones.

Importing this costs little: the library, the hub and the hardware drivers are imported when they are made, the hub only
when something asks for it, since start-up to the first window waits for the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.host.config import HostConfig
from runtime.host.hub_service import DownloadsTold, HubParts, MakeHub
from runtime.host.library_service import Files
from runtime.host.logs import HostLogs
from runtime.host.machine import Devices, MeasureSpeed
from runtime.host.planner_service import DryRunner
from runtime.host.speed_log import Store
from runtime.host.telemetry import Sampler
from runtime.options import ModelsOptions

OurPids = Callable[[], tuple[int, ...]]


class Probe(DryRunner, Devices, Protocol):
    """Both, and it can be ended."""

    async def close(self) -> None:
        """End its process."""
        ...


@dataclass(frozen=True, slots=True)
class HostParts:
    """What differs between a real host and one in a test.

    Attributes:
        files: what is on disk.
        make_sampler: runs in the telemetry thread; is given the process ids that count as ours.
        on_worker_line: gets a model's id and a line of its worker's log.
        make_hub: runs in a thread, on first use.
        prober: asks llama.cpp what loads would take, and for its devices.
        records: what loads and answers taught.
        measure: the quick measurement of speeds; None does not measure.
    """

    files: Files
    make_sampler: Callable[[OurPids], Sampler]
    on_worker_line: Callable[[str, str], None]
    make_hub: MakeHub
    prober: Probe
    records: Store
    measure: MeasureSpeed | None


def real_parts(config: HostConfig, logs: HostLogs) -> HostParts:
    """The parts of a host that serves a person."""
    from runtime.hardware import HardwareSampler
    from runtime.host.plain_files import PlainFiles
    from runtime.host.prober import Prober
    from runtime.library.catalogue import Catalogue
    from runtime.library.folder import Library
    from runtime.library.records import Records

    catalogue = Catalogue(config.data.catalogue_file)

    def make_hub(options: ModelsOptions, on_change: DownloadsTold) -> HubParts:
        raise NotImplementedError

    return HostParts(
        files=PlainFiles(Library(config.data)),
        make_sampler=lambda our_pids: HardwareSampler(our_pids=our_pids),
        on_worker_line=logs.worker_line,
        make_hub=make_hub,
        prober=Prober(),
        records=Records(catalogue),
        measure=None,
    )
