"""LoRA adapters as the host sees them: files of a load, and scales of what is loaded."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replaced

from runtime.gguf.adapter import adapter_load, read_adapters, with_adapters
from runtime.host.admission import Ask
from runtime.host.subjects import Subject
from runtime.messages.api import InstalledModel
from runtime.messages.ipc import Embed, Generate, Rerank
from runtime.options import Adapter, AdapterScale


def adapted(subject: Subject, adapters: Sequence[Adapter], find: Callable[[str], InstalledModel]) -> Subject:
    """The model with its adapters counted. Blocks: reads their headers.

    Args:
        subject: the model.
        adapters: by path, or by id as `find` knows them.
        find: the library.

    Raises:
        ModelNotFound: there is no such file or id.
        ModelLoadFailed: one is no adapter, or was made for another model.
        StorageFault: one, or the model, cannot be read.
    """
    paths = []
    for one in adapters:
        path = Path(one.path).expanduser()
        paths.append(path if path.is_file() else Path(find(one.path).path))
    files = read_adapters(subject.path, paths)
    loads = [adapter_load(file, one.scale, subject.shape.n_layer) for file, one in zip(files, adapters, strict=True)]
    return replace(subject, shape=with_adapters(subject.shape, loads))


def with_scales(ask: Ask, scales: tuple[AdapterScale, ...] | None) -> Ask:
    """A request with the scales that hold for the model now, where it names none itself."""
    if scales is None:
        return ask
    if isinstance(ask, Embed | Rerank):
        return ask if ask.lora is not None else replaced(ask, lora=scales)
    if not isinstance(ask, Generate) or ask.options.lora is not None:
        return ask
    return replaced(ask, options=replaced(ask.options, lora=scales))
