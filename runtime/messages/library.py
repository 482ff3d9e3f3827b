"""Models on disk, on the hub and on the way: what the Models page and `deskside models` show and ask.

Sizes are bytes, times seconds since 1970 where called `_s` with `at`/`created`, else durations.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from runtime.errors import Failure
from runtime.messages.fit import MemoryPlan
from runtime.options import LoadOptions

Origin = Literal["deskside", "folder", "lm_studio", "ollama", "jan", "gpt4all", "hf_cache", "starter"]
"""Whose file it is. Only files of `deskside` and `folder` are ever moved or deleted by us."""

JobKind = Literal["verify", "import", "move", "quantize"]
JobState = Literal["running", "done", "failed", "cancelled"]
DownloadState = Literal["queued", "running", "paused", "verifying", "done", "failed"]
Text = Annotated[str, Meta(max_length=4096)]


class ModelFolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One root that is searched. `problem` says why it cannot be (a drive that is not there)."""

    path: str
    origin: Origin
    used_bytes: int
    free_bytes: int
    n_models: int
    is_main: bool = False
    problem: str = ""


class LibraryState(msgspec.Struct, frozen=True):
    """Where models are, and how much room they take."""

    folders: tuple[ModelFolder, ...]
    used_bytes: int
    free_bytes: int


class FolderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add or remove a root; nothing on disk is touched."""

    path: Text


class MoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Move the main models folder there; becomes a job."""

    path: Text


class ImportRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bring a file (or every model below a folder) into the library."""

    path: Text
    how: Literal["copy", "move", "use_in_place"] = "copy"


class ModelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name an installed model by id."""

    model: Text


class RemoveAnswer(msgspec.Struct, frozen=True):
    """What was removed. `in_trash` false means the file system has no trash and it was deleted for good."""

    freed_bytes: int
    paths: tuple[str, ...]
    in_trash: bool


class QuantizeRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Make a smaller file of an installed F32, F16 or BF16 model."""

    model: Text
    quantization: Annotated[str, Meta(max_length=32)]
    n_threads: Annotated[int, Meta(ge=0, le=1024)] = 0


class QuantizePreview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the result would be, before anything is written."""

    quantization: str
    size_bytes: int
    bits_per_weight: float
    note: str
    free_bytes: int
    path: str
    plan: MemoryPlan | None = None


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """Work on files that takes a while. `fraction` is 0..1; `result` a sentence when done."""

    id: str
    kind: JobKind
    model: str
    title: str
    state: JobState
    fraction: float = 0.0
    stage: str = ""
    speed_bps: float = 0.0
    left_s: float | None = None
    started_s: float = 0.0
    result: str = ""
    failure: Failure | None = None


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name a job or download by id."""

    id: Annotated[str, Meta(max_length=64)]


# --- the hub ----------------------------------------------------------------------------------------------


class HubSearch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Search the hub for GGUF models. `cursor` continues an earlier page."""

    text: Annotated[str, Meta(max_length=256)] = ""
    sort: Literal["trending", "downloads", "likes", "updated"] = "trending"
    author: Annotated[str, Meta(max_length=96)] = ""
    architecture: Annotated[str, Meta(max_length=64)] = ""
    kind: Literal["any", "chat", "vision", "embedding"] = "any"
    max_params: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=100)] = 30
    cursor: Text = ""


class HubEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model repository in a list. `note` is ours, for staff picks."""

    repo: str
    name: str
    publisher: str
    downloads: int = 0
    likes: int = 0
    updated_s: float = 0.0
    n_params: int | None = None
    architecture: str = ""
    n_ctx_train: int | None = None
    kind: str = "chat"
    licence: str = ""
    is_gated: bool = False
    is_installed: bool = False
    note: str = ""
    size_bytes: int | None = None


class HubPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of results. `offline` says why only the built-in catalogue answered."""

    entries: tuple[HubEntry, ...]
    cursor: str = ""
    offline: str = ""


class HubFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quantization of a repository: one file, or all parts of a split one, in order.

    `sha256` has one entry a path; "" where the hub tells none. `bits_per_weight` comes from size and parameters
    until the header was read.
    """

    name: str
    paths: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    sha256: tuple[str, ...]
    quantization: str
    size_bytes: int
    bits_per_weight: float = 0.0
    quality: Literal["best", "very_good", "good", "fair", "poor", "unknown"] = "unknown"
    note: str = ""
    projector: str = ""
    is_projector: bool = False
    installed_id: str = ""


class HubModelRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The page of one repository."""

    repo: Annotated[str, Meta(max_length=256)]
    revision: Annotated[str, Meta(max_length=256)] = "main"


class HubModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repository with its files, largest first. `commit` is the revision the list holds for."""

    entry: HubEntry
    commit: str
    files: tuple[HubFile, ...]
    projectors: tuple[HubFile, ...] = ()
    description: str = ""
    offline: str = ""


class VerdictRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Judge every quantization of a repository under these options."""

    repo: Annotated[str, Meta(max_length=256)]
    revision: Annotated[str, Meta(max_length=256)] = "main"
    options: LoadOptions = LoadOptions()


class QuantVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row: the plan of one file; `recommended` on at most one, with the rule's `reason`."""

    name: str
    plan: MemoryPlan
    recommended: bool = False
    reason: str = ""


class Verdicts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All rows. `rule` is the sentence that says how the recommended one was chosen."""

    repo: str
    rows: tuple[QuantVerdict, ...]
    rule: str
    fetched_bytes: int = 0


class HubAccount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is signed in; the token itself is in the system keyring and never told."""

    endpoint: str
    signed_in: bool = False
    name: str = ""
    problem: str = ""


class HubToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sign in with an access token; an empty one signs out."""

    token: Annotated[str, Meta(max_length=512)]


# --- downloads --------------------------------------------------------------------------------------------


class DownloadRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fetch one quantization (`file` is `HubFile.name`), with its projector unless said otherwise."""

    repo: Annotated[str, Meta(max_length=256)]
    file: Annotated[str, Meta(max_length=1024)]
    revision: Annotated[str, Meta(max_length=256)] = "main"
    with_projector: bool = True


class Download(msgspec.Struct, frozen=True, omit_defaults=True):
    """One download: all files of one quantization. `left_s` is None while nothing moves: never a guess.

    `stalled_s` counts the seconds without a byte; `waiting` says what a running one waits for.
    """

    id: str
    repo: str
    name: str
    quantization: str
    state: DownloadState
    done_bytes: int
    size_bytes: int
    speed_bps: float = 0.0
    left_s: float | None = None
    stalled_s: float = 0.0
    started_s: float = 0.0
    model_id: str = ""
    failure: Failure | None = None
    waiting: str = ""
