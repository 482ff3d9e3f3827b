"""The window's client of the host: the private API over QtNetwork, and a mirror of what the host tells.

Types are those of `runtime.messages.api`. Nothing here blocks; answers come by callback or signal.
"""

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from runtime.errors import Failure
from runtime.messages.api import (
    ApiState,
    ChatRequest,
    CountAnswer,
    HostFile,
    InstalledModel,
    LoadedModel,
    NewKeyAnswer,
    Status,
)
from runtime.messages.hardware import HardwareSample
from runtime.messages.shared import Message
from runtime.options import ApiOptions, LoadOptions

Failed = Callable[[Failure], None]


class ChatStream(QObject):
    """One answer on its way. Home thread: main. Deletes itself after `ended`."""

    events = Signal(list)
    """`list[ChatEvent]` in order, at most about 30 times a second. The very last event of a stream is always a
    `ChatFinished` or a `ChatFailed`, also when the host died or `cancel` was called."""

    ended = Signal()
    """After the last `events`."""

    def cancel(self) -> None:
        """Stop the answer. The last event is then a `ChatFinished` with the reason `cancelled`. Idempotent."""
        raise NotImplementedError


class HostLink(QObject):
    """Home thread: main."""

    connected = Signal()
    """The event stream is open and the mirror holds a fresh snapshot."""

    disconnected = Signal(str)
    """The host no longer answers; the sentence says why. The link tries again by itself, with growing pauses."""

    models_changed = Signal()
    """`loaded` changed: a model was loaded, unloaded, failed, or made progress."""

    installed_changed = Signal()
    """`installed` changed."""

    hardware_changed = Signal(object)
    """`HardwareSample`, once a second."""

    api_changed = Signal(object)
    """`ApiState`: the public API went on, off or elsewhere."""

    notice = Signal(str, str)
    """Level ("info", "warning", "error") and text of something the host wants said."""

    request_failed = Signal(object)
    """`Failure` of a request whose caller passed no `failed`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError

    # --- the mirror

    @property
    def is_connected(self) -> bool:
        """Whether the mirror is live."""
        raise NotImplementedError

    @property
    def status(self) -> Status | None:
        """The host at a glance, kept up to date by events; `None` before the first connection."""
        raise NotImplementedError

    @property
    def installed(self) -> tuple[InstalledModel, ...]:
        """Models on disk."""
        raise NotImplementedError

    @property
    def loaded(self) -> tuple[LoadedModel, ...]:
        """Models that have, get or had a worker."""
        raise NotImplementedError

    @property
    def hardware(self) -> HardwareSample | None:
        """The last reading."""
        raise NotImplementedError

    @property
    def api(self) -> ApiState | None:
        """The public API switch."""
        raise NotImplementedError

    def model(self, model_id: str) -> LoadedModel | None:
        """The loaded model of this id."""
        raise NotImplementedError

    # --- connection

    def attach(self, host: HostFile) -> None:
        """Talk to this host from now on."""
        raise NotImplementedError

    def detach(self) -> None:
        """Talk to no host; streams end with `ChatFailed`."""
        raise NotImplementedError

    # --- requests; without `failed`, a failure comes as `request_failed`

    def load_model(
        self, model_id: str, options: LoadOptions | None = None, *, replace: bool = True, failed: Failed | None = None
    ) -> None:
        """Load a model; progress comes as `models_changed`. With `replace` the others are unloaded first."""
        raise NotImplementedError

    def unload_model(self, model_id: str, *, failed: Failed | None = None) -> None:
        """Unload a model."""
        raise NotImplementedError

    def set_api(self, options: ApiOptions, *, failed: Failed | None = None) -> None:
        """Turn the public API on or off or move it; `api_changed` follows."""
        raise NotImplementedError

    def new_key(self, name: str, done: Callable[[NewKeyAnswer], None], *, failed: Failed | None = None) -> None:
        """Make an API key; it is shown this once."""
        raise NotImplementedError

    def delete_key(self, name: str, *, failed: Failed | None = None) -> None:
        """Delete an API key."""
        raise NotImplementedError

    def count_tokens(
        self,
        model_id: str,
        messages: tuple[Message, ...],
        done: Callable[[CountAnswer], None],
        *,
        failed: Failed | None = None,
    ) -> None:
        """Count the tokens of a conversation. Only the newest count is answered; older ones are dropped."""
        raise NotImplementedError

    def chat(self, request: ChatRequest) -> ChatStream:
        """Begin an answer; connect to the stream's signals before returning to the event loop."""
        raise NotImplementedError

    def shut_host_down(self, done: Callable[[], None]) -> None:
        """Ask the host to end; `done` when it agreed or no longer answers."""
        raise NotImplementedError
