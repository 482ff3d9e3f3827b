"""Pictures among tokens: where they stand, how they are decoded, and what of them is reused."""

import itertools
import random
from collections.abc import Sequence

import pytest

from runtime.scheduler.media import Layout, MediaSpan, placeholders, row_of
from runtime.scheduler.types import Ended, PromptRead
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.scheduler_rig import Rig, alone

BEFORE = (3, 1, 4)
AFTER = (5, 9, 2, 6)


def picture(
    before: Sequence[int] = BEFORE,
    after: Sequence[int] = AFTER,
    *,
    content: bytes = b"cat",
    n_rows: int = 20,
    n_pos: int = 0,
    is_causal: bool = True,
) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
    """A prompt with one picture."""
    span = MediaSpan(len(before), n_rows, n_pos or n_rows, is_causal, content)
    return (*before, *placeholders(content, n_rows), *after), (span,)


def read_rows(rig: Rig, name: str) -> int:
    return rig.rows_by_request[name]


# --- placeholders and positions ---


def test_when_contents_differ_then_no_row_of_theirs_is_equal_and_all_fit_64_bits() -> None:
    one, other = placeholders(b"a", 3000), placeholders(b"b", 3000)
    assert not set(one) & set(other)
    assert all(-(2**63) <= row < 0 for row in one)
    assert [row_of(row) for row in one] == list(range(3000))
    assert placeholders(b"a", 10) == one[:10]


def test_when_rows_share_positions_then_what_follows_lags_behind() -> None:
    layout = Layout((MediaSpan(3, 20, 5, True, None), MediaSpan(30, 6, 6, True, None), MediaSpan(36, 8, 2, True, None)))
    assert [layout.position(i) for i in (0, 2, 3, 22, 23, 29, 30, 35, 36, 43, 44)] == [
        *(0, 2, 3, 3, 8, 14, 15, 20, 21, 21, 23)
    ]
    assert layout.shift == 21
    assert [layout.floor(i) for i in (3, 4, 22, 23, 33, 36, 40, 44)] == [3, 3, 3, 23, 30, 36, 36, 44]
    assert [layout.text_rows(i, 10) for i in (0, 3, 23, 44)] == [3, 0, 7, 10]


def test_when_the_last_position_is_known_then_so_are_the_places_held() -> None:
    layout = Layout((MediaSpan(3, 20, 5, True, None), MediaSpan(30, 6, 6, True, None)))
    assert layout.held(-1, 0) == 0
    assert layout.held(2, 0) == 3
    assert layout.held(3, 0) == 3  # some of the picture, nobody knows how much
    assert layout.held(3, 23) == 23
    assert layout.held(8, 0) == 24
    assert layout.held(17, 0) == 33
    assert layout.held(30, 0) == 46
    for length in (1, 3, 24, 30, 33, 36, 50):
        assert layout.held(layout.position(length - 1), 0) == length


# --- decoding ---


@pytest.mark.parametrize("n_pos", [0, 5])
@pytest.mark.parametrize("is_causal", [True, False])
def test_when_a_prompt_has_a_picture_then_the_model_sees_all_of_it_in_order(n_pos: int, is_causal: bool) -> None:
    rig = Rig(n_batch=32)
    tokens, media = picture(n_pos=n_pos, is_causal=is_causal)
    rig.submit("a", tokens, media=media, max_tokens=6)
    rig.run()
    assert rig.texts["a", 0] == alone(tokens, 6)
    assert rig.done("a").usage.prompt_tokens == len(tokens)
    progress = rig.of(PromptRead, "a")
    assert progress[-1] == PromptRead("a", len(tokens), len(tokens), 0)


@pytest.mark.parametrize("n_pos", [0, 7])
def test_when_a_picture_is_larger_than_a_batch_then_it_is_read_in_pieces(n_pos: int) -> None:
    rig = Rig(n_batch=16, n_ubatch=16)
    tokens, media = picture(n_rows=50, n_pos=n_pos)
    rig.submit("a", tokens, media=media, max_tokens=3)
    rig.run()
    assert rig.texts["a", 0] == alone(tokens, 3)


def test_when_others_generate_then_they_do_so_between_the_pieces_of_a_picture() -> None:
    rig = Rig(n_batch=64, n_ubatch=8, n_cells=1000, n_ctx=500)
    prompt = next(p for p in ((i, 1, 2) for i in range(1, 90)) if len(alone(p, 60)) == 60)
    rig.submit("a", prompt, max_tokens=60)
    rig.step()
    tokens, media = picture(n_rows=80)
    rig.submit("b", tokens, media=media, max_tokens=1)
    before, n_steps = len(rig.texts["a", 0]), 0
    while not rig.ends["b"]:
        rig.step()
        n_steps += 1
    assert n_steps >= 20
    assert len(rig.texts["a", 0]) - before >= n_steps // 2
    rig.run()
    assert rig.texts["a", 0] == alone(prompt, 60)
    assert rig.texts["b", 0] == alone(tokens, 1)


def test_when_a_picture_and_a_long_text_are_read_together_then_both_move() -> None:
    rig = Rig(n_batch=16, n_ubatch=16, n_cells=1000, n_ctx=500)
    tokens, media = picture((), n_rows=60)
    text = tuple(i % 90 + 1 for i in range(100))
    rig.submit("a", tokens, media=media, max_tokens=2)
    rig.submit("b", text, max_tokens=2)
    seen = []
    for _ in range(4):
        plan = rig.plan()
        assert plan is not None
        seen.append(plan.media is not None)
        rig.finish_step(plan)
    assert seen == [True, False, True, False]
    rig.run()
    assert rig.texts["a", 0] == alone(tokens, 2)
    assert rig.texts["b", 0] == alone(text, 2)


def test_when_a_prompt_ends_with_a_picture_then_its_last_row_is_sampled_from() -> None:
    rig = Rig()
    tokens, media = picture(after=())
    rig.submit("a", tokens, media=media, max_tokens=4, n=2)
    rig.run()
    assert [rig.texts["a", i] for i in range(2)] == [alone(tokens, 4, i) for i in range(2)]


# --- reuse ---


@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_the_next_turn_has_the_same_picture_then_only_new_tokens_are_read(n_pos: int) -> None:
    rig = Rig()
    tokens, media = picture(n_pos=n_pos)
    rig.submit("a", tokens, media=media, max_tokens=3)
    rig.run()
    longer = (*tokens, *(ord(letter) - 32 for letter in rig.texts["a", 0]), 7, 7, 8)
    rig.submit("b", longer, media=media, max_tokens=3)
    rig.run()
    assert rig.texts["b", 0] == alone(longer, 3)
    assert rig.done("b").usage.cached_tokens >= len(tokens)
    assert read_rows(rig, "b") < 10


@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_another_picture_stands_at_the_same_place_then_nothing_of_the_first_is_reused(n_pos: int) -> None:
    rig = Rig()
    for name in ("cat", "dog"):
        tokens, media = picture(content=name.encode(), n_pos=n_pos)
        rig.submit(name, tokens, media=media, max_tokens=3)
        rig.run()
        assert rig.texts[name, 0] == alone(tokens, 3)
    assert rig.done("dog").usage.cached_tokens == len(BEFORE)


@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_two_ask_about_one_picture_at_once_then_it_is_read_once(n_pos: int) -> None:
    rig = Rig(n_cells=2000, n_ctx=1000, n_batch=64)
    one, media = picture(n_rows=200, n_pos=n_pos, after=(5, 9, 2, 6))
    other, _media = picture(n_rows=200, n_pos=n_pos, after=(8, 8, 8, 8))
    rig.submit("a", one, media=media, max_tokens=4)
    rig.step()
    rig.submit("b", other, media=media, max_tokens=4)
    rig.run()
    assert rig.texts["a", 0] == alone(one, 4)
    assert rig.texts["b", 0] == alone(other, 4)
    assert read_rows(rig, "b") < 12


@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_a_picture_was_left_half_read_then_the_next_one_begins_it_anew(n_pos: int) -> None:
    rig = Rig(n_batch=16, n_ubatch=16)
    tokens, media = picture(n_rows=50, n_pos=n_pos)
    rig.submit("a", tokens, media=media, max_tokens=3)
    for _ in range(3):
        rig.step()
    rig.cancel("a")
    rig.submit("b", tokens, media=media, max_tokens=3)
    rig.run()
    assert rig.texts["b", 0] == alone(tokens, 3)


@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_a_conversation_lost_its_place_then_its_picture_comes_back_from_host_memory(n_pos: int) -> None:
    rig = Rig(n_parallel=1, n_seq_max=1, host_cache_bytes=10**6)
    tokens, media = picture(n_rows=60, n_pos=n_pos)
    rig.submit("a", tokens, media=media, max_tokens=2)
    rig.run()
    rig.submit("other", (50,) * 40, max_tokens=2)
    rig.run()
    longer = (*tokens, 11, 12)
    rig.submit("b", longer, media=media, max_tokens=2)
    rig.run()
    assert rig.memory.n_restored == 1
    assert rig.texts["b", 0] == alone(longer, 2)
    assert read_rows(rig, "b") < 10


def test_when_memory_cannot_be_cut_then_a_picture_is_reused_from_the_saved_point_behind_it() -> None:
    rig = Rig(kind=FakeMemory(kind="points"), host_cache_bytes=10**6)
    tokens, media = picture(n_rows=30, n_pos=6)
    point = len(BEFORE) + 30 + 2
    rig.submit("a", tokens, media=media, max_tokens=2, save_points=(point,))
    rig.run()
    other = (*tokens[:point], 40, 41, 42)
    rig.submit("b", other, media=media, max_tokens=2)
    rig.run()
    assert rig.texts["b", 0] == alone(other, 2)
    assert rig.done("b").usage.cached_tokens == point


# --- when a decode does not return 0 ---


@pytest.mark.parametrize("kind", ["shared", "sequence", "points"])
@pytest.mark.parametrize("n_pos", [0, 5])
def test_when_a_decode_of_a_picture_is_aborted_then_the_text_stays_right(kind: str, n_pos: int) -> None:
    for at, after in itertools.product(range(6), (AFTER, ())):
        rig = Rig(kind=FakeMemory(kind=kind), n_batch=16, n_ubatch=16)  # type: ignore[arg-type]
        tokens, media = picture(n_rows=40, n_pos=n_pos, after=after)
        rig.submit("a", tokens, media=media, max_tokens=3)
        rig.backend.codes = [0] * at + [2]
        rig.run()
        assert rig.texts["a", 0] == alone(tokens, 3)


def test_when_a_picture_that_must_be_whole_finds_no_room_then_its_request_fails_and_others_go_on() -> None:
    rig = Rig(n_cells=40, n_ctx=200)
    tokens, media = picture(n_rows=30, is_causal=False, before=tuple(range(1, 21)))
    rig.submit("a", tokens, media=media, max_tokens=3)
    rig.run()
    assert isinstance(rig.ends["a"][0], Ended)
    rig.submit("b", (1, 2, 3), max_tokens=3)
    rig.run()
    assert rig.texts["b", 0] == alone((1, 2, 3), 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["shared", "sequence", "points"])
def test_when_many_requests_with_pictures_come_and_go_then_each_gets_its_text(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(
        kind=FakeMemory(kind=kind),  # type: ignore[arg-type]
        n_cells=600,
        n_ctx=250,
        n_batch=24,
        n_ubatch=24,
        host_cache_bytes=chance.choice((0, 10**6)),
    )
    asked: dict[str, tuple[tuple[int, ...], int]] = {}
    for number in range(25):
        tokens: list[int] = [1, 2, 3]
        media: list[MediaSpan] = []
        for _ in range(chance.randrange(3)):
            n_rows = chance.randrange(2, 24)
            is_causal = chance.random() < 0.6
            content = b"%d %d" % (n_rows, is_causal)
            n_pos = n_rows if n_rows % 2 else max(1, n_rows // 4)
            media.append(MediaSpan(len(tokens), n_rows, n_pos, is_causal, content))
            tokens += [*placeholders(content, n_rows), *(chance.randrange(1, 4) for _ in range(chance.randrange(1, 6)))]
        name, n_tokens = f"r{number}", chance.randrange(1, 8)
        asked[name] = (tuple(tokens), n_tokens)
        rig.submit(name, tokens, media=tuple(media), max_tokens=n_tokens)
        rig.backend.codes = [chance.choice((0, 0, 0, 0, 2)) for _ in range(3)]
        for _ in range(chance.randrange(4)):
            rig.step()
        if chance.random() < 0.15:
            rig.cancel(name)
            del asked[name]
    rig.run()
    for name, (prompt, n_tokens) in asked.items():
        assert rig.texts[name, 0] == alone(prompt, n_tokens), name
