"""One way to ask a model and hear it out, for every dialect: lease, send, take, and a beat while nothing comes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from runtime.errors import BadRequest
from runtime.host.admission import Ask
from runtime.host.api.http import KEEP_ALIVE_S
from runtime.host.desk import Desk, Ticket
from runtime.host.mailbox import RequestMessage
from runtime.host.supervisor import Lease
from runtime.messages.ipc import InfillPrompt, Tokenized
from runtime.messages.shared import Message, PicturePart

BuildAsks = Callable[[Lease], Awaitable[Sequence[Ask]]]
"""What to ask, once it is known which model will answer."""


async def said(
    desk: Desk, ticket: Ticket, build: BuildAsks, every_s: float = KEEP_ALIVE_S
) -> AsyncGenerator[list[RequestMessage], None]:
    """What the model says, batch by batch; an empty batch after each `every_s` of silence, also while it is loaded.

    Use it with `contextlib.aclosing`: leaving it ends the use of the model.

    Raises:
        RuntimeFault: as `Desk.lease`, `Ticket.take` and `build`.
    """
    async with contextlib.AsyncExitStack() as stack:
        entering = asyncio.ensure_future(stack.enter_async_context(desk.lease(ticket)))
        try:
            while not (await asyncio.wait({entering}, timeout=every_s))[0]:
                yield []
            lease = entering.result()
        finally:
            if not entering.done():
                entering.cancel()
                await asyncio.wait({entering})
        ticket.send(lease, await build(lease))
        while not ticket.has_ended:
            yield await ticket.take(every_s)


async def infill_tokens(ticket: Ticket, lease: Lease, ask: InfillPrompt) -> tuple[int, ...]:
    """The prompt that asks a code model for a middle.

    Raises:
        BadRequest: the model cannot fill in.
    """
    answer = await ticket.ask_aside(lease, ask)
    if not isinstance(answer, Tokenized):
        raise TypeError(f"a worker answered a prompt with {type(answer).__name__}")
    return answer.token_ids


def check_media(lease: Lease, messages: Sequence[Message]) -> None:
    """Refuse pictures and sounds that the model cannot take in, rather than answer as if they were not there.

    Raises:
        BadRequest: the model cannot see, or hear.
    """
    facts = lease.slot.facts
    kinds = {part.media.kind for row in messages for part in row.parts if isinstance(part, PicturePart)}
    if "image" in kinds and not (facts is not None and facts.can_see):
        raise BadRequest(
            f"{lease.model_id} cannot see pictures.", hint="Use a model with a projector (vision).", param="messages"
        )
    if "audio" in kinds and not (facts is not None and facts.can_hear):
        raise BadRequest(
            f"{lease.model_id} cannot hear.", hint="Use a model whose projector takes sound.", param="messages"
        )
