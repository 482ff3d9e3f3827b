import threading

from hypothesis import given
from hypothesis import strategies as st

from runtime.messages.ipc import Counted, Health, LoadProgress
from runtime.messages.shared import PositionLogprobs, Timings, TokenLogprob, Usage
from runtime.scheduler.types import Done, PromptRead, Text, Waiting
from runtime.worker import outbox as outbox_module
from runtime.worker.outbox import Item, Outbox, compact

HEALTH = Health(0, 30, 1, 0, 0, 0, 0, 0, 1.0, 0, 0)


def done(request_id: str) -> Done:
    return Done(request_id, ("stop",), ("",), Usage(), Timings())


def test_items_when_taken_then_come_in_order_and_all_at_once() -> None:
    outbox = Outbox()
    outbox.put([Text("a", 0, "x", 1), done("a")])
    outbox.put([Counted("c", 1, 2)])
    assert outbox.take() == [Text("a", 0, "x", 1), done("a"), Counted("c", 1, 2)]


def test_health_when_not_sent_yet_then_only_the_newest_is_kept() -> None:
    outbox = Outbox()
    newest = Health(5, 30, 1, 0, 0, 0, 0, 0, 1.0, 0, 0)
    outbox.put_health(HEALTH)
    outbox.put_health(newest)
    assert outbox.take() == [newest]


def test_closed_outbox_when_taken_from_then_gives_the_rest_and_then_nothing() -> None:
    outbox = Outbox()
    outbox.put([done("a")])
    outbox.close()
    outbox.put([done("b")])
    assert outbox.take() == [done("a")]
    assert outbox.take() is None


def test_taking_when_nothing_is_there_then_waits_for_the_next_item() -> None:
    outbox = Outbox()
    taken: list[list[Item] | None] = []
    thread = threading.Thread(target=lambda: taken.append(outbox.take()))
    thread.start()
    outbox.put([done("a")])
    thread.join(10)
    assert taken == [[done("a")]]


def test_slow_host_when_outputs_pile_up_then_few_entries_are_held_and_no_text_is_lost() -> None:
    outbox = Outbox()
    n_steps = 3 * outbox_module.MAX_LOOSE
    for i in range(n_steps):
        outbox.put([Text("a", 0, f"{i},", 1), Text("b", 1, "x", 1), PromptRead("c", i, n_steps, 0), Waiting("d", 1)])
        assert len(outbox._items) <= outbox_module.MAX_LOOSE + 4
    items = outbox.take()
    assert items is not None
    texts = [item for item in items if isinstance(item, Text)]
    assert "".join(text.text for text in texts if text.request_id == "a") == "".join(f"{i}," for i in range(n_steps))
    assert sum(text.n_tokens for text in texts if text.request_id == "b") == n_steps
    assert [item for item in items if isinstance(item, PromptRead)][-1].done == n_steps - 1


def test_load_progress_when_joined_then_only_the_latest_stays() -> None:
    items: list[Item] = [LoadProgress("Reading", 0.1), LoadProgress("Reading", 0.2), Counted("c", 1, 2)]
    assert compact(items) == [LoadProgress("Reading", 0.2), Counted("c", 1, 2)]


def test_log_probabilities_when_joined_then_no_text_carries_more_than_a_message_can() -> None:
    position = PositionLogprobs(TokenLogprob(1, b"x", -1.0))
    items: list[Item] = [Text("a", 0, "x", 1, (position,)) for _ in range(2 * outbox_module.MAX_LOGPROBS + 10)]
    joined = [item for item in compact(items) if isinstance(item, Text)]
    assert [len(text.logprobs) for text in joined] == [outbox_module.MAX_LOGPROBS] * 2 + [10]
    assert sum(len(text.text) for text in joined) == len(items)


EVENTS = st.lists(
    st.one_of(
        st.builds(Text, st.sampled_from("ab"), st.integers(0, 1), st.text("xyz", max_size=3), st.integers(0, 3)),
        st.builds(PromptRead, st.sampled_from("ab"), st.integers(0, 9), st.just(9), st.just(0)),
        st.builds(Waiting, st.sampled_from("ab"), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_any_outputs_when_joined_then_each_answer_reads_the_same_and_progress_ends_the_same(events: list[Item]) -> None:
    items: list[Item] = [*events, done("a"), done("b")]
    joined = compact(items)
    for request_id in "ab":
        for choice in (0, 1):

            def whole(among: list[Item], name: str = request_id, number: int = choice) -> tuple[str, int]:
                texts = [t for t in among if isinstance(t, Text) and (t.request_id, t.choice) == (name, number)]
                return "".join(text.text for text in texts), sum(text.n_tokens for text in texts)

            assert whole(items) == whole(joined)
        for kind in (PromptRead, Waiting):
            last = [item for item in items if isinstance(item, kind) and item.request_id == request_id][-1:]
            assert [item for item in joined if isinstance(item, kind) and item.request_id == request_id] == last
    assert joined[-2:] == [done("a"), done("b")]
    assert len(joined) <= 4 + 4 + 2
