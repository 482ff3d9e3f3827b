"""llama-server's /lora-adapters: which adapters a loaded model has, and how strongly they are applied."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runtime.errors import BadRequest, ModelLoading
from runtime.host.api.http import json_answer, read_body
from runtime.host.model_slot import ModelSlot
from runtime.messages.shared import AdapterFacts
from runtime.options import MAX_ADAPTERS, AdapterScale

Scales = Annotated[tuple[AdapterScale, ...], msgspec.Meta(max_length=MAX_ADAPTERS)]


class AdapterRow(msgspec.Struct, frozen=True):
    """One adapter. `path` is its file's name; `scale` is what holds for requests that name none."""

    id: int
    path: str
    name: str
    rank: int
    scale: float


class Changed(msgspec.Struct, frozen=True):
    """The answer to a change."""

    success: bool = True


class AdapterRoutes:
    """The handlers. `find` gives the loaded model that a name, or none, means."""

    def __init__(self, find: Callable[[str], ModelSlot]) -> None:
        self._find = find

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/lora-adapters", self.adapters, methods=["GET", "POST"]),
        ]

    async def adapters(self, request: Request) -> Response:
        """GET and POST /lora-adapters."""
        return await (self.change if request.method == "POST" else self.tell)(request)

    async def tell(self, request: Request) -> Response:
        """GET /lora-adapters."""
        slot, adapters = self._adapters(request)
        scales = {one.id: one.scale for one in slot.adapter_scales or ()}
        return json_answer(
            tuple(
                AdapterRow(
                    index,
                    one.file_name,
                    one.name,
                    one.rank,
                    one.scale if slot.adapter_scales is None else scales.get(index, 0.0),
                )
                for index, one in enumerate(adapters)
            )
        )

    async def change(self, request: Request) -> Response:
        """POST /lora-adapters: scales by id, 0 for those not named; until the model is loaded anew."""
        slot, adapters = self._adapters(request)
        scales = _scales(await read_body(request))
        if wrong := next((one for one in scales if one.id >= len(adapters)), None):
            raise BadRequest(
                f"There is no adapter with the id {wrong.id}.", hint="GET /lora-adapters lists them.", param="id"
            )
        slot.adapter_scales = scales
        return json_answer(Changed())

    def _adapters(self, request: Request) -> tuple[ModelSlot, tuple[AdapterFacts, ...]]:
        slot = self._find(request.query_params.get("model", ""))
        if slot.facts is None:
            raise ModelLoading(f"{slot.model.id} is being loaded.", hint="Try again.", percent=slot.percent)
        return slot, slot.facts.adapters


def _scales(body: bytes) -> tuple[AdapterScale, ...]:
    try:
        return msgspec.json.decode(body, type=Scales)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(
            f"The list of adapters is not understood: {error}.",
            hint='Send [{"id": 0, "scale": 1.0}].',
            param="lora",
        ) from None
