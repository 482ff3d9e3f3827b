"""Where each cell in use costs every row: what is idle leaves the cells while others run, and is not lost."""

from runtime.options import SamplingOptions
from tests.fakes.scheduler_rig import Rig
from tests.scheduler.test_scheduler import SYSTEM, prompt_of, prompt_without_eog


def test_when_the_place_of_cells_shows_then_a_seeded_request_alone_begins_at_the_first_cell() -> None:
    rig = Rig(host_cache_bytes=100_000, reads_all_cells=True)
    rig.submit("idle", SYSTEM, max_tokens=4)
    rig.run()
    assert rig.scheduler.placement.n_idle == 1
    rig.submit("seeded", prompt_without_eog(5), max_tokens=4, sampling=SamplingOptions(seed=1))
    rig.step()
    assert rig.scheduler.placement.n_idle == 0
    rig.run()
    # What the idle conversation held came back from host memory.
    rig.submit("goes on", (*SYSTEM, 50), max_tokens=1)
    rig.run()
    assert rig.done("goes on").usage.cached_tokens >= len(SYSTEM)


def test_when_each_cell_costs_then_what_is_idle_waits_in_host_memory_while_others_run() -> None:
    rig = Rig(host_cache_bytes=100_000, reads_all_cells=True)
    rig.submit("idle", SYSTEM, max_tokens=4)
    rig.run()
    rig.submit("runs", prompt_without_eog(6), max_tokens=30)
    rig.step()
    assert rig.scheduler.placement.n_idle == 0
    rig.submit("ends first", prompt_without_eog(5, length=40), max_tokens=4)
    while not rig.ends["ends first"]:
        rig.step()
    assert rig.scheduler.placement.n_idle == 0
    rig.submit("goes on", (*SYSTEM, 50), max_tokens=1)
    rig.run()
    assert rig.done("goes on").usage.cached_tokens >= len(SYSTEM)


def test_when_each_cell_costs_then_only_the_last_conversation_stays_and_none_is_lost() -> None:
    wide = {"n_ctx": 600, "n_cells": 6_000, "n_seq_max": 16, "host_cache_bytes": 1_000_000}
    prompts = [tuple(1 + (index * step) % 90 for index in range(300)) for step in range(7, 17)]
    held: dict[bool, int] = {}
    for costs in (True, False):
        rig = Rig(**wide, reads_all_cells=costs)  # type: ignore[arg-type]
        for index, prompt in enumerate(prompts):
            rig.submit(f"r{index}", prompt, max_tokens=1)
            rig.run()
        held[costs] = rig.scheduler.kv_used
        for index, prompt in enumerate(prompts):
            rig.submit(f"again{index}", prompt, max_tokens=1)
            rig.run()
            assert rig.done(f"again{index}").usage.cached_tokens >= len(prompt) - 1
    assert held[True] == len(prompts[0])
    assert held[False] > 2 * held[True]


def test_when_a_conversation_is_idle_and_nothing_runs_then_it_stays_in_its_cells() -> None:
    rig = Rig(n_ctx=3_000, n_cells=6_000, host_cache_bytes=1_000_000, reads_all_cells=True)
    rig.submit("long", prompt_of(1_500), max_tokens=1)
    rig.run()
    assert rig.scheduler.kv_used == 1_500
    rig.submit("next turn", (*prompt_of(1_500), 50), max_tokens=1)
    rig.run()
    assert rig.done("next turn").usage.cached_tokens >= 1_499
    assert not len(rig.scheduler.placement.host)


def test_when_a_conversation_is_too_large_for_host_memory_then_it_keeps_its_cells() -> None:
    rig = Rig(n_ctx=600, n_cells=2_000, host_cache_bytes=100, reads_all_cells=True)
    rig.submit("large", prompt_of(500), max_tokens=1)
    rig.run()
    rig.submit("other", prompt_without_eog(5), max_tokens=4)
    rig.run()
    rig.submit("next turn", (*prompt_of(500), 50), max_tokens=1)
    rig.run()
    assert rig.done("next turn").usage.cached_tokens >= 499


def test_when_a_prompt_begins_like_an_idle_conversation_then_it_takes_the_beginning_and_the_rest_is_saved() -> None:
    beginning = prompt_of(100)
    first = (*beginning, *(1 + index * 11 % 89 for index in range(200)))
    rig = Rig(n_ctx=600, n_cells=2_000, host_cache_bytes=1_000_000, reads_all_cells=True)
    rig.submit("first", first, max_tokens=1)
    rig.run()
    rig.submit("sibling", (*beginning, 50, 51, 52), max_tokens=1)
    rig.run()
    assert rig.done("sibling").usage.cached_tokens >= len(beginning)
    assert rig.scheduler.kv_used < 2 * len(beginning)
    rig.submit("first again", first, max_tokens=1)
    rig.run()
    assert rig.done("first again").usage.cached_tokens >= len(first) - 1


def test_when_two_ran_side_by_side_then_the_last_one_leaves_its_cells_far_behind_too() -> None:
    rig = Rig(host_cache_bytes=100_000, reads_all_cells=True)
    rig.submit("ends first", SYSTEM, max_tokens=2)
    rig.submit("ends last", prompt_without_eog(9, length=40), max_tokens=9)
    rig.run()
    assert rig.scheduler.kv_used == 0
    rig.submit("alone again", (*SYSTEM, 50), max_tokens=1)
    rig.run()
    assert rig.done("alone again").usage.cached_tokens >= len(SYSTEM)
    assert rig.scheduler.placement.n_idle == 1


def test_when_one_request_makes_several_choices_then_none_of_them_keeps_cells_that_are_far_behind() -> None:
    rig = Rig(host_cache_bytes=100_000, reads_all_cells=True)
    rig.submit("several", SYSTEM, max_tokens=6, n=3)
    rig.run()
    assert rig.scheduler.kv_used == 0
    rig.submit("next turn", (*SYSTEM, 50), max_tokens=1)
    rig.run()
    assert rig.done("next turn").usage.cached_tokens >= len(SYSTEM)
