"""Pictures and sounds to rows of numbers the model reads: decoded, cut up as the model's family does, encoded.

`MediaReader.read` decodes and cuts up; `encode` runs the projector. Both are slow and wait in native code, so neither
belongs on the engine's thread. `read` may be called from several threads, `encode` from one.
"""

import ctypes
import hashlib
import threading
import weakref
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ENGINE_QUOTE, BadRequest, GenerationFailed
from runtime.messages.shared import MediaPart
from runtime.scheduler.media import MAX_SPAN_ROWS, placeholders
from runtime.worker import mtmd
from runtime.worker.llama_log import LlamaLog
from runtime.worker.media_cache import MediaCache
from runtime.worker.media_files import PictureHeader, read_picture, read_sound
from runtime.worker.media_rows import Chunk, Floats, Ints, Piece, ReadMedia
from runtime.worker.projector import Projector
from runtime.worker.webp import webp_pixels

_SAMPLE_BYTES = 1024 * 1024
_N_POS = 4  # GGML_MROPE_SECTIONS
_NO_FFMPEG = b"no-such-folder"
"""What llama.cpp cannot decode it hands to a program named ffmpeg, in this folder or else wherever the system finds it.
Nothing that a request brings may start a program."""


class Source:
    """libmtmd's `mtmd_input_chunks`, freed with this object."""

    def __init__(self) -> None:
        self.address: int = mtmd.chunks_init()
        weakref.finalize(self, mtmd.chunks_free, self.address).atexit = False

    def all(self) -> list[int]:
        """Addresses of the chunks; they live as long as this object."""
        return [mtmd.chunks_get(self.address, index) for index in range(mtmd.chunks_size(self.address))]


class MediaReader:
    """What a worker sees and hears with.

    Args:
        projector: the opened projector.
        n_vocab: size of the model's vocabulary.
        n_ubatch: most rows that can be decoded together.
        cache: of encoded media.
        log: where libmtmd prints.
    """

    def __init__(self, projector: Projector, *, n_vocab: int, n_ubatch: int, cache: MediaCache, log: LlamaLog) -> None:
        self._projector = projector
        self._n_vocab = n_vocab
        self._n_ubatch = n_ubatch
        self._cache = cache
        self._log = log
        self._decoding = threading.Lock()  # one large file in memory at a time
        self._salt = _identity(projector.path) + n_ubatch.to_bytes(4, "little")
        """Another projector makes other rows of the same picture, and some make more where more can be read."""

    # --- any thread -------------------------------------------------------------------------------------------

    def read(self, part: MediaPart) -> ReadMedia:
        """Decode a file and cut it up; what is in the cache is neither.

        Raises:
            BadRequest: the model does not take this kind, or the file cannot be read or is too large.
        """
        projector = self._projector
        if part.kind == "image" and not projector.sees:
            raise BadRequest("The model hears but cannot see pictures.", param="messages")
        if part.kind == "audio" and not projector.hears:
            raise BadRequest("The model sees but cannot hear sounds.", param="messages")
        key = hashlib.sha256(self._salt + part.kind.encode() + b"\0" + part.data).digest()
        if (known := self._cache.get(key)) is not None:
            return known
        with self._decoding:
            bitmap = self._picture(part.data) if part.kind == "image" else self._decode(read_sound(part.data), None)
            try:
                source = self._cut(bitmap, part.kind)
            finally:
                mtmd.bitmap_free(bitmap)
        return ReadMedia(key, part.kind, tuple(self._pieces(source, key)), source)

    def _picture(self, data: bytes) -> int:
        header = read_picture(data)
        if not header.is_webp:
            return self._decode(data, header)
        return _bitmap_of(oriented(webp_pixels(data, header.width, header.height), header.orientation))

    def _decode(self, data: bytes, header: PictureHeader | None) -> int:
        options = mtmd.init_options()
        options.video_params.ffmpeg_bin_dir = _NO_FFMPEG
        found = mtmd.bitmap_from_buf(self._projector.context, data, len(data), False, options)
        bitmap: int | None = found.bitmap
        if not bitmap or found.video_ctx:
            what = "sound" if header is None else "picture"
            raise BadRequest(f"A {what} cannot be decoded: the file is damaged.", param="messages")
        if header is None:
            if mtmd.bitmap_nx(bitmap) < 2:  # noqa: PLR2004 - fewer samples end llama.cpp's process
                mtmd.bitmap_free(bitmap)
                raise BadRequest("A sound holds nothing.", param="messages")
            return bitmap
        return _turned(bitmap, header.orientation)

    def _cut(self, bitmap: int, kind: str) -> Source:
        source = Source()
        marker: bytes = mtmd.marker(self._projector.context)
        text = mtmd.InputText(marker, len(marker), False, True)
        code = mtmd.tokenize(
            self._projector.context, source.address, ctypes.byref(text), (ctypes.c_void_p * 1)(bitmap), 1
        )
        if code or not any(mtmd.chunk_type(chunk) != mtmd.TEXT for chunk in source.all()):
            what = "picture" if kind == "image" else "sound"
            raise BadRequest(
                f"The model cannot take this {what}.",
                hint="It may be too small, too short or too narrow.",
                param="messages",
            )
        return source

    def _pieces(self, source: Source, key: bytes) -> list[Piece]:
        pieces: list[Piece] = []
        numbers = count()
        for address in source.all():
            if mtmd.chunk_type(address) == mtmd.TEXT:
                pieces.append(self._text(address))
                continue
            n_rows: int = mtmd.chunk_n_tokens(address)
            is_causal = not mtmd.use_non_causal(self._projector.context, address)
            if not 0 < n_rows <= MAX_SPAN_ROWS or (not is_causal and n_rows > self._n_ubatch):
                raise BadRequest(
                    f"A picture becomes {n_rows:,} tokens to be read at once; this model reads {self._n_ubatch:,}.",
                    hint=f"Load the model with a micro-batch (n_ubatch) of {n_rows:,}, or send a smaller picture.",
                    param="messages",
                )
            base, moves, counts = self._positions(address, n_rows)
            tokens = placeholders(key + next(numbers).to_bytes(4, "little"), n_rows)
            pieces.append(Chunk(tokens, mtmd.chunk_n_pos(address), is_causal, base, moves, counts))
        return pieces

    def _text(self, address: int) -> tuple[int, ...]:
        n_tokens = ctypes.c_size_t()
        tokens = mtmd.chunk_text(address, ctypes.byref(n_tokens))
        # A mark that the model's vocabulary does not have is -1.
        return tuple(token for token in tokens[: n_tokens.value] if 0 <= token < self._n_vocab)

    def _positions(self, address: int, n_rows: int) -> tuple[Ints, Ints, bool]:
        """`Rows.base`, `Rows.moves`, and whether they hold the picture's number."""
        image = mtmd.chunk_image(address)
        if not self._projector.uses_mrope or not image:
            n_dims = _N_POS if self._projector.uses_mrope else 1
            base = np.tile(np.arange(n_rows, dtype=np.int32), (n_dims, 1))
            return base, np.ones_like(base), False
        at_0, at_1 = (_image_positions(image, n_rows, position) for position in (0, 1))
        moves = at_1 - at_0
        # Where the fourth number moves with the first row but not with those behind it, it is the picture's.
        return at_0, moves, bool(n_rows > 2 and moves[3, 0] and not moves[3, 1:-1].any())  # noqa: PLR2004

    # --- one thread -------------------------------------------------------------------------------------------

    def encode(self, media: ReadMedia) -> None:
        """Give a medium its rows: from the cache if they are there.

        Raises:
            GenerationFailed: llama.cpp could not compute them.
            Busy: too many rows wait with other requests.
        """
        source = media.source
        if media.rows is not None or not isinstance(source, Source):
            return
        if (known := self._cache.get(media.key)) is not None:
            media.rows, media.source = known.rows, None
            return
        n_embd = self._projector.n_embd
        self._cache.check_room(4 * n_embd * sum(len(chunk.tokens) for chunk in media.chunks))
        rows: list[Floats] = []
        for address in source.all():
            if mtmd.chunk_type(address) == mtmd.TEXT:
                continue
            if mtmd.encode_chunk(self._projector.context, address):
                raise GenerationFailed(
                    f"A picture or sound could not be encoded.{ENGINE_QUOTE}{self._log.reason() or 'nothing'}"
                )
            shape = (mtmd.chunk_n_tokens(address), n_embd)
            made = np.ctypeslib.as_array(mtmd.output_embd(self._projector.context), shape=shape)
            rows.append(np.array(made, dtype=np.float32))
        media.rows, media.source = tuple(rows), None
        self._cache.put(media)


def _identity(path: Path) -> bytes:
    """Tells projectors apart, also in another process: size, header and last weights."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(_SAMPLE_BYTES)
        file.seek(max(0, size_bytes - _SAMPLE_BYTES))
        return hashlib.sha256(b"%d " % size_bytes + begin + file.read(_SAMPLE_BYTES)).digest()


def _image_positions(image: int, n_rows: int, position: int) -> Ints:
    """llama.cpp's order of the four numbers: t, y, x, z (`decode_embd_batch::set_position_mrope_2d`)."""
    found = (mtmd.DecoderPos * n_rows)()
    mtmd.image_positions(image, position, found)
    table = np.frombuffer(found, dtype=np.uint32).reshape(n_rows, _N_POS).astype(np.int32)
    return np.ascontiguousarray(table[:, [0, 2, 1, 3]].T)


def _turned(bitmap: int, orientation: int) -> int:
    """The bitmap as its EXIF orientation wants it seen; takes the old one over."""
    if orientation == 1:
        return bitmap
    shape = (mtmd.bitmap_ny(bitmap), mtmd.bitmap_nx(bitmap), 3)
    pixels: NDArray[np.uint8] = np.ctypeslib.as_array(
        ctypes.cast(mtmd.bitmap_data(bitmap), ctypes.POINTER(ctypes.c_uint8)), shape=shape
    )
    made = _bitmap_of(oriented(pixels, orientation))
    mtmd.bitmap_free(bitmap)
    return made


def _bitmap_of(pixels: NDArray[np.uint8]) -> int:
    """A bitmap with a copy of these pixels, [height, width, 3]."""
    made: int = mtmd.bitmap_init(pixels.shape[1], pixels.shape[0], pixels.ctypes.data)
    return made


def oriented(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels [height, width, 3] turned and mirrored as EXIF's orientation says (1 to 8)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
