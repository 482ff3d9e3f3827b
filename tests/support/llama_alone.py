"""What llama.cpp itself makes of one text in a context of its own: what our batches are compared with."""

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.scheduler.plan import BatchPlan
from runtime.worker import native
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel

POOLING = {"mean": 1, "cls": 2, "last": 3, "rank": 4}  # enum llama_pooling_type


def pooled_alone(model: LlamaModel, tokens: Sequence[int], pooling: str) -> NDArray[np.float32]:
    """llama.cpp's own pooling over one decode; vectors with L2 norm 1, or the score."""
    params = native.context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 2048
    params.n_seq_max = 1
    params.embeddings = True
    params.pooling_type = POOLING[pooling]
    params.flash_attn_type = 0
    params.type_k = params.type_v = 0  # float32
    params.n_threads = params.n_threads_batch = 1
    context = native.init_from_model(model.model, params)
    assert context
    try:
        n = len(tokens)
        arrays = BatchArrays(n)
        arrays.fill(BatchPlan(list(tokens), list(range(n)), [0] * n, list(range(n))))
        assert native.decode(context, arrays.batch) == 0
        native.synchronize(context)
        size = 1 if pooling == "rank" else native.model_n_embd_out(model.model)
        address = native.get_embeddings_seq(context, 0)
        vector = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address)).copy()
    finally:
        native.free(context)
    return vector if pooling == "rank" else vector / np.linalg.norm(vector)
