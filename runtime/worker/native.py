"""llama.cpp's C functions as this worker calls them: the one place that binds them.

llama-cpp-python's own wrappers check and convert every argument; on the hot path that costs more than the work
itself. Here handles are plain addresses (`int`), and each function is bound in one of two ways:

* through `ctypes.CDLL`, which lets other threads run meanwhile: loading, decoding, state copies, tokenizing;
* through `ctypes.PyDLL`, which keeps the interpreter lock: sampler calls of a few microseconds, where giving the
  lock away could cost the engine a whole switch interval to get it back.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

# GNU OpenMP reads this once, when llama.cpp brings it in: rounds that a thread spins at a barrier before it sleeps.
# They must outlast what lies between two decodes, or the threads sleep and are woken for every token. By default it
# is 300,000: where other programs use the cores too, that burns the time the late thread needs. (Two busy programs on
# two cores, 2026-11-30, ms a token, means of 12 tokens: 20,000 and 100,000 rounds 24 to 30, 300,000 rounds 24 to 81.)
os.environ.setdefault("GOMP_SPINCOUNT", "50000")
# An assertion of llama.cpp would otherwise start a debugger for its backtrace, which can take seconds.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp
from llama_cpp.llama_cpp import _lib as _releasing

_holding = ctypes.PyDLL(_releasing._name, handle=_releasing._handle)  # noqa: SLF001 - ctypes' own, undocumented

LLAMA_TOKEN_NULL = -1
LLAMA_DEFAULT_SEED = 0xFFFFFFFF
LLAMA_MAX_SEQ = 256  # llama-cparams.h


class BufferOverride(ctypes.Structure):
    """`llama_model_tensor_buft_override`."""

    _fields_ = [("pattern", c_char_p), ("buft", c_void_p)]


class TokenData(ctypes.Structure):
    """`llama_token_data`."""

    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class TokenDataArray(ctypes.Structure):
    """`llama_token_data_array`; `data` is a plain address, because samplers may move it."""

    _fields_ = [
        ("data", c_void_p),
        ("size", c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", c_bool),
    ]


class Batch(ctypes.Structure):
    """`llama_batch` over memory of our own."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    ]


class LogitBias(ctypes.Structure):
    """`llama_logit_bias`."""

    _fields_ = [("token", c_int32), ("bias", c_float)]


def _bind(name: str, restype: Any, *argtypes: Any, keep_lock: bool = False) -> Any:  # noqa: ANN401
    # Subscription makes a function object of our own; attribute access would share llama-cpp-python's.
    function = (_holding if keep_lock else _releasing)[name]
    function.restype = restype
    function.argtypes = argtypes
    return function


def optional(name: str, restype: Any, *argtypes: Any) -> Any:  # noqa: ANN401
    """A function that not every build of llama.cpp exports; None without it."""
    try:
        return _bind(name, restype, *argtypes)
    except AttributeError:
        return None


def _first(names: Sequence[str], restype: Any, *argtypes: Any) -> Any:  # noqa: ANN401
    """A function under the first of these names that is exported; None without one."""
    return next((found for name in names if (found := optional(name, restype, *argtypes)) is not None), None)


ModelParams: Any = llama_cpp.llama_model_params
ContextParams: Any = llama_cpp.llama_context_params
LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)
ProgressCallback: Any = llama_cpp.llama_progress_callback

backend_init = _bind("llama_backend_init", None)
log_set = _bind("llama_log_set", None, c_void_p, c_void_p)
model_default_params = _bind("llama_model_default_params", ModelParams)
context_default_params = _bind("llama_context_default_params", ContextParams)
model_load_from_file = _bind("llama_model_load_from_file", c_void_p, c_char_p, ModelParams)
model_free = _bind("llama_model_free", None, c_void_p)
init_from_model = _bind("llama_init_from_model", c_void_p, c_void_p, ContextParams)
free = _bind("llama_free", None, c_void_p)
max_devices = _bind("llama_max_devices", c_size_t)
supports_gpu_offload = _bind("llama_supports_gpu_offload", c_bool)
print_system_info = _bind("llama_print_system_info", c_char_p)

model_get_vocab = _bind("llama_model_get_vocab", c_void_p, c_void_p)
model_n_ctx_train = _bind("llama_model_n_ctx_train", c_int32, c_void_p)
model_n_embd_out = _bind("llama_model_n_embd_out", c_int32, c_void_p)
model_n_layer = _bind("llama_model_n_layer", c_int32, c_void_p)
model_n_head = _bind("llama_model_n_head", c_int32, c_void_p)
model_n_head_kv = _bind("llama_model_n_head_kv", c_int32, c_void_p)
model_n_embd_inp = _bind("llama_model_n_embd_inp", c_int32, c_void_p)
model_n_embd = _bind("llama_model_n_embd", c_int32, c_void_p)
model_n_swa = _bind("llama_model_n_swa", c_int32, c_void_p)
model_n_params = _bind("llama_model_n_params", c_uint64, c_void_p)
model_size = _bind("llama_model_size", c_uint64, c_void_p)
model_desc = _bind("llama_model_desc", c_int32, c_void_p, c_char_p, c_size_t)
model_meta_count = _bind("llama_model_meta_count", c_int32, c_void_p)
model_meta_key_by_index = _bind("llama_model_meta_key_by_index", c_int32, c_void_p, c_int32, c_char_p, c_size_t)
model_meta_val_str_by_index = _bind("llama_model_meta_val_str_by_index", c_int32, c_void_p, c_int32, c_char_p, c_size_t)
model_chat_template = _bind("llama_model_chat_template", c_char_p, c_void_p, c_char_p)
model_has_encoder = _bind("llama_model_has_encoder", c_bool, c_void_p)
model_is_recurrent = _bind("llama_model_is_recurrent", c_bool, c_void_p)
model_is_hybrid = _bind("llama_model_is_hybrid", c_bool, c_void_p)
model_is_diffusion = _bind("llama_model_is_diffusion", c_bool, c_void_p)

n_ctx = _bind("llama_n_ctx", c_uint32, c_void_p)
n_batch = _bind("llama_n_batch", c_uint32, c_void_p)
n_ubatch = _bind("llama_n_ubatch", c_uint32, c_void_p)
get_memory = _bind("llama_get_memory", c_void_p, c_void_p)
memory_clear = _bind("llama_memory_clear", None, c_void_p, c_bool)
memory_seq_rm = _bind("llama_memory_seq_rm", c_bool, c_void_p, c_int32, c_int32, c_int32)
memory_seq_cp = _bind("llama_memory_seq_cp", None, c_void_p, c_int32, c_int32, c_int32, c_int32)
memory_seq_pos_min = _bind("llama_memory_seq_pos_min", c_int32, c_void_p, c_int32)
memory_seq_pos_max = _bind("llama_memory_seq_pos_max", c_int32, c_void_p, c_int32)
state_seq_get_size = _bind("llama_state_seq_get_size", c_size_t, c_void_p, c_int32)
state_seq_get_data = _bind("llama_state_seq_get_data", c_size_t, c_void_p, c_void_p, c_size_t, c_int32)
state_seq_set_data = _bind("llama_state_seq_set_data", c_size_t, c_void_p, c_void_p, c_size_t, c_int32)

adapter_lora_init = _bind("llama_adapter_lora_init", c_void_p, c_void_p, c_char_p)
set_adapters_lora = _bind("llama_set_adapters_lora", c_int32, c_void_p, c_void_p, c_size_t, c_void_p)

decode = _bind("llama_decode", c_int32, c_void_p, Batch)
set_causal_attn = _bind("llama_set_causal_attn", None, c_void_p, c_bool)
synchronize = _bind("llama_synchronize", None, c_void_p)
get_logits = _bind("llama_get_logits", c_void_p, c_void_p, keep_lock=True)
get_embeddings = _bind("llama_get_embeddings", c_void_p, c_void_p)
get_embeddings_seq = _bind("llama_get_embeddings_seq", c_void_p, c_void_p, c_int32)
set_abort_callback = _bind("llama_set_abort_callback", None, c_void_p, c_void_p, c_void_p)
set_n_threads = _bind("llama_set_n_threads", None, c_void_p, c_int32, c_int32)

vocab_n_tokens = _bind("llama_vocab_n_tokens", c_int32, c_void_p)
vocab_bos = _bind("llama_vocab_bos", c_int32, c_void_p)
vocab_eos = _bind("llama_vocab_eos", c_int32, c_void_p)
vocab_fim_pre = _bind("llama_vocab_fim_pre", c_int32, c_void_p)
vocab_fim_suf = _bind("llama_vocab_fim_suf", c_int32, c_void_p)
vocab_fim_mid = _bind("llama_vocab_fim_mid", c_int32, c_void_p)
vocab_fim_rep = _bind("llama_vocab_fim_rep", c_int32, c_void_p)
vocab_fim_sep = _bind("llama_vocab_fim_sep", c_int32, c_void_p)
vocab_sep = _bind("llama_vocab_sep", c_int32, c_void_p)
vocab_get_add_eos = _bind("llama_vocab_get_add_eos", c_bool, c_void_p)
vocab_get_add_sep = _bind("llama_vocab_get_add_sep", c_bool, c_void_p)
vocab_get_add_bos = _bind("llama_vocab_get_add_bos", c_bool, c_void_p)
vocab_type = _bind("llama_vocab_type", c_int32, c_void_p)
vocab_get_text = _bind("llama_vocab_get_text", c_char_p, c_void_p, c_int32)
vocab_is_eog = _bind("llama_vocab_is_eog", c_bool, c_void_p, c_int32, keep_lock=True)
vocab_is_control = _bind("llama_vocab_is_control", c_bool, c_void_p, c_int32, keep_lock=True)
tokenize = _bind("llama_tokenize", c_int32, c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool)
token_to_piece = _bind(
    "llama_token_to_piece", c_int32, c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool, keep_lock=True
)

sampler_chain_default_params = _bind("llama_sampler_chain_default_params", llama_cpp.llama_sampler_chain_params)
sampler_chain_init = _bind("llama_sampler_chain_init", c_void_p, llama_cpp.llama_sampler_chain_params)
sampler_chain_add = _bind("llama_sampler_chain_add", None, c_void_p, c_void_p)
sampler_apply = _bind("llama_sampler_apply", None, c_void_p, POINTER(TokenDataArray), keep_lock=True)
sampler_accept = _bind("llama_sampler_accept", None, c_void_p, c_int32, keep_lock=True)
sampler_clone = _bind("llama_sampler_clone", c_void_p, c_void_p)
sampler_free = _bind("llama_sampler_free", None, c_void_p, keep_lock=True)
sampler_init_greedy = _bind("llama_sampler_init_greedy", c_void_p)
sampler_init_dist = _bind("llama_sampler_init_dist", c_void_p, c_uint32)
sampler_init_top_k = _bind("llama_sampler_init_top_k", c_void_p, c_int32)
sampler_init_top_p = _bind("llama_sampler_init_top_p", c_void_p, c_float, c_size_t)
sampler_init_min_p = _bind("llama_sampler_init_min_p", c_void_p, c_float, c_size_t)
sampler_init_typical = _bind("llama_sampler_init_typical", c_void_p, c_float, c_size_t)
sampler_init_temp = _bind("llama_sampler_init_temp", c_void_p, c_float)
sampler_init_temp_ext = _bind("llama_sampler_init_temp_ext", c_void_p, c_float, c_float, c_float)
sampler_init_xtc = _bind("llama_sampler_init_xtc", c_void_p, c_float, c_float, c_size_t, c_uint32)
sampler_init_mirostat_v2 = _bind("llama_sampler_init_mirostat_v2", c_void_p, c_uint32, c_float, c_float)
sampler_init_penalties = _bind("llama_sampler_init_penalties", c_void_p, c_int32, c_int32, c_float, c_float, c_float)
sampler_init_dry = _bind(
    "llama_sampler_init_dry",
    c_void_p,
    c_void_p,
    c_float,
    c_float,
    c_int32,
    c_int32,
    POINTER(c_char_p),
    c_size_t,
)
sampler_init_logit_bias = _bind("llama_sampler_init_logit_bias", c_void_p, c_int32, c_int32, POINTER(LogitBias))


# C++ functions of `src/llama-ext.h`: as GCC and Clang spell their names, and as MSVC does.
set_embeddings_nextn = _first(
    (
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        "llama_set_embeddings_nextn",
    ),
    *(None, c_void_p, c_bool, c_bool),
)
get_embeddings_nextn = _first(
    (
        "_Z26llama_get_embeddings_nextnP13llama_context",
        "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        "llama_get_embeddings_nextn",
    ),
    *(c_void_p, c_void_p),
)
HAS_NEXTN: bool = set_embeddings_nextn is not None and get_embeddings_nextn is not None
"""Whether this build of llama.cpp gives the hidden rows that multi-token heads work on."""


def flag_reader() -> int:
    """Address of a C function that answers "is the byte at this address non-zero", for llama.cpp's abort callback.

    llama.cpp asks before every node of the graph, from its compute threads; a Python callback would take the
    interpreter lock each time and cost more than the decode. `strlen` is that function: over a byte that is
    followed by a zero it returns 0 or 1, and a C `bool` is the low byte of the result on every supported ABI.
    """
    if sys.platform == "win32":
        library = ctypes.CDLL("ucrtbase")
    else:
        library = ctypes.CDLL(None)
    address = ctypes.cast(library.strlen, c_void_p).value
    if address is None:
        raise OSError("the C library has no strlen")
    return address


class AbortFlag:
    """One byte that llama.cpp's compute threads read and one thread of ours writes."""

    def __init__(self) -> None:
        self._bytes = (c_int8 * 2)(0, 0)
        self.address = ctypes.addressof(self._bytes)

    def set(self) -> None:
        """Ask the running decode to end."""
        self._bytes[0] = 1

    def clear(self) -> None:
        """Let decodes run."""
        self._bytes[0] = 0

    def __bool__(self) -> bool:
        return bool(self._bytes[0])
