"""A conversation as a Markdown document."""

from PySide6.QtCore import QCoreApplication

from app.fence import fenced
from app.store.records import Attachment
from app.tool_results import pretty
from app.transcript import Node, Transcript
from runtime.messages.shared import ToolCall


def spoken(one: Attachment) -> str:
    """What a document says in the place of an attachment."""
    kinds = {
        "image": QCoreApplication.translate("Export", "Picture"),
        "audio": QCoreApplication.translate("Export", "Sound"),
        "text": QCoreApplication.translate("Export", "File"),
    }
    size = f" ({one.width_px} x {one.height_px})" if one.width_px else ""
    return f"{kinds[one.kind]}{': ' if one.name else ''}{one.name}{size}"


def to_markdown(title: str, system_prompt: str, transcript: Transcript) -> str:
    """The shown branch: a heading a turn, the text as it is; reasoning is left out."""
    you = QCoreApplication.translate("Export", "You")
    model = QCoreApplication.translate("Export", "Assistant")
    parts = [f"# {title}"]
    if system_prompt:
        quoted = "\n".join(f"> {line}".rstrip() for line in system_prompt.splitlines())
        parts.append(quoted)
    for node in transcript.path():
        if not len(node.content) and not node.attachments and not node.tool_calls:
            continue
        if node.role == "tool":
            parts.append(_result(transcript, node))
            continue
        name = you if node.role == "user" else model
        if node.role == "assistant" and node.stats is not None and node.stats.model:
            name = f"{name} ({node.stats.model})"
        body = [f"*{spoken(one)}*" for one in node.attachments]
        body.append(node.content.text.strip())
        body += [_call(call) for call in node.tool_calls]
        parts.append(f"## {name}\n\n" + "\n\n".join(piece for piece in body if piece))
    return "\n\n".join(parts) + "\n"


def _call(call: ToolCall) -> str:
    words = QCoreApplication.translate("Export", "Calls the tool `{name}`:")
    return f"{words.format(name=call.name)}\n\n{fenced(pretty(call.arguments).rstrip() or '{}', 'json')}"


def _result(transcript: Transcript, node: Node) -> str:
    call = transcript.call_of(node)
    words = QCoreApplication.translate("Export", "Tool `{name}`").format(name=call.name if call else node.tool_name)
    files = [f"*{spoken(one)}*" for one in node.attachments]
    return "\n\n".join([f"## {words}", *files, fenced(node.content.text.rstrip())])
