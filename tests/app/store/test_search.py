"""Searching: what is found, in which order, and that no text a person types can break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store import Store
from app.store.records import HIT_BEGIN, HIT_END, ConversationChange, MessageRecord
from app.store.search import MAX_TERMS, match_expression


def message(conversation_id: str, text: str, *, reasoning: str = "", one: str = "") -> MessageRecord:
    return MessageRecord(
        id=one or f"{conversation_id}-{text[:8]}",
        conversation_id=conversation_id,
        parent_id="",
        role="user",
        content=text,
        reasoning=reasoning,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("search") / "c.sqlite3") as one:
        one.save(
            {
                "whales": ConversationChange(title="About whales", updated_s=10.0),
                "cooking": ConversationChange(title="Dinner", updated_s=20.0),
                "code": ConversationChange(title="Python help", updated_s=30.0),
                "chinese": ConversationChange(title="旅行", updated_s=40.0),
            },
            [
                message("whales", "The blue whale sings in the deep ocean.\n\nIt is very large."),
                message("cooking", "A crème brûlée needs six eggs", reasoning="whale is not a good dinner"),
                message("code", "use dict.get(\"key\") and 100% of C++ * NEAR(x) OR 'quotes'"),
                message("chinese", "我想去北京看长城然后吃烤鸭。"),
            ],
        )
        yield one


def ids(store: Store, text: str) -> list[str]:
    return [row.id for row in store.search(text, limit=50).rows]


def test_when_a_word_is_in_a_title_then_that_comes_first(store: Store) -> None:
    assert ids(store, "whale") == ["whales", "cooking"]


def test_when_the_last_word_is_unfinished_then_it_is_a_prefix(store: Store) -> None:
    assert ids(store, "deep oc") == ["whales"]
    assert ids(store, "de ocean") == []


def test_when_accents_differ_then_it_is_found(store: Store) -> None:
    assert ids(store, "creme brulee") == ["cooking"]


def test_when_all_words_are_not_in_one_message_then_it_is_not_found(store: Store) -> None:
    assert ids(store, "whale eggs") == ["cooking"]
    assert ids(store, "ocean eggs") == []


def test_when_found_then_the_place_is_marked(store: Store) -> None:
    snippet = store.search("sings", limit=5).rows[0].snippet
    assert f"{HIT_BEGIN}sings{HIT_END}" in snippet


def test_when_a_script_has_no_spaces_then_text_inside_is_found(store: Store) -> None:
    row = store.search("长城", limit=5).rows[0]
    assert (row.id, f"{HIT_BEGIN}长城{HIT_END}" in row.snippet) == ("chinese", True)
    assert ids(store, "旅") == ["chinese"]


def test_when_there_is_no_word_then_signs_are_compared(store: Store) -> None:
    assert ids(store, "++") == ["code"]
    assert ids(store, "100%") == ["code"]
    assert ids(store, "%") == ["code"]
    assert ids(store, "_") == []
    assert ids(store, "   ") == []


def test_when_more_is_found_than_wanted_then_it_says_so(store: Store) -> None:
    found = store.search("whale", limit=1)
    assert (len(found.rows), found.has_more) == (1, True)


@pytest.mark.parametrize(
    "text",
    ['"', "'", "AND", "OR NOT", "NEAR(a b)", "col:x", "a*b*", "^a", "(", "-x", "{a b}:c", "\0", "\\", "x\0y", "%" * 50],
)
def test_when_it_looks_like_a_query_then_it_is_only_text(store: Store, text: str) -> None:
    store.search(text, limit=5)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_when_any_text_is_searched_then_nothing_breaks(store: Store, text: str) -> None:
    store.search(text, limit=5)


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1, max_size=20))
def test_when_a_word_was_written_then_it_is_found(tmp_path_factory: pytest.TempPathFactory, word: str) -> None:
    with Store(tmp_path_factory.mktemp("word") / "c.sqlite3") as one:
        one.save({"c": ConversationChange()}, [message("c", f"before {word} after", one="m")])
        assert ids(one, word) == ["c"]


def test_when_there_are_too_many_words_then_the_first_ones_count() -> None:
    assert match_expression("a " * 500).count('"') == 2 * MAX_TERMS


def test_when_deleted_then_it_is_not_found(tmp_path: Path) -> None:
    with Store(tmp_path / "c.sqlite3") as one:
        one.save({"c": ConversationChange(title="walrus")}, [message("c", "walrus", one="m")], {"m": True})
        assert ids(one, "walrus") == ["c"]
        one.set_deleted("c", deleted=True)
        assert ids(one, "walrus") == []
        one.set_deleted("c", deleted=False)
        one.rename("c", "other")
        assert ids(one, "walrus") == []
