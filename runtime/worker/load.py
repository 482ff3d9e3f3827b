"""Opening a model file: parameters, progress, and llama.cpp's reasons when it fails."""

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import llama_cpp
import psutil
from msgspec.structs import replace as struct_replace

from runtime.errors import (
    ENGINE_QUOTE,
    FileTruncated,
    ModelLoadFailed,
    NotEnoughMemory,
    NotGguf,
    RuntimeFault,
    UnknownArchitecture,
)
from runtime.fit import defaults
from runtime.fit.context_memory import context_bytes
from runtime.gguf.adapter import with_adapters
from runtime.gguf.architecture import ModelShape
from runtime.gguf.facts import read_facts
from runtime.gguf.heads import GIVES_OUTPUT_ROWS, with_heads
from runtime.gguf.parts import read_shape
from runtime.messages.fit import Measured
from runtime.messages.load import ResolvedLoad
from runtime.messages.shared import ModelFacts
from runtime.options import LoadOptions
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import MemoryKind
from runtime.units import format_bytes
from runtime.worker import amx, memory, native, parameters
from runtime.worker.adapters import Adapters, open_adapters, planned_adapters
from runtime.worker.batch import BatchArrays
from runtime.worker.devices import CPU, Device, list_devices, register_nodes
from runtime.worker.llama_log import LlamaLog
from runtime.worker.vocab import Vocab

if TYPE_CHECKING:
    from runtime.worker.projector import Projector

OnProgress = Callable[[str, float], None]

PROGRESS_STEP = 0.01

_REASONING_MARKS = ("<think>", "reasoning_content", "enable_thinking", "<|channel|>", "[THINK]", "<seed:think>")
_UNKNOWN_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']*)'")
_TRUNCATED = re.compile(
    r"not within (?:the )?file bounds|corrupted or incomplete|failed to read|unexpectedly reached end of file|"
    r"read error|failed to seek",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(
    r"failed to allocate|unable to allocate|out of memory|bad_alloc|failed to initialize .*cache|mmap failed",
    re.IGNORECASE,
)
_MAX_VALUE_BYTES = 4096

LOG = LlamaLog()
"""llama.cpp has one log a process."""


class LlamaModel:
    """A loaded model with its context. Made by `load_model`, freed by `close`.

    Attributes:
        facts: what it is, as llama.cpp reports it, and what automatic options came to.
        vocab: its tokenizer.
        metadata: scalar GGUF metadata by key, as text.
        resolved: every load option as a number; followed to the letter.
        options: the load options it was asked to load with.
        memory_kind: how its memory can be reused.
        has_memory: False for encoders, which only embed.
        can_roll_back: whether the last tokens can be taken out of its memory again.
        draft: the draft model beside it (`runtime.worker.speculation`), which it owns.
        heads: the context of its own multi-token heads (`runtime.worker.speculation_heads`); 0 without.
        model: the `llama_model` pointer.
        context: the `llama_context` pointer.
        projector: what it sees and hears with; None without.
        adapters: LoRA adapters that can be applied to it.
        abort: makes a running decode end; lives as long as the context that reads it.
    """

    def __init__(self, model: int, context: int, *, vocab: Vocab, metadata: Mapping[str, str]) -> None:
        self.model = model
        self.context = context
        self.vocab = vocab
        self.metadata = metadata
        self.facts: ModelFacts
        self.resolved: ResolvedLoad
        self.options = LoadOptions()
        self.memory_kind: MemoryKind = "shared"
        self.has_memory = True
        self.can_roll_back = True
        self.draft: LlamaModel | None = None
        self.heads = 0
        self.projector: Projector | None = None
        self.adapters = Adapters()
        self.abort = native.AbortFlag()
        native.set_abort_callback(context, native.flag_reader(), self.abort.address)

    @property
    def gives_output_rows(self) -> bool:
        """Whether its heads give hidden rows of the wanted rows of a batch alone, or of all."""
        return self.metadata.get("general.architecture", "") in GIVES_OUTPUT_ROWS

    @property
    def contexts(self) -> tuple[int, ...]:
        """Its context, and that of its heads where there is one."""
        return (self.context, self.heads) if self.heads else (self.context,)

    def close(self) -> None:
        """Free the context, the model and its draft model. No engine may run on it any more; twice is harmless."""
        if self.draft is not None:
            self.draft.close()
            self.draft = None
        if self.projector is not None:
            self.projector.close()
            self.projector = None
        if self.heads:
            native.free(self.heads)
            self.heads = 0
        if self.context:
            native.free(self.context)
            self.context = 0
        if self.model:
            native.model_free(self.model)
            self.model = 0


class _Progress:
    """llama.cpp's progress callback: passes steps of a percent on, and remembers what was raised."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._last = -1.0
        self.raised: BaseException | None = None
        self.callback = native.ProgressCallback(self._on_step)

    def _on_step(self, fraction: float, _user_data: int | None) -> bool:
        if fraction < 1 and fraction - self._last < PROGRESS_STEP:
            return True
        self._last = fraction
        try:
            self._on_progress("Reading the model", fraction)
        except BaseException as error:  # noqa: BLE001 - must not unwind through C; raised again after the load
            self.raised = error
            return False
        return True


def load_model(
    path: Path,
    options: LoadOptions,
    on_progress: OnProgress,
    resolved: ResolvedLoad | None = None,
    *,
    projector: Path | None = None,
) -> LlamaModel:
    """Load a model.

    Args:
        path: GGUF file; of a split model, its first part.
        options: how to load; None is automatic.
        on_progress: called with a stage and a fraction 0..1; an exception raised in it cancels the load and
            comes out of this function.
        resolved: the plan to follow; without one it is worked out here from what is free now.
        projector: the part that reads pictures or sound; None without.

    Raises:
        NotGguf: the file does not start as a GGUF file does.
        FileTruncated: the file ends before its tensors do.
        UnknownArchitecture: this llama.cpp does not know the model's kind.
        NotEnoughMemory: an allocation failed, or would.
        ModelLoadFailed: anything else, with llama.cpp's last words as `reason`; also when a node or a device of the
            plan is not there, or the projector is not this model's.
    """
    started = time.monotonic()
    check_magic(path)
    LOG.install()
    LOG.clear()
    with amx.refused():
        native.backend_init()
        nodes = resolved.nodes if resolved else ()
        register_nodes(nodes)
        devices = list_devices(nodes)
        placement = _place(options, devices) if resolved is None else None
        planned = resolved or _placed_only(placement or defaults.CPU_ONLY, options)
        model = _open(path, parameters.LoadParameters(planned, devices), on_progress)
    try:
        least = whole_rows(projector) if projector is not None and resolved is None else 0
        loaded, shape = _make_context(path, model, options, resolved, placement, least)
    except BaseException:
        native.model_free(model)
        raise
    try:
        loaded.adapters = open_adapters(model, path, loaded.resolved.adapters, LOG)
        if loaded.resolved.embeddings:
            loaded.adapters.apply(loaded.context, loaded.adapters.default)
        on_progress("Warming up", 1.0)
        _warm_up(loaded)
        measured = memory.measure(
            model, loaded.contexts, LOG, shape=shape, resolved=loaded.resolved, devices=devices, dry_run=False
        )
        if projector is not None:
            on_progress("Reading the projector", 1.0)
            measured = _add_projector(projector, loaded, measured, devices)
    except BaseException:
        loaded.close()
        raise
    loaded.facts = _facts(loaded, path, measured, load_s=time.monotonic() - started)
    return loaded


def _add_projector(path: Path, loaded: LlamaModel, measured: Measured, devices: Sequence[Device]) -> Measured:
    # libmtmd is only brought in by models that have use for it.
    from runtime.worker.projector import open_projector, with_projector

    n_embd: int = native.model_n_embd_inp(loaded.model)
    loaded.projector = open_projector(path, loaded.model, n_embd, loaded.resolved, devices, LOG)
    return struct_replace(measured, memory=with_projector(measured.memory, loaded.projector.sizes, loaded.resolved))


def whole_rows(projector: Path) -> int:
    """Rows of a picture that must be read in one micro-batch, from a projector's header; 0 without such."""
    facts = read_facts(projector).projector
    return facts.whole_rows if facts is not None else 0


def check_magic(path: Path) -> None:
    """Check that the file starts as a GGUF file does.

    Raises:
        NotGguf: it does not.
        ModelLoadFailed: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelLoadFailed(
            f"{path.name} cannot be opened: {error.strerror}.", path=str(path), reason=str(error.strerror)
        ) from error
    if magic != b"GGUF":
        raise NotGguf(
            f"{path.name} is not a GGUF file: it does not start with the letters GGUF.",
            hint="Choose a file that ends in .gguf; a download may have saved an error page instead.",
            path=str(path),
            reason="no GGUF magic",
        )


def _place(options: LoadOptions, devices: Sequence[Device]) -> defaults.Placement:
    """Without a plan: all layers on the GPUs of this machine, integrated ones only where there is no other."""
    gpus = [device.name for device in devices if device.kind == "gpu"]
    names = gpus or [device.name for device in devices if device.kind == "igpu"][:1]
    if not names or options.n_gpu_layers == 0:
        return defaults.CPU_ONLY
    experts = options.n_cpu_moe or 0
    return defaults.Placement(
        n_gpu_layers=defaults.ALL_LAYERS if options.n_gpu_layers is None else options.n_gpu_layers,
        devices=tuple(names),
        tensor_split=options.tensor_split,
        overrides=(defaults.experts_in_ram(range(experts)),) if experts else (),
        n_cpu_moe=experts,
    )


def _placed_only(placement: defaults.Placement, options: LoadOptions) -> ResolvedLoad:
    """What opening the model needs, before its context is worked out."""
    return ResolvedLoad(
        n_ctx=0,
        n_parallel=0,
        n_seq_max=0,
        n_cells=0,
        n_batch=0,
        n_ubatch=0,
        n_threads=0,
        n_gpu_layers=placement.n_gpu_layers,
        use_mmap=options.use_mmap,
        devices=placement.devices,
        tensor_split=placement.tensor_split,
        overrides=placement.overrides,
        speculation="mtp" if options.speculation == "mtp" else "off",
    )


def _open(path: Path, parameters_of: parameters.LoadParameters, on_progress: OnProgress) -> int:
    progress = _Progress(on_progress)
    params = parameters_of.params
    params.progress_callback = progress.callback
    model: int | None = native.model_load_from_file(os.fsencode(path), params)
    if progress.raised is not None:
        if model:
            native.model_free(model)
        raise progress.raised
    if not model:
        raise load_error(path, LOG)
    return model


def load_error(path: Path, log: LlamaLog) -> RuntimeFault:
    """The class of a failed load, from llama.cpp's own words."""
    reason = log.reason()
    name, told = path.name, {"path": str(path), "reason": reason}
    text = "\n".join(log.lines())
    if unknown := _UNKNOWN_ARCHITECTURE.search(text):
        return UnknownArchitecture(
            f"{name} is a model of the kind '{unknown.group(1)}', which the built-in llama.cpp does not know.",
            hint="A newer Deskside may know it.",
            architecture=unknown.group(1),
            **told,
        )
    if _TRUNCATED.search(text):
        return FileTruncated(
            f"{name} is incomplete: it ends before the data its header promises.{ENGINE_QUOTE}{reason}",
            hint="Download it again.",
            size_bytes=path.stat().st_size,
            **told,
        )
    if _NO_MEMORY.search(text):
        return NotEnoughMemory(
            f"There is not enough memory to load {name}.{ENGINE_QUOTE}{reason}",
            hint="Choose a shorter context or a smaller model, or close other programs.",
            free_bytes=psutil.virtual_memory().available,
            **told,
        )
    return ModelLoadFailed(f"{name} could not be loaded.{ENGINE_QUOTE}{reason or 'nothing'}", **told)


def _make_context(
    path: Path,
    model: int,
    options: LoadOptions,
    resolved: ResolvedLoad | None,
    placement: defaults.Placement | None,
    least_n_ubatch: int,
) -> tuple[LlamaModel, ModelShape]:
    metadata = MappingProxyType(read_metadata(model))
    shape = model_shape(path, model, metadata)
    free_bytes = psutil.virtual_memory().available
    if (resolved or options).speculation == "mtp":
        shape = with_heads(shape)
    if resolved is None:
        if options.lora:
            shape = with_adapters(shape, planned_adapters(path, options.lora, shape.n_layer))
        resolved = _resolve(shape, options, placement or defaults.CPU_ONLY, free_bytes, least_n_ubatch)
    context: int | None = native.init_from_model(model, parameters.context_params(resolved))
    if not context:
        error = load_error(path, LOG)
        needed_bytes = context_bytes(
            shape,
            n_cells=resolved.n_cells,
            n_seq_max=resolved.n_seq_max,
            n_ubatch=resolved.n_ubatch,
            type_k=resolved.type_k,
            type_v=resolved.type_v,
            n_rs_seq=resolved.n_rs_seq,
        )
        if type(error) is ModelLoadFailed and needed_bytes > free_bytes:
            error = NotEnoughMemory(
                f"There is not enough memory for the context: {format_bytes(free_bytes)} are free.",
                path=str(path),
                reason=LOG.reason(),
                needed_bytes=needed_bytes,
                free_bytes=free_bytes,
            )
        raise error
    loaded = LlamaModel(model, context, vocab=Vocab(model), metadata=metadata)
    loaded.resolved = resolved
    if resolved.speculation == "mtp":
        try:
            loaded.heads = _open_heads(path, loaded)
        except BaseException:
            native.free(context)
            raise
    loaded.options = options
    loaded.memory_kind = _memory_kind(model)
    loaded.has_memory = not resolved.embeddings and bool(native.get_memory(context))
    loaded.can_roll_back = defaults.can_roll_back(shape, resolved.n_rs_seq)
    return loaded, shape


def _open_heads(path: Path, loaded: LlamaModel) -> int:
    """The context of the model's multi-token heads.

    Raises:
        ModelLoadFailed: this build of llama.cpp does not give what they work on.
        NotEnoughMemory: there is none for it.
    """
    if not native.HAS_NEXTN:
        raise ModelLoadFailed(
            f"The built-in llama.cpp does not offer the multi-token heads of {path.name}.",
            hint="Choose another kind of speculative decoding.",
            param="speculation",
            reason="llama_set_embeddings_nextn is not exported",
        )
    heads: int | None = native.init_from_model(loaded.model, parameters.heads_params(loaded.resolved))
    if not heads:
        raise load_error(path, LOG)
    native.set_embeddings_nextn(loaded.context, True, False)
    native.set_embeddings_nextn(heads, True, loaded.gives_output_rows)
    return heads


def _resolve(
    shape: ModelShape, options: LoadOptions, placement: defaults.Placement, free_bytes: int, least_n_ubatch: int
) -> ResolvedLoad:
    # Weights on the CPU are memory-mapped: they count as available memory until they are read.
    reserved = 0 if placement.n_gpu_layers else shape.size_bytes
    return defaults.resolve(
        shape,
        options,
        n_cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        free_bytes=int(max(free_bytes - reserved, 0) * defaults.HOST_SHARE),
        placement=placement,
        least_n_ubatch=least_n_ubatch,
    )


def read_metadata(model: int) -> dict[str, str]:
    """Scalar GGUF metadata by key, as text; values are cut at a few thousand bytes."""
    found: dict[str, str] = {}
    key, value = _buffer(), _buffer()
    for index in range(native.model_meta_count(model)):
        if native.model_meta_key_by_index(model, index, key, _MAX_VALUE_BYTES) < 0:
            continue
        if native.model_meta_val_str_by_index(model, index, value, _MAX_VALUE_BYTES) < 0:
            continue
        found[key.value.decode("utf-8", "replace")] = value.value.decode("utf-8", "replace")
    return found


def _buffer() -> "ctypes.Array[ctypes.c_char]":
    return ctypes.create_string_buffer(_MAX_VALUE_BYTES)


def model_shape(path: Path, model: int, metadata: Mapping[str, str]) -> ModelShape:
    """The shape of an opened model, from its headers.

    Raises:
        ModelLoadFailed: a kind of model that is not supported.
    """
    if native.model_has_encoder(model) or native.model_is_diffusion(model):
        raise ModelLoadFailed(
            f"{path.name} is an encoder-decoder or diffusion model, which Deskside cannot run yet.",
            path=str(path),
            reason="kind of model not supported",
        )
    shape = read_shape(path)
    is_causal = metadata.get(f"{shape.architecture}.attention.causal", "true") != "false"
    return replace(shape, has_memory=shape.has_memory and is_causal)


def _memory_kind(model: int) -> MemoryKind:
    points = native.model_is_recurrent(model) or native.model_is_hybrid(model) or native.model_n_swa(model) > 0
    return "points" if points else "shared"


def _warm_up(loaded: LlamaModel) -> None:
    """Decode one token and forget it, so that the first request does not pay for touching the weights."""
    memory: int | None = native.get_memory(loaded.context)
    if not memory:
        return
    arrays = BatchArrays(1)
    arrays.fill(BatchPlan(tokens=[0], positions=[0], seq_ids=[0], output_rows=[0]))
    native.decode(loaded.context, arrays.batch)
    native.memory_clear(memory, False)


def _facts(loaded: LlamaModel, path: Path, measured: Measured, *, load_s: float) -> ModelFacts:
    model, metadata, resolved = loaded.model, loaded.metadata, loaded.resolved
    template = loaded.vocab.chat_template or ""
    options = loaded.options
    chosen: dict[str, str | int] = {
        "n_ctx": resolved.n_ctx,
        "n_parallel": resolved.n_parallel,
        "n_gpu_layers": resolved.n_gpu_layers,
        "n_batch": resolved.n_batch,
        "n_ubatch": resolved.n_ubatch,
        "n_threads": resolved.n_threads,
        "n_cpu_moe": resolved.n_cpu_moe,
        "flash_attn": resolved.flash_attn,
        "n_draft_max": resolved.n_draft_max,
    }
    automatic = {name: value for name, value in chosen.items() if getattr(options, name) in (None, "auto")}
    automatic["speculation"] = resolved.speculation  # also where a kind that was asked for is not possible
    automatic["kv_cells"] = int(native.n_ctx(loaded.context))
    return ModelFacts(
        name=metadata.get("general.name") or path.stem,
        architecture=metadata.get("general.architecture", ""),
        quantization=_quantization(model),
        n_params=native.model_n_params(model),
        size_bytes=native.model_size(model),
        n_layer=native.model_n_layer(model),
        n_vocab=loaded.vocab.n_tokens,
        n_ctx=resolved.n_ctx,
        n_ctx_train=native.model_n_ctx_train(model),
        n_parallel=resolved.n_parallel,
        has_chat_template=bool(template),
        can_embed=resolved.pooling != "rank",
        can_rerank=resolved.pooling == "rank",
        reasoning=any(mark in template for mark in _REASONING_MARKS),
        device_names=tuple(resolved.devices) if resolved.n_gpu_layers and resolved.devices else (CPU,),
        n_gpu_layers=resolved.n_gpu_layers,
        kv_bytes=sum(memory_of.context_bytes for memory_of in measured.memory),
        compute_bytes=sum(memory_of.compute_bytes for memory_of in measured.memory),
        load_s=load_s,
        engine=f"llama.cpp (llama-cpp-python {llama_cpp.__version__})",
        resolved=automatic,
        memory=measured.memory,
        can_see=loaded.projector is not None and loaded.projector.sees,
        can_hear=loaded.projector is not None and loaded.projector.hears,
        projector=loaded.projector.path.name if loaded.projector is not None else "",
        adapters=loaded.adapters.facts,
        n_layer_on=measured.n_layer_on,
    )


def _quantization(model: int) -> str:
    """`Q4_K_M` from llama.cpp's description, `llama 8B Q4_K - Medium`."""
    buffer = ctypes.create_string_buffer(256)
    native.model_desc(model, buffer, 256)
    words = buffer.value.decode("utf-8", "replace").split(" ", 2)
    raw = words[-1].removeprefix("(guessed) ").removeprefix("all ")
    return re.sub(r" - (Small|Medium|Large|.)\w*", lambda found: "_" + found.group(1)[0], raw)
