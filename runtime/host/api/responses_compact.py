"""POST /v1/responses/compact: a long conversation made short, for programs that go on with it.

The answer lists what the user said, and behind it one `compaction` item with the model's own summary of everything
else. Sent back as input, the summary is read as the model's. It is opaque to programs and hidden from nobody.
"""

import contextlib

import msgspec

from runtime.errors import GenerationFailed
from runtime.host.admission import Ask
from runtime.host.api.answering import check_media, said
from runtime.host.api.responses_answer import ResponseUsage, usage_shape
from runtime.host.api.responses_input import InputItem, input_items
from runtime.host.api.responses_items import CompactionItem, sealed
from runtime.host.api.responses_request import CountInputAsk
from runtime.host.desk import Desk, Ticket
from runtime.host.supervisor import Lease
from runtime.messages.ipc import Delta, Finished, Generate
from runtime.messages.shared import AnswerShape, Message, PicturePart, TextPart, Usage
from runtime.options import GenerateOptions, SamplingOptions

COMPACT_ROUTE = "/v1/responses/compact"
MAX_SUMMARY_TOKENS = 1024
"""Fewer by `max_output_tokens`, which OpenAI does not have here."""
_WISH = (
    "Summarise the conversation up to here for whoever goes on with it, without answering it. Keep what was asked, "
    "what was found out, decided and done, and what is still to be done, with the names, numbers, paths and code that "
    "are needed for it. Write the summary alone."
)


class Compacted(msgspec.Struct, frozen=True):
    """The shorter conversation."""

    id: str
    object: str
    created_at: int
    output: tuple[InputItem | CompactionItem, ...]
    usage: ResponseUsage


async def compacted(desk: Desk, ticket: Ticket, ask: CountInputAsk) -> Compacted:
    """Have the model sum up a conversation; what no longer fits its context is missing in the summary.

    Raises:
        GenerationFailed: the model wrote nothing; other `RuntimeFault` as `said`.
    """

    async def build(lease: Lease) -> list[Ask]:
        check_media(lease, ask.messages)
        options = GenerateOptions(
            max_tokens=min(ask.max_output_tokens or MAX_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS),
            context_policy="drop_oldest",
            sampling=SamplingOptions(temperature=0.0),
        )
        shape = AnswerShape(reasoning="off")
        return [Generate(ticket.request_id, messages=_with_wish(ask.messages), options=options, shape=shape)]

    texts: list[str] = []
    usage = Usage()
    async with contextlib.aclosing(said(desk, ticket, build)) as batches:
        async for batch in batches:
            for message in batch:
                if isinstance(message, Delta) and message.kind == "content":
                    texts.append(message.text)
                elif isinstance(message, Finished):
                    usage = message.usage
    summary = "".join(texts).strip()
    if not summary:
        raise GenerationFailed("The model wrote no summary.", hint="Try another model, or send the conversation whole.")
    tail = ticket.request_id.rpartition("-")[2]
    spoken = tuple(_without_sounds(row) for row in ask.history if row.role == "user")
    items = (*input_items(f"resp_{tail}", spoken), CompactionItem(f"cmp_{tail}", sealed(summary)))
    return Compacted(f"resp_{tail}", "response.compaction", ticket.created_s, items, usage_shape(usage))


def _with_wish(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation with the wish to sum it up; in one turn with what the user said last, for strict templates."""
    *before, last = messages
    if last.role != "user" or last.parts:
        return (*messages, Message("user", _WISH))
    return (*before, msgspec.structs.replace(last, content=f"{last.content}\n\n{_WISH}"))


def _without_sounds(row: Message) -> Message:
    """A list of items has pictures but no sounds: those are in the summary alone."""
    parts = tuple(
        TextPart("[sound]") if isinstance(part, PicturePart) and part.media.kind == "audio" else part
        for part in row.parts
    )
    return msgspec.structs.replace(row, parts=parts)
