"""Every error of the runtime, as one tree whose branches say whose fault it was.

::

    RuntimeFault
    ├── CallerFault                 the request was wrong (4xx)
    │   ├── BadRequest              400  a field is missing, of the wrong type or out of range
    │   ├── ContextExceeded         400  the prompt is longer than the model's context
    │   ├── TemplateRefused         400  the chat template itself refused the messages
    │   ├── NotAuthorized           401  no key, or a wrong one
    │   ├── NotAllowed              403  Host, Origin or switch forbid it
    │   ├── ModelNotFound           404  no model of that name is on disk
    │   ├── NoSuchRoute             404
    │   ├── ResponseNotFound        404  an answer or an item of one is not kept (any more)
    │   │   └── PreviousNotFound    400  ... which a request would go on with
    │   ├── NotSupported            501
    │   ├── PayloadTooLarge         413
    │   └── Busy                    429  the queue is full; says when to come back
    │       └── LimitReached             an API key's holder has taken what it may
    ├── WorldFault                  the machine or a file was not as needed (5xx)
    │   ├── ModelLoadFailed         500
    │   │   ├── NotGguf         400      the file is not a GGUF file: whoever named it must name another
    │   │   ├── FileTruncated            the file ends before its tensors do
    │   │   ├── UnknownArchitecture      this llama.cpp does not know the model's kind
    │   │   └── NotEnoughMemory          an allocation failed while loading
    │   ├── ModelLoading            503  the model is still being loaded
    │   ├── WorkerDied              503  the process that ran the model ended
    │   ├── GenerationFailed        500  llama.cpp refused a batch
    │   ├── HostUnreachable         503  no Deskside host answers
    │   ├── AlreadyRunning          503  another Deskside uses this data folder
    │   ├── StorageFault            500  disk full, no permission, damaged file
    │   │   └── DiskFull            507  not enough room
    │   └── HubFault                502  the model hub did not answer as it should
    │       ├── HubOffline          503  it cannot be reached, or offline was chosen
    │       ├── HubRefused          403  gated, private or a wrong token
    │       ├── HubNotFound         404  no such repository, revision or file
    │       ├── HubChanged          409  the file is not the one the download began with
    │       └── HashMismatch        502  the bytes are not the ones the hub announced
    └── BugFault                    500  ours: a rule of this program was broken

An error crosses a process or HTTP as a `Failure` (see `to_failure` and `from_failure`), never pickled.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

FieldValue = str | int | float | bool

ENGINE_QUOTE = " llama.cpp says: "
"""What follows it in a message is a line of llama.cpp's log; a person reads it, other programs do not get it."""

WORKER_LOG = "What it printed last is in logs/worker.log of Deskside's data folder, on the machine it runs on."


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as a value: what crosses a process border.

    Attributes:
        kind: class name in this module's tree.
        message: one sentence for a person: what happened and why.
        hint: one sentence on what to do; may be empty.
        status: HTTP status.
        details: the error's typed fields, by name.
    """

    kind: str
    message: str
    hint: str = ""
    status: int = 500
    details: dict[str, FieldValue] = {}


class RuntimeFault(Exception):
    """Base of the tree. `message` is a sentence for a person, `hint` says what to do."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, hint: str = "", **details: FieldValue) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: Mapping[str, FieldValue] = details


class CallerFault(RuntimeFault):
    """The request was wrong; sending it again unchanged cannot help."""

    status = 400
    code = "invalid_request"


class BadRequest(CallerFault):
    """A field is missing, of the wrong type or out of range. Details: `param`."""


class ContextExceeded(CallerFault):
    """The prompt does not fit. Details: `prompt_tokens`, `n_ctx`."""

    code = "context_length_exceeded"


class TemplateRefused(CallerFault):
    """The chat template raised; the message carries its own words."""

    code = "template_error"


class NotAuthorized(CallerFault):
    """No API key was sent, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class NotAllowed(CallerFault):
    """The Host or Origin header, or a switch that is off, forbids the request."""

    status = 403
    code = "not_allowed"


class ModelNotFound(CallerFault):
    """No model of that name is on disk. Details: `model`."""

    status = 404
    code = "model_not_found"


class NoSuchRoute(CallerFault):
    """The address exists in no dialect served here."""

    status = 404
    code = "not_found"


class ResponseNotFound(CallerFault):
    """An earlier answer, or an item of one, is not kept. Details: `param`."""

    status = 404
    code = "response_not_found"


class PreviousNotFound(ResponseNotFound):
    """The answer that a request goes on with is not kept; OpenAI's clients know this code. Details: `param`."""

    status = 400
    code = "previous_response_not_found"


class NotSupported(CallerFault):
    """A dialect has it, and this program does not, on purpose."""

    status = 501
    code = "not_supported_error"


class ToolNotFound(CallerFault):
    """No tool server, or no tool of a server, has this name. Details: `server`, `tool`."""

    status = 404
    code = "tool_not_found"


class BadEncoding(CallerFault):
    """The request body is compressed."""

    status = 415
    code = "unsupported_encoding"


class PayloadTooLarge(CallerFault):
    """The request body is over the limit. Details: `limit_bytes`."""

    status = 413
    code = "payload_too_large"


class Busy(CallerFault):
    """The queue is full. Details: `retry_after_s`, `waiting`."""

    status = 429
    code = "queue_full"


class LimitReached(Busy):
    """The holder of an API key has taken what it may. Details: `retry_after_s`, `limit` (its field in `KeyLimits`)."""

    code = "rate_limit_exceeded"


class WorldFault(RuntimeFault):
    """The machine, a file or another program was not as needed."""


class ModelLoadFailed(WorldFault):
    """Loading failed. Details: `path`, `reason` (llama.cpp's own words, where it gave any)."""

    code = "model_load_failed"


class NotGguf(ModelLoadFailed):
    """The file does not start as a GGUF file does. Whoever named it must name another one."""

    status = 400


class FileTruncated(ModelLoadFailed):
    """The file ends before the tensors its header promises. Details: `size_bytes`, `needed_bytes`."""


class UnknownArchitecture(ModelLoadFailed):
    """The built-in llama.cpp does not know this architecture. Details: `architecture`."""


class NotEnoughMemory(ModelLoadFailed):
    """An allocation failed while loading. Details: `needed_bytes` and `free_bytes` where known."""


class ModelLoading(WorldFault):
    """The model is being loaded. Details: `percent`."""

    status = 503
    code = "model_loading"


class WorkerDied(WorldFault):
    """The model's process ended. Details: `exit_code` or `signal`, `last_lines` of its log."""

    status = 503
    code = "worker_died"


class GenerationFailed(WorldFault):
    """llama.cpp refused a batch; other requests may go on. Details: `llama_code`."""

    code = "generation_failed"


class HostUnreachable(WorldFault):
    """No Deskside host answers at the address. Details: `address`."""

    status = 503
    code = "host_unreachable"


class AlreadyRunning(WorldFault):
    """Another Deskside uses this data folder. Details: `pid`, `address`."""

    status = 503
    code = "already_running"


class StorageFault(WorldFault):
    """Reading or writing a file failed: disk full, no permission, damaged. Details: `path`."""

    code = "storage_error"


class DiskFull(StorageFault):
    """Not enough room. Details: `path`, `needed_bytes`, `free_bytes`."""

    status = 507
    code = "disk_full"


class FolderSilent(StorageFault):
    """What is wanted may lie in a folder whose drive does not answer. Details: `path`, `retry_after_s`."""

    status = 503
    code = "folder_does_not_answer"


class HubFault(WorldFault):
    """The model hub answered with an error, or nonsense. Details: `endpoint`, `status` where known."""

    status = 502
    code = "hub_error"


class HubOffline(HubFault):
    """The hub cannot be reached, or the person chose to stay offline. Details: `endpoint`."""

    status = 503
    code = "hub_offline"


class HubRefused(HubFault):
    """The repository is gated or private, or the token is wrong. Details: `repo`, `needs_token`."""

    status = 403
    code = "hub_refused"


class HubNotFound(HubFault):
    """No such repository, revision or file. Details: `repo`."""

    status = 404
    code = "hub_not_found"


class HubChanged(HubFault):
    """The file on the hub is another one than the one the download began with. Details: `repo`, `file`."""

    status = 409
    code = "hub_changed"


class HashMismatch(HubFault):
    """The bytes that came, or that are on disk, are not the announced ones. Details: `path`, `expected`, `found`."""

    code = "hash_mismatch"


class ToolServerFault(WorldFault):
    """A tool server cannot be started or reached, or was lost during a call. Details: `server`."""

    status = 502
    code = "tool_server_error"


class BugFault(RuntimeFault):
    """A rule of this program was broken; worth a report."""

    code = "internal_error"


def _tree(root: type[RuntimeFault]) -> dict[str, type[RuntimeFault]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


KINDS: Mapping[str, type[RuntimeFault]] = _tree(RuntimeFault)
"""Every class of the tree by name."""


def to_failure(error: BaseException) -> Failure:
    """Turn an error into the value that crosses a border; an error from outside the tree becomes a bug."""
    if isinstance(error, RuntimeFault):
        return Failure(
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint,
            status=error.status,
            details=dict(error.details),
        )
    return Failure(
        kind=BugFault.__name__,
        message=f"Something inside Deskside went wrong: {type(error).__name__}: {error}",
        hint="Please report this with the log file (deskside doctor shows where it is).",
        status=BugFault.status,
    )


def from_failure(failure: Failure) -> RuntimeFault:
    """Rebuild the error; a kind this version does not know becomes a plain `RuntimeFault`."""
    kind = KINDS.get(failure.kind, RuntimeFault)
    return kind(failure.message, hint=failure.hint, **failure.details)
