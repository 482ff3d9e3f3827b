"""Ollama's routes about models: tags, show, ps, pull, delete, copy, version, and the greeting at `/`.

`copy` gives a model one more name, as it does in Ollama; `delete` of such a name takes only the name away, of a model
its files go to the trash. `pull` fetches from the hub through Deskside's own downloads: one that is broken off is kept
and goes on with the next pull.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import BadRequest, HubFault, ModelNotFound, NotSupported, RuntimeFault, from_failure
from runtime.host.api.body import typed, without_nulls
from runtime.host.api.http import KEEP_ALIVE_S, EventStream, WatchedResponse, decode_json, json_answer, read_body
from runtime.host.api.model_words import MetaJson, ModelShelf
from runtime.host.api.ollama_answer import NDJSON, line, ollama_error, timestamp
from runtime.host.api.ollama_names import LATEST, MAX_NAME_CHARS, choose_file, digest_of, hub_name, meant_by
from runtime.host.hub_service import HubService
from runtime.host.library_service import LibraryService
from runtime.host.model_slot import ModelSlot
from runtime.host.settings import SettingsFile
from runtime.host.supervisor import Supervisor
from runtime.messages.api import InstalledModel
from runtime.messages.library import Download, DownloadRequest, HubModelRequest
from runtime.units import format_count, now

OLLAMA_VERSION = "0.13.0"
"""The release of Ollama whose API this is; clients ask for it to know which routes there are."""

GREETING = "Ollama is running"
"""What clients look for at `/` before they begin."""

LOOK_EVERY_S = 0.25
_MANY_YEARS_S = 100 * 365.25 * 24 * 3600
_MAX_PARAMETER_CHARS = 4096

Name = Annotated[str, msgspec.Meta(max_length=1024)]


class OllamaDetails(msgspec.Struct, frozen=True):
    """What kind of file it is."""

    parent_model: str
    format: str
    family: str
    families: tuple[str, ...]
    parameter_size: str
    quantization_level: str


class OllamaTag(msgspec.Struct, frozen=True):
    """One installed model. `digest` names the file's state; it is no hash of its bytes."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaTags(msgspec.Struct, frozen=True):
    """/api/tags."""

    models: tuple[OllamaTag, ...]


class OllamaLoaded(msgspec.Struct, frozen=True):
    """One loaded model. `size` is all it takes, `size_vram` what of that is on GPUs."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails
    expires_at: str
    size_vram: int
    context_length: int


class OllamaProcesses(msgspec.Struct, frozen=True):
    """/api/ps."""

    models: tuple[OllamaLoaded, ...]


class OllamaShown(msgspec.Struct, frozen=True):
    """/api/show."""

    license: str
    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, MetaJson]
    capabilities: tuple[str, ...]
    modified_at: str


class OllamaVersion(msgspec.Struct, frozen=True):
    """/api/version."""

    version: str


class OllamaNameBody(msgspec.Struct, frozen=True):
    """Names a model; `name` is the older word for `model`."""

    model: Name = ""
    name: Name = ""


class OllamaPullBody(OllamaNameBody, frozen=True):
    """POST /api/pull."""

    stream: bool = True


class OllamaCopyBody(msgspec.Struct, frozen=True):
    """POST /api/copy."""

    source: Name
    destination: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]


_NOT_SERVED = {
    "create": (
        "Making a model of a Modelfile",
        "Give a model a further name with /api/copy, and send `system` and `options` with each request.",
    ),
    "push": ("Pushing sends a model to Ollama's registry", "Upload the file to the hub instead."),
    "blobs": (
        "Sending a file for /api/create",
        "Put the GGUF file into the models folder, or fetch it with /api/pull and hf.co/owner/repo.",
    ),
}


class OllamaStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a pull."""

    status: str
    digest: str = ""
    total: int = 0
    completed: int = 0


class OllamaModelRoutes:
    """The handlers."""

    def __init__(
        self, supervisor: Supervisor, library: LibraryService, hub: HubService, settings: SettingsFile
    ) -> None:
        self._supervisor = supervisor
        self._library = library
        self._hub = hub
        self._settings = settings
        self._shelf = ModelShelf()

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/", self.greeting, methods=["GET"]),
            Route("/api/version", self.version, methods=["GET"]),
            Route("/api/tags", self.tags, methods=["GET"]),
            Route("/api/ps", self.processes, methods=["GET"]),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/api/pull", self.pull, methods=["POST"]),
            Route("/api/copy", self.copy, methods=["POST"]),
            Route("/api/delete", self.delete, methods=["DELETE"]),
            Route("/api/create", self.not_served, methods=["POST"]),
            Route("/api/push", self.not_served, methods=["POST"]),
            Route("/api/blobs/{digest}", self.not_served, methods=["HEAD", "POST"]),
        ]

    async def greeting(self, _request: Request) -> Response:
        """GET and HEAD /."""
        return PlainTextResponse(GREETING)

    async def version(self, _request: Request) -> Response:
        """GET /api/version."""
        return json_answer(OllamaVersion(OLLAMA_VERSION))

    async def tags(self, _request: Request) -> Response:
        """GET /api/tags: what is installed, and the further names."""
        models = {model.id: model for model in await self._models()}
        tags = [_tag(model.id, model) for model in models.values()]
        aliases = self._settings.current.aliases
        tags += [_tag(name, models[meant]) for name, meant in aliases.items() if meant in models]
        return json_answer(OllamaTags(tuple(tags)))

    async def processes(self, _request: Request) -> Response:
        """GET /api/ps."""
        slots = [slot for slot in self._supervisor.slots() if slot.state == "ready"]
        return json_answer(OllamaProcesses(tuple(map(_loaded, slots))))

    async def show(self, request: Request) -> Response:
        """POST /api/show."""
        model = await self._wanted(await _name_of(request))
        words = await self._shelf.words(model)
        options = self._settings.load_options(model.id)
        parameters = f"num_ctx {options.n_ctx}" if options.n_ctx is not None else ""
        return json_answer(
            OllamaShown(
                license=model.licence,
                modelfile=f"FROM {model.id}\nTEMPLATE {msgspec.json.encode(words.template).decode()}\n",
                parameters=parameters,
                template=words.template,
                details=_details(model),
                model_info=words.metadata,
                capabilities=words.capabilities(model),
                modified_at=timestamp(model.created_s),
            )
        )

    async def copy(self, request: Request) -> Response:
        """POST /api/copy."""
        body = typed(without_nulls(decode_json(await read_body(request))), OllamaCopyBody)
        source = await self._wanted(body.source)
        name = body.destination.removesuffix(LATEST)
        if any(model.id.casefold() == name.casefold() for model in await self._library.installed()):
            raise BadRequest(f"A model named {name!r} is installed.", hint="Choose another name.", param="destination")
        if not name.strip() or not name.isprintable():
            raise BadRequest(f"{name!r} is no name.", hint="Choose a printable one.", param="destination")
        self._settings.set_alias(name, source.id)
        return Response(status_code=200)

    async def delete(self, request: Request) -> Response:
        """DELETE /api/delete."""
        name = (await _name_of(request)).removesuffix(LATEST)
        if name in self._settings.current.aliases:
            self._settings.set_alias(name, "")
            return Response(status_code=200)
        model = await self._wanted(name)
        await self._library.remove(model.id)
        for alias, meant in self._settings.current.aliases.items():
            if meant == model.id:
                self._settings.set_alias(alias, "")
        return Response(status_code=200)

    async def _models(self) -> tuple[InstalledModel, ...]:
        return tuple(model for model in await self._known() if model.kind in ("chat", "embedding"))

    async def _known(self) -> tuple[InstalledModel, ...]:
        """Installed models, and loaded ones that are none (a file that was named by its path)."""
        known = {slot.model.id: slot.model for slot in self._supervisor.slots()}
        known |= {model.id: model for model in await self._library.installed()}
        return tuple(known.values())

    async def _wanted(self, name: str) -> InstalledModel:
        """An installed model by any of its names.

        Raises:
            ModelNotFound: there is none.
        """
        models = await self._known()
        meant = meant_by(name, models, self._settings.current.aliases)
        for model in models:
            if model.id == meant:
                return model
        known = ", ".join(model.id for model in models[:8]) or "none yet"
        raise ModelNotFound(f"model {name!r} not found.", hint=f"Installed: {known}.", model=name, param="model")

    # --- what is not served ---------------------------------------------------------------------------------

    async def not_served(self, request: Request) -> Response:
        """POST /api/create and /api/push, /api/blobs: named, since Ollama's programs show the sentence."""
        if request.method == "HEAD":  # was the file sent before? Never
            return Response(status_code=404)
        what, hint = _NOT_SERVED[request.url.path.split("/")[2]]
        raise NotSupported(f"{what}, which Deskside does not do.", hint=hint)

    # --- pull ---------------------------------------------------------------------------------------------

    async def pull(self, request: Request) -> Response:
        """POST /api/pull."""
        body = typed(without_nulls(decode_json(await read_body(request))), OllamaPullBody)
        name = body.model or body.name
        models = await self._library.installed()
        meant = meant_by(name, models, self._settings.current.aliases)
        is_installed = any(model.id == meant for model in models)
        repo, tag = ("", "") if is_installed else hub_name(name)

        async def work(send: Send) -> None:
            stream = EventStream(send, {"content-type": NDJSON})
            try:
                last = OllamaStatus("success")
                async with contextlib.aclosing(self._pulled(repo, tag)) as steps:
                    async for step in steps:
                        if body.stream:
                            await stream.write(line(step))
                if body.stream:
                    await stream.end(line(last))
                else:
                    await json_answer(last)(request.scope, request.receive, send)
            except RuntimeFault as error:
                if not stream.has_begun:
                    raise
                await stream.end(line(ollama_error(error)))

        return WatchedResponse(work)

    async def _pulled(self, repo: str, tag: str) -> AsyncGenerator[OllamaStatus, None]:
        """Fetch a file of a repository, telling each step; without a repository there is nothing to do.

        Raises:
            RuntimeFault: it could not be fetched.
        """
        if not repo:
            return
        page = await self._hub.model(HubModelRequest(repo))
        file = choose_file(page.files, repo, tag)
        yield OllamaStatus("pulling manifest")
        if file.installed_id:
            return
        download = await self._hub.download(DownloadRequest(repo, file.name))
        if download.state in ("paused", "failed"):
            download = await self._hub.resume(download.id)
        digest = f"sha256:{file.sha256[0]}" if file.sha256 and file.sha256[0] else ""
        told: OllamaStatus | None = None
        told_at = 0.0
        try:
            while download.state != "done":
                step = _step(download, digest)
                if step != told or time.monotonic() - told_at > KEEP_ALIVE_S:
                    told, told_at = step, time.monotonic()
                    yield step
                await asyncio.sleep(LOOK_EVERY_S)
                download = await self._found(download)
        except (asyncio.CancelledError, GeneratorExit):
            # The caller left: what was fetched stays, and the next pull goes on with it.
            with contextlib.suppress(RuntimeFault):
                await asyncio.shield(self._hub.pause(download.id))
            raise
        yield OllamaStatus(f"pulling {file.name}", digest, download.size_bytes, download.size_bytes)
        yield OllamaStatus("verifying sha256 digest")
        yield OllamaStatus("writing manifest")

    async def _found(self, known: Download) -> Download:
        for download in await self._hub.downloads():
            if download.id == known.id:
                break
        else:
            raise HubFault(f"The download of {known.name} was cancelled.", hint="Pull it again.", repo=known.repo)
        if download.state == "failed":
            raise from_failure(download.failure) if download.failure is not None else HubFault("The download failed.")
        if download.state == "paused":
            raise HubFault(f"The download of {known.name} was paused.", hint="Pull again to go on.", repo=known.repo)
        return download


def _step(download: Download, digest: str) -> OllamaStatus:
    if download.state == "verifying":
        return OllamaStatus("verifying sha256 digest")
    return OllamaStatus(f"pulling {download.name}", digest, download.size_bytes, download.done_bytes)


async def _name_of(request: Request) -> str:
    body = typed(without_nulls(decode_json(await read_body(request))), OllamaNameBody)
    name = body.model or body.name
    if not name:
        raise BadRequest("`model` is missing.", hint="Name one.", param="model")
    return name


def _details(model: InstalledModel) -> OllamaDetails:
    size = format_count(model.n_params) if model.n_params else ""
    family = model.architecture
    return OllamaDetails("", "gguf", family, (family,) if family else (), size, model.quantization)


def _tag(name: str, model: InstalledModel) -> OllamaTag:
    return OllamaTag(name, name, timestamp(model.created_s), model.size_bytes, digest_of(model), _details(model))


def _loaded(slot: ModelSlot) -> OllamaLoaded:
    public = slot.public()
    facts = public.facts
    taken = {memory.device: memory.total_bytes for memory in public.actual}
    expires_s = public.unload_at_s if public.unload_at_s is not None else now() + _MANY_YEARS_S
    return OllamaLoaded(
        slot.model.id,
        slot.model.id,
        sum(taken.values()) or slot.model.size_bytes,
        digest_of(slot.model),
        _details(slot.model),
        timestamp(expires_s),
        sum(size for device, size in taken.items() if device != "CPU"),
        facts.n_ctx if facts is not None else 0,
    )
