"""Decoding, cutting up and encoding with a real projector of each kind."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime.errors import BadRequest, ModelLoadFailed
from runtime.messages.shared import MediaPart
from runtime.options import LoadOptions
from runtime.worker.load import LOG, LlamaModel, load_model
from runtime.worker.media import MediaReader, oriented
from runtime.worker.media_cache import MediaCache
from runtime.worker.media_prompt import mix
from runtime.worker.media_rows import ReadMedia
from tests.fakes.tiny_vision import SEEING, Kind, write_projector, write_seeing_model
from tests.support.pictures import bmp, gif, png, wav

pytestmark = pytest.mark.e2e


class Rig:
    """A loaded model and a reader with a cache of its own."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        path, projector = write_seeing_model(folder, kind)
        self.model: LlamaModel = load_model(
            path, LoadOptions(n_ctx=512, n_threads=1, n_parallel=1), lambda _stage, _fraction: None, projector=projector
        )
        assert self.model.projector is not None
        self.cache = MediaCache()
        self.reader = MediaReader(
            self.model.projector,
            n_vocab=self.model.vocab.n_tokens,
            n_ubatch=self.model.resolved.n_ubatch,
            cache=self.cache,
            log=LOG,
        )

    def picture(self, data: bytes) -> ReadMedia:
        return self.reader.read(MediaPart("image", data, "image/png"))


@pytest.fixture(scope="module", params=SEEING)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(request.param, tmp_path_factory.mktemp("media"))
    yield made
    made.model.close()


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig("ultravox", tmp_path_factory.mktemp("sound"))
    yield made
    made.model.close()


def test_when_pictures_of_all_sizes_and_formats_come_then_each_becomes_rows(rig: Rig) -> None:
    for data in (png(1, 1), png(3, 500), png(700, 5), png(1500, 900), png(64, 64, depth=16, channels=4), bmp(40, 30)):
        medium = rig.picture(data)
        rig.reader.encode(medium)
        assert medium.rows is not None
        assert [len(rows) for rows in medium.rows] == [len(chunk.tokens) for chunk in medium.chunks]
        assert all(np.isfinite(rows).all() for rows in medium.rows)
    rig.reader.encode(rig.picture(gif(20, 10)))


def test_when_a_webp_comes_then_its_rows_are_those_of_the_same_pixels(rig: Rig) -> None:
    images = pytest.importorskip("PIL.Image", reason="the environment was set up before Pillow was locked")
    whole = png(90, 60, seed=7)
    packed = io.BytesIO()
    with images.open(io.BytesIO(whole)) as picture:
        picture.save(packed, "WEBP", lossless=True)
    rows = []
    for data in (whole, packed.getvalue()):
        medium = rig.picture(data)
        rig.reader.encode(medium)
        assert medium.rows is not None
        rows.append(np.concatenate(medium.rows))
    np.testing.assert_array_equal(rows[0], rows[1])
    with pytest.raises(BadRequest, match="damaged"):
        rig.picture(packed.getvalue()[:-200])


def test_when_a_picture_comes_again_then_its_rows_come_from_the_cache(rig: Rig) -> None:
    first = rig.picture(png(80, 80, seed=40))
    rig.reader.encode(first)
    second = rig.picture(png(80, 80, seed=40))
    assert second.rows is first.rows
    other = rig.picture(png(80, 80, seed=41))
    assert other.key != first.key
    assert other.rows is None
    assert not set(other.chunks[0].tokens) & set(first.chunks[0].tokens)


def test_when_two_read_a_new_picture_at_once_then_it_is_encoded_once(rig: Rig) -> None:
    one, other = (rig.picture(png(80, 80, seed=50)) for _ in range(2))
    assert one is not other
    rig.reader.encode(one)
    rig.reader.encode(other)
    assert other.rows is one.rows


def test_when_a_file_is_cut_off_or_a_sound_then_it_is_refused(rig: Rig) -> None:
    whole = png(200, 150, seed=3)
    for data in (whole[:-40], whole[: len(whole) // 2], whole[:40]):
        with pytest.raises(BadRequest):
            rig.picture(data)
    with pytest.raises(BadRequest, match="hear"):
        rig.reader.read(MediaPart("audio", wav(0.5), "audio/wav"))


def test_when_kinds_differ_then_positions_and_attention_do(rig: Rig) -> None:
    (chunk,) = rig.picture(png(280, 140)).chunks
    n_rows = len(chunk.tokens)
    if rig.kind == "qwen2vl":
        assert n_rows == 10 * 5
        assert chunk.n_pos == 10
        assert chunk.base.shape == (4, n_rows)
        assert not chunk.base[0].any()
    else:
        assert chunk.n_pos == n_rows == 16
        assert chunk.base.shape == (1, n_rows)
    assert chunk.is_causal == (rig.kind != "gemma3")


def test_when_put_into_a_prompt_then_places_and_points_move(rig: Rig) -> None:
    medium = rig.picture(png(60, 60))
    mixed = mix((1, 2, 3, 4, 5, 6), [(2, medium), (4, medium)], (2, 3, 5))
    n = medium.n_tokens
    assert len(mixed.tokens) == 6 + 2 * n
    assert mixed.save_points == (2, 3 + n, 5 + 2 * n)
    rig.reader.encode(medium)
    one, other = mixed.spans()
    assert mixed.tokens[one.start : one.end] == mixed.tokens[other.start : other.end] == medium.chunks[0].tokens
    assert [token for token in mixed.tokens if token >= 0 and token < 10][:6] == [1, 2, 3, 4, 5, 6]


def test_when_sounds_come_then_each_becomes_rows_and_wrong_ones_are_refused(hearing: Rig) -> None:
    for data in (wav(0.02), wav(1.0), wav(31.0), wav(0.5, hz=8_000), wav(0.5, hz=44_100, channels=2)):
        medium = hearing.reader.read(MediaPart("audio", data, "audio/wav"))
        hearing.reader.encode(medium)
        assert medium.rows is not None
    assert len(hearing.reader.read(MediaPart("audio", wav(31.0), "audio/wav")).chunks) == 2
    with pytest.raises(BadRequest, match="see"):
        hearing.picture(png(20, 20))
    for data in (wav(0.5)[:30], b"fLaC" + bytes(60), b"\xff\xfb\x90\x00" + bytes(3)):
        with pytest.raises(BadRequest):
            hearing.reader.read(MediaPart("audio", data, "audio/wav"))


@pytest.mark.parametrize("value", range(1, 9))
def test_when_pixels_are_turned_then_the_corner_is_where_exif_says(value: int) -> None:
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    pixels[0, 0] = 9  # the first stored pixel
    turned = oriented(pixels, value)
    assert turned.shape[:2] == ((2, 3) if value < 5 else (3, 2))
    bottom, right = turned.shape[0] - 1, turned.shape[1] - 1
    corner = {
        1: (0, 0), 2: (0, right), 3: (bottom, right), 4: (bottom, 0),
        5: (0, 0), 6: (0, right), 7: (bottom, right), 8: (bottom, 0),
    }[value]  # fmt: skip
    assert (turned[corner] == 9).all()


def loading(model: Path, projector: Path, **options: int) -> LlamaModel:
    asked = LoadOptions(n_ctx=512, n_threads=1, **options)  # type: ignore[arg-type]
    return load_model(model, asked, lambda _stage, _fraction: None, projector=projector)


def test_when_the_projector_is_not_this_models_then_the_load_says_both_widths(tmp_path: Path) -> None:
    model, projector = write_seeing_model(tmp_path, "llava", n_embd_projector=48)
    with pytest.raises(ModelLoadFailed, match="rows of 48 numbers, this model reads 64"):
        loading(model, projector)


def test_when_the_projector_is_damaged_missing_or_a_model_then_the_load_says_so(tmp_path: Path) -> None:
    model, projector = write_seeing_model(tmp_path, "llava")
    cut = tmp_path / "mmproj-cut.gguf"
    cut.write_bytes(projector.read_bytes()[:-5000])
    for wrong in (cut, model):
        with pytest.raises(ModelLoadFailed) as caught:
            loading(model, wrong)
        assert wrong.name in caught.value.message
    with pytest.raises(OSError, match="No such file"):
        loading(model, tmp_path / "gone.gguf")


def test_when_the_micro_batch_is_too_small_for_a_picture_then_the_load_says_what_to_set(tmp_path: Path) -> None:
    model, projector = write_seeing_model(tmp_path, "gemma3")
    write_projector(projector, "gemma3", side=224)  # 64 rows
    with pytest.raises(ModelLoadFailed, match="64 tokens") as caught:
        loading(model, projector, n_ubatch=32)
    assert "64" in caught.value.hint
    loaded = loading(model, projector)
    assert loaded.resolved.n_ubatch >= 64
    loaded.close()


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
def test_when_a_file_is_damaged_then_no_program_is_started_for_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    for name in ("ffprobe", "ffmpeg"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch '{seen}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(BadRequest, match="damaged"):
        rig.picture(png(200, 150, seed=3)[:-300])
    assert not seen.exists()
