"""The tree of messages."""

import time

from hypothesis import given
from hypothesis import strategies as st

from app.store.records import MessageRecord
from app.transcript import TextBuffer, Transcript


def record(one: str, parent: str, *, role: str = "user", state: str = "done", at_s: float = 0.0) -> MessageRecord:
    return MessageRecord(
        one,
        "c",
        parent,
        "assistant" if role == "assistant" else "user",
        content=one,
        state="generating" if state == "generating" else "done",
        created_s=at_s,
    )


def ids(transcript: Transcript) -> str:
    return "".join(node.id for node in transcript.path())


def test_when_text_is_appended_then_it_costs_the_same_at_any_length() -> None:
    def cost_s(buffer: TextBuffer) -> float:
        began_s = time.perf_counter()
        for _ in range(20_000):
            buffer.append(" token")
        return time.perf_counter() - began_s

    short, long = TextBuffer(), TextBuffer("x" * 10_000_000)
    assert min(cost_s(long) for _ in range(3)) < 10 * min(cost_s(short) for _ in range(3))
    assert len(long) == len(long.text)


@given(st.lists(st.text(max_size=5)))
def test_when_pieces_are_appended_then_the_text_is_all_of_them(pieces: list[str]) -> None:
    buffer = TextBuffer("start")
    for piece in pieces:
        buffer.append(piece)
        assert len(buffer) == len(buffer.text)
    assert buffer.text == "start" + "".join(pieces)


def test_when_read_from_disk_then_the_kept_branch_shows_and_the_newest_where_none_is() -> None:
    records = [record("a", ""), record("b", "a"), record("c", "a"), record("d", "c"), record("e", "")]
    assert ids(Transcript("c", records)) == "e"
    assert ids(Transcript("c", records, active_child_id="a")) == "acd"
    assert ids(Transcript("c", records, active_child_id="gone")) == "e"


def test_when_an_answer_was_left_unfinished_then_it_shows_as_interrupted() -> None:
    transcript = Transcript("c", [record("a", "", state="generating")])
    assert transcript.path()[0].state == "interrupted"


def test_when_a_parent_was_lost_then_its_children_begin_anew() -> None:
    assert ids(Transcript("c", [record("b", "lost"), record("c", "b")])) == "bc"


def test_when_removed_and_put_back_in_any_order_then_the_tree_is_the_same() -> None:
    records = [
        record("a", "", at_s=1),
        record("b", "a", at_s=2),
        record("c", "b", at_s=3),
        record("d", "a", at_s=4),
    ]
    transcript = Transcript("c", records, active_child_id="a")
    transcript.show("b")
    assert ids(transcript) == "abc"
    removed = transcript.remove("b")
    assert [node.id for node in removed] == ["b", "c"]
    assert ids(transcript) == "ad"
    assert transcript.put_back(removed)
    assert ids(transcript) == "abc"
    node = transcript.get("b")
    assert node is not None
    assert transcript.view(node).branch_index == 0
    gone = transcript.remove("c")
    transcript.remove("a")
    assert not transcript.put_back(gone)
    assert transcript.path() == []
