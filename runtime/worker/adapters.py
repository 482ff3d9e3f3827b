"""Loaded LoRA adapters: opening them, and applying them to a context with their scales."""

import ctypes
import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from runtime.errors import ENGINE_QUOTE, ModelLoadFailed
from runtime.gguf.adapter import adapter_load, read_adapters
from runtime.messages.load import AdapterLoad
from runtime.messages.shared import AdapterFacts
from runtime.options import Adapter
from runtime.scheduler.adapters import AdapterSet, adapter_set
from runtime.worker import amx, native
from runtime.worker.llama_log import LlamaLog

_KEY_BYTES = 16


class Adapters:
    """The adapters of one model; llama.cpp frees them with it.

    Attributes:
        facts: what they are, in the order of their ids.
        default: what is applied where a request says nothing; `None` is nothing.
    """

    def __init__(self, handles: Sequence[int] = (), facts: tuple[AdapterFacts, ...] = ()) -> None:
        self._handles = (ctypes.c_void_p * max(len(handles), 1))(*handles)
        self._n = len(handles)
        self.facts = facts
        self.default = adapter_set([fact.key for fact in facts], [fact.scale for fact in facts])

    def apply(self, context: int, chosen: AdapterSet | None) -> None:
        """Apply a set to a context, in place of what it had. Home thread: the context's."""
        n_used = 0 if chosen is None else self._n
        scales = (ctypes.c_float * max(n_used, 1))(*(chosen.scales if chosen is not None else ()))
        native.set_adapters_lora(context, self._handles, n_used, scales)


def planned_adapters(path: Path, adapters: Sequence[Adapter], n_layer: int) -> tuple[AdapterLoad, ...]:
    """The adapters of a load without a plan, where they are named by path.

    Raises:
        RuntimeFault: as `runtime.gguf.adapter.read_adapters`.
    """
    files = read_adapters(path, [Path(one.path) for one in adapters])
    return tuple(adapter_load(file, one.scale, n_layer) for file, one in zip(files, adapters, strict=True))


def open_adapters(model: int, model_path: Path, wanted: Sequence[AdapterLoad], log: LlamaLog) -> Adapters:
    """Load adapters.

    Args:
        model: the `llama_model`.
        model_path: its file.
        wanted: which.
        log: for llama.cpp's words when it refuses one.

    Raises:
        ModelLoadFailed: one does not fit the model, or llama.cpp refuses it.
        StorageFault: a file cannot be read.
    """
    handles: list[int] = []
    facts: list[AdapterFacts] = []
    for one, adapter in zip(wanted, read_adapters(model_path, [Path(one.path) for one in wanted]), strict=True):
        path = adapter.path
        key = _key(path)
        with amx.refused():
            handle: int | None = native.adapter_lora_init(model, os.fsencode(path))
        if not handle:
            raise ModelLoadFailed(
                f"The adapter {path.name} could not be loaded.{ENGINE_QUOTE}{log.reason() or 'nothing'}",
                path=str(path),
                reason=log.reason(),
            )
        handles.append(handle)
        facts.append(AdapterFacts(adapter.name, path.name, one.scale, adapter.rank, adapter.size_bytes, key))
    return Adapters(handles, tuple(facts))


def _key(path: Path) -> str:
    """A digest of the whole file: adapters are small, and what was read under one must never pass for another's."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=_KEY_BYTES)).hexdigest()
