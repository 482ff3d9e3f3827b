"""From a result of the protocol to ours, bounded."""

import base64
import binascii

import mcp.types as mcp
import msgspec

from runtime.messages.shared import MediaPart
from runtime.messages.tools import (
    MAX_IMAGE_BYTES,
    MAX_RESULT_CHARS,
    MAX_RESULT_IMAGES,
    MAX_RESULT_PARTS,
    ResultLink,
    ResultMedia,
    ResultPart,
    ResultText,
    ToolResult,
)

_LINK_CHARS = 4096


def to_result(result: mcp.CallToolResult, duration_s: float) -> ToolResult:
    """The result with at most `MAX_RESULT_CHARS` of text; what is left out is said in `cut`."""
    made = _Parts()
    for block in result.content:
        made.take(block)
    structured = ""
    if result.structuredContent is not None:
        structured = msgspec.json.encode(result.structuredContent).decode()
        if len(structured) > MAX_RESULT_CHARS:
            made.cut.append(f"Structured content of {len(structured):,} characters was left out.")
            structured = ""
    return ToolResult(tuple(made.parts), structured, result.isError, tuple(made.told()), round(duration_s, 3))


def error_result(text: str, duration_s: float) -> ToolResult:
    """A result that says what went wrong."""
    return ToolResult((ResultText(text[:MAX_RESULT_CHARS]),), is_error=True, duration_s=round(duration_s, 3))


class _Parts:
    def __init__(self) -> None:
        self.parts: list[ResultPart] = []
        self.cut: list[str] = []
        self._room_chars = MAX_RESULT_CHARS
        self._cut_chars = 0
        self._n_images = 0
        self._n_over = 0

    def take(self, block: mcp.ContentBlock) -> None:
        if len(self.parts) >= MAX_RESULT_PARTS:
            self._n_over += 1
            return
        match block:
            case mcp.TextContent(text=text):
                self._text(text)
            case mcp.ImageContent(data=data, mimeType=mime):
                self._media("image", data, mime)
            case mcp.AudioContent(data=data, mimeType=mime):
                self._media("audio", data, mime)
            case mcp.ResourceLink():
                link = (str(block.uri), block.title or block.name, block.description or "", block.mimeType or "")
                self.parts.append(ResultLink(*(text[:_LINK_CHARS] for text in link)))
            case mcp.EmbeddedResource(resource=mcp.TextResourceContents(text=text)):
                self._text(text)
            case mcp.EmbeddedResource(resource=mcp.BlobResourceContents() as blob):
                mime = blob.mimeType or ""
                if mime.startswith("image/"):
                    self._media("image", blob.blob, mime)
                else:
                    self.parts.append(ResultLink(str(blob.uri)[:_LINK_CHARS], mime=mime[:_LINK_CHARS]))

    def told(self) -> list[str]:
        """What was left out, in sentences."""
        if self._cut_chars:
            kept = MAX_RESULT_CHARS - self._room_chars
            self.cut.append(f"The result was cut: {self._cut_chars:,} characters after the first {kept:,} are missing.")
        if self._n_over:
            self.cut.append(f"{self._n_over:,} further parts of the result were left out.")
        return self.cut

    def _text(self, text: str) -> None:
        kept = text[: self._room_chars]
        self._room_chars -= len(kept)
        self._cut_chars += len(text) - len(kept)
        if kept:
            self.parts.append(ResultText(kept))

    def _media(self, kind: str, data: str, mime: str) -> None:
        what = "picture" if kind == "image" else "sound"
        if self._n_images >= MAX_RESULT_IMAGES:
            self._n_over += 1
            return
        if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            self.cut.append(f"A {what} of more than {MAX_IMAGE_BYTES // 1024**2} MiB was left out.")
            return
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.cut.append(f"A {what} that is no base64 was left out.")
            return
        self._n_images += 1
        self.parts.append(ResultMedia(MediaPart("image" if kind == "image" else "audio", content, mime[:100])))
