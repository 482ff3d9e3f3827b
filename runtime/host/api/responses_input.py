"""What a kept answer was made from, as a list of items in the manner of the Responses API."""

import base64
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.responses_items import CallItem, OutputText, ReasoningItem, ReasoningText
from runtime.messages.shared import Message, TextPart

DEFAULT_LIMIT = 20
MAX_LIMIT = 100


class InputText(msgspec.Struct, frozen=True, tag="input_text"):
    """Text that somebody else than the model wrote."""

    text: str


class InputImage(msgspec.Struct, frozen=True, tag="input_image"):
    """A picture, as a data address."""

    image_url: str
    detail: str = "auto"


class InputAudio(msgspec.Struct, frozen=True, tag="input_audio"):
    """A sound; only that there was one is told."""

    detail: str = "auto"


class InputMessage(msgspec.Struct, frozen=True, tag="message"):
    """A turn of the conversation."""

    id: str
    role: str
    status: str
    content: tuple[InputText | InputImage | InputAudio | OutputText, ...]


class CallResult(msgspec.Struct, frozen=True, tag="function_call_output"):
    """What a tool answered."""

    id: str
    call_id: str
    output: str
    status: str


InputItem = InputMessage | ReasoningItem | CallItem | CallResult


class InputPage(msgspec.Struct, frozen=True):
    """One page of items."""

    object: str
    data: tuple[InputItem, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


def input_items(response_id: str, rows: Iterable[Message]) -> tuple[InputItem, ...]:
    """Items of a conversation, oldest first. Their ids are the same each time."""
    found: list[InputItem] = []

    def name(kind: str) -> str:
        return f"{kind}_{response_id.removeprefix('resp_')}_{len(found)}"

    for row in rows:
        if row.role == "tool":
            found.append(CallResult(name("fco"), row.tool_call_id, row.content, "completed"))
            continue
        if row.reasoning:
            found.append(ReasoningItem(name("rs"), "completed", (), (ReasoningText(row.reasoning),)))
        if row.role == "assistant":
            if row.content:
                text = OutputText(row.content, (), ())
                found.append(InputMessage(name("msg"), "assistant", "completed", (text,)))
            found += [
                CallItem(f"{name('fc')}_{index}", call.id, call.name, call.arguments, "completed")
                for index, call in enumerate(row.tool_calls)
            ]
            continue
        found.append(InputMessage(name("msg"), row.role, "completed", _content(row)))
    return tuple(found)


def _content(row: Message) -> tuple[InputText | InputImage | InputAudio | OutputText, ...]:
    if not row.parts:
        return (InputText(row.content),)
    found: list[InputText | InputImage | InputAudio | OutputText] = []
    for part in row.parts:
        if isinstance(part, TextPart):
            found.append(InputText(part.text))
        elif part.media.kind == "image":
            data = base64.b64encode(part.media.data).decode()
            found.append(InputImage(f"data:{part.media.mime};base64,{data}"))
        else:
            found.append(InputAudio())
    return tuple(found)


def items_page(items: Sequence[InputItem], query: Mapping[str, str]) -> InputPage:
    """The page that a query asks for: `limit` (1 to 100), `order` (desc is usual), `after` an id.

    Raises:
        BadRequest: one of them is wrong.
    """
    raw_limit, order = query.get("limit", str(DEFAULT_LIMIT)), query.get("order", "desc")
    if not (raw_limit.isdecimal() and len(raw_limit) < 5 and 1 <= int(raw_limit) <= MAX_LIMIT):  # noqa: PLR2004
        raise BadRequest(f"`limit` is {raw_limit[:20]!r}.", hint=f"Write 1 to {MAX_LIMIT}.", param="limit")
    if order not in ("asc", "desc"):
        raise BadRequest(f"`order` is {order[:20]!r}.", hint="Write asc or desc.", param="order")
    rows = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after", "")
    if after:
        place = next((index for index, item in enumerate(rows) if item.id == after), None)
        if place is None:
            raise BadRequest(f"There is no item {after[:80]!r}.", hint="Name one of the page before.", param="after")
        rows = rows[place + 1 :]
    page = tuple(rows[: int(raw_limit)])
    first_id, last_id = (page[0].id, page[-1].id) if page else (None, None)
    return InputPage("list", page, first_id, last_id, has_more=len(rows) > len(page))
