"""LoRA adapters as the host sees them: files of a load, and scales of what is loaded."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replaced

from runtime.errors import StorageFault
from runtime.gguf.adapter import AdapterFile, adapter_load, check_fits, model_tensors, read_adapter, with_adapters
from runtime.host.admission import Ask
from runtime.host.subjects import Subject
from runtime.messages.api import InstalledModel
from runtime.messages.ipc import Generate
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
    found: list[tuple[AdapterFile, float]] = []
    for one in adapters:
        path = Path(one.path).expanduser()
        if not path.is_file():
            path = Path(find(one.path).path)
        try:
            found.append((read_adapter(path), one.scale))
        except OSError as error:
            raise _unreadable("adapter", path, error) from error
    try:
        architecture, tensors = model_tensors(subject.path)
    except OSError as error:
        raise _unreadable("model", subject.path, error) from error
    for adapter, _scale in found:
        check_fits(adapter, architecture, tensors)
    loads = [adapter_load(adapter, scale, subject.shape.n_layer) for adapter, scale in found]
    return replace(subject, shape=with_adapters(subject.shape, loads))


def _unreadable(what: str, path: Path, error: OSError) -> StorageFault:
    return StorageFault(f"The {what} {path.name} cannot be read: {error.strerror or error}.", path=str(path))


def with_scales(ask: Ask, scales: tuple[AdapterScale, ...] | None) -> Ask:
    """A request with the scales that hold for the model now, where it names none itself."""
    if scales is None or not isinstance(ask, Generate) or ask.options.lora is not None:
        return ask
    return replaced(ask, options=replaced(ask.options, lora=scales))
