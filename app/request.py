"""How a conversation becomes the messages that a model reads. The only place that knows. No Qt here."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.fence import fenced
from app.store.records import Attachment
from app.transcript import Node
from runtime.messages.shared import MAX_MEDIA, MediaPart, Message, ModelFacts, Part, PicturePart, TextPart

MAX_MEDIA_BYTES = 16 * 1024 * 1024
"""All of them together: in base64 they fit the host's 32 MiB for a request, and writing it takes the main thread less
than 50 ms (36 ms and 19 ms for the copy with 20 MiB on two busy cores, 2026-11-30)."""

MIN_SEEN_PX = 28
"""Shorter side of a tool's picture that a model is given: projectors refuse smaller ones, and the answer with them."""

MAX_SEEN_ASPECT = 50
"""Longer side over shorter one of such a picture."""

NO_RESULT = "There is no result: the call was interrupted."
"""Told to the model for a call without one, since templates ask for a result behind each call."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What is sent.

    Attributes:
        messages: the turns.
        left_out: pictures and sounds of earlier turns that are only named: the model cannot take them, there are too
            many, or their bytes are lost.
    """

    messages: tuple[Message, ...]
    left_out: int = 0


def hashes_of(path: Iterable[Node], draft: Iterable[Attachment] = ()) -> tuple[str, ...]:
    """The files whose bytes `turns_of` needs."""
    found = [one.sha256 for node in path for one in node.attachments]
    return tuple(dict.fromkeys([*found, *(one.sha256 for one in draft)]))


def needed_sense(attachments: Iterable[Attachment], facts: ModelFacts | None) -> str:
    """What a model lacks for these files: "image", "audio" or nothing (also while no model is known)."""
    if facts is None:
        return ""
    kinds = {one.kind for one in attachments}
    if "image" in kinds and not facts.can_see:
        return "image"
    return "audio" if "audio" in kinds and not facts.can_hear else ""


def turns_of(
    system_prompt: str,
    path: Iterable[Node],
    data: Mapping[str, bytes],
    facts: ModelFacts | None = None,
    *,
    draft: str = "",
    draft_attachments: tuple[Attachment, ...] = (),
) -> Turns:
    """System prompt, the branch from its beginning, and a draft as the next question.

    Failed empty answers are left out, and two questions in a row become one, since templates ask for alternating
    roles. Earlier reasoning is left out (templates of reasoning models drop it, and it costs context), except between
    the calls of tools of the turn that is being answered, where models go on thinking.

    Args:
        system_prompt: may be empty.
        path: messages, oldest first.
        data: bytes of the files by hash.
        facts: of the model that will read it; without, it is taken to see and hear.
        draft: unsent text.
        draft_attachments: files that wait beside it.
    """
    nodes = [node for node in path if node.role != "assistant" or len(node.content) or node.tool_calls]
    last_question = max((at for at, node in enumerate(nodes) if node.role == "user"), default=-1)
    files = [one for node in nodes for one in node.attachments if node.role == "user" or _is_seen(one, facts)]
    files += draft_attachments
    sent = _sendable(files, data, facts)
    left_out = sum(one.kind != "text" and one.sha256 not in sent for one in files)
    turns: list[Message] = [Message("system", system_prompt.strip())] if system_prompt.strip() else []
    for at, node in enumerate(nodes):
        if turns and turns[-1].tool_calls and node.role != "tool":
            turns += _missing_results(turns)
        match node.role:
            case "user":
                _add_question(turns, _question(node.content.text, node.attachments, data, sent))
            case "assistant":
                keeps_thought = at > last_question and bool(node.tool_calls)
                reasoning = node.reasoning.text if keeps_thought else ""
                turns.append(Message("assistant", node.content.text, reasoning, tool_calls=node.tool_calls))
            case "tool":
                turns.append(_result(node, data, sent))
                following = nodes[at + 1] if at + 1 < len(nodes) else None
                if following is None or following.role != "tool":
                    turns += _missing_results(turns)
            case _:
                turns.append(Message(node.role, node.content.text))
    if draft.strip() or draft_attachments:
        _add_question(turns, _question(draft, draft_attachments, data, sent))
    return Turns(tuple(turns), left_out)


def _is_seen(one: Attachment, facts: ModelFacts | None) -> bool:
    """Whether a tool's picture is for the model too. The text of the result names it in any case."""
    if one.kind != "image" or needed_sense((one,), facts):
        return False
    short, long = sorted((one.width_px, one.height_px))
    return short >= MIN_SEEN_PX and long <= short * MAX_SEEN_ASPECT


def _result(node: Node, data: Mapping[str, bytes], sent: set[str]) -> Message:
    """What a tool answered, and behind it the pictures it brought."""
    text = node.content.text or NO_RESULT
    media = [MediaPart("image", data[one.sha256], one.mime) for one in node.attachments if one.sha256 in sent]
    parts: tuple[Part, ...] = (TextPart(text), *map(PicturePart, media)) if media else ()
    return Message("tool", text, name=node.tool_name, parts=parts, tool_call_id=node.tool_call_id)


def _sendable(files: list[Attachment], data: Mapping[str, bytes], facts: ModelFacts | None) -> set[str]:
    """Hashes of the pictures and sounds that go as such: the newest, within the bounds, that the model can take."""
    taken: set[str] = set()
    n_files, size_bytes = 0, 0
    for one in reversed(files):
        if one.kind == "text" or one.sha256 not in data or needed_sense((one,), facts):
            continue
        n_files += 1
        size_bytes += len(data[one.sha256])
        if n_files > MAX_MEDIA or size_bytes > MAX_MEDIA_BYTES:
            break
        taken.add(one.sha256)
    return taken


def _question(text: str, attachments: tuple[Attachment, ...], data: Mapping[str, bytes], sent: set[str]) -> Message:
    """Text files first, then pictures, then what the person asks: models answer best what comes last."""
    texts: list[str] = []
    media: list[MediaPart] = []
    for one in attachments:
        raw = data.get(one.sha256)
        if one.kind == "text":
            texts.append(_fenced(one.name, raw.decode(errors="replace")) if raw is not None else _named(one))
        elif one.sha256 in sent and raw is not None:
            media.append(MediaPart(one.kind, raw, one.mime))
        else:
            texts.append(_named(one))
    before = "\n\n".join(texts)
    content = "\n\n".join(piece for piece in (before, text) if piece.strip())
    if not media:
        return Message("user", content)
    parts: list[Part] = [TextPart(before)] if before else []
    parts += [PicturePart(one) for one in media]
    if text.strip():
        parts.append(TextPart(text))
    return Message("user", content, parts=tuple(parts))


def _add_question(turns: list[Message], question: Message) -> None:
    if not turns or turns[-1].role != "user":
        turns.append(question)
        return
    before = turns.pop()
    content = "\n\n".join(piece for piece in (before.content, question.content) if piece)
    parts: tuple[Part, ...] = ()
    if before.parts or question.parts:
        parts = (*_parts(before), *_parts(question))
    turns.append(Message("user", content, parts=parts))


def _parts(message: Message) -> tuple[Part, ...]:
    return message.parts or ((TextPart(message.content),) if message.content else ())


def _missing_results(turns: list[Message]) -> list[Message]:
    """Results for the calls of the last answer that have none: the program ended in between."""
    at = max((at for at, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    if at < 0:
        return []
    answered = {turn.tool_call_id for turn in turns[at + 1 :]}
    return [
        Message("tool", NO_RESULT, name=call.name, tool_call_id=call.id)
        for call in turns[at].tool_calls
        if call.id not in answered
    ]


def _named(one: Attachment) -> str:
    kinds = {"image": "picture", "audio": "sound", "text": "file"}
    return f"[{kinds[one.kind]} {one.name}]" if one.name else f"[{kinds[one.kind]}]"


def _fenced(name: str, text: str) -> str:
    """The text of a file under its name."""
    ending = name.rsplit(".", 1)[-1].lower() if "." in name else ""
    language = ending if re.fullmatch(r"[a-z0-9+#]{1,12}", ending) else ""
    return f"{name}:\n{fenced(text, language)}"
