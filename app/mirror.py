"""What the host last told, kept by applying its events. No Qt here."""

import enum

import msgspec

from runtime.messages.api import (
    ApiChanged,
    ApiState,
    HardwareChanged,
    HostEvent,
    InstalledChanged,
    InstalledModel,
    LoadedModel,
    ModelChanged,
    ModelGone,
    Notice,
    Snapshot,
    Status,
)
from runtime.messages.hardware import HardwareSample


class Part(enum.Flag):
    """Which parts an event changed."""

    NONE = 0
    MODELS = enum.auto()
    INSTALLED = enum.auto()
    HARDWARE = enum.auto()
    API = enum.auto()
    ALL = MODELS | INSTALLED | HARDWARE | API


class Mirror:
    """The host's state as of the last event. The host stays its owner; nothing here is written but by events."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.installed: tuple[InstalledModel, ...] = ()
        self.hardware: HardwareSample | None = None

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
            case InstalledChanged(installed):
                self.installed = installed
                return Part.INSTALLED
            case ApiChanged(api):
                self.status = msgspec.structs.replace(self.status, api=api)
                return Part.API
            case HardwareChanged(sample):
                self.hardware = sample
                return Part.HARDWARE
            case Notice():
                return Part.NONE
