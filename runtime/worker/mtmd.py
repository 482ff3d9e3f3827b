"""libmtmd's C functions as this worker calls them: the one place that binds them (see `runtime.worker.native`).

All let other threads run meanwhile. Handles are plain addresses.
"""

from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

from llama_cpp import mtmd_cpp

library: Any = mtmd_cpp._libmtmd  # noqa: SLF001 - the library the bindings loaded

TEXT = 0  # enum mtmd_input_chunk_type

ContextParams: Any = mtmd_cpp.mtmd_context_params
InputText: Any = mtmd_cpp.mtmd_input_text
InitOptions: Any = mtmd_cpp.mtmd_helper_init_opt
BitmapWrapper: Any = mtmd_cpp.mtmd_helper_bitmap_wrapper
DecoderPos: Any = mtmd_cpp.mtmd_decoder_pos
EvalCallback: Any = dict(ContextParams._fields_)["cb_eval"]  # ggml_backend_sched_eval_callback


def _bind(name: str, restype: Any, *argtypes: Any) -> Any:  # noqa: ANN401
    function = library[name]  # a function object of our own
    function.restype = restype
    function.argtypes = argtypes
    return function


log_set = _bind("mtmd_helper_log_set", None, c_void_p, c_void_p)
context_params_default = _bind("mtmd_context_params_default", ContextParams)
init_from_file = _bind("mtmd_init_from_file", c_void_p, c_char_p, c_void_p, ContextParams)
free = _bind("mtmd_free", None, c_void_p)
support_vision = _bind("mtmd_support_vision", c_bool, c_void_p)
support_audio = _bind("mtmd_support_audio", c_bool, c_void_p)
use_mrope = _bind("mtmd_decode_use_mrope", c_bool, c_void_p)
use_non_causal = _bind("mtmd_decode_use_non_causal", c_bool, c_void_p, c_void_p)
marker = _bind("mtmd_get_marker", c_char_p, c_void_p)

init_options = _bind("mtmd_helper_init_opt_default", InitOptions)
bitmap_from_buf = _bind(
    "mtmd_helper_bitmap_init_from_buf", BitmapWrapper, c_void_p, c_char_p, c_size_t, c_bool, InitOptions
)
bitmap_init = _bind("mtmd_bitmap_init", c_void_p, c_uint32, c_uint32, c_void_p)
bitmap_free = _bind("mtmd_bitmap_free", None, c_void_p)
bitmap_nx = _bind("mtmd_bitmap_get_nx", c_uint32, c_void_p)
bitmap_ny = _bind("mtmd_bitmap_get_ny", c_uint32, c_void_p)
bitmap_data = _bind("mtmd_bitmap_get_data", c_void_p, c_void_p)

tokenize = _bind("mtmd_tokenize", c_int32, c_void_p, c_void_p, POINTER(InputText), POINTER(c_void_p), c_size_t)
chunks_init = _bind("mtmd_input_chunks_init", c_void_p)
chunks_free = _bind("mtmd_input_chunks_free", None, c_void_p)
chunks_size = _bind("mtmd_input_chunks_size", c_size_t, c_void_p)
chunks_get = _bind("mtmd_input_chunks_get", c_void_p, c_void_p, c_size_t)
chunk_type = _bind("mtmd_input_chunk_get_type", c_int32, c_void_p)
chunk_n_tokens = _bind("mtmd_input_chunk_get_n_tokens", c_size_t, c_void_p)
chunk_n_pos = _bind("mtmd_input_chunk_get_n_pos", c_int32, c_void_p)
chunk_text = _bind("mtmd_input_chunk_get_tokens_text", POINTER(c_int32), c_void_p, POINTER(c_size_t))
chunk_image = _bind("mtmd_input_chunk_get_tokens_image", c_void_p, c_void_p)
image_positions = _bind("mtmd_helper_image_get_decoder_pos", None, c_void_p, c_int32, POINTER(DecoderPos))

encode_chunk = _bind("mtmd_encode_chunk", c_int32, c_void_p, c_void_p)
output_embd = _bind("mtmd_get_output_embd", POINTER(c_float), c_void_p)
