"""What the OpenAPI document says of the models part of the admin API."""

from typing import Any, NamedTuple

from runtime.messages.api import ModelSettings
from runtime.messages.fit import LoadRecord, Machine, MemoryPlan, NodeInfo, NodeRequest, PlanRequest
from runtime.messages.library import (
    Download,
    DownloadRequest,
    FolderRequest,
    HubAccount,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
    HubToken,
    ImportRequest,
    Job,
    JobRequest,
    LibraryState,
    ModelRequest,
    MoveRequest,
    QuantizePreview,
    QuantizeRequest,
    RemoveAnswer,
    VerdictRequest,
    Verdicts,
)
from runtime.options import LoadOptions, ModelsOptions

JSON = "application/json"
EVENTS = "text/event-stream"


class Operation(NamedTuple):
    """One method of one path. `answer` is `None` where there is no body; types as msgspec understands them.

    `streams` is the type of the body where the caller may ask for an answer in pieces.
    """

    method: str
    path: str
    text: str
    body: Any = None
    answer: Any = None
    status: int = 200
    content: str = JSON
    streams: str = ""


Nodes = tuple[NodeInfo, ...]
Record = LoadRecord | None

MODELS_OPERATIONS = (
    Operation("get", "/admin/models/options", "What holds for all models.", answer=ModelsOptions),
    Operation("put", "/admin/models/options", "Change what holds for all models.", ModelsOptions, ModelsOptions),
    Operation("post", "/admin/models/settings", "Remembered load options of a model.", ModelRequest, LoadOptions),
    Operation("put", "/admin/models/settings", "Remember load options of a model.", ModelSettings, status=204),
    Operation("post", "/admin/models/record", "Planned against actual of the last load.", ModelRequest, Record),
    Operation("post", "/admin/plan", "Plan a load.", PlanRequest, MemoryPlan),
    Operation("get", "/admin/machine", "What can be planned with now.", answer=Machine),
    Operation("post", "/admin/machine", "Measure the machine's speed anew.", answer=Machine),
    Operation("get", "/admin/nodes", "Machines that lend their memory.", answer=Nodes),
    Operation("post", "/admin/nodes", "Add a node.", NodeRequest, Nodes),
    Operation("delete", "/admin/nodes", "Forget a node.", NodeRequest, Nodes),
    Operation("get", "/admin/library", "Folders, and how much room models take.", answer=LibraryState),
    Operation("post", "/admin/library/folders", "Search one more folder.", FolderRequest, LibraryState),
    Operation("delete", "/admin/library/folders", "Search it no more.", FolderRequest, LibraryState),
    Operation("post", "/admin/library/move", "Move the main folder.", MoveRequest, Job, 202),
    Operation("post", "/admin/library/import", "Bring files into the library.", ImportRequest, Job, 202),
    Operation("post", "/admin/library/verify", "Check the hash of a model.", ModelRequest, Job, 202),
    Operation("post", "/admin/library/remove", "Move a model to the trash.", ModelRequest, RemoveAnswer),
    Operation("post", "/admin/library/quantize", "Make a smaller file of a model.", QuantizeRequest, Job, 202),
    Operation("post", "/admin/library/quantize/preview", "What it would be.", QuantizeRequest, QuantizePreview),
    Operation("get", "/admin/jobs", "Running and lately ended jobs.", answer=tuple[Job, ...]),
    Operation("post", "/admin/jobs/cancel", "Cancel a job.", JobRequest, status=204),
    Operation("post", "/admin/hub/search", "Search the hub.", HubSearch, HubPage),
    Operation("get", "/admin/hub/picks", "The built-in catalogue.", answer=HubPage),
    Operation("post", "/admin/hub/model", "One repository with its files.", HubModelRequest, HubModel),
    Operation("post", "/admin/hub/verdicts", "Judge every file of a repository.", VerdictRequest, Verdicts),
    Operation("get", "/admin/hub/account", "Who is signed in.", answer=HubAccount),
    Operation("put", "/admin/hub/account", "Sign in or out.", HubToken, HubAccount),
    Operation("get", "/admin/downloads", "All downloads.", answer=tuple[Download, ...]),
    Operation("post", "/admin/downloads", "Fetch one quantization.", DownloadRequest, Download, 202),
    Operation("post", "/admin/downloads/pause", "Pause; what was fetched stays.", JobRequest, Download),
    Operation("post", "/admin/downloads/resume", "Go on.", JobRequest, Download),
    Operation("post", "/admin/downloads/cancel", "Cancel and delete what was fetched.", JobRequest, Download),
    Operation("post", "/admin/downloads/clear", "Take an ended one off the list.", JobRequest, Download),
)
