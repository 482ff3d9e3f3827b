"""Admin routes for what is on disk, the hub and downloads (`runtime.messages.api` has the table)."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runtime.host.api.http import json_answer, read_struct
from runtime.host.hub_service import HubService
from runtime.host.library_service import LibraryService
from runtime.host.quantizing import Quantizing
from runtime.messages.library import (
    DownloadRequest,
    FolderRequest,
    HubModelRequest,
    HubSearch,
    HubToken,
    ImportRequest,
    JobRequest,
    ModelRequest,
    MoveRequest,
    QuantizeRequest,
)

ACCEPTED = 202


class LibraryRoutes:
    """The handlers."""

    def __init__(self, library: LibraryService, quantizing: Quantizing, hub: HubService) -> None:
        self._library = library
        self._quantizing = quantizing
        self._hub = hub

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/admin/library", self.state, methods=["GET"]),
            Route("/admin/library/folders", self.folders, methods=["POST", "DELETE"]),
            Route("/admin/library/move", self.move, methods=["POST"]),
            Route("/admin/library/import", self.import_files, methods=["POST"]),
            Route("/admin/library/verify", self.verify, methods=["POST"]),
            Route("/admin/library/remove", self.remove, methods=["POST"]),
            Route("/admin/library/quantize", self.quantize, methods=["POST"]),
            Route("/admin/library/quantize/preview", self.quantize_preview, methods=["POST"]),
            Route("/admin/hub/search", self.search, methods=["POST"]),
            Route("/admin/hub/picks", self.picks, methods=["GET"]),
            Route("/admin/hub/model", self.hub_model, methods=["POST"]),
            Route("/admin/hub/account", self.account, methods=["GET", "PUT"]),
            Route("/admin/downloads", self.downloads, methods=["GET", "POST"]),
            Route("/admin/downloads/pause", self.pause, methods=["POST"]),
            Route("/admin/downloads/resume", self.resume, methods=["POST"]),
            Route("/admin/downloads/cancel", self.cancel, methods=["POST"]),
            Route("/admin/downloads/clear", self.clear, methods=["POST"]),
        ]

    # --- what is on disk ----------------------------------------------------------------------------------

    async def state(self, _request: Request) -> Response:
        """GET /admin/library."""
        return json_answer(await self._library.state())

    async def folders(self, request: Request) -> Response:
        """POST and DELETE /admin/library/folders."""
        path = (await read_struct(request, FolderRequest)).path
        if request.method == "POST":
            return json_answer(await self._library.add_folder(path))
        return json_answer(await self._library.remove_folder(path))

    async def move(self, request: Request) -> Response:
        """POST /admin/library/move."""
        return json_answer(await self._library.move_main((await read_struct(request, MoveRequest)).path), ACCEPTED)

    async def import_files(self, request: Request) -> Response:
        """POST /admin/library/import."""
        return json_answer(await self._library.import_files(await read_struct(request, ImportRequest)), ACCEPTED)

    async def verify(self, request: Request) -> Response:
        """POST /admin/library/verify."""
        return json_answer(await self._library.verify((await read_struct(request, ModelRequest)).model), ACCEPTED)

    async def remove(self, request: Request) -> Response:
        """POST /admin/library/remove."""
        return json_answer(await self._library.remove((await read_struct(request, ModelRequest)).model))

    async def quantize(self, request: Request) -> Response:
        """POST /admin/library/quantize."""
        return json_answer(await self._quantizing.start(await read_struct(request, QuantizeRequest)), ACCEPTED)

    async def quantize_preview(self, request: Request) -> Response:
        """POST /admin/library/quantize/preview."""
        return json_answer(await self._quantizing.preview(await read_struct(request, QuantizeRequest)))

    # --- the hub ------------------------------------------------------------------------------------------

    async def search(self, request: Request) -> Response:
        """POST /admin/hub/search."""
        return json_answer(await self._hub.search(await read_struct(request, HubSearch)))

    async def picks(self, _request: Request) -> Response:
        """GET /admin/hub/picks."""
        return json_answer(await self._hub.picks())

    async def hub_model(self, request: Request) -> Response:
        """POST /admin/hub/model."""
        return json_answer(await self._hub.model(await read_struct(request, HubModelRequest)))

    async def account(self, request: Request) -> Response:
        """GET and PUT /admin/hub/account."""
        if request.method == "PUT":
            return json_answer(await self._hub.sign_in((await read_struct(request, HubToken)).token))
        return json_answer(await self._hub.account())

    # --- downloads ----------------------------------------------------------------------------------------

    async def downloads(self, request: Request) -> Response:
        """GET and POST /admin/downloads."""
        if request.method == "POST":
            return json_answer(await self._hub.download(await read_struct(request, DownloadRequest)), ACCEPTED)
        return json_answer(await self._hub.downloads())

    async def pause(self, request: Request) -> Response:
        """POST /admin/downloads/pause."""
        return json_answer(await self._hub.pause((await read_struct(request, JobRequest)).id))

    async def resume(self, request: Request) -> Response:
        """POST /admin/downloads/resume."""
        return json_answer(await self._hub.resume((await read_struct(request, JobRequest)).id))

    async def cancel(self, request: Request) -> Response:
        """POST /admin/downloads/cancel."""
        return json_answer(await self._hub.cancel((await read_struct(request, JobRequest)).id))

    async def clear(self, request: Request) -> Response:
        """POST /admin/downloads/clear."""
        return json_answer(await self._hub.clear((await read_struct(request, JobRequest)).id))
