import pytest

from runtime.options import SamplingOptions
from runtime.scheduler.limits import RESERVE_TOKENS
from runtime.scheduler.types import Done, PromptRead, Text, Waiting
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.scheduler_rig import EOG, Rig, alone, next_token

SYSTEM = tuple(range(1, 41))


def prompt_without_eog(n_tokens: int, length: int = 6) -> tuple[int, ...]:
    """A prompt whose answer does not end by itself within `n_tokens`."""
    prompts = ((first,) * (length - 1) + (last,) for first in range(1, 90) for last in range(1, 90))
    return next(prompt for prompt in prompts if len(alone(prompt, n_tokens, n_ctx=10_000)) == n_tokens)


# --- generating ---


def test_when_requests_run_together_then_each_gets_the_text_it_gets_alone() -> None:
    rig = Rig()
    prompts = {f"r{i}": tuple(range(i + 1, i + 8 + 3 * i)) for i in range(7)}
    for name, prompt in prompts.items():
        rig.submit(name, prompt, max_tokens=12)
    rig.run()
    for name, prompt in prompts.items():
        assert rig.texts[name, 0] == alone(prompt, 12)
        assert rig.done(name).reasons == ("stop" if len(alone(prompt, 12)) < 12 else "length",)


def test_when_a_request_joins_between_steps_then_it_decodes_with_the_running_one() -> None:
    rig = Rig()
    rig.submit("a", prompt_without_eog(20), max_tokens=20)
    for _ in range(5):
        rig.step()
    rig.submit("b", (50, 51, 52), max_tokens=4)
    plan = rig.plan()
    assert plan is not None
    assert [unit.job.request.request_id for unit, _count in plan.chunks] == ["a", "b"]
    rig.finish_step(plan)
    rig.run()
    assert rig.texts["b", 0] == alone((50, 51, 52), 4)


def test_when_others_generate_then_a_long_prompt_is_read_in_capped_chunks() -> None:
    rig = Rig(n_batch=64, n_ubatch=16)
    rig.submit("a", prompt_without_eog(30), max_tokens=30)
    rig.step()
    rig.submit("long", tuple(range(1, 91)) + tuple(range(1, 61)), max_tokens=1)
    before = len(rig.texts["a", 0])
    while not rig.ends["long"]:
        rig.step()
    assert rig.backend.largest_prompt_rows_beside_generation == 16
    assert len(rig.texts["a", 0]) >= before + 150 // 16


def test_when_nobody_generates_then_a_prompt_takes_the_whole_batch() -> None:
    rig = Rig(n_batch=64, n_ubatch=16)
    rig.submit("long", tuple(range(1, 65)), max_tokens=1)
    rig.step()
    assert rig.of(PromptRead, "long") == [PromptRead("long", 64, 64, 0)]


def test_when_prompts_are_read_together_then_each_moves_by_a_token_at_least() -> None:
    rig = Rig(n_batch=64)
    for name in "abc":
        rig.submit(name, (ord(name) - 96,) * 100, max_tokens=1)
    rig.step()
    assert [unit.done for unit in rig.outputs if isinstance(unit, PromptRead)] == [62, 1, 1]


def test_when_a_stop_string_is_met_then_its_name_is_told_and_it_is_not_in_the_text() -> None:
    rig = Rig()
    prompt = prompt_without_eog(20)
    text = alone(prompt, 20)
    stop = text[7:10]
    rig.submit("a", prompt, max_tokens=20, stop=(stop,))
    rig.run()
    assert rig.texts["a", 0] == text[: text.index(stop)]
    assert (rig.done("a").reasons, rig.done("a").stop_strings) == (("stop",), (stop,))


def test_when_max_tokens_is_0_then_the_prompt_is_read_and_nothing_sampled() -> None:
    rig = Rig()
    rig.submit("a", SYSTEM, max_tokens=0, n=2)
    rig.run()
    done = rig.done("a")
    assert (done.reasons, done.usage.completion_tokens, done.usage.prompt_tokens) == (("length", "length"), 0, 40)
    assert rig.rows_by_request["a"] == 40


def test_when_the_context_is_full_then_the_reason_is_length() -> None:
    rig = Rig(n_ctx=30)
    prompt = prompt_without_eog(30)
    rig.submit("a", prompt, max_tokens=None)
    rig.run()
    assert rig.done("a").reasons == ("length",)
    assert rig.done("a").usage.completion_tokens == 24


def test_when_a_request_ends_then_counts_and_times_are_exact() -> None:
    rig = Rig(n_batch=16)
    prompt = prompt_without_eog(5, length=40)
    rig.submit("a", prompt, max_tokens=5)
    rig.run()
    done = rig.done("a")
    assert done.usage.prompt_tokens == 40
    assert done.usage.completion_tokens == 5 == rig.counted["a", 0]
    timings = done.timings
    assert (timings.queue_s, timings.prompt_s, timings.time_to_first_token_s) == (0.0, 3.0, 3.0)
    assert timings.generation_s == 4.0
    assert timings.prompt_tps == pytest.approx(40 / 3)
    assert timings.generation_tps == 1.0


def test_when_an_answer_has_one_token_then_it_has_no_generation_speed() -> None:
    rig = Rig()
    rig.submit("a", (1, 2, 3), max_tokens=1)
    rig.run()
    assert rig.done("a").timings.generation_tps == 0.0


def test_when_the_end_token_comes_then_it_is_counted_and_not_shown() -> None:
    prompt = next(p for p in ((i, i) for i in range(1, 90)) if next_token(p, 0) == EOG)
    rig = Rig()
    rig.submit("a", prompt)
    rig.run()
    assert rig.done("a").reasons == ("stop",)
    assert (rig.texts["a", 0], rig.counted["a", 0]) == ("", 1)


# --- reuse ---


def test_when_the_next_turn_comes_then_only_its_new_tokens_are_decoded() -> None:
    rig = Rig()
    first = prompt_without_eog(8, length=50)
    rig.submit("turn1", first, max_tokens=8)
    rig.run()
    answer = [ord(letter) - 32 for letter in rig.texts["turn1", 0]]
    second = (*first, *answer, 7, 8, 9)
    rig.submit("turn2", second, max_tokens=1)
    rig.run()
    # The last sampled token was never decoded.
    assert rig.done("turn2").usage.cached_tokens == len(first) + 7
    assert rig.rows_by_request["turn2"] == 1 + 3


def test_when_the_same_prompt_comes_again_then_its_last_token_is_evaluated() -> None:
    rig = Rig()
    rig.submit("a", SYSTEM, max_tokens=1)
    rig.run()
    rig.submit("b", SYSTEM, max_tokens=1)
    rig.run()
    assert rig.rows_by_request["b"] == 1
    assert rig.texts["b", 0] == alone(SYSTEM, 1)


def test_when_a_seed_is_given_then_the_prompt_is_read_in_one_piece_again() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.submit(name, SYSTEM, max_tokens=1, sampling=SamplingOptions(seed=1))
        rig.run()
    assert (rig.rows_by_request["a"], rig.rows_by_request["b"]) == (40, 40)


def test_when_two_conversations_share_a_beginning_then_they_share_its_cells() -> None:
    rig = Rig()
    rig.submit("a", (*SYSTEM, 50), max_tokens=8)
    rig.step()
    rig.submit("b", (*SYSTEM, 60), max_tokens=8)
    rig.step()
    assert rig.rows_by_request["b"] == 1
    rig.run()
    assert rig.memory.cells_used < 2 * 40
    assert rig.texts["b", 0] == alone((*SYSTEM, 60), 8)


def test_when_many_arrive_at_once_with_one_beginning_then_it_is_read_once() -> None:
    rig = Rig(n_ctx=300, n_cells=1_000, n_batch=32)
    long = tuple(i % 90 + 1 for i in range(130))
    for i in range(4):
        rig.submit(f"r{i}", (*long, 91, i + 1), max_tokens=2)
    rig.run()
    assert sum(rig.rows_by_request.values()) < 2 * len(long)


def test_when_a_beginning_is_shared_with_an_idle_conversation_then_that_one_stays_whole() -> None:
    rig = Rig()
    rig.submit("a", (*SYSTEM, *range(41, 90)), max_tokens=1)
    rig.run()
    rig.submit("b", (*SYSTEM, 90), max_tokens=1)
    rig.run()
    rig.submit("a2", (*SYSTEM, *range(41, 90), 3), max_tokens=1)
    rig.run()
    assert rig.rows_by_request["b"] == 1
    assert rig.rows_by_request["a2"] == 1


def test_when_several_choices_are_asked_for_then_they_share_the_prompt_and_differ() -> None:
    rig = Rig()
    rig.submit("a", SYSTEM, max_tokens=6, n=3)
    rig.run()
    assert [rig.texts["a", choice] for choice in range(3)] == [alone(SYSTEM, 6, choice) for choice in range(3)]
    assert rig.rows_by_request["a"] < 40 + 3 * 6
    assert rig.done("a").usage.prompt_tokens == 40


def test_when_there_are_more_choices_than_slots_then_all_come() -> None:
    rig = Rig(n_parallel=2, n_seq_max=2)
    rig.submit("a", SYSTEM, max_tokens=6, n=5)
    rig.run()
    assert [rig.texts["a", choice] for choice in range(5)] == [alone(SYSTEM, 6, choice) for choice in range(5)]


@pytest.mark.parametrize("kind", ["sequence", "points"])
def test_when_memory_cannot_share_then_choices_are_still_right(kind: str) -> None:
    rig = Rig(kind=FakeMemory(kind=kind))  # type: ignore[arg-type]
    rig.submit("a", SYSTEM, max_tokens=6, n=3)
    rig.run()
    assert [rig.texts["a", choice] for choice in range(3)] == [alone(SYSTEM, 6, choice) for choice in range(3)]


def test_when_memory_cannot_be_cut_then_the_next_turn_starts_at_the_saved_point() -> None:
    rig = Rig(kind=FakeMemory(kind="points"), host_cache_bytes=100_000)
    first = (*SYSTEM, 50, 51, 52)
    rig.submit("turn1", first, max_tokens=4, save_points=(41,))
    rig.run()
    rig.submit("turn2", (*SYSTEM, 50, 60, 61), max_tokens=4)
    rig.run()
    assert rig.done("turn2").usage.cached_tokens == 41
    assert rig.texts["turn2", 0] == alone((*SYSTEM, 50, 60, 61), 4)


def test_when_memory_cannot_be_cut_and_nothing_was_saved_then_all_is_read_again() -> None:
    rig = Rig(kind=FakeMemory(kind="points"), host_cache_bytes=0)
    rig.submit("turn1", (*SYSTEM, 50, 51), max_tokens=4)
    rig.run()
    rig.submit("turn2", (*SYSTEM, 60, 61), max_tokens=4)
    rig.run()
    assert rig.done("turn2").usage.cached_tokens == 0
    assert rig.texts["turn2", 0] == alone((*SYSTEM, 60, 61), 4)


def test_when_memory_goes_on_from_where_it_stands_then_a_longer_prompt_reuses_it_all() -> None:
    rig = Rig(kind=FakeMemory(kind="points"))
    first = prompt_without_eog(4, length=20)
    rig.submit("turn1", first, max_tokens=4)
    rig.run()
    answer = [ord(letter) - 32 for letter in rig.texts["turn1", 0]]
    rig.submit("turn2", (*first, *answer, 5), max_tokens=1)
    rig.run()
    assert rig.done("turn2").usage.cached_tokens == 23


def test_when_memory_refuses_a_cut_then_the_sequence_is_dropped_and_read_anew() -> None:
    rig = Rig(kind=FakeMemory(kind="sequence", refuses_cuts=True))
    rig.submit("a", (*SYSTEM, 50, 51), max_tokens=4)
    rig.run()
    rig.submit("b", (*SYSTEM, 60), max_tokens=4)
    rig.run()
    assert rig.rows_by_request["b"] >= 41
    assert rig.texts["b", 0] == alone((*SYSTEM, 60), 4)


def test_when_a_conversation_lost_its_sequence_then_the_host_cache_brings_it_back() -> None:
    rig = Rig(n_parallel=1, n_seq_max=1, host_cache_bytes=10_000)
    rig.submit("a", SYSTEM, max_tokens=1)
    rig.run()
    rig.submit("b", tuple(range(90, 40, -1)), max_tokens=1)
    rig.run()
    rig.submit("a2", (*SYSTEM, 7), max_tokens=1)
    rig.run()
    assert (rig.memory.n_saved, rig.memory.n_restored) == (2, 1)
    assert rig.rows_by_request["a2"] == 1
    assert rig.texts["a2", 0] == alone((*SYSTEM, 7), 1)


def test_when_the_host_cache_has_no_room_then_the_conversation_is_read_again() -> None:
    rig = Rig(n_parallel=1, n_seq_max=1, host_cache_bytes=100)
    for name, prompt in (("a", SYSTEM), ("b", tuple(range(90, 40, -1))), ("a2", SYSTEM)):
        rig.submit(name, prompt, max_tokens=1)
        rig.run()
    assert rig.memory.n_restored == 0
    assert rig.scheduler.placement.host.size_bytes <= 100
    assert rig.rows_by_request["a2"] == 40


# --- waiting ---


def test_when_all_slots_are_taken_then_positions_are_told_and_move_up() -> None:
    rig = Rig(n_parallel=1)
    for name in "abc":
        rig.submit(name, prompt_without_eog(3), max_tokens=3)
    rig.run()
    assert rig.of(Waiting, "a") == []
    assert rig.of(Waiting, "b") == [Waiting("b", 1)]
    assert rig.of(Waiting, "c") == [Waiting("c", 2), Waiting("c", 1)]
    assert rig.done("b").timings.queue_s > 0


def test_when_the_window_asks_then_it_goes_before_waiting_programs() -> None:
    rig = Rig(n_parallel=1)
    for name in ("a", "b", "c"):
        rig.submit(name, (1, 2), max_tokens=2)
    rig.step()
    rig.submit("person", (3, 4), max_tokens=2, from_window=True)
    rig.submit("person2", (3, 4), max_tokens=2, from_window=True)
    rig.run()
    assert list(rig.ends) == ["a", "person", "person2", "b", "c"]


def test_when_requests_were_served_then_retry_after_grows_with_the_queue() -> None:
    rig = Rig(n_parallel=2)
    rig.submit("a", prompt_without_eog(10), max_tokens=10)
    rig.run()
    served = rig.done("a").timings
    each = served.prompt_s + served.generation_s
    assert rig.scheduler.retry_after_s(0) == round(each / 2 + 0.49)
    assert rig.scheduler.retry_after_s(9) == each * 10 / 2
    assert rig.scheduler.retry_after_s(10**6) == 600


def test_when_prompt_and_reserve_do_not_fit_beside_the_active_then_a_request_waits() -> None:
    rig = Rig(n_ctx=200, n_cells=250)
    rig.submit("a", (1,) * 90, max_tokens=60)
    rig.submit("b", (2,) * 90, max_tokens=60)
    rig.step()
    assert rig.scheduler.n_active == 1
    rig.run()
    assert rig.texts["b", 0] == alone((2,) * 90, 60)


def test_when_an_open_ended_request_runs_then_it_locks_no_more_than_the_reserve() -> None:
    rig = Rig(n_ctx=5_000, n_cells=5_000)
    rig.submit("a", (1, 2, 3), max_tokens=None)
    rig.submit("b", (4, 5, 6), max_tokens=None)
    rig.step()
    assert 2 * RESERVE_TOKENS < 5_000
    assert rig.scheduler.n_active == 2


# --- cancelling ---


def test_when_a_waiting_request_is_cancelled_then_it_ends_and_the_queue_moves() -> None:
    rig = Rig(n_parallel=1)
    for name in "abc":
        rig.submit(name, (1, 2), max_tokens=4)
    rig.step()
    rig.cancel("b")
    assert rig.done("b").reasons == ("cancelled",)
    rig.run()
    assert rig.of(Waiting, "c")[-1] == Waiting("c", 1)


def test_when_a_reading_request_is_cancelled_then_its_sequence_is_free_in_the_same_step() -> None:
    rig = Rig(n_parallel=1, n_batch=16)
    rig.submit("a", SYSTEM, max_tokens=4)
    rig.step()
    rig.cancel("a")
    assert rig.scheduler.n_active == 0
    rig.submit("b", SYSTEM, max_tokens=4)
    rig.run()
    assert rig.done("b").usage.cached_tokens == 16
    assert rig.texts["b", 0] == alone(SYSTEM, 4)


def test_when_a_generating_request_is_cancelled_then_held_back_text_comes_out_first() -> None:
    rig = Rig()
    prompt = prompt_without_eog(20)
    text = alone(prompt, 20)
    rig.submit("a", prompt, max_tokens=20, stop=(text[2:4] + "\n",))
    for _ in range(3):
        rig.step()
    assert rig.texts["a", 0] == text[:2]
    rig.cancel("a")
    assert rig.texts["a", 0] == text[:3]
    assert rig.done("a").usage.completion_tokens == 3


def test_when_a_finished_or_unknown_request_is_cancelled_then_nothing_happens() -> None:
    rig = Rig()
    rig.submit("a", (1, 2), max_tokens=2)
    rig.run()
    rig.cancel("a")
    rig.cancel("nobody")
    assert len(rig.ends["a"]) == 1


def test_when_choices_are_cancelled_half_way_then_each_says_how_it_ended() -> None:
    rig = Rig()
    rig.submit("a", SYSTEM, max_tokens=50, n=3)
    for _ in range(4):
        rig.step()
    rig.cancel("a")
    assert set(rig.done("a").reasons) <= {"cancelled", "stop"}
    rig.run()


# --- when a decode does not return 0 ---


def test_when_there_is_no_room_then_idle_conversations_go_first_oldest_first() -> None:
    rig = Rig(n_ctx=90, n_cells=100)
    for name, prompt in (("old", (1,) * 40), ("new", (2,) * 40)):
        rig.submit(name, prompt, max_tokens=1)
        rig.run()
    rig.submit("a", (3,) * 50, max_tokens=1)
    rig.run()
    assert rig.texts["a", 0] == alone((3,) * 50, 1)
    assert rig.memory.last_position(5) == -1  # held "old", taken first
    assert (2,) * 40 in [rig.memory.tokens(seq_id) for seq_id in range(6)]


def test_when_there_is_no_room_then_the_batch_is_halved_before_anyone_is_preempted() -> None:
    rig = Rig(n_ctx=90, n_cells=95)
    rig.backend.codes = [0, 1, 0]
    rig.submit("a", tuple(range(1, 80)), max_tokens=2)
    rig.step()
    rig.step()
    plan = rig.plan()
    assert plan is not None
    assert len(plan.tokens) == 7
    rig.finish_step(plan)
    rig.run()
    assert rig.texts["a", 0] == alone(tuple(range(1, 80)), 2)


def test_when_the_pool_is_full_then_the_youngest_goes_back_and_no_text_is_lost() -> None:
    rig = Rig(n_ctx=2_000, n_cells=2_200, n_batch=64)
    prompt_a, prompt_b = prompt_without_eog(150), prompt_without_eog(150, length=7)
    rig.memory.n_cells = 180
    rig.submit("a", prompt_a, max_tokens=150)
    rig.now_s += 1
    rig.submit("b", prompt_b, max_tokens=150)
    rig.run(5_000)
    assert rig.texts["a", 0] == alone(prompt_a, 150)
    assert rig.texts["b", 0] == alone(prompt_b, 150)
    assert rig.rows_by_request["b"] > 157  # read again what it had


def test_when_one_request_alone_has_no_room_then_it_fails_and_the_next_one_runs() -> None:
    rig = Rig(n_ctx=2_000, n_cells=2_200)
    rig.memory.n_cells = 50
    rig.submit("a", prompt_without_eog(100), max_tokens=100)
    rig.run()
    assert rig.ended("a").failure.kind == "GenerationFailed"
    rig.submit("b", (1, 2, 3), max_tokens=3)
    rig.run()
    assert rig.texts["b", 0] == alone((1, 2, 3), 3)


def test_when_a_batch_is_invalid_then_its_requests_fail_as_a_bug_and_others_go_on() -> None:
    rig = Rig(n_parallel=1)
    rig.submit("a", (1, 2, 3))
    rig.submit("b", (4, 5, 6))
    rig.backend.codes = [-1]
    rig.run()
    assert rig.ended("a").failure.kind == "BugFault"
    assert rig.texts["b", 0] == alone((4, 5, 6), 8)


def test_when_a_compute_error_comes_then_active_requests_fail_and_memory_is_cleared() -> None:
    rig = Rig(n_parallel=2)
    for length, name in enumerate("abc", start=5):
        rig.submit(name, prompt_without_eog(8, length=length))
    rig.backend.codes = [0, -3]
    rig.run()
    assert [rig.ended(name).failure.details["llama_code"] for name in "ab"] == [-3, -3]
    assert rig.texts["c", 0] == alone(prompt_without_eog(8, length=7), 8)
    assert rig.memory.n_cleared == 1
    assert not rig.scheduler.is_broken


@pytest.mark.parametrize(("gap_s", "broken"), [(10.0, True), (100.0, False)])
def test_when_two_compute_errors_come_then_the_time_between_decides(gap_s: float, broken: bool) -> None:
    rig = Rig()
    for name in "ab":
        rig.backend.codes = [-2]
        rig.submit(name, (1, 2, 3))
        rig.run()
        rig.now_s += gap_s
    assert rig.scheduler.is_broken is broken


@pytest.mark.parametrize("kind", ["shared", "sequence", "points"])
def test_when_a_decode_is_aborted_then_books_follow_memory_and_the_answer_is_right(kind: str) -> None:
    rig = Rig(kind=FakeMemory(kind=kind), n_batch=32)  # type: ignore[arg-type]
    rig.backend.codes = [0, 2, 0, 2, 2, 0, 2]
    rig.submit("a", SYSTEM, max_tokens=6)
    rig.submit("b", tuple(range(80, 50, -1)), max_tokens=6)
    rig.run()
    assert rig.texts["a", 0] == alone(SYSTEM, 6)
    assert rig.texts["b", 0] == alone(tuple(range(80, 50, -1)), 6)


def test_when_all_end_then_each_ends_once() -> None:
    rig = Rig(n_parallel=2)
    for name in "abcd":
        rig.submit(name, (1, 2, ord(name) - 90), max_tokens=9)
    rig.step()
    rig.scheduler.cancel_all(rig.now_s)
    rig.collect()
    assert rig.scheduler.is_idle
    assert [len(rig.ends[name]) for name in "abcd"] == [1, 1, 1, 1]
    assert all(isinstance(end, Done) for ends in rig.ends.values() for end in ends)


def test_when_text_and_counts_are_added_up_then_they_are_those_of_the_end() -> None:
    rig = Rig()
    rig.submit("a", SYSTEM, max_tokens=9, n=2)
    rig.run()
    assert sum(rig.counted.values()) == rig.done("a").usage.completion_tokens
    assert all(output.n_tokens == 1 for output in rig.outputs if isinstance(output, Text))


def test_when_a_saved_conversation_shares_only_its_beginning_then_it_is_not_given_up() -> None:
    beginning = prompt_of(100)
    first = (*beginning, *(1 + index * 11 % 89 for index in range(200)))
    rig = Rig(n_ctx=600, n_cells=600, n_parallel=1, n_seq_max=1, host_cache_bytes=1_000_000)
    rig.submit("first", first, max_tokens=1)
    rig.run()
    rig.submit("between", tuple(1 + index * 13 % 88 for index in range(200)), max_tokens=1)
    rig.run()
    rig.submit("sibling", (*beginning, 50, 51, 52), max_tokens=1)
    rig.run()
    assert rig.done("sibling").usage.cached_tokens >= len(beginning)
    rig.submit("first again", first, max_tokens=1)
    rig.run()
    assert rig.done("first again").usage.cached_tokens >= len(first) - 1


def prompt_of(n_tokens: int) -> tuple[int, ...]:
    return tuple(1 + index * 7 % 90 for index in range(n_tokens))
