"""The tier behind host memory: what goes to it, and prompts that wait for what comes from it."""

from runtime.scheduler.media import MediaSpan, placeholders
from runtime.scheduler.statestore import MIN_STORED_TOKENS
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.fake_store import FakeStore
from tests.fakes.scheduler_rig import Rig, alone

LONG = tuple(1 + index * 7 % 90 for index in range(MIN_STORED_TOKENS + 40))
OTHER = tuple(1 + index * 11 % 89 for index in range(MIN_STORED_TOKENS + 40))
SHORT = LONG[:60]


def rig_of(store: FakeStore, memory: FakeMemory | None = None, **more: object) -> Rig:
    wide = {"n_ctx": 600, "n_cells": 600, "n_parallel": 1, "n_seq_max": 1, **more}
    return Rig(kind=memory, store=store, **wide)  # type: ignore[arg-type]


def next_process(rig: Rig) -> FakeMemory:
    """The memory of a process that comes after, empty; what was saved can be restored in it."""
    return FakeMemory(kind=rig.memory.kind, _saved_positions=rig.memory._saved_positions)


def stored(rig: Rig, store: FakeStore) -> None:
    """What the engine does when it stops."""
    for saved in rig.scheduler.placement.left_behind():
        store.offer(saved.tokens, saved.state)


def after_long(store: FakeStore, memory: FakeMemory | None = None, **request: object) -> Rig:
    """A process that read `LONG` and stopped: the store has what it left behind."""
    rig = rig_of(store, memory)
    rig.submit("a", LONG, max_tokens=1, **request)
    rig.run()
    stored(rig, store)
    return rig


def test_when_a_long_conversation_loses_its_place_then_the_store_gets_it() -> None:
    store = FakeStore()
    rig = rig_of(store)
    for name, prompt in (("a", LONG), ("b", OTHER)):
        rig.submit(name, prompt, max_tokens=1)
        rig.run()
    assert list(store.kept) == [LONG]


def test_when_a_short_conversation_loses_its_place_then_the_store_does_not_get_it() -> None:
    store = FakeStore()
    rig = rig_of(store)
    for name, prompt in (("a", SHORT), ("b", OTHER)):
        rig.submit(name, prompt, max_tokens=1)
        rig.run()
    assert not store.kept


def test_when_host_memory_is_crowded_then_what_leaves_it_goes_to_the_store() -> None:
    store = FakeStore()
    rig = rig_of(store, host_cache_bytes=len(LONG) * 8)
    third = tuple(reversed(LONG))
    for name, prompt in (("a", LONG), ("b", OTHER), ("c", third)):
        rig.submit(name, prompt, max_tokens=1)
        rig.run()
    assert list(store.kept) == [LONG]
    assert rig.scheduler.placement.host.size_bytes <= len(LONG) * 8


def test_when_a_process_follows_then_the_prompt_goes_on_where_it_was_and_the_answer_is_the_same() -> None:
    store = FakeStore()
    first = after_long(store)
    second = rig_of(store, next_process(first))
    second.submit("b", (*LONG, 5, 6), max_tokens=6)
    second.run()
    assert second.done("b").usage.cached_tokens == len(LONG)
    assert second.rows_by_request["b"] <= 2 + 6
    assert second.texts["b", 0] == alone((*LONG, 5, 6), 6)


def test_when_only_the_beginning_is_common_then_that_much_is_reused() -> None:
    store = FakeStore()
    first = after_long(store)
    second = rig_of(store, next_process(first))
    prompt = (*LONG[:200], *OTHER[:30])
    second.submit("b", prompt, max_tokens=4)
    second.run()
    assert second.done("b").usage.cached_tokens == 200
    assert second.texts["b", 0] == alone(prompt, 4)


def test_when_a_state_is_still_coming_then_others_go_first_and_nothing_is_decoded_for_it() -> None:
    store = FakeStore(answers=False)
    first = after_long(store)
    rig = rig_of(store, next_process(first), n_parallel=2, n_seq_max=2)
    rig.submit("slow", (*LONG, 5), max_tokens=2)
    rig.submit("other", SHORT[:20], max_tokens=2)
    for _ in range(20):
        rig.step()
    assert rig.done("other").reasons == ("length",)
    assert rig.scheduler.is_fetching
    assert rig.rows_by_request["slow"] == 0
    store.answers = True
    rig.run()
    assert rig.done("slow").usage.cached_tokens == len(LONG)


def test_when_a_waiting_request_is_cancelled_then_its_ticket_is_given_up() -> None:
    store = FakeStore(answers=False)
    store.offer(LONG, memoryview(b"x"))
    rig = rig_of(store)
    rig.submit("a", (*LONG, 5))
    assert not rig.step()
    rig.cancel("a")
    assert not store.coming
    assert not rig.scheduler.is_fetching
    assert rig.done("a").reasons == ("cancelled",)


def test_when_the_state_cannot_be_had_after_all_then_the_prompt_is_read() -> None:
    store = FakeStore(answers=False)
    store.offer(LONG, memoryview(b"x"))
    rig = rig_of(store)
    rig.submit("a", (*LONG, 5), max_tokens=2)
    assert not rig.step()
    store.coming.clear()
    rig.run()
    assert rig.done("a").usage.cached_tokens == 0
    assert rig.texts["a", 0] == alone((*LONG, 5), 2)


def test_when_an_empty_memory_does_not_take_a_state_then_the_store_is_told() -> None:
    store = FakeStore()
    first = after_long(store)
    rig = rig_of(store, next_process(first), n_cells=300)
    rig.memory.n_cells = len(LONG) - 1
    rig.submit("b", (*LONG[:200], 3), max_tokens=1)
    rig.run()
    assert [saved.tokens for saved in store.refused] == [LONG]
    assert rig.done("b").usage.cached_tokens == 0


def test_when_idle_conversations_are_in_the_way_of_a_state_then_they_give_way() -> None:
    store = FakeStore()
    first = after_long(store)
    rig = rig_of(store, next_process(first), n_parallel=2, n_seq_max=3, n_cells=len(LONG) + 40)
    rig.submit("other", OTHER[:100], max_tokens=1)
    rig.run()
    rig.submit("b", (*LONG, 3), max_tokens=1)
    rig.run()
    assert rig.done("b").usage.cached_tokens == len(LONG)
    assert not store.refused


def test_when_memory_knows_as_much_then_nothing_is_sought() -> None:
    store = FakeStore()
    rig = after_long(store)
    rig.submit("b", (*LONG, 5), max_tokens=1)
    rig.run()
    assert store.n_sought == 0


def test_when_a_seed_asks_for_the_same_text_then_nothing_stored_is_used() -> None:
    from runtime.options import SamplingOptions

    store = FakeStore()
    store.offer(LONG, memoryview(b"x"))
    rig = rig_of(store)
    rig.submit("a", (*LONG, 5), max_tokens=1, sampling=SamplingOptions(seed=3))
    rig.run()
    assert store.n_sought == 0


def test_when_a_memory_cannot_be_cut_then_only_a_whole_state_is_used() -> None:
    store = FakeStore()
    first = after_long(store, FakeMemory(kind="points"), save_points=(len(LONG) - 1,))
    assert LONG in store.kept
    second = rig_of(store, next_process(first))
    second.submit("whole", (*LONG, 5), max_tokens=2)
    second.run()
    assert second.done("whole").usage.cached_tokens == len(LONG)
    assert second.texts["whole", 0] == alone((*LONG, 5), 2)
    third = rig_of(store, next_process(first))
    third.submit("part", (*LONG[:-10], 5), max_tokens=2)
    third.run()
    assert third.done("part").usage.cached_tokens == 0


def test_when_a_picture_is_among_the_tokens_then_it_is_stored_with_them_and_never_cut() -> None:
    def prompt(content: bytes, after: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
        span = MediaSpan(260, 20, 5, is_causal=True, rows=content)
        return (*LONG[:260], *placeholders(content, 20), *after), (span,)

    store = FakeStore()
    first = rig_of(store)
    tokens, media = prompt(b"cat", (5, 6, 7))
    first.submit("a", tokens, max_tokens=1, media=media)
    first.run()
    stored(first, store)
    again = rig_of(store, next_process(first))
    tokens, media = prompt(b"cat", (5, 6, 9))
    again.submit("again", tokens, max_tokens=4, media=media)
    again.run()
    assert again.done("again").usage.cached_tokens == 282
    assert again.texts["again", 0] == alone(tokens, 4)
    other = rig_of(store, next_process(first))
    tokens, media = prompt(b"dog", (5, 6, 9))
    other.submit("other", tokens, max_tokens=4, media=media)
    other.run()
    assert other.done("other").usage.cached_tokens == 260
    assert other.texts["other", 0] == alone(tokens, 4)
