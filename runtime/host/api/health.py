"""/health for load balancers and scripts, /metrics for Prometheus."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from runtime.host.api.http import json_answer
from runtime.host.desk import Desk
from runtime.host.metrics import CONTENT_TYPE, Metrics
from runtime.host.model_slot import ModelSlot
from runtime.host.supervisor import Supervisor
from runtime.messages.hardware import HardwareSample

HealthState = Literal["ok", "idle", "loading", "restarting", "stuck", "failed"]


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """`idle` is ready too: no model is loaded, a request that names one loads it.

    `percent` is the load progress, 0..100, while loading. `problem` says what is wrong. Which model it is stays
    untold, since this needs no key.
    """

    status: HealthState
    percent: int | None = None
    problem: str = ""


class HealthRoutes:
    """The two handlers."""

    def __init__(
        self, supervisor: Supervisor, desk: Desk, metrics: Metrics, hardware: Callable[[], HardwareSample | None]
    ) -> None:
        self._supervisor = supervisor
        self._desk = desk
        self._metrics = metrics
        self._hardware = hardware

    async def health(self, _request: Request) -> Response:
        """GET /health: 200 when requests are served, 503 with the reason when they would wait or fail."""
        health = health_of(self._supervisor.slots())
        ready = health.status in ("ok", "idle")
        headers = {"cache-control": "no-store"} | ({} if ready else {"retry-after": "2"})
        return json_answer(health, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, headers)

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        text = self._metrics.text(self._supervisor.slots(), self._desk.n_running, self._hardware())
        return Response(text, media_type=CONTENT_TYPE)


def health_of(slots: tuple[ModelSlot, ...]) -> Health:
    """The state of the whole: the worst model tells, but one that is ready outweighs one that loads or failed."""
    if not slots:
        return Health("idle")
    if any(slot.is_stuck for slot in slots):
        return Health("stuck", problem="The engine has not finished a step for too long; it is being replaced.")
    states = {slot.state for slot in slots}
    if "ready" in states:
        return Health("ok")
    for slot in slots:
        if slot.state == "loading":
            return Health("loading", percent=slot.percent)
        if slot.state == "restarting":
            return Health("restarting", percent=slot.percent, problem="The model's process ended and is started again.")
    if "failed" in states:
        return Health("failed", problem="The model could not be loaded.")
    return Health("idle")
