"""What is kept of answers, and what goes first."""

from runtime.host.api.responses_items import MessageItem, OutputText
from runtime.host.api.responses_store import ResponseStore, Stored
from runtime.messages.shared import MediaPart, Message, PicturePart


def stored(number: int, *messages: Message, encoded: bytes = b"{}") -> Stored:
    item = MessageItem(f"msg_{number}", "assistant", "completed", (OutputText("x", (), ()),))
    return Stored(f"resp_{number}", encoded, (item,), messages)


def test_when_there_are_too_many_then_the_one_unused_longest_goes() -> None:
    store = ResponseStore(max_responses=2)
    store.put(stored(1))
    store.put(stored(2))
    assert store.get("resp_1") is not None
    store.put(stored(3))
    assert store.get("resp_2") is None
    assert store.item("msg_2") is None
    assert store.conversation("resp_1") == ()
    assert store.item("msg_3") is not None


def test_when_conversations_share_messages_then_they_count_once() -> None:
    store = ResponseStore(max_bytes=10_000_000)
    long = Message("user", "x" * 100_000)
    rows: tuple[Message, ...] = (long,)
    for number in range(20):
        rows = (*rows, Message("assistant", f"answer {number}"))
        store.put(stored(number, *rows))
    assert 400_000 < store.size_bytes < 500_000
    for number in range(19):
        assert store.remove(f"resp_{number}")
    assert store.size_bytes > 400_000
    assert store.remove("resp_19")
    assert (store.size_bytes, len(store)) == (0, 0)
    assert not store.remove("resp_19")


def test_when_bytes_run_over_then_old_ones_go_until_they_fit() -> None:
    store = ResponseStore(max_bytes=100_000)
    for number in range(50):
        picture = PicturePart(MediaPart("image", bytes(30_000)))
        store.put(stored(number, Message("user", parts=(picture,))))
        assert store.size_bytes <= 100_000
    assert len(store) == 3
    assert store.get("resp_49") is not None


def test_when_one_alone_is_too_large_then_it_is_not_kept() -> None:
    store = ResponseStore(max_bytes=100_000)
    store.put(stored(1, encoded=bytes(200_000)))
    assert store.get("resp_1") is None
    assert store.size_bytes == 0


def test_when_the_same_id_comes_again_then_it_replaces() -> None:
    store = ResponseStore()
    store.put(stored(1, Message("user", "one")))
    store.put(stored(1, Message("user", "two")))
    assert len(store) == 1
    assert store.conversation("resp_1") == (Message("user", "two"),)
