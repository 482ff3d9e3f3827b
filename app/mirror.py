"""What the host last told, kept by applying its events. No Qt here."""

import enum

import msgspec

from runtime.messages.api import (
    ApiChanged,
    ApiState,
    DownloadsChanged,
    HardwareChanged,
    HostEvent,
    InstalledChanged,
    InstalledModel,
    JobChanged,
    LoadedModel,
    ModelChanged,
    ModelGone,
    NodesChanged,
    Notice,
    Snapshot,
    Status,
    ToolsChanged,
)
from runtime.messages.fit import NodeInfo
from runtime.messages.hardware import HardwareSample
from runtime.messages.library import Download, Job
from runtime.messages.tools import ToolServerInfo

MAX_JOBS = 64
"""Most jobs remembered; finished ones go first, the oldest of them first."""


class Part(enum.Flag):
    """Which parts an event changed."""

    NONE = 0
    MODELS = enum.auto()
    INSTALLED = enum.auto()
    HARDWARE = enum.auto()
    API = enum.auto()
    DOWNLOADS = enum.auto()
    JOBS = enum.auto()
    NODES = enum.auto()
    TOOLS = enum.auto()
    ALL = MODELS | INSTALLED | HARDWARE | API | DOWNLOADS | JOBS | NODES | TOOLS


class Mirror:
    """The host's state as of the last event. The host stays its owner; nothing here is written but by events."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.installed: tuple[InstalledModel, ...] = ()
        self.hardware: HardwareSample | None = None
        self.downloads: tuple[Download, ...] = ()
        self.jobs: tuple[Job, ...] = ()
        self.nodes: tuple[NodeInfo, ...] = ()
        self.tool_servers: tuple[ToolServerInfo, ...] = ()

    @property
    def loaded(self) -> tuple[LoadedModel, ...]:
        """Models that have, get or had a worker, in the order they came."""
        return self.status.models if self.status else ()

    @property
    def api(self) -> ApiState | None:
        """The public API switch."""
        return self.status.api if self.status else None

    def apply(self, event: HostEvent) -> Part:
        """Take an event in; events before the first snapshot are passed over."""
        if isinstance(event, Snapshot):
            self.status = event.status
            self.installed = event.installed
            self.hardware = event.hardware
            self.downloads = event.downloads
            self.jobs = event.jobs[-MAX_JOBS:]
            self.nodes = event.nodes
            self.tool_servers = event.tool_servers
            return Part.ALL
        if self.status is None:
            return Part.NONE
        match event:
            case ModelChanged(model):
                known = any(one.id == model.id for one in self.status.models)
                models = (
                    tuple(model if one.id == model.id else one for one in self.status.models)
                    if known
                    else (*self.status.models, model)
                )
                self.status = msgspec.structs.replace(self.status, models=models)
                return Part.MODELS
            case ModelGone(model_id):
                models = tuple(one for one in self.status.models if one.id != model_id)
                self.status = msgspec.structs.replace(self.status, models=models)
                return Part.MODELS
            case ApiChanged(api):
                self.status = msgspec.structs.replace(self.status, api=api)
                return Part.API
            case Notice():
                return Part.NONE
            case _:
                return self._apply_part(event)

    def _apply_part(
        self, event: InstalledChanged | HardwareChanged | DownloadsChanged | JobChanged | NodesChanged | ToolsChanged
    ) -> Part:
        match event:
            case InstalledChanged(installed):
                self.installed = installed
                return Part.INSTALLED
            case HardwareChanged(sample):
                self.hardware = sample
                return Part.HARDWARE
            case DownloadsChanged(downloads):
                self.downloads = downloads
                return Part.DOWNLOADS
            case JobChanged(job):
                self.jobs = _with_job(self.jobs, job)
                return Part.JOBS
            case NodesChanged(nodes):
                self.nodes = nodes
                return Part.NODES
            case ToolsChanged(tool_servers):
                self.tool_servers = tool_servers
                return Part.TOOLS


def _with_job(jobs: tuple[Job, ...], changed: Job) -> tuple[Job, ...]:
    """The jobs with one of them replaced, or added as the newest."""
    if any(one.id == changed.id for one in jobs):
        return tuple(changed if one.id == changed.id else one for one in jobs)
    kept = [*jobs, changed]
    while len(kept) > MAX_JOBS:
        oldest = next((one for one in kept if one.state != "running"), kept[0])
        kept.remove(oldest)
    return tuple(kept)
