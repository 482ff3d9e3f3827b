"""LoRA adapters: pairs of thin matrices in a GGUF file of their own, that are added to matrices of a model.

llama.cpp checks most of what is checked here, but says little about it, and ends the process on some of the rest
(numbers of another type than it asks for, matrices of experts that do not fit): so a file is read here before it is
given to it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from runtime.errors import ModelLoadFailed, StorageFault
from runtime.gguf.architecture import ModelShape, bytes_of
from runtime.gguf.header import GgufHeader, TensorInfo, read_header
from runtime.gguf.parts import part_paths
from runtime.gguf.quantization import tensor_bytes, type_name
from runtime.gguf.source import FileSource
from runtime.messages.load import AdapterLoad

_LAYER = re.compile(r"^blk\.(\d{1,5})\.")
_IGNORED = "_norm.weight"
"""llama.cpp steps over such tensors in an adapter."""
_COMPUTABLE = ("F", "BF", "Q", "IQ", "TQ", "MXFP", "NVFP")
"""Beginnings of the names of number formats that matrices can be multiplied in; the others are whole numbers."""
_EMBEDDING = "token_embd.weight"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """The header of an adapter.

    Attributes:
        path: the file.
        name: as it calls itself, else the file's.
        architecture: of the models it was made for.
        pairs: of each matrix it changes, the tensors A and B.
        rank: of its widest pair.
        size_bytes: data of all pairs.
    """

    path: Path
    name: str
    architecture: str
    pairs: Mapping[str, tuple[TensorInfo, TensorInfo]]
    rank: int
    size_bytes: int


def _read_adapter(path: Path) -> AdapterFile:
    """Read the header of an adapter.

    Raises:
        ModelLoadFailed: it is no adapter, of a kind that is not supported, or incomplete (`path`, `reason`).
        NotGguf: it is no GGUF file.
        OSError: it cannot be read.
    """
    with FileSource(path) as source:
        header = read_header(source)
        size_bytes = source.size_bytes
    kind, adapter_type = header.text("general.type"), header.text("adapter.type")
    if kind != "adapter" or adapter_type != "lora":
        what = f"is a {kind or 'model'}" if kind != "adapter" else f"is an adapter of the kind '{adapter_type}'"
        raise _refused(path, f"{what}, no LoRA adapter", "not an adapter")
    if header.metadata.get("adapter.alora.invocation_tokens") is not None:
        raise _refused(path, "is an activated LoRA (aLoRA), which is not supported", "activated LoRA")
    alpha = header.metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, float):
        raise _refused(path, "does not say how strong it is (adapter.lora.alpha)", "no adapter.lora.alpha")
    pairs = _pairs(path, header.tensors)
    used = [tensor for pair in pairs.values() for tensor in pair]
    end = max(header.data_offset + tensor.offset + (tensor_bytes(tensor.type_id, tensor.shape) or 0) for tensor in used)
    if end > size_bytes:
        raise _refused(path, "is incomplete: it ends before its data does", "file bounds")
    return AdapterFile(
        path,
        header.text("general.name") or path.stem,
        header.text("general.architecture"),
        pairs,
        max(min(a.shape[1], b.shape[0]) for a, b in pairs.values()),
        bytes_of(used),
    )


def _pairs(path: Path, tensors: Iterable[TensorInfo]) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    halves: dict[str, dict[str, TensorInfo]] = {}
    for tensor in tensors:
        name, _dot, half = tensor.name.rpartition(".")
        if half in ("lora_a", "lora_b"):
            if not 2 <= len(tensor.shape) <= 3:  # noqa: PLR2004 - a matrix, or one for each expert
                raise _refused(path, f"has a tensor that is no matrix ({tensor.name})", "shape")
            if not type_name(tensor.type_id).upper().startswith(_COMPUTABLE):
                raise _refused(path, f"has a tensor of whole numbers ({tensor.name})", "number format")
            halves.setdefault(name, {})[half] = tensor
        elif not tensor.name.endswith(_IGNORED):
            raise _refused(path, f"has a tensor that belongs in no adapter ({tensor.name})", "unexpected tensor")
    for name, found in halves.items():
        if len(found) != 2:  # noqa: PLR2004 - A and B
            raise _refused(path, f"has only half of the pair for {name}", "missing tensor")
    if not halves:
        raise _refused(path, "changes nothing: it has no tensors", "no tensors")
    return {name: (found["lora_a"], found["lora_b"]) for name, found in halves.items()}


def _refused(path: Path, what: str, reason: str) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"The adapter {path.name} cannot be used: it {what}.",
        hint="Choose a LoRA adapter in GGUF form that was made for this model.",
        path=str(path),
        reason=reason,
    )


def _model_tensors(path: Path) -> tuple[str, dict[str, TensorInfo]]:
    """Architecture and tensors of a model by name, of all its parts.

    Raises:
        RuntimeFault, OSError: as `read_header`.
    """
    headers: list[GgufHeader] = []
    for part in part_paths(path):
        with FileSource(part) as source:
            headers.append(read_header(source))
    return headers[0].text("general.architecture"), {
        tensor.name: tensor for header in headers for tensor in header.tensors
    }


def _check_fits(adapter: AdapterFile, architecture: str, tensors: Mapping[str, TensorInfo]) -> None:
    """Check that an adapter was made for a model of this shape.

    Raises:
        ModelLoadFailed: it was not; the message says where they differ.
    """
    path = adapter.path
    if adapter.architecture != architecture:
        raise _refused(
            path,
            f"was made for models of the kind '{adapter.architecture}', this one is '{architecture}'",
            "architecture",
        )
    for name, (a, b) in adapter.pairs.items():
        base = tensors.get(name)
        if base is None:
            raise _refused(path, f"changes {name}, which the model does not have", "wrong base model")
        if name.endswith(_EMBEDDING):
            fits = base.shape == (b.shape[1], a.shape[1]) and a.shape[0] == b.shape[0]
        else:
            rank_fits = a.shape[1] == b.shape[0]
            fits = rank_fits and base.shape == (a.shape[0], b.shape[1], *a.shape[2:]) and a.shape[2:] == b.shape[2:]
        if not fits:
            shapes = " and ".join("x".join(map(str, tensor.shape)) for tensor in (a, b))
            raise _refused(path, f"has {shapes} for {name}, which is {'x'.join(map(str, base.shape))}", "shape")


def read_adapters(model_path: Path, paths: Sequence[Path]) -> list[AdapterFile]:
    """The headers of adapters that were all made for a model; the model's own, which may be long, is read once.

    Raises:
        ModelLoadFailed: one is no adapter, of a kind that is not supported, incomplete, or was made for another
            model (`path`, `reason`).
        NotGguf: one is no GGUF file.
        StorageFault: one, or the model, cannot be read.
    """
    if not paths:
        return []
    found = [_readable("adapter", path, _read_adapter) for path in paths]
    architecture, tensors = _readable("model", model_path, _model_tensors)
    for adapter in found:
        _check_fits(adapter, architecture, tensors)
    return found


def _readable(what: str, path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except OSError as error:
        reason = error.strerror or error
        raise StorageFault(f"The {what} {path.name} cannot be read: {reason}.", path=str(path)) from error


def adapter_load(adapter: AdapterFile, scale: float, n_layer: int) -> AdapterLoad:
    """What a load needs to know of an adapter for a model of `n_layer` layers."""
    layer_bytes = [0] * (n_layer + 1)
    for name, pair in adapter.pairs.items():
        found = _LAYER.match(name)
        layer_bytes[min(int(found[1]), n_layer) if found else n_layer] += bytes_of(pair)
    return AdapterLoad(str(adapter.path), scale, tuple(layer_bytes))


def with_adapters(shape: ModelShape, adapters: Sequence[AdapterLoad]) -> ModelShape:
    """The shape with the adapters' weights counted in the layers they lie beside."""
    layers = tuple(
        replace(layer, weight_bytes=layer.weight_bytes + sum(one.layer_bytes[index] for one in adapters))
        for index, layer in enumerate(shape.layers)
    )
    last = sum(one.layer_bytes[-1] for one in adapters)
    return replace(shape, layers=layers, output_bytes=shape.output_bytes + last, adapters=tuple(adapters))
