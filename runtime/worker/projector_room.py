"""Makes libmtmd allocate its compute buffer for the largest picture when a projector is opened, not at a request.

libmtmd has no call for it. But it encodes with ggml's scheduler, which allocates for a whole graph before it computes,
and asks an evaluation callback after each part whether to go on (`ggml_backend_sched_compute_splits`): so a picture of
the largest size is encoded, and stopped after its first operation. In between the callback lets everything through.
"""

import ctypes
from collections.abc import Mapping

import numpy as np

from runtime.errors import NotEnoughMemory
from runtime.gguf.picture_room import PictureRoom
from runtime.worker import ggml, mtmd

MAX_SIDE_PX = 8192
_GREY = 128
_BUFFER_WORD = 1  # ggml_tensor: type and padding, then `buffer` (ggml.h)
_Callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)

_buffer_size = ggml.bind(ggml.base, "ggml_backend_buffer_get_size", ctypes.c_size_t, ctypes.c_void_p)
_buffer_name = ggml.bind(ggml.base, "ggml_backend_buffer_name", ctypes.c_char_p, ctypes.c_void_p)


class LargestPicture:
    """The callback of one projector; must live as long as that does.

    Attributes:
        callback: what libmtmd is told.
    """

    def __init__(self, room: PictureRoom) -> None:
        self._room = room
        self._stops = False
        self._buffers: dict[int, tuple[str, int]] = {}
        self._callback = _Callback(self._on_operation)
        self.callback = ctypes.cast(self._callback, mtmd.EvalCallback)

    def _on_operation(self, tensor: int, is_question: bool, _data: int | None) -> bool:
        if not self._stops:
            return False  # no need to look at it
        if buffer := (ctypes.c_size_t * 2).from_address(tensor)[_BUFFER_WORD]:
            self._buffers[buffer] = ((_buffer_name(buffer) or b"").decode("utf-8", "replace"), _buffer_size(buffer))
        return is_question  # look at each, and then do not go on

    def reserve(self, context: int) -> Mapping[str, int]:
        """Allocate; returns bytes by name of buffer, as far as operations were seen in it.

        Raises:
            NotEnoughMemory: there is not so much.
        """
        across, down = self._room.grid()
        width, height = (min(side * self._room.row_px, MAX_SIDE_PX) for side in (across, down))
        pixels = np.full((height, width, 3), _GREY, dtype=np.uint8)
        bitmap = mtmd.bitmap_init(width, height, pixels.ctypes.data)
        chunks = mtmd.chunks_init()
        self._stops = True
        try:
            marker: bytes = mtmd.marker(context)
            text = mtmd.InputText(marker, len(marker), False, True)
            code = mtmd.tokenize(context, chunks, ctypes.byref(text), (ctypes.c_void_p * 1)(bitmap), 1)
            found = [mtmd.chunks_get(chunks, index) for index in range(mtmd.chunks_size(chunks))] if not code else []
            pictures = [chunk for chunk in found if mtmd.chunk_type(chunk) != mtmd.TEXT]
            if pictures and mtmd.encode_chunk(context, max(pictures, key=mtmd.chunk_n_tokens)):
                raise NotEnoughMemory(
                    f"There is not enough memory for pictures of {width:,} x {height:,} pixels, the largest that the "
                    "model looks at.",
                    hint="Load the model without its projector, with a shorter context, or close other programs.",
                )
        finally:
            self._stops = False
            mtmd.chunks_free(chunks)
            mtmd.bitmap_free(bitmap)
        sizes: dict[str, int] = {}
        for name, size_bytes in self._buffers.values():
            sizes[name] = sizes.get(name, 0) + size_bytes
        return sizes
