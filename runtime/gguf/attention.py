"""What each layer of a model remembers of a conversation: widths of its KV cache, its window, its recurrent state.

The rules are those of the llama.cpp that is built in (`llama-hparams.cpp`, `llama_model::create_memory` and
`load_arch_hparams` of each file in `src/models/`); the tests hold them against what llama.cpp itself allocates for a
small model of each architecture. An architecture that is not in `KNOWN_ARCHITECTURES` is taken to have ordinary
attention in every layer, and says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.gguf.header import GgufHeader
from runtime.gguf.keys import MAX_LAYERS, Keys
from runtime.gguf.known import KNOWN_ARCHITECTURES

_F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """One layer; the fields mean what they mean in `architecture.LayerShape`."""

    n_head: int
    n_head_kv: int
    k_width: int
    v_width: int
    n_swa: int
    state_bytes: int
    n_expert_used: int


@dataclass(frozen=True, slots=True)
class Memory:
    """All layers, and the numbers of the whole model that come from the same keys.

    `n_trunk` layers take part in generating; those behind them predict further tokens and are not loaded, unless they
    are asked for: then they cache what `heads` says.
    """

    layers: tuple[LayerMemory, ...]
    heads: tuple[LayerMemory, ...]
    n_trunk: int
    n_embd: int
    n_ff: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    is_causal: bool
    is_known: bool


# --- which layers look at a window ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """How an architecture chooses layers with a sliding window.

    Attributes:
        pattern: of so many layers, all but one have it; 0 means the file must say which.
        dense_first: the one without comes first, not last.
        n_swa: the window where the file does not say; 0 means no window then.
        fixed: the window whatever else than 0 the file says.
        n_layer: only models with so many layers have windows; 0 is any.
    """

    pattern: int
    dense_first: bool = False
    n_swa: int = 0
    fixed: int = 0
    n_layer: int = 0


_WINDOWS: Mapping[str, _Window] = {
    "afmoe": _Window(4),
    "cohere2": _Window(4),
    "cohere2moe": _Window(4, dense_first=True),
    "dots3note": _Window(0),
    "exaone-moe": _Window(4, n_swa=128),
    "exaone4": _Window(4, n_swa=4096, n_layer=64),
    "gemma2": _Window(2, n_swa=4096),
    "gemma3": _Window(6),
    "gemma3n": _Window(5),
    "gemma4": _Window(0),
    "gemma4-assistant": _Window(0),
    "gpt-oss": _Window(2),
    "granite_swa": _Window(0),
    "laguna": _Window(4, dense_first=True),
    "llama4": _Window(4, n_swa=8192, fixed=8192),
    "maple": _Window(0),
    "mellum": _Window(4),
    "mimo2": _Window(0),
    "muse-glimmer": _Window(4),
    "olmo2": _Window(4),
    "plamo3": _Window(8),
    "smallthinker": _Window(4, dense_first=True, fixed=4096),
    "spark2_5": _Window(0),
    "step35": _Window(0),
}


def _windows(keys: Keys, n_trunk: int, is_recurrent: Sequence[bool]) -> tuple[int, ...]:
    """The window of each layer, 0 for none."""
    none = (0,) * keys.n_layer
    window_key, pattern_key = "attention.sliding_window", "attention.sliding_window_pattern"
    if keys.architecture == "lfm2":
        n_swa = keys.number(window_key)
        return tuple(0 if recurrent else n_swa for recurrent in is_recurrent)
    rule = _WINDOWS.get(keys.architecture)
    if rule is None or (rule.n_layer and n_trunk != rule.n_layer):
        return none
    n_swa = keys.number(window_key, rule.n_swa)
    if n_swa and rule.fixed:
        n_swa = rule.fixed
    if not n_swa:
        return none
    if keys.is_list(pattern_key):
        return tuple(n_swa if marked else 0 for marked in keys.each(pattern_key, is_padded=True))
    pattern = keys.number(pattern_key, rule.pattern)
    if not pattern:
        return (n_swa,) * n_trunk + (0,) * (keys.n_layer - n_trunk)
    full = 0 if rule.dense_first else pattern - 1
    return tuple(n_swa if layer < n_trunk and layer % pattern != full else 0 for layer in range(keys.n_layer))


# --- which layers have a recurrent state ------------------------------------------------------------------

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Every layer has a state and none a cache."""
_BY_HEADS = frozenset(
    {"jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next"}
)
"""Layers without key-value heads have a state."""
_BY_INTERVAL: Mapping[str, int] = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
"""All layers but every so many have a state, where the file does not list them."""
_NEMOTRON = frozenset({"nemotron_h", "nemotron_h_moe"})


def _recurrent(keys: Keys, n_trunk: int, n_head_kv: Sequence[int], n_ff: Sequence[int]) -> tuple[bool, ...]:
    """Which layers have a recurrent state."""
    layers = range(keys.n_layer)
    architecture = keys.architecture
    if architecture in _RECURRENT or architecture == "falcon-h1":
        return (True,) * keys.n_layer
    if architecture in _BY_HEADS:
        limit = keys.n_layer if architecture == "glm5-next" else n_trunk
        return tuple(layer < limit and n_head_kv[layer] == 0 for layer in layers)
    if architecture in _NEMOTRON:
        return tuple(layer < n_trunk and n_head_kv[layer] == 0 and n_ff[layer] == 0 for layer in layers)
    if architecture in _BY_INTERVAL:
        if keys.has("attention.recurrent_layers"):
            marked = keys.each("attention.recurrent_layers")
            return tuple(layer < n_trunk and marked[layer] > 0 for layer in layers)
        interval = keys.number("full_attention_interval", _BY_INTERVAL[architecture])
        if not interval:
            raise keys.fail("full_attention_interval is 0")
        return tuple(layer < n_trunk and (layer + 1) % interval != 0 for layer in layers)
    return (False,) * keys.n_layer


_RWKV = frozenset({"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_SHORT_CONV = frozenset({"lfm2", "lfm2moe"})
_KDA = frozenset({"kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next"})
_ONE_GROUP = frozenset({"mamba", "jamba"})
"""They read no group count."""


def _state_width(keys: Keys, n_embd: int, n_head: int, k_head: int) -> int:
    """Numbers in the state of one sequence in one recurrent layer (`n_embd_r` and `n_embd_s`)."""
    architecture = keys.architecture
    if architecture in _RWKV:
        return keys.number("token_shift_count", 2) * n_embd + n_embd * keys.number("wkv.head_size")
    if architecture in _SHORT_CONV:
        return max(keys.number("shortconv.l_cache") - 1, 0) * n_embd
    if architecture == "minimax-01":
        return k_head * k_head * n_head
    kernel = keys.number("ssm.conv_kernel")
    if architecture in _KDA:
        head = keys.number("kda.head_dim")
        return 3 * (kernel - 1 if kernel else 3) * n_head * head + head * head * n_head
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    groups = 0 if architecture in _ONE_GROUP else keys.number("ssm.group_count")
    return max(kernel - 1, 0) * (inner + 2 * groups * state) + state * inner


# --- what is cached ---------------------------------------------------------------------------------------

_NO_CACHE = frozenset(
    {
        "bert",
        "modern-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "neo-bert",
        "jina-bert-v2",
        "jina-bert-v3",
        "eurobert",
        "gemma-embedding",
        "wavtokenizer-dec",
        "dream",
        "llada",
        "llada-moe",
        "rnd1",
    }
)
"""Architectures that llama.cpp gives no memory at all."""
_MLA = frozenset(
    {
        "deepseek2",
        "deepseek32",
        "glm-dsa",
        "mistral4",
        "bailingmoe3",
        "kimi-linear",
        "kimi-k3",
        "glm5-next",
        "hy_v4",
        "dots3note",
    }
)
"""Keys only, compressed, where the file has the lengths of the uncompressed heads."""
_WITH_PREDICTORS = frozenset(
    {"jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "bailingmoe3", "falcon-h1"}
    | {"hy_v4", "minimax-m3"}
)
"""Their cache does not leave out the layers that predict further tokens."""
_GEMMA3N_CACHES = 20
"""The layers behind use the cache of one of the last two before (`gemma3n.cpp`)."""
_GLM_LONG_CONTEXT = 1 << 20
_ESTIMATED = frozenset(
    {"deepseek4", "qwen4exp", "eagle3", "dflash", "gemma4-assistant", "wavtokenizer-dec", "pockettts", "qwen3tts"}
)
"""Known to llama.cpp, but with a memory these rules do not follow to the letter."""


def _indexed(keys: Keys, n_trunk: int, windows: Sequence[int], is_recurrent: Sequence[bool]) -> tuple[bool, ...]:
    """Which layers cache the keys of a sparse-attention indexer."""
    layers = range(keys.n_layer)
    architecture = keys.architecture
    if architecture == "deepseek32":
        return tuple(layer < n_trunk for layer in layers)
    if architecture == "minimax-m3":
        first = keys.number("leading_dense_block_count")
        return tuple(layer >= first for layer in layers)
    if architecture == "qwen4exp":
        return tuple(layer < n_trunk and not is_recurrent[layer] for layer in layers)
    if architecture not in ("glm-dsa", "dots3note", "glm5-next", "hy_v4"):
        return (False,) * keys.n_layer
    if architecture == "hy_v4" and not keys.number("attention.indexer.top_k"):
        return (False,) * keys.n_layer
    if keys.has("attention.indexer.types"):
        full = keys.each("attention.indexer.types", is_padded=True)
    elif architecture == "glm-dsa" and keys.number("context_length") >= _GLM_LONG_CONTEXT:
        full = tuple(int(layer < 2 or layer % 4 == 2) for layer in layers)  # noqa: PLR2004 - GLM 5.2's own list
    else:
        full = (0 if architecture in ("hy_v4", "dots3note") else 1,) * keys.n_layer
    return tuple(
        layer < n_trunk and full[layer] > 0 and not is_recurrent[layer] and not windows[layer] for layer in layers
    )


def _is_cached(keys: Keys, layer: int, n_trunk: int, *, is_recurrent: bool, n_ff: int) -> bool:
    """Whether a layer has a KV cache of its own."""
    architecture = keys.architecture
    if architecture in _NO_CACHE or architecture in _RECURRENT:
        return False
    if architecture == "gemma3n":
        return layer < _GEMMA3N_CACHES
    if architecture == "gemma4":
        return layer < keys.n_layer - keys.number("attention.shared_kv_layers")
    if architecture in _NEMOTRON:
        return not is_recurrent and n_ff == 0
    if layer >= n_trunk and architecture not in _WITH_PREDICTORS:
        return False
    return architecture == "falcon-h1" or not is_recurrent


# --- all of it --------------------------------------------------------------------------------------------


def memory_of(header: GgufHeader) -> Memory:
    """What each layer remembers.

    Raises:
        ModelLoadFailed: a number cannot be true.
    """
    keys = Keys(header)
    n_predict = keys.number("nextn_predict_layers")
    if keys.architecture == "deepseek4" and f"blk.{keys.n_layer - n_predict}.nextn.eh_proj.weight" not in keys.names:
        n_predict = 0
    n_trunk = max(keys.n_layer - n_predict, 0)
    n_expert_used = keys.each("expert_used_count")
    n_expert = keys.number("expert_count")
    if keys.architecture in ("hunyuan_vl", "hunyuan-dense") and n_expert <= 1:
        n_expert, n_expert_used = 0, (0,) * keys.n_layer
    read = _layers(keys, n_trunk, n_expert_used)
    layers = _expanded(keys, read)
    if len(layers) > MAX_LAYERS:
        raise keys.fail(f"it claims {len(layers)} layers")
    return Memory(
        layers=layers,
        heads=_predicting(keys, read, n_trunk) if len(layers) == len(read) else (),
        n_trunk=max(len(layers) - n_predict, 0),
        n_embd=keys.number("embedding_length"),
        n_ff=keys.number("expert_feed_forward_length") or keys.number("feed_forward_length"),
        n_ctx_train=keys.number("context_length"),
        n_expert=n_expert,
        n_expert_used=max(n_expert_used),
        is_causal=keys.architecture not in _NO_CACHE and keys.flag("attention.causal", otherwise=True),
        is_known=keys.architecture in KNOWN_ARCHITECTURES - _ESTIMATED,
    )


def _layers(keys: Keys, n_trunk: int, n_expert_used: Sequence[int]) -> list[LayerMemory]:
    n_embd = keys.number("embedding_length")
    n_head = keys.each("attention.head_count")
    n_head_kv = keys.each("attention.head_count_kv") if keys.has("attention.head_count_kv") else n_head
    n_ff = keys.each("feed_forward_length")
    heads = _Heads(keys, n_embd, n_head[0])
    is_recurrent = _recurrent(keys, n_trunk, n_head_kv, n_ff)
    windows = _windows(keys, n_trunk, is_recurrent)
    is_indexed = _indexed(keys, n_trunk, windows, is_recurrent)
    state_bytes = _F32_BYTES * _state_width(keys, n_embd, n_head[0], heads.k)
    found: list[LayerMemory] = []
    for layer in range(keys.n_layer):
        k_width = v_width = 0
        if _is_cached(keys, layer, n_trunk, is_recurrent=is_recurrent[layer], n_ff=n_ff[layer]):
            k_width, v_width = heads.widths(n_head_kv[layer], has_window=windows[layer] > 0)
        if is_indexed[layer]:
            k_width, v_width = k_width + heads.index_k, v_width + heads.index_v
        found.append(
            LayerMemory(
                n_head=n_head[layer],
                n_head_kv=n_head_kv[layer],
                k_width=k_width,
                v_width=v_width,
                n_swa=windows[layer] if k_width else 0,
                state_bytes=state_bytes if is_recurrent[layer] else 0,
                n_expert_used=n_expert_used[layer],
            )
        )
    return _compressed(keys, found, n_trunk, heads) if keys.architecture == "deepseek4" else found


def _predicting(keys: Keys, layers: Sequence[LayerMemory], n_trunk: int) -> tuple[LayerMemory, ...]:
    """The layers that predict further tokens, with the plain cache that llama.cpp gives each of them when it runs them.

    Sparse attention is left out there (`llama-model.cpp`, `create_memory`).
    """
    n_embd, windows = keys.number("embedding_length"), _windows(keys, n_trunk, (False,) * keys.n_layer)
    heads = _Heads(keys, n_embd, layers[0].n_head)
    found = []
    for layer in range(n_trunk, keys.n_layer):
        k_width, v_width = heads.widths(layers[layer].n_head_kv, has_window=windows[layer] > 0)
        found.append(replace(layers[layer], k_width=k_width, v_width=v_width, n_swa=windows[layer], state_bytes=0))
    return tuple(found)


class _Heads:
    """Lengths of one head's key and value, in layers with and without a window."""

    def __init__(self, keys: Keys, n_embd: int, n_head: int) -> None:
        # llama.cpp looks at the first layer's heads only, and at no key length where it has none.
        self.k = keys.number("attention.key_length", n_embd // n_head) if n_head else 0
        self.v = keys.number("attention.value_length", n_embd // n_head) if n_head else 0
        self._k_swa = keys.number("attention.key_length_swa", self.k)
        self._v_swa = keys.number("attention.value_length_swa", self.v)
        has_lengths = keys.number("attention.key_length_mla") > 0 and keys.number("attention.value_length_mla") > 0
        self._is_mla = keys.architecture in _MLA and has_lengths
        index = keys.number("attention.indexer.key_length")
        # The indexer of glm5-next keeps key, gate and pooled key.
        self.index_k = (
            3 * index if keys.architecture == "glm5-next" and keys.number("attention.indexer.kpool") else index
        )
        self.index_v = self.v if keys.architecture == "minimax-m3" else 0

    def widths(self, n_head_kv: int, *, has_window: bool) -> tuple[int, int]:
        """Numbers one cell keeps, of keys and of values."""
        k, v = (self._k_swa, self._v_swa) if has_window else (self.k, self.v)
        return k * n_head_kv, 0 if self._is_mla else v * n_head_kv


def _expanded(keys: Keys, layers: list[LayerMemory]) -> tuple[LayerMemory, ...]:
    """Layers that llama.cpp adds to those of the file."""
    if keys.architecture == "nanbeige":
        n_loops = keys.number("num_loops", 1)
        return tuple(layers) * min(max(n_loops, 1), MAX_LAYERS + 1)
    if keys.architecture == "graniteswitch":
        head = layers[0]
        k, v = (width // max(head.n_head_kv, 1) for width in (head.k_width, head.v_width))
        return (*layers, LayerMemory(1, 1, k, v, 0, 0, 0))
    return tuple(layers)


def _compressed(keys: Keys, layers: list[LayerMemory], n_trunk: int, heads: _Heads) -> list[LayerMemory]:
    """DeepSeek-V4: a window everywhere, and one key for each `ratio` tokens in some layers.

    Several caches of different length share a layer there; the longest, with the indexer's, stands for all: estimated.
    """
    ratios = keys.each("attention.compress_ratios", is_padded=True)
    n_swa = keys.number("attention.sliding_window")
    found: list[LayerMemory] = []
    for layer, ratio in zip(layers, ratios, strict=True):
        index = heads.index_k if ratio == 4 else 0  # noqa: PLR2004 - only these layers choose among keys
        if len(found) < n_trunk and ratio:
            found.append(replace(layer, k_width=-(-(heads.k + index) // ratio), v_width=0, n_swa=0))
        else:
            found.append(replace(layer, k_width=heads.k, v_width=0, n_swa=n_swa))
    return found
