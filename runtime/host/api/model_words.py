"""What a model file's header tells beside the library's facts: metadata, template, what the model can do."""

import asyncio
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from runtime.chat.response import choose_spec, load_specs
from runtime.errors import StorageFault
from runtime.gguf.header import ArrayRef, GgufHeader, iterate_strings, read_header
from runtime.gguf.source import FileSource
from runtime.messages.api import InstalledModel

MAX_KEPT = 16
"""Headers kept; with a long template one takes some hundred kilobytes."""

MetaJson = str | int | float | bool | tuple[str | int | float | bool, ...] | None

_TEMPLATE = "tokenizer.chat_template"
_FIM = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")


@dataclass(frozen=True, slots=True)
class ModelWords:
    """Of one file. Long lists of the metadata are `None`, as nobody reads a vocabulary in an answer."""

    metadata: dict[str, MetaJson]
    template: str
    bos_token: str
    eos_token: str
    can_reason: bool

    def capabilities(self, model: InstalledModel) -> tuple[str, ...]:
        """In Ollama's words."""
        if model.kind == "embedding":
            return ("embedding",)
        has_fim = any(key in self.metadata for key in _FIM)
        can = {
            "completion": True,
            "tools": "tools" in self.template,
            "vision": model.is_vision,
            "thinking": self.can_reason,
            "insert": has_fim,
        }
        return tuple(name for name, is_so in can.items() if is_so)


class ModelShelf:
    """Reads headers in a thread and keeps the last ones. Home: the event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, int], ModelWords] = OrderedDict()

    async def words(self, model: InstalledModel) -> ModelWords:
        """The header's words of an installed model.

        Raises:
            ModelLoadFailed: the file is no whole GGUF.
            StorageFault: it cannot be read.
        """
        try:
            stat = await asyncio.to_thread(os.stat, model.path)
            key = (model.path, stat.st_mtime_ns, stat.st_size)
            found = self._kept.get(key)
            if found is None:
                found = await asyncio.to_thread(_read, Path(model.path))
        except OSError as error:
            raise StorageFault(
                f"{Path(model.path).name} cannot be read: {error.strerror or error}.", path=model.path
            ) from error
        self._kept[key] = found
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found


def _read(path: Path) -> ModelWords:
    with FileSource(path) as source:
        header = read_header(source)
        tokens = {header.integer(f"tokenizer.ggml.{name}_token_id"): name for name in ("bos", "eos")}
        texts = {"bos": "", "eos": ""}
        if header.array_length("tokenizer.ggml.tokens"):
            last = max((number for number in tokens if number is not None), default=-1)
            for number, raw in enumerate(iterate_strings(source, header, "tokenizer.ggml.tokens")):
                if number > last:
                    break
                if number in tokens:
                    texts[tokens[number]] = raw.decode("utf-8", "replace")
    template = header.text(_TEMPLATE)
    return ModelWords(
        metadata=_metadata(header),
        template=template,
        bos_token=texts["bos"],
        eos_token=texts["eos"],
        can_reason=bool(template) and choose_spec(template, load_specs()) is not None,
    )


def _metadata(header: GgufHeader) -> dict[str, MetaJson]:
    told: dict[str, MetaJson] = {}
    for key, value in header.metadata.items():
        if key != _TEMPLATE:
            told[key] = None if isinstance(value, ArrayRef) else value
    return told
