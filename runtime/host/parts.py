"""What a host stands on, and the real ones.

Importing this costs little: the library, the hub and the hardware drivers are imported when they are made, the hub only
when something asks for it, since start-up to the first window waits for the host.
"""

import logging
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
from runtime.kept_secrets import Keyring
from runtime.options import ModelsOptions
from runtime.paths import DataFolder

log = logging.getLogger(__name__)

OurPids = Callable[[], tuple[int, ...]]


class Probe(DryRunner, Devices, Protocol):
    """Both, and it can be ended."""

    async def close(self) -> None:
        """End its process."""
        ...


@dataclass(frozen=True, slots=True)
class LibraryParts:
    """What is on disk, what was learnt, and the hub that adds to it.

    `make_hub` and `has_downloads` (whether the run before left any) run in a thread.
    """

    files: Files
    records: Store
    make_hub: MakeHub
    has_downloads: Callable[[], bool]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class HostParts:
    """What differs between a real host and one in a test.

    Attributes:
        make_library: is given the options as they are saved.
        make_sampler: runs in the telemetry thread; is given the process ids that count as ours.
        on_worker_line: gets a model's id and a line of its worker's log.
        prober: asks llama.cpp what loads would take, and for its devices.
        measure: the quick measurement of speeds; None does not measure.
        keyring: keeps the secrets of tool servers; None is the system's.
    """

    make_library: Callable[[ModelsOptions], LibraryParts]
    make_sampler: Callable[[OurPids], Sampler]
    on_worker_line: Callable[[str, str], None]
    prober: Probe
    measure: MeasureSpeed | None
    keyring: Keyring | None = None


def real_parts(config: HostConfig, logs: HostLogs) -> HostParts:
    """The parts of a host that serves a person."""
    from runtime.hardware import HardwareSampler
    from runtime.host.measuring import SpeedMeasure
    from runtime.host.prober import Prober

    return HostParts(
        make_library=lambda options: real_library(config.data, options),
        make_sampler=lambda our_pids: HardwareSampler(our_pids=our_pids),
        on_worker_line=logs.worker_line,
        prober=Prober(),
        measure=SpeedMeasure(),
    )


def real_library(data: DataFolder, options: ModelsOptions) -> LibraryParts:
    """The library of this data folder."""
    from runtime.library.catalogue import Catalogue
    from runtime.library.folder import Library
    from runtime.library.records import Records

    catalogue = Catalogue(data.catalogue_file)
    if catalogue.problem:
        log.warning("%s", catalogue.problem)
    library = Library(data, options, catalogue)

    def make_hub(options: ModelsOptions, told: DownloadsTold) -> HubParts:
        from runtime.library.downloads.downloads import Downloads
        from runtime.library.hub.headers import HeaderCache
        from runtime.library.hub.hub import Hub

        hub = Hub(data, options, installed=library.installed)
        downloads = Downloads(
            data,
            catalogue,
            hub,
            options,
            on_change=told,
            on_arrived=lambda arrival: library.record_arrival(arrival.paths, arrival.sha256, arrival.repo),
        )
        return HubParts(hub, downloads, HeaderCache(data.headers, hub))

    def has_downloads() -> bool:
        from runtime.library.downloads.record import Store

        return bool(Store(catalogue).load())

    return LibraryParts(library, library.records or Records(catalogue), make_hub, has_downloads, catalogue.close)
