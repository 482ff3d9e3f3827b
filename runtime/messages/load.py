"""How a model is laid out in memory: what llama.cpp is told, and what it then takes.

`ResolvedLoad` is made by `runtime.fit` and followed to the letter by the worker and by the dry run of the probe: that
is why a plan equals the load that follows it. Sizes are bytes.
"""

from typing import Literal

import msgspec

from runtime.options import FlashAttention, KvType, RopeScalingType

DeviceKind = Literal["cpu", "gpu", "igpu", "accelerator", "node"]
"""`igpu`: works in system memory; `node`: memory of another machine, lent by `deskside node`."""

Speculator = Literal["off", "lookup", "draft", "mtp"]
"""Who guesses how an answer goes on: nobody, the text so far, a draft model, or the model's own multi-token heads."""


class ComputeDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device llama.cpp can compute on. `name` is llama.cpp's own (`CPU`, `CUDA0`, `RPC0[10.0.0.5:50052]`).

    `free_bytes` is what is free at this moment, so what other programs hold is already taken off. For the processor
    both figures are the system's memory. `node` is the address of the machine that lends it, else empty.
    `pci_bus_id` joins it to the telemetry's GPU, where llama.cpp tells it.
    """

    name: str
    description: str
    kind: DeviceKind
    total_bytes: int
    free_bytes: int
    pci_bus_id: str = ""
    node: str = ""


class TensorOverride(msgspec.Struct, frozen=True):
    """Tensors whose name matches `pattern` (a regular expression, as in llama.cpp's `-ot`) live on `device`."""

    pattern: str
    device: str


class AdapterLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter to load: its file, and what its tensors take beside each layer (the output layer last)."""

    path: str
    scale: float = 1.0
    layer_bytes: tuple[int, ...] = ()


class RopeScaling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How positions are told to the model, in llama.cpp's terms and with its marks for "as in the file"."""

    scaling_type: RopeScalingType = "auto"
    freq_base: float = 0.0
    freq_scale: float = 0.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_fast: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_orig_ctx: int = 0


class ResolvedLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every load option as a number: what llama.cpp is told. Names are llama.cpp's.

    Attributes:
        n_ctx: tokens one conversation may hold.
        n_cells: size of the KV pool all conversations share (llama.cpp's `n_ctx` for the context).
        n_seq_max: sequences, idle ones included.
        n_outputs_max: logit rows of one batch; 0 is llama.cpp's default.
        devices: names of the devices to use beside the processor, in the order of `tensor_split`; empty uses none.
        tensor_split: layers (or shares) for each of `devices`; empty lets llama.cpp split by free memory.
        overrides: tensors that are kept elsewhere than their layer.
        nodes: addresses (`host:port`) to register before the load, in the order that names their devices.
        pooling: how a text's tokens become one vector; `rank` makes scores with the model's classifier instead.
        adapters: LoRA adapters, in the order of their ids.
        rope: how positions are told; the default is what the file says.
        speculation: who guesses ahead; `n_draft_max` is the longest guess, in tokens.
        n_rs_seq: tokens that a recurrent state can be taken back by; each costs a further state of every sequence.
        n_cpu_moe: of the first so many layers, the experts stay in system memory (told for people; it is carried out
            by `overrides`).
    """

    n_ctx: int
    n_parallel: int
    n_seq_max: int
    n_cells: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_gpu_layers: int
    n_outputs_max: int = 0
    type_k: KvType = "f16"
    type_v: KvType = "f16"
    flash_attn: FlashAttention = "auto"
    offload_kqv: bool = True
    swa_full: bool = False
    kv_unified: bool = True
    use_mmap: bool = True
    embeddings: bool = False
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[TensorOverride, ...] = ()
    nodes: tuple[str, ...] = ()
    n_cpu_moe: int = 0
    pooling: Literal["mean", "cls", "last", "rank"] = "mean"
    rope: RopeScaling = RopeScaling()
    speculation: Speculator = "off"
    n_draft_max: int = 0
    n_rs_seq: int = 0
    adapters: tuple[AdapterLoad, ...] = ()


class DeviceMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one model takes on one device. `device` is llama.cpp's name; host buffers of a GPU count as `CPU`.

    `context_bytes` is KV cache and recurrent state, `output_bytes` the logits, `projector_bytes` the picture or sound
    part with its own compute, `draft_bytes` everything of the draft model.
    """

    device: str
    weight_bytes: int = 0
    context_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0
    projector_bytes: int = 0
    draft_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return (
            self.weight_bytes
            + self.context_bytes
            + self.compute_bytes
            + self.output_bytes
            + self.projector_bytes
            + self.draft_bytes
        )
