"""How large a picture a projector takes, against the one libmtmd makes its compute buffer for when it is opened.

That one is small for kinds which take pictures of any size ("avoid OOM on warmup", `clip_model_loader::load_hparams` in
clip.cpp), so a larger one of a request would make the buffer grow. Rows here are what a picture becomes for the text
model, each of a square of `row_px` pixels a side.
"""

import math
from dataclasses import dataclass

from runtime.gguf.header import GgufHeader
from runtime.media_kinds import MAX_PIXELS

_MERGED = {"pixtral": 1, "kimivl": 1, "lightonocr": 1, "phi4": 1, "gemma4v": 3, "gemma4uv": 3}
"""Patches a side of a row, where the file does not say; of the others two."""
_WARM_AND_MOST = {
    "pixtral": (256, 1024),
    "kimivl": (256, 1024),
    "minimax_m3": (256, 576),
    **dict.fromkeys(("qwen2vl_merger", "qwen3vl_merger", "ling3vl", "glm4v"), (46 * 46, 4096)),
    "qwen2.5vl_merger": (46 * 46, 46 * 46),
    "muse-glimmer": (32 * 32, 32 * 32),
    "youtuvl": (256, 1024),
    "hunyuanvl": (32 * 32, 4096),
    "gemma4v": (256, 1120),
    "gemma4uv": (256, 1120),
}
"""Rows of the picture at opening, and of the largest; llama.cpp's own numbers but for those in `CAPPED`."""
_WARM_BY_FILE = {"phi4": 256, "paddleocr": 28 * 28} | dict.fromkeys(
    ("dots_ocr", "dots3note_v", "glm5v", "exaone4_5", "mimovl"), 46 * 46
)
"""Rows at opening of kinds whose file says how large a picture may be."""
_MASKED = frozenset({"qwen2.5vl_merger", "youtuvl", "muse-glimmer", "exaone4_5", "mimovl"})
CAPPED = frozenset({"qwen2.5vl_merger", "youtuvl", "muse-glimmer", "hunyuanvl"})
"""Kinds that are told the most rows. Those with windows of attention keep a mask of all patches against all: with
llama.cpp's own limits 1 GiB (Qwen 2.5 VL) to 250 GiB (Youtu) for one picture."""
_MASK_BYTES = 6
"""Of a pair of patches: the mask in single precision and, for flash attention, in half."""


@dataclass(frozen=True, slots=True)
class PictureRoom:
    """What decides about the compute buffer.

    Attributes:
        row_px: side of the square of pixels that becomes one row.
        warm_rows: of the picture at opening.
        most_rows: of the largest picture.
        patches_a_row: patches that are merged into one.
        has_mask: a mask of all patches against all is kept.
    """

    row_px: int
    warm_rows: int
    most_rows: int
    patches_a_row: int
    has_mask: bool

    @property
    def grows(self) -> bool:
        """Whether the largest picture needs more than was made at opening."""
        return self.most_rows > self.warm_rows

    def grid(self) -> tuple[int, int]:
        """Rows across and down of a picture that has as many as one can, no longer than twice its height."""
        best = (1, 1)
        for down in range(max(1, math.isqrt(self.most_rows // 2)), math.isqrt(self.most_rows) + 1):
            across = self.most_rows // down
            if across * down >= best[0] * best[1]:
                best = (across, down)
        return best

    def grown_bytes(self, warm_bytes: int) -> int:
        """The compute buffer for the largest picture, from that at opening: all but masks goes with the patches."""
        if not self.grows:
            return warm_bytes
        across, down = self.grid()
        growth = across * down / self.warm_rows
        warm_mask = _MASK_BYTES * (self.warm_rows * self.patches_a_row) ** 2 if self.has_mask else 0
        warm_mask = min(warm_mask, warm_bytes)
        return math.ceil((warm_bytes - warm_mask) * growth + warm_mask * growth**2)


def picture_room(header: GgufHeader, kind: str, *, most_rows: int = 0) -> PictureRoom | None:
    """What is known of a projector; None for kinds whose pictures, or pieces of them, all have one size.

    Args:
        header: of its file.
        kind: llama.cpp's name of it.
        most_rows: what it is told as the most rows (llama.cpp's `image_max_tokens`); 0 leaves its own limit.
    """
    patch = header.integer("clip.vision.patch_size") or 0
    if patch <= 0:
        return None
    merged = _merged(header, kind)
    row_px = patch * merged
    if kind in _WARM_AND_MOST:
        warm, most = _WARM_AND_MOST[kind]
        most = most_rows or most
        if kind == "hunyuanvl" and (pixels := header.integer("clip.vision.image_max_pixels") or 0) > 0:
            most = pixels // row_px**2
    elif kind in _WARM_BY_FILE:
        warm, most = _WARM_BY_FILE[kind], (header.integer("clip.vision.image_max_pixels") or 0) // row_px**2
    elif kind == "lightonocr":
        edge = header.integer("clip.vision.preproc_image_size") or header.integer("clip.vision.image_size") or 0
        warm, most = 256, (edge // row_px) ** 2
    else:
        return None
    most = max(min(most, MAX_PIXELS // row_px**2), 1)  # no request brings a larger one
    return PictureRoom(row_px, warm, most, merged**2, kind in _MASKED)


def capped_rows(kind: str) -> int:
    """The most rows a projector of this kind is told; 0 for those that keep llama.cpp's own limit."""
    return _WARM_AND_MOST[kind][1] if kind in CAPPED else 0


def _merged(header: GgufHeader, kind: str) -> int:
    told = header.integer("clip.vision.spatial_merge_size") or header.integer("clip.vision.projector.scale_factor")
    return max(told or _MERGED.get(kind, 2), 1)
