"""What is kept, how it comes back, and that a program killed in mid-write loses nothing it had confirmed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.store import Store, new_id
from app.store.records import AnswerStats, ConversationChange, MessageRecord, Preset
from app.store.store import KEEP_DELETED_S, STALE_S
from runtime import units
from runtime.errors import Failure
from runtime.options import GenerateOptions, SamplingOptions
from runtime.units import now

QUESTION = MessageRecord("q", "c", "", "user", content="Why?", created_s=1.0, active_child_id="a")
ANSWER = MessageRecord(
    "a",
    "c",
    "q",
    "assistant",
    content="Because.",
    reasoning="Hm.",
    reasoning_s=0.5,
    state="failed",
    notice="2 turns were left out",
    failure=Failure("WorkerDied", "It ended.", hint="Try again.", status=503, details={"signal": 9}),
    stats=AnswerStats(n_tokens=3, generation_tps=12.5, reason="length", model="m"),
    created_s=2.0,
)


def test_when_messages_are_saved_then_every_field_comes_back(store: Store) -> None:
    store.save({"c": ConversationChange()}, [QUESTION, ANSWER])
    assert store.messages("c") == (QUESTION, ANSWER)


def test_when_a_message_is_saved_again_then_it_is_replaced_in_its_place(store: Store) -> None:
    store.save({"c": ConversationChange()}, [QUESTION, ANSWER])
    longer = replace(ANSWER, content="Because it is.", state="done", failure=None)
    store.save({}, [longer])
    assert store.messages("c") == (QUESTION, longer)


def test_when_a_conversation_changes_then_only_given_fields_are_written(store: Store) -> None:
    options = GenerateOptions(max_tokens=5, sampling=SamplingOptions(temperature=0.1))
    store.save({"c": ConversationChange(title="T", system_prompt="S", options=options, draft="d", model="m")})
    store.save({"c": ConversationChange(draft="", system_prompt=None)})
    record = store.conversation("c")
    assert record is not None
    assert (record.title, record.system_prompt, record.options, record.draft, record.model) == (
        "T",
        None,
        options,
        "",
        "m",
    )
    assert store.conversation("unknown") is None


def test_when_one_row_of_a_save_fails_then_nothing_of_it_is_written(store: Store) -> None:
    orphan = replace(ANSWER, id="x", parent_id="nobody")
    with pytest.raises(Exception, match="FOREIGN KEY"):
        store.save({"c": ConversationChange(title="T")}, [QUESTION, orphan])
    assert store.conversation("c") is None
    store.save({"c": ConversationChange(title="T")}, [QUESTION])
    assert store.messages("c") == (QUESTION,)


def test_when_listed_then_pinned_come_first_and_the_newest_next(store: Store) -> None:
    for number in range(5):
        store.save({f"c{number}": ConversationChange(title="T", updated_s=float(number))})
    store.set_pinned("c1", pinned=True)
    store.set_deleted("c3", deleted=True)
    found = store.list_conversations(limit=3)
    assert [row.id for row in found.rows] == ["c1", "c4", "c2"]
    assert found.has_more
    assert not store.list_conversations(limit=4).has_more


def test_when_a_conversation_is_empty_then_it_is_not_listed(store: Store) -> None:
    store.save({"c": ConversationChange(draft="half a question")})
    assert [row.snippet for row in store.list_conversations(limit=9).rows] == ["half a question"]
    store.save({"c": ConversationChange(draft="")})
    assert store.list_conversations(limit=9).rows == ()


def test_when_an_own_title_is_taken_back_then_the_first_question_is_the_title(store: Store) -> None:
    store.save({"c": ConversationChange(title="Why?")}, [QUESTION])
    store.rename("c", "Mine")
    store.save({"c": ConversationChange(title="automatic")})
    assert [row.title for row in store.list_conversations(limit=9).rows] == ["Mine"]
    store.rename("c", "")
    assert [row.title for row in store.list_conversations(limit=9).rows] == ["Why?"]


def test_when_duplicated_then_the_copy_has_all_branches_and_its_own_ids(store: Store) -> None:
    other = replace(ANSWER, id="b", content="Because not.", state="generating")
    store.save({"c": ConversationChange(title="T", active_child_id="q", draft="d")}, [QUESTION, ANSWER, other])
    store.duplicate("c", "copy", "T (copy)")
    copy, messages = store.conversation("copy"), store.messages("copy")
    assert copy is not None
    assert (copy.title, copy.draft, copy.active_child_id) == ("T (copy)", "d", messages[0].id)
    assert [one.content for one in messages] == ["Why?", "Because.", "Because not."]
    assert messages[0].active_child_id == messages[1].id
    assert {one.parent_id for one in messages[1:]} == {messages[0].id}
    assert messages[2].state == "interrupted"
    assert not {one.id for one in messages} & {"q", "a", "b"}
    assert store.messages("c") == (QUESTION, ANSWER, other)


def test_when_deleted_long_ago_then_it_is_erased_and_not_before(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save({"c": ConversationChange()}, [QUESTION, ANSWER])
    store.save({"d": ConversationChange()}, [replace(QUESTION, id="dq", conversation_id="d")], {"a": True})
    store.set_deleted("d", deleted=True)
    store.purge()
    assert store.conversation("d") is not None
    later_s = now() + KEEP_DELETED_S + 1
    monkeypatch.setattr(units, "now", lambda: later_s)
    store.purge()
    assert store.conversation("d") is None
    assert store.messages("d") == ()
    store.save({}, [], {"a": False})
    assert [one.id for one in store.messages("c")] == ["q"]


def test_when_presets_are_kept_then_they_come_back_by_name(store: Store) -> None:
    pirate = Preset("p", "pirate", "Arr.", GenerateOptions(max_tokens=3))
    store.put_preset(Preset("z", "Zen"))
    store.put_preset(pirate)
    assert store.presets() == (pirate, Preset("z", "Zen"))


def test_when_a_preset_is_deleted_then_its_conversations_keep_its_values(store: Store) -> None:
    preset = Preset("p", "pirate", "Arr.", GenerateOptions(max_tokens=3))
    store.put_preset(preset)
    store.save({"c": ConversationChange(preset_id="p"), "d": ConversationChange(preset_id="p", system_prompt="Own.")})
    store.delete_preset(preset)
    assert store.presets() == ()
    records = [store.conversation("c"), store.conversation("d")]
    assert [(one.preset_id, one.system_prompt, one.options) for one in records if one] == [
        ("", "Arr.", preset.options),
        ("", "Own.", preset.options),
    ]


def test_when_an_answer_was_left_unfinished_then_it_is_marked_interrupted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save({"c": ConversationChange()}, [QUESTION, replace(ANSWER, content="half whale", state="generating")])
    assert store.mark_interrupted() == 0  # another window may be writing it
    later_s = now() + STALE_S + 1
    monkeypatch.setattr(units, "now", lambda: later_s)
    assert store.mark_interrupted() == 1
    assert store.messages("c")[1].state == "interrupted"
    assert [row.id for row in store.search("whale", limit=5).rows] == ["c"]


def test_when_a_stored_option_is_no_longer_known_then_the_rest_is_still_read(store: Store) -> None:
    store.save({"c": ConversationChange(title="T", options=GenerateOptions())})
    store.put_preset(Preset("p", "broken"))
    with store._guard() as connection:
        connection.execute("UPDATE conversation SET options = '{\"of_the_future\": 1}'")
        connection.execute("UPDATE preset SET options = 'nonsense'")
    record = store.conversation("c")
    assert record is not None
    assert (record.title, record.options) == ("T", None)
    assert store.presets() == ()


def test_when_ids_are_made_then_they_differ() -> None:
    assert len({new_id() for _ in range(100)}) == 100


WRITER = """
import sys
from pathlib import Path
from app.store import Store
from app.store.records import ConversationChange, MessageRecord

store = Store(Path(sys.argv[1]))
number = 0
while True:
    store.save(
        {"c": ConversationChange(draft=f"draft {number}")},
        [MessageRecord(str(number), "c", "", "user", content=f"text {number} " * 200, created_s=1.0)],
    )
    print(number, flush=True)
    number += 1
"""


@pytest.mark.e2e
def test_when_the_program_is_killed_in_mid_write_then_everything_confirmed_is_there(path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[3]
    )
    assert process.stdout is not None
    confirmed = -1
    while confirmed < 40:
        confirmed = int(process.stdout.readline())
    process.kill()
    with process.stdout as rest:
        confirmed = max([confirmed, *(int(line) for line in rest if line.strip())])
    process.wait()
    with Store(path) as store:
        assert store.take_incident() is None
        messages = store.messages("c")
        assert len(messages) >= confirmed + 1
        assert [one.id for one in messages] == [str(number) for number in range(len(messages))]
        record = store.conversation("c")
        assert record is not None
        assert record.draft == f"draft {len(messages) - 1}"
        assert len(store.search("text 39", limit=5).rows) == 1
