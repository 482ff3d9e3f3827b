"""Admin routes for settings, plans, the machine, nodes and jobs (`runtime.messages.api` has the table)."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runtime.host.api.http import json_answer, read_struct
from runtime.host.jobs import Jobs
from runtime.host.library_service import LibraryService
from runtime.host.nodes import Nodes
from runtime.host.planner_service import PlannerService
from runtime.host.speed_log import SpeedLog
from runtime.messages.api import ModelSettings
from runtime.messages.fit import NodeRequest, PlanRequest
from runtime.messages.library import JobRequest, ModelRequest, VerdictRequest
from runtime.options import ModelsOptions


class ModelsRoutes:
    """The handlers."""

    def __init__(
        self, library: LibraryService, planner: PlannerService, speed_log: SpeedLog, nodes: Nodes, jobs: Jobs
    ) -> None:
        self._library = library
        self._speed_log = speed_log
        self._planner = planner
        self._nodes = nodes
        self._jobs = jobs

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/admin/models/options", self.options, methods=["GET", "PUT"]),
            Route("/admin/models/settings", self.settings, methods=["POST", "PUT"]),
            Route("/admin/models/record", self.record, methods=["POST"]),
            Route("/admin/plan", self.plan, methods=["POST"]),
            Route("/admin/machine", self.machine, methods=["GET", "POST"]),
            Route("/admin/nodes", self.nodes, methods=["GET", "POST", "DELETE"]),
            Route("/admin/jobs", self.jobs, methods=["GET"]),
            Route("/admin/jobs/cancel", self.cancel_job, methods=["POST"]),
            Route("/admin/hub/verdicts", self.verdicts, methods=["POST"]),
        ]

    async def options(self, request: Request) -> Response:
        """GET and PUT /admin/models/options."""
        if request.method == "PUT":
            return json_answer(await self._library.set_options(await read_struct(request, ModelsOptions)))
        return json_answer(self._library.options)

    async def settings(self, request: Request) -> Response:
        """POST and PUT /admin/models/settings."""
        if request.method == "PUT":
            wanted = await read_struct(request, ModelSettings)
            await self._library.remember_settings(wanted.model, wanted.options)
            return Response(status_code=204)
        named = await read_struct(request, ModelRequest)
        return json_answer(await self._library.settings(named.model))

    async def record(self, request: Request) -> Response:
        """POST /admin/models/record."""
        model = await self._library.find((await read_struct(request, ModelRequest)).model)
        return json_answer(await self._speed_log.record(model.id))

    async def plan(self, request: Request) -> Response:
        """POST /admin/plan."""
        return json_answer(await self._planner.plan(await read_struct(request, PlanRequest)))

    async def verdicts(self, request: Request) -> Response:
        """POST /admin/hub/verdicts."""
        return json_answer(await self._planner.verdicts(await read_struct(request, VerdictRequest)))

    async def machine(self, request: Request) -> Response:
        """GET and POST /admin/machine."""
        return json_answer(await self._planner.machine(measure_anew=request.method == "POST"))

    async def nodes(self, request: Request) -> Response:
        """GET, POST and DELETE /admin/nodes."""
        if request.method == "GET":
            return json_answer(self._nodes.list())
        address = (await read_struct(request, NodeRequest)).address
        if request.method == "POST":
            return json_answer(await self._nodes.add(address))
        return json_answer(await self._nodes.remove(address))

    async def jobs(self, _request: Request) -> Response:
        """GET /admin/jobs."""
        return json_answer(self._jobs.list())

    async def cancel_job(self, request: Request) -> Response:
        """POST /admin/jobs/cancel."""
        self._jobs.cancel((await read_struct(request, JobRequest)).id)
        return Response(status_code=204)
