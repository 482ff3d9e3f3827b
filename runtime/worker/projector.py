"""The projector (`mmproj`: the part of a model that reads pictures or sound): opening it, and what it takes."""

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runtime.errors import ENGINE_QUOTE, ModelLoadFailed, NotEnoughMemory
from runtime.gguf.facts import GgufFacts, ProjectorFacts, read_facts
from runtime.gguf.header import read_header
from runtime.gguf.picture_room import PictureRoom, capped_rows, picture_room
from runtime.gguf.source import FileSource
from runtime.messages.load import DeviceMemory, ResolvedLoad
from runtime.worker import cxx_map, mtmd
from runtime.worker.devices import CPU, Device
from runtime.worker.llama_log import LlamaLog
from runtime.worker.projector_room import LargestPicture

_MSVC_NAME = (
    "?mtmd_get_memory_usage@@YA?AV?$map@PEAUggml_backend_device@@_KU?$less@PEAUggml_backend_device@@@std@@"
    "V?$allocator@U?$pair@QEAUggml_backend_device@@_K@std@@@3@@std@@PEBDUmtmd_context_params@@@Z"
)
_NAMES = ("mtmd_get_memory_usage", "_Z21mtmd_get_memory_usagePKc19mtmd_context_params", _MSVC_NAME)
_N_WORDS = 2  # the device, and its bytes
_WEIGHTS = re.compile(r"model size: +([\d.]+) MiB")
_BUFFER = re.compile(r": +(\S+) compute buffer size = +([\d.]+) MiB")
_MISMATCH = re.compile(r"mismatch between text model \(n_embd = (\d+)\) and mmproj \(n_embd = (\d+)\)")

_MIB = 1024 * 1024
_JOINING = frozenset({"ultravox", "qwen2a", "meralion", "musicflamingo"})
_FRAMES = 3000
"""Of a piece of sound, 30 s."""

PLACE_BOUND = frozenset({"deepseek4v"})
"""Kinds whose rows depend on where in a prompt a picture stands: they cannot be encoded by themselves."""
SIZED_BY_UBATCH = frozenset({"gemma4v", "gemma4uv"})
"""Kinds that choose how many rows a picture gets, and whose rows must all be in one micro-batch."""


def projector_params(resolved: ResolvedLoad, devices: Sequence[Device], kind: str = "") -> Any:  # noqa: ANN401 - a C struct
    """How the projector of a load is opened: on the first device that takes layers, else on the processor.

    `kind` is llama.cpp's name of it.
    """
    params = mtmd.context_params_default()
    by_name = {device.name: device for device in devices}
    first = by_name.get(resolved.devices[0]) if resolved.devices and resolved.n_gpu_layers else None
    params.use_gpu = first is not None
    params.device = None if first is None else first.handle
    params.n_threads = resolved.n_threads
    params.print_timings = False
    params.warmup = True  # makes its compute buffer at once
    if most_rows := _most_rows(resolved, kind):
        params.image_max_tokens = most_rows
    return params


def _most_rows(resolved: ResolvedLoad, kind: str) -> int:
    """The most rows of a picture that libmtmd is told; 0 leaves its own limit."""
    return resolved.n_ubatch if kind in SIZED_BY_UBATCH else capped_rows(kind)


def _room_of(path: Path, resolved: ResolvedLoad, kind: str) -> PictureRoom | None:
    """How much larger than at opening a picture may be; None where it may not."""
    with FileSource(path) as source:
        room = picture_room(read_header(source), kind, most_rows=_most_rows(resolved, kind))
    return room if room is not None and room.grows else None


def planned_bytes(
    path: Path, resolved: ResolvedLoad, devices: Sequence[Device], *, by_log: bool = not cxx_map.IS_TRIED
) -> dict[str, int]:
    """Weights and the largest compute buffer of a projector by device; nothing is allocated, only its header read.

    With `by_log` llama.cpp is not asked, and the size of the file stands for it: without the compute buffer.

    Raises:
        ModelLoadFailed: llama.cpp cannot read it as a projector.
    """
    header = read_facts(path)
    kind = _projector_of(path, header).projector_type
    params = projector_params(resolved, devices, kind)
    name = resolved.devices[0] if params.use_gpu else CPU
    function = None if by_log else _function()
    if function is None:
        return {name: path.stat().st_size}
    listed = cxx_map.entries(function(os.fsencode(path), params), _N_WORDS)
    if listed is None:
        raise ModelLoadFailed(
            f"{path.name} is no projector that the built-in llama.cpp can read.",
            path=str(path),
            reason="mtmd_get_memory_usage failed",
        )
    names = {device.handle: device.name for device in devices}
    found: dict[str, int] = {}
    for handle, size_bytes in listed:
        device = names.get(handle, CPU)
        found[device] = found.get(device, 0) + size_bytes
    if (room := _room_of(path, resolved, kind)) is not None and name in found:
        weight_bytes = min(header.weight_bytes, found[name])
        found[name] = weight_bytes + room.grown_bytes(found[name] - weight_bytes)
    return found


def _function() -> Any:  # noqa: ANN401 - a C function
    for name in _NAMES:
        try:
            function = mtmd.library[name]
        except AttributeError:
            continue
        function.restype = cxx_map.Map
        function.argtypes = (ctypes.c_char_p, mtmd.ContextParams)
        return function
    return None


def projector_facts(path: Path) -> ProjectorFacts:
    """What a projector's header tells.

    Raises:
        ModelLoadFailed: it is no GGUF file, or no projector. `OSError` as reading does.
    """
    return _projector_of(path, read_facts(path))


def _projector_of(path: Path, header: GgufFacts) -> ProjectorFacts:
    if header.projector is None:
        raise ModelLoadFailed(
            f"{path.name} is no projector but a model of its own.",
            hint="Choose the file whose name begins with mmproj.",
            path=str(path),
            reason="no projector",
        )
    return header.projector


def _check_usable(path: Path, facts: ProjectorFacts, resolved: ResolvedLoad) -> None:
    if facts.projector_type in PLACE_BOUND:
        raise ModelLoadFailed(
            f"{path.name} is a projector of the kind {facts.projector_type}, which is not supported yet.",
            hint="Load the model without it (projector: none).",
            path=str(path),
            reason="kind of projector not supported",
        )
    if facts.whole_rows > resolved.n_ubatch:
        raise ModelLoadFailed(
            f"{path.name} makes {facts.whole_rows:,} tokens of a picture that must be read at once; the micro-batch is "
            f"{resolved.n_ubatch:,}.",
            hint=f"Set n_ubatch to {facts.whole_rows:,} or more, or to automatic.",
            path=str(path),
            reason="n_ubatch is too small for a picture",
        )


def _miscounts_sound(facts: ProjectorFacts) -> bool:
    """Whether llama.cpp would end the process at the first sound.

    For kinds that join frames it counts rows in two ways (`clip_n_output_tokens` halves after joining, the encoder
    before), and asserts that they agree: of the 3,000 frames of a piece, joined by eight, 187 against 188.
    """
    if facts.projector_type not in _JOINING or facts.sound_stack <= 1:
        return False
    joined = -(-_FRAMES // facts.sound_stack)
    return joined // 2 != -(-(_FRAMES // 2) // facts.sound_stack)


@dataclass(slots=True)
class Projector:
    """An opened projector. Freed by `close`; nobody may use it then.

    Attributes:
        context: the `mtmd_context` pointer.
        path: its file.
        sees: it takes pictures.
        hears: it takes sounds.
        uses_mrope: positions of a picture have several dimensions.
        n_embd: numbers a row.
        sizes: bytes it took by device, compute buffer included.
        largest: what its context calls while it encodes, if anything.
    """

    context: int
    path: Path
    sees: bool
    hears: bool
    uses_mrope: bool
    n_embd: int
    sizes: dict[str, int]
    largest: LargestPicture | None = None

    def close(self) -> None:
        """Free it; closing twice is harmless."""
        if self.context:
            mtmd.free(self.context)
            self.context = 0


def with_projector(
    parts: Sequence[DeviceMemory], sizes: dict[str, int], resolved: ResolvedLoad
) -> tuple[DeviceMemory, ...]:
    """What a model takes, with what its projector takes."""
    by_name = {part.device: part for part in parts}
    for name, size_bytes in sizes.items():
        by_name[name] = replace(by_name.get(name, DeviceMemory(name)), projector_bytes=size_bytes)
    order = [*resolved.devices, CPU]
    return tuple(sorted(by_name.values(), key=lambda part: order.index(part.device)))


def open_projector(
    path: Path, model: int, n_embd: int, resolved: ResolvedLoad, devices: Sequence[Device], log: LlamaLog
) -> Projector:
    """Open the projector of a loaded model, with its compute buffer.

    Args:
        path: its file.
        model: the `llama_model` it belongs to.
        n_embd: numbers the model takes in for each row (`llama_model_n_embd_inp`).
        resolved: how the model was loaded.
        devices: those it could use.
        log: gets its lines.

    Raises:
        ModelLoadFailed: it is no projector, not this model's, or llama.cpp refuses it. `OSError` as reading does.
    """
    log.clear(keep_model=True)
    header = read_facts(path)
    facts = _projector_of(path, header)
    header.check_whole()
    _check_usable(path, facts, resolved)
    mtmd.log_set(log.address, None)
    params = projector_params(resolved, devices, facts.projector_type)
    room = _room_of(path, resolved, facts.projector_type)
    largest = LargestPicture(room) if room is not None else None
    if largest is not None:
        params.cb_eval = largest.callback
    context: int | None = mtmd.init_from_file(os.fsencode(path), model, params)
    if not context:
        raise _refusal(path, log)
    try:
        reserved = largest.reserve(context) if largest is not None else {}
    except NotEnoughMemory:
        mtmd.free(context)
        raise
    device = resolved.devices[0] if params.use_gpu else CPU
    return Projector(
        context,
        path,
        sees=bool(mtmd.support_vision(context)),
        hears=bool(mtmd.support_audio(context)) and not _miscounts_sound(facts),
        uses_mrope=bool(mtmd.use_mrope(context)),
        n_embd=n_embd,
        sizes=_sizes(log, device, {found.ggml_name: found.name for found in devices}, reserved),
        largest=largest,
    )


def _refusal(path: Path, log: LlamaLog) -> ModelLoadFailed:
    reason, told = log.reason(), {"path": str(path)}
    if found := _MISMATCH.search("\n".join(log.lines())):
        return ModelLoadFailed(
            f"{path.name} belongs to another model: it makes rows of {found[2]} numbers, this model reads {found[1]}.",
            hint="Choose the projector that came with the model, or none.",
            reason=reason,
            **told,
        )
    if re.search(r"failed to allocate|bad_alloc|out of memory", reason):
        return NotEnoughMemory(f"There is not enough memory for {path.name}.", reason=reason, **told)
    return ModelLoadFailed(
        f"{path.name} could not be loaded.{ENGINE_QUOTE}{reason or 'nothing'}",
        hint="Choose another projector, or none.",
        reason=reason,
        **told,
    )


def _sizes(log: LlamaLog, device: str, names: dict[str, str], reserved: Mapping[str, int]) -> dict[str, int]:
    """Weights and compute buffers as llama.cpp printed them; a projector for both kinds prints each twice.

    `reserved` are buffers that were made anew since, larger.
    """

    def device_of(buffer: str) -> str:
        # A buffer is named after its device: by llama.cpp, or for a node with its address as we do.
        return names.get(buffer) or (buffer if buffer in names.values() else CPU)

    weights: dict[str, float] = {}
    buffers: dict[str, float] = {}
    for line in log.lines():
        if weight := _WEIGHTS.search(line):
            weights[device] = weights.get(device, 0.0) + float(weight[1])
        elif buffer := _BUFFER.search(line):
            name = device_of(buffer[1])
            buffers[name] = buffers.get(name, 0.0) + float(buffer[2])
    for name, size_bytes in reserved.items():
        buffers[device_of(name)] = max(buffers.get(device_of(name), 0.0), size_bytes / _MIB)
    return {
        name: int((weights.get(name, 0.0) + buffers.get(name, 0.0)) * _MIB)
        for name in dict.fromkeys((*weights, *buffers))
    }
