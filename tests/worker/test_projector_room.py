"""The compute buffer for the largest picture: planned, made at the load, and not grown by any request."""

from pathlib import Path

import numpy as np
import pytest

from runtime.gguf.header import GgufHeader
from runtime.gguf.picture_room import PictureRoom, picture_room
from runtime.messages.shared import MediaPart
from runtime.options import LoadOptions
from runtime.worker.devices import list_devices
from runtime.worker.load import LOG, load_model
from runtime.worker.media import MediaReader
from runtime.worker.media_cache import MediaCache
from runtime.worker.projector import planned_bytes
from tests.fakes.tiny_vision import Kind, write_seeing_model
from tests.support.pictures import png

pytestmark = pytest.mark.e2e

MIB = 2**20


@pytest.mark.parametrize("kind", ["llava", "qwen2vl", "gemma3"])
def test_when_loaded_then_the_projector_takes_what_was_planned_for_the_largest_picture(
    tmp_path: Path, kind: Kind
) -> None:
    model, projector = write_seeing_model(tmp_path, kind)
    loaded = load_model(model, LoadOptions(n_ctx=512, n_threads=1), lambda _stage, _fraction: None, projector=projector)
    assert loaded.projector is not None
    planned = planned_bytes(projector, loaded.resolved, list_devices())
    assert planned["CPU"] == pytest.approx(loaded.projector.sizes["CPU"], rel=0.01, abs=20_000)
    loaded.close()


def test_when_the_largest_picture_comes_then_memory_does_not_grow_beyond_what_was_made(tmp_path: Path) -> None:
    model, projector = write_seeing_model(tmp_path, "qwen2vl")
    loaded = load_model(model, LoadOptions(n_ctx=512, n_threads=1), lambda _stage, _fraction: None, projector=projector)
    opened = loaded.projector
    assert opened is not None
    assert opened.largest is not None
    assert opened.sizes["CPU"] > 55 * MIB  # 30 MiB at libmtmd's own warm-up
    reader = MediaReader(opened, n_vocab=loaded.vocab.n_tokens, n_ubatch=512, cache=MediaCache(0), log=LOG)
    before = opened.largest.reserve(opened.context)
    small = reader.read(MediaPart("image", png(100, 100), ""))
    reader.encode(small)
    assert small.rows is not None
    assert all(np.isfinite(rows).all() for rows in small.rows)
    assert opened.largest.reserve(opened.context) == before
    loaded.close()


def test_when_rows_are_reserved_then_answers_to_pictures_stay_the_same(tmp_path: Path) -> None:
    model, projector = write_seeing_model(tmp_path, "qwen2vl")
    rows = []
    for is_reserved in (True, False):
        loaded = load_model(
            model, LoadOptions(n_ctx=512, n_threads=1), lambda _stage, _fraction: None, projector=projector
        )
        assert loaded.projector is not None
        reader = MediaReader(
            loaded.projector, n_vocab=loaded.vocab.n_tokens, n_ubatch=512, cache=MediaCache(0), log=LOG
        )
        if not is_reserved:  # a picture encoded before anything else
            reader.encode(reader.read(MediaPart("image", png(300, 200), "")))
        medium = reader.read(MediaPart("image", png(120, 90), ""))
        reader.encode(medium)
        assert medium.rows is not None
        rows.append(medium.rows[0])
        loaded.close()
    np.testing.assert_array_equal(rows[0], rows[1])


def header(**metadata: int) -> GgufHeader:
    told = {f"clip.vision.{name}": value for name, value in metadata.items()}
    return GgufHeader(3, False, told, (), 32, 0, 0)


@pytest.mark.parametrize(
    ("kind", "told", "expected"),
    [
        ("qwen2vl_merger", {"patch_size": 14}, PictureRoom(28, 2116, 4096, 4, False)),
        ("qwen2.5vl_merger", {"patch_size": 14}, PictureRoom(28, 2116, 2116, 4, True)),
        ("pixtral", {"patch_size": 14, "spatial_merge_size": 2}, PictureRoom(28, 256, 1024, 4, False)),
        (
            "dots_ocr",
            {"patch_size": 14, "image_max_pixels": 11_289_600},
            PictureRoom(28, 2116, 14_400, 4, False),
        ),
        ("dots_ocr", {"patch_size": 14, "image_max_pixels": 2**31}, PictureRoom(28, 2116, 63_775, 4, False)),
        ("lightonocr", {"patch_size": 14, "image_size": 1540}, PictureRoom(14, 256, 12_100, 1, False)),
        ("llava", {"patch_size": 14}, None),
        ("qwen2vl_merger", {}, None),
    ],
)
def test_when_a_kind_is_known_then_so_is_its_largest_picture(
    kind: str, told: dict[str, int], expected: PictureRoom | None
) -> None:
    assert picture_room(header(**told), kind) == expected


def test_when_masks_are_kept_then_they_grow_with_the_square() -> None:
    plain, masked = (PictureRoom(28, 256, 1024, 4, mask) for mask in (False, True))
    assert plain.grown_bytes(10 * MIB) == 40 * MIB
    mask_bytes = 6 * 1024**2
    assert masked.grown_bytes(10 * MIB) == (10 * MIB - mask_bytes) * 4 + mask_bytes * 16
    assert PictureRoom(28, 256, 256, 4, False).grown_bytes(MIB) == MIB
