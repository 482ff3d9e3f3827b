"""What one run of the host is told: by the command line, or by the window that starts it.

Everything that outlives a run is in `runtime.host.settings`; what is given here wins over it and is not saved.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.messages.api import ApiState, HostEvent
from runtime.options import ApiOptions, LoadOptions
from runtime.paths import DataFolder


@dataclass(frozen=True, slots=True)
class HostReady:
    """The host answers. Given to `HostConfig.on_ready` once.

    Attributes:
        address: base URL of the private listener.
        version: of Deskside.
        api: the public API; its `problem` says why it is not on although it was asked for.
    """

    address: str
    version: str
    api: ApiState


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One run of the host. `None` takes what the settings say.

    Attributes:
        data: the data folder; created where it is missing.
        api_enabled: turn the public listener on or off for this run.
        api_host: address of the public listener for this run.
        api_port: port of it, 0..65535; 0 takes a free one.
        api_options: of the public API, with `api_only`: the names of those that hold for this run instead of the
            settings'.
        api_key: one more API key, for this run only.
        model: id or path of the model to load at once.
        load_last: without `model`, load the one that was loaded last.
        load_options: how to load `model`; `None` takes the options remembered for it. With `load_only`, the options
            of these names alone are meant, and the others stay as they are remembered.
        with_parent: end when standard input ends, which it does when the parent is gone, unless the person
            chose to keep the API on without a window.
        log_to_stderr: write warnings and errors to standard error beside the log file.
        worker_command: what starts a worker; `--connect HOST:PORT` is appended.
        on_ready: called once in the host's thread when both listeners are settled; must not block.
        on_event: called in the host's thread for each event; must not block. What `deskside serve` prints from.
    """

    data: DataFolder
    api_enabled: bool | None = None
    api_host: str | None = None
    api_port: int | None = None
    api_options: ApiOptions = field(default_factory=ApiOptions)
    api_only: frozenset[str] = frozenset()
    api_key: str | None = None
    model: str | None = None
    load_last: bool = False
    load_options: LoadOptions | None = None
    load_only: frozenset[str] = frozenset()
    with_parent: bool = False
    log_to_stderr: bool = True
    worker_command: tuple[str, ...] = (sys.executable, "-m", "runtime.worker")
    on_ready: Callable[[HostReady], None] | None = None
    on_event: Callable[[HostEvent], None] | None = None
