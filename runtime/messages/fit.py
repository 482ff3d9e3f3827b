"""Plans: whether a model fits, where its parts go, how fast it will be, and why.

Sizes are bytes, speeds tokens a second of one conversation.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from runtime.messages.load import ComputeDevice, DeviceMemory, ResolvedLoad
from runtime.options import LoadOptions

PlanMethod = Literal["dry_run", "formula"]
"""`dry_run`: llama.cpp's own figures from a load without allocation (exact); `formula`: ours, an estimate."""

VerdictKind = Literal["gpu", "partial", "cpu", "too_large", "unsupported"]
"""`gpu`: all layers on GPUs; `partial`: some; `cpu`: none; `too_large`: no way to load it now; `unsupported`: the
built-in llama.cpp does not know this kind of model."""


class Throughput(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast one device multiplies a matrix of one number format, measured with llama.cpp's own kernels.

    `read_bps` is bytes of weights a second with one row of input (generation), `flops` floating-point operations a
    second with many rows (prompts); `node_s` the fixed cost of one operation of the graph. `cached_bps` is `read_bps`
    of weights that lie in the processor's caches; 0 where there are none to speak of.
    """

    device: str
    tensor_type: str
    read_bps: float
    flops: float
    node_s: float
    cached_bps: float = 0.0


class AttentionSpeed(msgspec.Struct, frozen=True):
    """How fast one device compares a token with those before it, with flash attention or without.

    Both figures are products a second of one number of a query head and one of the cache (K and V alike): with one
    row of queries (generation) and with many (prompts). `kv_type` is the cache's number format.
    """

    device: str
    kv_type: str
    flash: bool
    read_eps: float
    prompt_eps: float


class MachineSpeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the quick measurement found; remembered until the engine or the devices change.

    `key` says what it holds for. `link_bps` is the speed to each device that is not the processor.

    Attributes:
        n_threads: processor threads it was measured with.
        attention: attention by device, cache format and kind.
        layer_s: of each device, seconds one layer of a dense model takes for everything but its weights, one row.
        element_s: of each device, seconds for the same per row and number of `n_embd`, with many rows.
        hop_s: of each device that is not the processor, seconds to hand it one row and get one back.
        decode_s: seconds of one decode call outside the graph.
        cached_share: how much of a model of so many bytes the processor's caches serve (0..1), by rising size.
        busy: share of the processor that other programs used meanwhile; above some tenths the figures are too low.
    """

    key: str
    measured_s: float
    throughput: tuple[Throughput, ...]
    memory_bps: dict[str, float] = {}
    link_bps: dict[str, float] = {}
    took_s: float = 0.0
    n_threads: int = 0
    attention: tuple[AttentionSpeed, ...] = ()
    layer_s: dict[str, float] = {}
    element_s: dict[str, float] = {}
    hop_s: dict[str, float] = {}
    decode_s: float = 0.0
    cached_share: tuple[tuple[int, float], ...] = ()
    busy: float = 0.0


class SpeedSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of this machine, kept to correct later predictions. Speeds of 0 were not measured.

    `devices` are the names that held layers, in order, and `tensor_type` the number format of most of the weights;
    the `formula` figures are what was predicted for it from the devices alone.
    """

    model: str
    devices: tuple[str, ...]
    tensor_type: str
    depth: int
    at_s: float
    generation_tps: float = 0.0
    prompt_tps: float = 0.0
    formula_generation_tps: float = 0.0
    formula_prompt_tps: float = 0.0


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What can be planned with at this moment: devices in llama.cpp's order, the processor last.

    `unified` is true where the GPU works in system memory: then their budgets are one.
    """

    devices: tuple[ComputeDevice, ...]
    n_cores: int
    ram_total_bytes: int
    ram_free_bytes: int
    unified: bool = False
    speed: MachineSpeed | None = None
    problem: str = ""


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """One dry run's or load's figures. `n_layer_on` counts the layers (output layer included) of each device."""

    memory: tuple[DeviceMemory, ...]
    n_layer_on: dict[str, int] = {}
    method: PlanMethod = "dry_run"


class SpeedRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prediction with its range, at `depth` tokens in the conversation.

    `basis`: `measured` when this machine ran this model before, `calibrated` when it was corrected by other models'
    runs, `formula` when only the devices were measured, `guess` when not even they were.
    """

    generation_tps: float
    generation_low_tps: float
    generation_high_tps: float
    prompt_tps: float
    prompt_low_tps: float
    prompt_high_tps: float
    depth: int
    basis: Literal["measured", "calibrated", "formula", "guess"] = "formula"
    formula_generation_tps: float = 0.0
    formula_prompt_tps: float = 0.0


class DeviceBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bar of the load plan: what a device holds once the model is loaded.

    `others_bytes` is what other programs (and other loaded models) hold now, `margin_bytes` what is kept free on
    purpose, `free_bytes` what is left after all of it (negative when it does not fit).
    """

    device: ComputeDevice
    memory: DeviceMemory
    n_layers: int
    others_bytes: int
    margin_bytes: int
    free_bytes: int


class MemoryPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan for one model under one set of options.

    Attributes:
        model: id, or `repo/file` of one that is not on disk.
        options: as asked, automatic kept as automatic.
        resolved: what it came to.
        verdict: in one word; `sentence` is the verdict for a row ("22 of 33 layers on GPU, 5.9 of 8.0 GB"),
            `reason` one sentence on why it was chosen so.
        budgets: one a device that takes part, the processor last.
        needed_bytes: all devices together; `free_bytes` what was free for it.
        speed: predicted; None where nothing can be said.
        method: how the sizes were found.
        n_layer: layers with the output layer; `n_layer_gpu` of them on GPUs and nodes.
        problem: why it cannot be loaded, with what to do.
        draft: the load of the draft model; None without one.
    """

    model: str
    options: LoadOptions
    resolved: ResolvedLoad
    verdict: VerdictKind
    sentence: str
    reason: str
    budgets: tuple[DeviceBudget, ...]
    needed_bytes: int
    free_bytes: int
    n_layer: int
    n_layer_gpu: int
    method: PlanMethod
    speed: SpeedRange | None = None
    problem: str = ""
    made_s: float = 0.0
    draft: ResolvedLoad | None = None


class PlanTarget(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to plan for: an installed model by id or path (`model`), or a file of the hub (`repo`, `file`)."""

    model: Annotated[str, Meta(max_length=4096)] = ""
    repo: Annotated[str, Meta(max_length=256)] = ""
    file: Annotated[str, Meta(max_length=1024)] = ""
    revision: Annotated[str, Meta(max_length=256)] = "main"


class PlanRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Plan a load.

    `exact` false answers at once by formula, for sliders; `alone` counts what our own loaded models hold as free, since
    they would be unloaded first.
    """

    target: PlanTarget
    options: LoadOptions = LoadOptions()
    draft: str = ""
    exact: bool = True
    alone: bool = True


class LoadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Planned against actual of the last real load of a model, kept in the catalogue."""

    model: str
    at_s: float
    plan: MemoryPlan | None
    actual: tuple[DeviceMemory, ...]
    generation_tps: float = 0.0
    prompt_tps: float = 0.0


NodeState = Literal["reachable", "unreachable", "too_old"]


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that lends memory through `deskside node`. `problem` says why it cannot be used now."""

    address: str
    state: NodeState
    total_bytes: int = 0
    free_bytes: int = 0
    latency_s: float = 0.0
    problem: str = ""


class NodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add or remove a node, as `host:port`."""

    address: Annotated[str, Meta(min_length=3, max_length=255)]


class NodeDevice(msgspec.Struct, frozen=True):
    """A device that a node lends. For the processor both figures are the system's memory."""

    name: str
    description: str
    total_bytes: int
    free_bytes: int


class NodeReady(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line `python -m runtime.worker.node` prints once it listens. `warning` is for the person who started it."""

    address: str
    devices: tuple[NodeDevice, ...]
    warning: str = ""
    cache_path: str = ""
