"""A conversation as a Markdown document."""

from PySide6.QtCore import QCoreApplication

from app.transcript import Transcript


def to_markdown(title: str, system_prompt: str, transcript: Transcript) -> str:
    """The shown branch: a heading a turn, the text as it is; reasoning is left out."""
    you = QCoreApplication.translate("Export", "You")
    model = QCoreApplication.translate("Export", "Assistant")
    parts = [f"# {title}"]
    if system_prompt:
        quoted = "\n".join(f"> {line}".rstrip() for line in system_prompt.splitlines())
        parts.append(quoted)
    for node in transcript.path():
        if not len(node.content):
            continue
        name = you if node.role == "user" else model
        if node.role == "assistant" and node.stats is not None and node.stats.model:
            name = f"{name} ({node.stats.model})"
        parts.append(f"## {name}\n\n{node.content.text.strip()}")
    return "\n\n".join(parts) + "\n"
