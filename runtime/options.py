"""Every option a person or program can set, declared once: type, default, range, unit and sentence.

The declaration feeds the check at each door, the command line, the window's inspector and the documents.
An option whose value is `None` is automatic: it is stored as automatic, and the value it last resolved to is
told beside it (`runtime.messages.ipc.ModelFacts.resolved`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, inspect

MAX_STOPS = 16
MAX_LOGIT_BIAS = 1024
MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20
MAX_INT = 2**31 - 1
"""What a whole number without a bound of its own may be: llama.cpp's are 32 bits wide. Forms show it as open."""
MAX_BREAKERS = 16
MAX_BREAKER_CHARS = 40
"""llama.cpp reads the whole vocabulary for each breaker (0.2 s for 50,000 tokens), and only 40 characters of it."""


def _meta(title: str, text: str, unit: str = "none", **bounds: Any) -> Meta:  # noqa: ANN401 - passed on to Meta
    return Meta(title=title, description=text, extra={"unit": unit}, **bounds)


NO_PROJECTOR = "none"

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
FlashAttention = Literal["auto", "on", "off"]
ApiTls = Literal["off", "own", "files"]
"""`own`: a certificate made and renewed by us, whose fingerprint a person compares; `files`: the person's own."""
RequestLogging = Literal["off", "metadata", "text"]
ContextPolicy = Literal["stop", "drop_oldest"]
MAX_ADAPTERS = 16
MAX_ADAPTER_SCALE = 100.0
Scale = Annotated[float, Meta(ge=-MAX_ADAPTER_SCALE, le=MAX_ADAPTER_SCALE)]
RopeScalingType = Literal["auto", "none", "linear", "yarn"]
Pooling = Literal["auto", "mean", "cls", "last", "rank"]
SpeculationMode = Literal["auto", "off", "lookup", "draft", "mtp"]


class Adapter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A LoRA adapter to load with a model: id or path of its GGUF file, and how strongly it is applied."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    scale: Scale = 1.0


class AdapterScale(msgspec.Struct, frozen=True):
    """How strongly one of the loaded adapters is applied; `id` counts from 0 in the order they were loaded."""

    id: Annotated[int, Meta(ge=0, lt=MAX_ADAPTERS)]
    scale: Scale


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One declared option, for forms, command lines and documents. `low`/`high` are inclusive, `None` is open."""

    name: str
    title: str
    text: str
    unit: str
    default: object
    low: float | None
    high: float | None
    choices: tuple[str | int, ...]
    automatic: bool


class LoadOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a model is loaded. `None` is automatic."""

    n_ctx: Annotated[
        Annotated[int, Meta(ge=256, le=MAX_INT)] | None,
        _meta("Context length", "Tokens of each conversation the model can see at once.", "tokens"),
    ] = None
    n_parallel: Annotated[
        Annotated[int, Meta(ge=1, le=256)] | None,
        _meta("Parallel slots", "Conversations that can generate at the same time."),
    ] = None
    n_gpu_layers: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        _meta("GPU layers", "Layers of the model kept on the GPU.", "layers"),
    ] = None
    n_batch: Annotated[
        Annotated[int, Meta(ge=32, le=16_384)] | None, _meta("Batch", "Most tokens in one decode call.", "tokens")
    ] = None
    n_ubatch: Annotated[
        Annotated[int, Meta(ge=32, le=16_384)] | None, _meta("Micro-batch", "Most tokens computed at once.", "tokens")
    ] = None
    n_threads: Annotated[Annotated[int, Meta(ge=1, le=1024)] | None, _meta("Threads", "CPU threads of the engine.")] = (
        None
    )
    type_k: Annotated[KvType, _meta("K cache type", "Number format of the K half of the KV cache.")] = "f16"
    type_v: Annotated[
        KvType, _meta("V cache type", "Number format of the V half; below f16 needs flash attention.")
    ] = "f16"
    flash_attn: Annotated[FlashAttention, _meta("Flash attention", "Faster attention with less memory.")] = "auto"
    host_cache_bytes: Annotated[
        int,
        _meta(
            "Prompt cache",
            "Most memory kept for conversations that lost their slot, so that they go on without reading anew.",
            "bytes",
            ge=0,
            le=2**50,
        ),
    ] = 512 * 1024 * 1024
    disk_cache_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=2**50)] | None,
        _meta(
            "Prompt cache on disk",
            "Most disk space for long prompts of all models, so that they go on at once after a restart; 0 is off.",
            "bytes",
        ),
    ] = None
    max_waiting: Annotated[
        int,
        _meta("Queue", "Requests that may wait; one more is refused with a time to come back.", ge=0, le=10_000),
    ] = 32
    n_cpu_moe: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        _meta("Experts in RAM", "Of so many layers the experts stay in system memory.", "layers"),
    ] = None
    tensor_split: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(max_length=64)] = ()
    """Share of the layers for each device, in the order the devices are listed; empty is automatic."""
    use_mmap: Annotated[
        bool, _meta("Map the file", "Weights in system memory are read from the file when they are needed.")
    ] = True
    lora: Annotated[tuple[Adapter, ...], Meta(max_length=MAX_ADAPTERS)] = ()
    """Adapters applied on top of the model; their scales hold where a request says nothing."""
    rope_scaling: Annotated[
        RopeScalingType,
        _meta(
            "RoPE scaling",
            "How a context longer than the model was trained for is reached: 'yarn' keeps most of the quality; "
            "'auto' is what the file says.",
        ),
    ] = "auto"
    rope_freq_base: Annotated[
        Annotated[float, Meta(gt=0, le=1e12)] | None,
        _meta("RoPE base", "Base of the position frequencies; automatic is the model's own."),
    ] = None
    rope_freq_scale: Annotated[
        Annotated[float, Meta(gt=0, le=1e6)] | None,
        _meta(
            "RoPE scale", "Factor of the position frequencies; 0.25 stretches four times; automatic fits the context."
        ),
    ] = None
    yarn_ext_factor: Annotated[
        Annotated[float, Meta(ge=0, le=1e3)] | None,
        _meta("YaRN mix", "1 extrapolates fully, 0 interpolates; automatic is the model's, or 1."),
    ] = None
    yarn_attn_factor: Annotated[
        Annotated[float, Meta(ge=0, le=1e3)] | None,
        _meta("YaRN attention", "Scales attention; automatic is the model's, or 1."),
    ] = None
    yarn_beta_fast: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)] | None,
        _meta("YaRN beta fast", "Where interpolation begins; automatic is the model's, or 32."),
    ] = None
    yarn_beta_slow: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)] | None,
        _meta("YaRN beta slow", "Where interpolation is full; automatic is the model's, or 1."),
    ] = None
    yarn_orig_ctx: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT)] | None,
        _meta("YaRN original context", "Context of the training; automatic is the model's.", "tokens"),
    ] = None
    pooling: Annotated[
        Pooling,
        _meta(
            "Pooling",
            "How the tokens of a text become one vector; 'auto' is what the model was made for, 'rank' makes scores.",
        ),
    ] = "auto"
    draft_model: Annotated[str, Meta(max_length=4096)] = ""
    """Id or path of a small model of the same family that guesses ahead; empty is none."""
    projector: Annotated[str, Meta(max_length=4096)] = ""
    """Path of the part that reads pictures or sound (`mmproj`); empty takes the one that lies with the model, `none`
    leaves it out."""
    speculation: Annotated[
        SpeculationMode,
        _meta(
            "Speculative decoding",
            "Who guesses ahead: 'draft' is the draft model, 'lookup' what the conversation said before, 'mtp' the "
            "model's own multi-token heads, which few models have. 'auto' is the draft model where one is named.",
        ),
    ] = "auto"
    n_draft_max: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        _meta("Longest draft", "Most tokens guessed at once; fewer where they do not pay.", "tokens"),
    ] = None
    draft_p_min: Annotated[
        float,
        _meta(
            "Least draft probability",
            "The draft model, or the heads, stop at a token they are less sure of.",
            ge=0,
            le=1,
        ),
    ] = 0.0

    @property
    def wants_draft(self) -> bool:
        """Whether the draft model is to be loaded beside the model."""
        return bool(self.draft_model) and self.speculation in ("auto", "draft")

    def projector_beside(self, own: str) -> str:
        """Path of the projector to load, "" for none; `own` is the one that lies with the model, "" for none."""
        return "" if self.projector == NO_PROJECTOR else self.projector or own


class SamplingOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the next token is chosen. Names and meanings are llama.cpp's."""

    temperature: Annotated[float, _meta("Temperature", "0 always takes the likeliest token.", ge=0, le=10)] = 0.8
    dynatemp_range: Annotated[
        float,
        _meta("Dynamic range", "Temperature moves this far up and down with the model's certainty.", ge=0, le=10),
    ] = 0.0
    dynatemp_exponent: Annotated[
        float, _meta("Dynamic exponent", "How certainty maps to temperature.", ge=0, le=10)
    ] = 1.0
    top_k: Annotated[int, _meta("Top K", "Keep the K likeliest tokens; 0 keeps all.", "tokens", ge=0, le=MAX_INT)] = 40
    top_p: Annotated[float, _meta("Top P", "Keep the likeliest tokens up to this probability.", ge=0, le=1)] = 0.95
    min_p: Annotated[float, _meta("Min P", "Drop tokens below this share of the likeliest.", ge=0, le=1)] = 0.05
    typical_p: Annotated[float, _meta("Typical P", "Keep tokens of typical surprise; 1 is off.", ge=0, le=1)] = 1.0
    xtc_probability: Annotated[
        float, _meta("XTC probability", "Chance to leave out the likeliest tokens.", ge=0, le=1)
    ] = 0.0
    xtc_threshold: Annotated[float, _meta("XTC threshold", "Tokens above it may be left out.", ge=0, le=1)] = 0.1
    repeat_penalty: Annotated[float, _meta("Repeat penalty", "1 is off.", ge=0.01, le=10)] = 1.0
    repeat_last_n: Annotated[
        int,
        _meta("Penalty window", "Last tokens looked at; 0 is off, -1 the whole context.", "tokens", ge=-1, le=MAX_INT),
    ] = 64
    presence_penalty: Annotated[float, _meta("Presence penalty", "Against any token used.", ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, _meta("Frequency penalty", "Against tokens used often.", ge=-2, le=2)] = 0.0
    dry_multiplier: Annotated[float, _meta("DRY multiplier", "Against repeated phrases; 0 is off.", ge=0, le=100)] = 0.0
    dry_base: Annotated[float, _meta("DRY base", "Growth with the length of the repeated phrase.", ge=1, le=10)] = 1.75
    dry_allowed_length: Annotated[
        int, _meta("DRY allowed length", "Phrases up to this length are free.", "tokens", ge=0, le=MAX_INT)
    ] = 2
    dry_penalty_last_n: Annotated[
        int, _meta("DRY window", "Last tokens looked at; 0 is off, -1 the whole context.", "tokens", ge=-1, le=MAX_INT)
    ] = -1
    dry_sequence_breakers: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_BREAKER_CHARS)], ...], Meta(max_length=MAX_BREAKERS)
    ] = ("\n", ":", '"', "*")
    mirostat: Annotated[Literal[0, 2], _meta("Mirostat", "2 steers towards a chosen surprise.")] = 0
    mirostat_tau: Annotated[float, _meta("Mirostat tau", "Surprise aimed at.", ge=0, le=100)] = 5.0
    mirostat_eta: Annotated[float, _meta("Mirostat eta", "How fast it steers.", ge=0, le=1)] = 0.1
    logit_bias: Annotated[
        dict[Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)], Annotated[float, Meta(ge=-100, le=100)]],
        Meta(max_length=MAX_LOGIT_BIAS),
    ] = {}
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**32 - 1)] | None,
        _meta("Seed", "The same seed gives the same text at one concurrency."),
    ] = None
    grammar: Annotated[str, _meta("Grammar", "GBNF that the answer must follow.", max_length=262_144)] = ""


class GenerateOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one request asks for beside sampling."""

    max_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INT)] | None,
        _meta("Longest answer", "Most tokens generated; automatic is the rest of the context.", "tokens"),
    ] = None
    stop: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...], Meta(max_length=MAX_STOPS)] = ()
    n: Annotated[int, _meta("Choices", "Answers to one prompt.", ge=1, le=MAX_CHOICES)] = 1
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    context_policy: Annotated[
        ContextPolicy,
        _meta("Context full", "Stop with the reason 'length', or drop the oldest turns and say so."),
    ] = "stop"
    echo: bool = False
    ignore_eos: bool = False
    lora: Annotated[tuple[AdapterScale, ...], Meta(max_length=MAX_ADAPTERS)] | None = None
    """Scales of the model's adapters for this request, 0 for those not named; `None` is as they were loaded."""
    sampling: SamplingOptions = SamplingOptions()


class ModelsOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What holds for all models: room for others, how long they stay, where they are looked for."""

    max_loaded: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        _meta("Models at once", "Most models loaded together; automatic is as many as memory allows."),
    ] = None
    idle_unload_s: Annotated[
        Annotated[int, Meta(ge=10, le=2_592_000)] | None,
        _meta(
            "Unload when idle",
            "A model nobody used for so long is unloaded; automatic is an hour for one that a program asked for.",
            "seconds",
        ),
    ] = None
    load_on_demand: Annotated[bool, _meta("Load on demand", "A request that names an installed model loads it.")] = True
    gpu_margin_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=2**50)] | None,
        _meta("GPU memory kept free", "Left on each GPU for the desktop, games and other programs.", "bytes"),
    ] = None
    ram_margin_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=2**50)] | None,
        _meta("System memory kept free", "Left for the system and other programs.", "bytes"),
    ] = None
    folders: Annotated[
        tuple[Annotated[str, Meta(max_length=4096)], ...],
        _meta("Model folders", "Searched beside the main one.", max_length=32),
    ] = ()
    main_folder: Annotated[
        str, _meta("Main folder", "Where downloads go; empty is the data folder's own.", max_length=4096)
    ] = ""
    use_other_programs: Annotated[
        bool, _meta("Use other programs' models", "List files of LM Studio, Ollama, Jan, GPT4All and the hub's cache.")
    ] = True
    hub_endpoint: Annotated[
        str, _meta("Hub address", "A mirror; empty is the environment's HF_ENDPOINT or the hub itself.", max_length=512)
    ] = ""
    offline: Annotated[bool, _meta("Offline", "Never contact the hub.")] = False
    max_downloads: Annotated[int, _meta("Downloads at once", "The others wait.", ge=1, le=16)] = 3
    nodes: Annotated[
        tuple[Annotated[str, Meta(max_length=255)], ...],
        _meta("Nodes", "Machines that lend their memory, as host:port.", max_length=16),
    ] = ()


class KeyLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the holder of an API key may take; `None` is no limit. Past one, requests get 429 and are told which."""

    requests_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        _meta("Requests a minute", "Counted over the last 60 seconds."),
    ] = None
    max_concurrent: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        _meta("Requests at once", "Running and waiting ones together."),
    ] = None
    tokens_per_day: Annotated[
        Annotated[int, Meta(ge=1, le=10**12)] | None,
        _meta(
            "Tokens a day",
            "Read and written ones, from midnight; what is running when it is reached may end.",
            "tokens",
        ),
    ] = None


class ApiOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The public API switch and what belongs to it."""

    enabled: Annotated[bool, _meta("API", "Serve other programs on this machine.")] = False
    host: Annotated[str, _meta("Address", "127.0.0.1 is this machine only.")] = "127.0.0.1"
    port: Annotated[int, _meta("Port", "TCP port.", ge=0, le=65_535)] = 1234
    allowed_origins: Annotated[
        tuple[str, ...],
        _meta("Allowed origins", "Web pages that may call the API; none by default.", max_length=64),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        _meta("Allowed hosts", "Host names accepted beside this machine's own.", max_length=64),
    ] = ()
    keep_when_window_closes: Annotated[bool, _meta("Keep on", "Serve on after the window is closed.")] = False
    tls: Annotated[
        ApiTls,
        _meta("Encryption", "HTTPS with a certificate made here, or with files of yours; off is plain HTTP."),
    ] = "off"
    certificate_file: Annotated[
        str, _meta("Certificate", "PEM file with the certificate and those it was signed by.", max_length=4096)
    ] = ""
    key_file: Annotated[str, _meta("Private key", "PEM file with its key, without a passphrase.", max_length=4096)] = ""
    request_log: Annotated[
        RequestLogging,
        _meta(
            "Request log", "Who asked, which model, how long it took, in logs/requests.log; with 'text', what was said."
        ),
    ] = "off"
    fetch_pictures: Annotated[
        bool, _meta("Fetch pictures", "Requests may name pictures by a public web address, which is then fetched.")
    ] = False


StructT = TypeVar("StructT", bound=msgspec.Struct)


def with_named(kept: StructT, given: StructT, names: Collection[str]) -> StructT:
    """`kept`, with the fields of these names as they are in `given`.

    Raises:
        ValueError: no field has one of the names.
    """
    unknown = sorted(set(names) - set(kept.__struct_fields__))
    if unknown:
        raise ValueError(f"there is no option named {unknown[0]!r}")
    return msgspec.structs.replace(kept, **{name: getattr(given, name) for name in names})


def declared_options(kind: type[msgspec.Struct]) -> tuple[OptionInfo, ...]:
    """The options of a struct that carry a title, in order of declaration."""
    described = inspect.type_info(kind)
    if not isinstance(described, inspect.StructType):
        raise TypeError(f"{kind.__name__} is no struct")
    found = []
    for field in described.fields:
        metadata, inner = field.type, field.type
        while isinstance(inner, inspect.Metadata):
            inner = inner.type
        schema = (metadata.extra_json_schema or {}) if isinstance(metadata, inspect.Metadata) else {}
        if "title" not in schema or not isinstance(metadata, inspect.Metadata):
            continue
        kinds = inner.types if isinstance(inner, inspect.UnionType) else (inner,)
        low, high = _bounds(kinds)
        literals = [value for part in kinds if isinstance(part, inspect.LiteralType) for value in part.values]
        found.append(
            OptionInfo(
                name=field.name,
                title=str(schema["title"]),
                text=str(schema.get("description", "")),
                unit=str((metadata.extra or {}).get("unit", "none")),
                default=field.default,
                low=low,
                high=high,
                choices=tuple(value for value in literals if value is not None),
                automatic=any(isinstance(part, inspect.NoneType) for part in kinds),
            )
        )
    return tuple(found)


def _bounds(kinds: tuple[inspect.Type, ...]) -> tuple[float | None, float | None]:
    for part in kinds:
        if isinstance(part, inspect.IntType | inspect.FloatType):
            return part.ge, None if part.le is None or part.le >= MAX_INT else part.le
    return None, None
