"""Host <-> its own clients (window, terminal): the private admin API.

JSON over HTTP on the private listener, `Authorization: Bearer <token>` from `host.json`. Errors are a `Failure`
with its status. Streams are server-sent events whose `data` is one tagged struct of the unions below.

==============================  ==================================================================
GET    /admin/status            `Status`
GET    /admin/events            stream of `HostEvent`; begins with one `Snapshot`
GET    /admin/models            list of `InstalledModel`
POST   /admin/models/load       `LoadRequest` -> `LoadedModel` at once (202); progress comes as events
POST   /admin/models/unload     `UnloadRequest` -> 204
POST   /admin/chat              `ChatRequest` -> stream of `ChatEvent`; closing it cancels
POST   /admin/count             `CountRequest` -> `CountAnswer`
GET    /admin/hardware          `HardwareSample`
GET    /admin/api               `ApiState`
PUT    /admin/api               `ApiOptions` -> `ApiState` (starts, stops or moves the public listener)
POST   /admin/keys              `NewKey` -> `NewKeyAnswer` (the key is shown this once)
PUT    /admin/keys/{name}       `KeyLimits` -> `ApiKeyInfo`; they hold for the next request
DELETE /admin/keys/{name}       `ApiState`; what runs with the key is ended, and `problem` says what ends with it
GET    /admin/requests          list of `RequestInfo`, newest last: running ones and the last finished ones
POST   /admin/requests/cancel   `CancelRequest` -> 204
GET    /admin/models/options    `ModelsOptions`; PUT the same -> `ModelsOptions`
POST   /admin/models/settings   `ModelRequest` -> `LoadOptions` remembered for it; automatic stays automatic
PUT    /admin/models/settings   `ModelSettings` -> 204
POST   /admin/models/record     `ModelRequest` -> `LoadRecord` of its last load, or null
POST   /admin/plan              `PlanRequest` -> `MemoryPlan`
GET    /admin/machine           `Machine`; POST measures its speed anew
GET    /admin/nodes             list of `NodeInfo`; POST / DELETE `NodeRequest` -> the same list
GET    /admin/library           `LibraryState`
POST   /admin/library/folders   `FolderRequest` -> `LibraryState`; DELETE the same
POST   /admin/library/move      `MoveRequest` -> `Job`
POST   /admin/library/import    `ImportRequest` -> `Job`
POST   /admin/library/verify    `ModelRequest` -> `Job`
POST   /admin/library/remove    `ModelRequest` -> `RemoveAnswer`
POST   /admin/library/quantize  `QuantizeRequest` -> `Job`; `/preview` -> `QuantizePreview`
GET    /admin/jobs              list of `Job`, newest last; POST /admin/jobs/cancel `JobRequest` -> 204
POST   /admin/hub/search        `HubSearch` -> `HubPage`
GET    /admin/hub/picks         `HubPage`: the built-in catalogue, works offline
POST   /admin/hub/model         `HubModelRequest` -> `HubModel`
POST   /admin/hub/verdicts      `VerdictRequest` -> `Verdicts`
GET    /admin/hub/account       `HubAccount`; PUT `HubToken` -> `HubAccount`
GET    /admin/downloads         list of `Download`; POST `DownloadRequest` -> `Download`
POST   /admin/downloads/pause   `JobRequest` -> `Download`; also /resume, /cancel (deletes what was fetched), /clear
GET    /admin/tools             `ToolsState`: the tool servers with their states and tools
POST   /admin/tools/servers     `ToolServerConfig` -> `ToolServerInfo`; PUT `ToolServerChange` -> the same
DELETE /admin/tools/servers     `ToolServerRequest` -> 204
POST   /admin/tools/import      `ToolServersText` (the `mcpServers` JSON of other programs) -> `ToolsState`
POST   /admin/tools/test        `ToolServerConfig` -> `ToolServerInfo`, tried without being kept
POST   /admin/tools/start       `ToolServerRequest` -> `ToolServerInfo` once it can be used; /restart does it anew
POST   /admin/tools/sign-in     `ToolServerRequest` -> `SignInBegun`; /sign-in/cancel -> 204 waits no longer
POST   /admin/tools/sign-out    `ToolServerRequest` -> `ToolServerInfo`
POST   /admin/tools/log         `ToolServerRequest` -> `ToolServerLog`
POST   /admin/tools/call        `ToolCallRequest` -> stream of `ToolCallEvent`; closing it cancels
POST   /admin/shutdown          204, then the host ends
GET    /admin/openapi.json      all of this, for machines
==============================  ==================================================================
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from runtime.errors import Failure
from runtime.messages.fit import MemoryPlan, NodeInfo
from runtime.messages.hardware import HardwareSample
from runtime.messages.library import Download, Job, Origin
from runtime.messages.load import DeviceMemory
from runtime.messages.shared import (
    AnswerShape,
    DeltaKind,
    FinishReason,
    Message,
    ModelFacts,
    Timings,
    ToolCallHead,
    Usage,
)
from runtime.messages.tools import ToolServerInfo
from runtime.options import ApiOptions, GenerateOptions, KeyLimits, LoadOptions

ModelKind = Literal["chat", "embedding", "projector", "other"]
ModelState = Literal["loading", "ready", "restarting", "failed", "unloading"]
RequestState = Literal["loading", "queued", "prompt", "generating", "finished", "cancelled", "failed"]
"""`loading`: waits for its model; `prompt`: its prompt is being read."""


class HostFile(msgspec.Struct, frozen=True):
    """Contents of `run/host.json`: how to reach the private listener."""

    address: str
    token: str
    pid: int
    version: str


class InstalledModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model on disk. `id` is what the API calls it; `problem` says why it cannot be loaded, if so.

    `path` is the first file; `size_bytes` counts all `n_files` with the projector. `used_s` is when it was last loaded
    (seconds since 1970, 0 never); `verified` what the last check of its hash found.
    """

    id: str
    name: str
    path: str
    size_bytes: int
    kind: ModelKind = "chat"
    publisher: str = ""
    architecture: str = ""
    quantization: str = ""
    n_params: int | None = None
    n_ctx_train: int | None = None
    n_layer: int | None = None
    licence: str = ""
    starter: bool = False
    created_s: float = 0.0
    problem: str = ""
    origin: Origin = "deskside"
    is_vision: bool = False
    projector: str = ""
    bits_per_weight: float = 0.0
    used_s: float = 0.0
    n_files: int = 1
    verified: Literal["", "ok", "bad"] = ""


class EngineSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """Live figures of a loaded model, once a second while it generates and once when it comes to rest.

    Of the `draft_tokens` guessed since it was loaded, `draft_accepted` were what came.
    """

    generation_tps: float = 0.0
    prompt_tps: float = 0.0
    active: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_total: int = 0
    resident_bytes: int = 0
    step_age_s: float = 0.0
    decode_share: float = 0.0
    draft_tokens: int = 0
    draft_accepted: int = 0


class LoadedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that has, gets or had a worker. `fraction` is the load progress, 0..1.

    `plan` is what the load followed, `actual` what it then took; `unload_at_s` when it goes for being idle (seconds
    since 1970), None never.
    """

    id: str
    name: str
    state: ModelState
    fraction: float = 0.0
    stage: str = ""
    facts: ModelFacts | None = None
    options: LoadOptions = LoadOptions()
    failure: Failure | None = None
    engine: EngineSample = EngineSample()
    pid: int | None = None
    restarts: int = 0
    plan: MemoryPlan | None = None
    actual: tuple[DeviceMemory, ...] = ()
    unload_at_s: float | None = None


class ApiKeyInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key by name; the key itself is never told again.

    Its use is as of when it was asked for: `ApiChanged` is sent when keys change, not when they are used.

    Attributes:
        name: unique.
        created_s: seconds since 1970.
        limits: what its holder may take.
        used_s: when it was last used, seconds since 1970; 0 never.
        n_requests: requests to models since it was made.
        n_running: of them, running and waiting now.
        n_tokens: read and written since it was made.
        n_tokens_today: the same since midnight; what `tokens_per_day` bounds.
    """

    name: str
    created_s: float
    limits: KeyLimits = KeyLimits()
    used_s: float = 0.0
    n_requests: int = 0
    n_running: int = 0
    n_tokens: int = 0
    n_tokens_today: int = 0


class Certificate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person compares with what a program or browser shows of the server.

    Attributes:
        fingerprint: SHA-256 of the certificate, as `AB:CD:...`.
        expires_s: seconds since 1970; our own is made anew before.
        names: host names and addresses it is for.
        file: path of the PEM file, to hand to programs that shall trust it.
        is_own: made by us, so programs must be told to trust it.
    """

    fingerprint: str
    expires_s: float
    names: tuple[str, ...] = ()
    file: str = ""
    is_own: bool = False


Dialect = Literal["openai", "responses", "anthropic", "ollama", "llama.cpp"]


class ApiState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public API as it is now.

    Attributes:
        options: as chosen.
        running: whether it answers.
        addresses: base URLs that answer, without `/v1`; https ones with TLS.
        keys: in order of making.
        problem: why it is not on although it is enabled; a sentence, "" without one.
        certificate: what TLS shows; None without TLS.
        dialects: what it speaks.
    """

    options: ApiOptions
    running: bool
    addresses: tuple[str, ...] = ()
    keys: tuple[ApiKeyInfo, ...] = ()
    problem: str = ""
    certificate: Certificate | None = None
    dialects: tuple[Dialect, ...] = ()


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """The host at a glance."""

    version: str
    pid: int
    uptime_s: float
    data_dir: str
    models: tuple[LoadedModel, ...]
    api: ApiState


# --- requests ---------------------------------------------------------------------------------------------


class LoadRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Load a model by id or path. With `replace`, the others are unloaded first.

    `options` are remembered for this model; `None` takes those remembered last, or automatic ones. With `only`, the
    options of these names alone are meant, and the others stay as they are remembered. With `anyway` it is tried also
    where the plan says that it does not fit; once, not when it is started again later.
    """

    model: str
    options: LoadOptions | None = None
    replace: bool = True
    only: tuple[str, ...] = ()
    anyway: bool = False


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Remember these load options for an installed model."""

    model: str
    options: LoadOptions


class UnloadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unload by id."""

    model: str


class ChatRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One turn from the window or the terminal. `continue_last` goes on writing the last assistant message."""

    model: str
    messages: tuple[Message, ...]
    options: GenerateOptions = GenerateOptions()
    continue_last: bool = False
    shape: AnswerShape = AnswerShape()


class CountRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many tokens would this conversation be, tools and format of the answer included?

    Needs the model loaded; counting does not load it.
    """

    model: str
    messages: tuple[Message, ...]
    shape: AnswerShape = AnswerShape()


class CountAnswer(msgspec.Struct, frozen=True):
    """Tokens of the rendered conversation and the context they must fit in."""

    n_tokens: int
    n_ctx: int


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make an API key of this name."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[\w .-]+$")]
    limits: KeyLimits = KeyLimits()


class NewKeyAnswer(msgspec.Struct, frozen=True):
    """The new key, shown this once."""

    name: str
    key: str


class RequestInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request to a model, as the live table shows it.

    `client` is the caller's address or "window"; `key` the name of the API key it came with, "" without one.
    """

    request_id: str
    route: str
    model: str
    client: str
    state: RequestState
    started_s: float
    prompt_tokens: int = 0
    generated_tokens: int = 0
    time_to_first_token_s: float = 0.0
    generation_tps: float = 0.0
    problem: str = ""
    key: str = ""


class CancelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cancel a running request; an unknown or finished one is no error."""

    request_id: str


# --- streams ----------------------------------------------------------------------------------------------


class ChatQueued(msgspec.Struct, frozen=True, tag="queued"):
    """Waiting; `position` counts from 1."""

    position: int


class ChatProgress(msgspec.Struct, frozen=True, tag="progress", omit_defaults=True):
    """Reading the prompt. `dropped_turns` of the oldest turns were left out by the context policy."""

    done: int
    total: int
    cached: int = 0
    dropped_turns: int = 0


class ChatDelta(msgspec.Struct, frozen=True, tag="delta", omit_defaults=True):
    """New text."""

    kind: DeltaKind
    text: str
    choice: int = 0
    n_tokens: int = 0
    tool_call: ToolCallHead | None = None


class ChatFinished(msgspec.Struct, frozen=True, tag="finished", omit_defaults=True):
    """The answer is complete."""

    reasons: tuple[FinishReason, ...]
    usage: Usage
    timings: Timings
    model: str = ""


class ChatFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The answer ended with an error; what was streamed before stays."""

    failure: Failure


ChatEvent = ChatQueued | ChatProgress | ChatDelta | ChatFinished | ChatFailed


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """First event of `/admin/events`: all that later events change."""

    status: Status
    installed: tuple[InstalledModel, ...]
    hardware: HardwareSample | None = None
    downloads: tuple[Download, ...] = ()
    jobs: tuple[Job, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    tool_servers: tuple[ToolServerInfo, ...] = ()


class ModelChanged(msgspec.Struct, frozen=True, tag="model"):
    """A loaded model's state, progress or figures changed."""

    model: LoadedModel


class ModelGone(msgspec.Struct, frozen=True, tag="model_gone"):
    """A model was unloaded."""

    id: str


class InstalledChanged(msgspec.Struct, frozen=True, tag="installed"):
    """What is on disk changed."""

    installed: tuple[InstalledModel, ...]


class ApiChanged(msgspec.Struct, frozen=True, tag="api"):
    """The public API went on, off or elsewhere."""

    api: ApiState


class HardwareChanged(msgspec.Struct, frozen=True, tag="hardware"):
    """A new reading, once a second."""

    sample: HardwareSample


class DownloadsChanged(msgspec.Struct, frozen=True, tag="downloads"):
    """All downloads, at most four times a second while one runs."""

    downloads: tuple[Download, ...]


class JobChanged(msgspec.Struct, frozen=True, tag="job"):
    """A job moved on or ended."""

    job: Job


class NodesChanged(msgspec.Struct, frozen=True, tag="nodes"):
    """The nodes, or whether they can be reached."""

    nodes: tuple[NodeInfo, ...]


class ToolsChanged(msgspec.Struct, frozen=True, tag="tools"):
    """The tool servers, a state of one, or its tools."""

    tool_servers: tuple[ToolServerInfo, ...]


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """Something a person should know: a worker was restarted, a load got less than asked for."""

    level: Literal["info", "warning", "error"]
    text: str


HostEvent = (
    Snapshot
    | ModelChanged
    | ModelGone
    | InstalledChanged
    | ApiChanged
    | HardwareChanged
    | DownloadsChanged
    | JobChanged
    | NodesChanged
    | ToolsChanged
    | Notice
)
