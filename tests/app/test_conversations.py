"""The list of conversations."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversations import PAGE_ROWS, ConversationRow, Conversations, group_of, split_hits
from app.notices import Notices
from app.store import StoreLane
from app.store.records import AnswerStats, ConversationChange, MessageRecord
from tests.app.conftest import WAIT_MS, Wait

NOON = datetime.datetime(2026, 3, 10, 12, 0, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


@pytest.fixture
def store(qtbot: QtBot, tmp_path: Path) -> Iterator[StoreLane]:
    one = StoreLane(tmp_path / "c.sqlite3", Notices())
    yield one
    one.close()
    qtbot.waitUntil(lambda: one.is_closed, timeout=WAIT_MS)


@pytest.fixture
def conversations(store: StoreLane) -> Conversations:
    return Conversations(store)


def keep(store: StoreLane, one: str, title: str, *texts: str) -> None:
    messages = [
        MessageRecord(
            f"{one}{index}",
            one,
            f"{one}{index - 1}" if index else "",
            "assistant" if index % 2 else "user",
            content=text,
            stats=AnswerStats(model="smol") if index % 2 else None,
        )
        for index, text in enumerate(texts)
    ]
    store.submit(lambda inner: inner.save({one: ConversationChange(title=title)}, messages))


def titles(conversations: Conversations) -> list[str]:
    return [row.title for row in conversations.rows]


@pytest.mark.parametrize(
    ("hours_before", "group"),
    [
        (0, "today"),
        (11.9, "today"),
        (12.1, "yesterday"),
        (36.1, "week"),
        (7 * 24, "week"),
        (8 * 24, "older"),
        (-5, "today"),
    ],
)
def test_when_changed_so_long_ago_then_the_group_is_by_calendar_days(hours_before: float, group: str) -> None:
    assert group_of(False, NOON.timestamp() - hours_before * 3600, NOON) == group
    assert group_of(True, NOON.timestamp() - hours_before * 3600, NOON) == "pinned"


def test_when_words_are_marked_then_their_ranges_fit_the_one_line_text() -> None:
    text, hits = split_hits("one\n  \x02two\x03  three \x02four\x03\x03 \x02")
    assert text == "one two three four "
    assert [text[begin:end] for begin, end in hits] == ["two", "four"]


def test_when_refreshed_then_rows_are_told_in_groups(
    store: StoreLane, conversations: Conversations, qtbot: QtBot
) -> None:
    keep(store, "a", "First", "hello", "the\nlast  message")
    keep(store, "b", "", "x")
    conversations.set_pinned("a", True)
    with qtbot.waitSignal(conversations.rows_changed, timeout=WAIT_MS) as heard:
        conversations.refresh()
    rows: tuple[ConversationRow, ...] = heard.args[0]
    assert [(row.id, row.title, row.snippet, row.group_title) for row in rows] == [
        ("a", "First", "the last message", "Pinned"),
        ("b", "New chat", "x", "Today"),
    ]


def test_when_searched_then_matches_show_with_their_place(
    store: StoreLane, conversations: Conversations, wait: Wait
) -> None:
    keep(store, "a", "Sea", "where do whales live?")
    keep(store, "b", "Land", "horses")
    conversations.search("whal")
    wait(lambda: titles(conversations) == ["Sea"])
    row = conversations.rows[0]
    assert row.group_title == "Results"
    assert [row.snippet[begin:end] for begin, end in row.snippet_hits] == ["whales"]
    conversations.search("nothing like it")
    wait(lambda: conversations.rows == ())
    conversations.search(" ")
    wait(lambda: sorted(titles(conversations)) == ["Land", "Sea"])


def test_when_typing_fast_then_the_last_words_win(store: StoreLane, conversations: Conversations, wait: Wait) -> None:
    keep(store, "a", "alpha")
    keep(store, "b", "beta")
    for text in ("b", "be", "bet", "alph", "alpha"):
        conversations.search(text)
    wait(lambda: titles(conversations) == ["alpha"])


def test_when_renamed_or_duplicated_then_the_list_follows(
    store: StoreLane, conversations: Conversations, wait: Wait
) -> None:
    keep(store, "a", "Old", "hello")
    conversations.rename("a", " New  name ")
    wait(lambda: titles(conversations) == ["New name"])
    copies: list[str] = []
    conversations.duplicate("a", copies.append)
    wait(lambda: sorted(titles(conversations)) == ["New name", "New name (copy)"])
    assert copies == [row.id for row in conversations.rows if row.title.endswith("(copy)")]


def test_when_deleted_then_it_goes_at_once_and_undo_brings_it_back(
    store: StoreLane, conversations: Conversations, wait: Wait, qtbot: QtBot
) -> None:
    keep(store, "a", "Gone", "hello")
    conversations.refresh()
    wait(lambda: titles(conversations) == ["Gone"])
    with qtbot.waitSignals([conversations.rows_changed, conversations.deleted, conversations.undo_offered]):
        conversations.delete("a")
    assert conversations.rows == ()
    conversations.undo_delete("a")
    wait(lambda: titles(conversations) == ["Gone"])


def test_when_there_are_very_many_then_a_page_shows_and_more_on_demand(
    store: StoreLane, conversations: Conversations, wait: Wait
) -> None:
    many = {
        f"c{number}": ConversationChange(title=f"T{number}", updated_s=float(number)) for number in range(PAGE_ROWS + 7)
    }
    store.submit(lambda inner: inner.save(many))
    conversations.refresh()
    wait(lambda: len(conversations.rows) == PAGE_ROWS)
    assert conversations.has_more
    conversations.show_more()
    wait(lambda: len(conversations.rows) == PAGE_ROWS + 7)
    assert not conversations.has_more


def test_when_exported_then_it_reads_as_markdown(store: StoreLane, conversations: Conversations, wait: Wait) -> None:
    keep(store, "a", "Whales", "Where?", "In the **sea**.\n")
    store.submit(lambda inner: inner.save({"a": ConversationChange(system_prompt="Be brief.\nBe kind.")}))
    exported: list[str] = []
    conversations.export_markdown("a", exported.append)
    wait(lambda: bool(exported))
    assert exported == [
        "# Whales\n\n> Be brief.\n> Be kind.\n\n## You\n\nWhere?\n\n## Assistant (smol)\n\nIn the **sea**.\n"
    ]
