"""The front with an engine that does what the test says."""

import datetime
import struct
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from runtime.errors import Busy, Failure, GenerationFailed, to_failure
from runtime.messages.ipc import (
    Cancel,
    Count,
    Counted,
    Delta,
    Embed,
    Embedded,
    Failed,
    Finished,
    FromWorker,
    Generate,
    PromptProgress,
    Queued,
    Rerank,
    Reranked,
    Step,
)
from runtime.messages.shared import (
    FinishReason,
    Message,
    PositionLogprobs,
    Timings,
    TokenLogprob,
    Usage,
)
from runtime.options import GenerateOptions
from runtime.scheduler.types import Done, Ended, EngineRequest, PromptRead, Text, Waiting
from runtime.worker import delivery as delivery_module
from runtime.worker import front as front_module
from runtime.worker.front import Front
from runtime.worker.language import HeaderWords, Language
from tests.support.front_desk import CHATML, FACTS, HELLO, THINKING, WAIT_S, Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.front.close(WAIT_S)


def done(request_id: str, n: int = 1, *, completion_tokens: int = 1, vectors: tuple[bytes, ...] = ()) -> Done:
    usage = Usage(prompt_tokens=5, completion_tokens=completion_tokens)
    stop: FinishReason = "stop"
    return Done(request_id, tuple(stop for _ in range(n)), ("",) * n, usage, Timings(), vectors)


def all_deltas(messages: list[FromWorker]) -> list[Delta]:
    return [delta for message in messages if isinstance(message, Step) for delta in message.deltas]


def test_conversation_when_generated_then_is_rendered_submitted_streamed_and_finished(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO, options=GenerateOptions(max_tokens=7), from_window=True))
    request = desk.engine.wait_for("a")
    assert desk.vocab.shown(request.prompt) == "[<|im_start|>]user\nhello[<|im_end|>]\n[<|im_start|>]assistant\n"
    assert request.options.max_tokens == 7
    assert request.from_window
    assert request.save_points
    assert desk.say(Waiting("a", 2), PromptRead("a", 3, 9, 1)) == [Queued("a", 2), PromptProgress("a", 3, 9, 1)]
    assert desk.say(Text("a", 0, "Hi", 1), Text("a", 0, " you", 1)) == [Step((Delta("a", 0, "content", "Hi you", 2),))]
    ending = desk.say(Text("a", 0, "!", 1), done("a", completion_tokens=3))
    assert ending == [
        Step((Delta("a", 0, "content", "!", 1),)),
        Finished("a", ("stop",), Usage(5, 0, 3), Timings(), ("",)),
    ]
    assert desk.say(Text("a", 0, "late", 1), done("a")) == []


def test_several_requests_when_in_one_step_then_one_message_carries_all_their_text(desk: Desk) -> None:
    for name in "abc":
        desk.front.handle(Generate(name, messages=HELLO))
        desk.engine.wait_for(name)
    messages = desk.say(*(Text(name, 0, name, 1) for name in "abc"))
    assert len(messages) == 1
    assert [delta.request_id for delta in all_deltas(messages)] == ["a", "b", "c"]


def test_engine_that_refuses_when_submitted_then_the_request_fails_once_with_its_words(desk: Desk) -> None:
    desk.engine.refusal = Busy("The queue is full.", retry_after_s=3.0, waiting=32)
    desk.front.handle(Generate("a", messages=HELLO))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "Busy"
    assert failed.failure.details["retry_after_s"] == 3.0
    desk.engine.refusal = None
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")


def test_engine_error_when_it_ends_a_request_then_the_failure_is_passed_on(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")
    failure = to_failure(GenerationFailed("llama.cpp refused a batch.", llama_code=-1))
    assert desk.say(Text("a", 0, "so far", 1), Ended("a", failure)) == [
        Step((Delta("a", 0, "content", "so far", 1),)),
        Failed("a", failure),
    ]


def test_cancel_when_still_waiting_for_its_template_then_ends_without_the_engine() -> None:
    desk = Desk(start=False)
    desk.front.handle(Generate("a", messages=HELLO, options=GenerateOptions(n=2)))
    desk.front.handle(Cancel("a"))
    (finished,) = desk.take()
    assert isinstance(finished, Finished)
    assert finished.reasons == ("cancelled", "cancelled")
    desk.start()
    desk.front.handle(Generate("b", messages=HELLO))
    desk.engine.wait_for("b")
    assert "a" not in desk.engine.requests
    desk.front.close(WAIT_S)


def test_cancel_when_the_template_is_being_rendered_then_ends_without_the_engine() -> None:
    desk = Desk("{{ strftime_now('%Y') }}" + CHATML)
    clock_asked, go_on = threading.Event(), threading.Event()

    def slow_clock() -> datetime.datetime:
        clock_asked.set()
        assert go_on.wait(WAIT_S)
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    builder = desk.front._language.builder
    builder._template._clock = slow_clock
    desk.front.handle(Generate("a", messages=HELLO))
    assert clock_asked.wait(WAIT_S)
    desk.front.handle(Cancel("a"))
    go_on.set()
    (finished,) = desk.take()
    assert isinstance(finished, Finished)
    assert finished.reasons == ("cancelled",)
    assert desk.engine.requests == {}
    desk.front.close(WAIT_S)


def test_cancel_when_it_comes_during_the_submit_then_reaches_the_engine_after_it(desk: Desk) -> None:
    desk.engine.gate.clear()
    desk.front.handle(Generate("a", messages=HELLO))
    assert desk.engine.entered.wait(WAIT_S)
    desk.front.handle(Cancel("a"))
    assert desk.engine.cancelled == ["a"]
    desk.engine.gate.set()
    desk.engine.wait_for("a")
    with desk.engine._changed:
        assert desk.engine._changed.wait_for(lambda: desk.engine.cancelled == ["a", "a"], WAIT_S)


def test_cancel_when_running_or_unknown_then_goes_to_the_engine_or_nowhere(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")
    desk.front.handle(Cancel("a"))
    desk.front.handle(Cancel("b"))
    assert desk.engine.cancelled == ["a"]


def test_slow_template_when_others_come_then_they_do_not_wait_for_it_and_cancel_is_read() -> None:
    desk = Desk("{% if messages[0].content == 'slow' %}{{ strftime_now('%Y') }}{% endif %}" + CHATML)
    entered, go_on = threading.Event(), threading.Event()

    class SlowTokenizer:
        def __getattr__(self, name: str) -> object:
            return getattr(desk.vocab, name)

        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            if "slow" in text:
                entered.set()
                assert go_on.wait(WAIT_S)
            return desk.vocab.tokenize(text, add_special=add_special, parse_special=parse_special)

    desk.front._language.builder._guard._tokenizer = SlowTokenizer()  # type: ignore[assignment]
    desk.front.handle(Generate("slow", messages=(Message("user", "slow"),)))
    assert entered.wait(WAIT_S)
    desk.front.handle(Generate("fast", messages=HELLO))
    desk.engine.wait_for("fast")
    desk.front.handle(Cancel("fast"))
    desk.engine.wait_for_cancel("fast")
    go_on.set()
    desk.engine.wait_for("slow")
    desk.front.close(WAIT_S)


def test_windows_request_when_others_wait_for_their_template_then_comes_first() -> None:
    desk = Desk(start=False)
    order: list[str] = []
    submit = desk.engine.submit

    def note(request: EngineRequest) -> None:
        order.append(request.request_id)
        submit(request)

    desk.engine.submit = note  # type: ignore[method-assign]
    for i in range(20):
        desk.front.handle(Generate(f"api{i}", messages=HELLO))
    desk.front.handle(Generate("window", messages=HELLO, from_window=True))
    desk.start()
    desk.engine.wait_for("api19")
    desk.engine.wait_for("window")
    assert order.index("window") <= 1
    desk.front.close(WAIT_S)


def test_flood_when_more_wait_than_may_then_the_next_is_refused_with_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_UNRENDERED", 3)
    desk = Desk(start=False)
    for i in range(4):
        desk.front.handle(Generate(f"r{i}", messages=HELLO))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.request_id == "r3"
    assert failed.failure.status == 429
    assert failed.failure.details["retry_after_s"] == 1


def test_flood_of_large_texts_when_over_the_bound_then_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_UNRENDERED_BYTES", 1000)
    desk = Desk(start=False)
    desk.front.handle(Generate("one", messages=(Message("user", "x" * 900),)))
    desk.front.handle(Generate("two", messages=(Message("user", "x" * 900),)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.request_id == "two"


def test_large_texts_when_several_wait_then_a_small_one_is_read_beside_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_module, "LARGE_BYTES", 150)
    desk = Desk(start=False)
    submit = desk.engine.submit
    entered = threading.Event()
    gate = threading.Event()

    def held_back(request: EngineRequest) -> None:
        if request.request_id == "large0":
            entered.set()
            assert gate.wait(WAIT_S)
        submit(request)

    monkeypatch.setattr(desk.engine, "submit", held_back)
    for i in range(3):
        desk.front.handle(Generate(f"large{i}", messages=(Message("user", "x" * 100),)))
    desk.front.handle(Generate("small", messages=HELLO))
    desk.front.start()
    try:
        assert entered.wait(WAIT_S)
        desk.engine.wait_for("small")
        assert list(desk.engine.requests) == ["small"]
    finally:
        gate.set()
    for i in range(3):
        desk.engine.wait_for(f"large{i}")
    desk.front.close(WAIT_S)


def test_name_that_is_taken_when_used_again_then_the_first_request_is_untouched(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")
    desk.front.handle(Generate("a", messages=HELLO))
    assert [m for m in desk.say(done("a")) if isinstance(m, Finished | Failed)] == [
        Finished("a", ("stop",), Usage(5, 0, 1), Timings(), ("",))
    ]


def test_thought_when_streamed_then_is_told_apart_and_counted() -> None:
    desk = Desk(THINKING)
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")
    messages = desk.say(*(Text("a", 0, text, 1) for text in ("Let", " me", "\n", "</th", "ink>", "\n\n", "Yes", ".")))
    assert all_deltas(messages) == [Delta("a", 0, "reasoning", "Let me", 2), Delta("a", 0, "content", "Yes.", 6)]
    (finished,) = desk.say(done("a", completion_tokens=8))
    assert isinstance(finished, Finished)
    assert finished.usage.reasoning_tokens == 5
    desk.front.close(WAIT_S)


def test_text_that_is_still_held_back_when_the_answer_ends_then_comes_before_the_ending() -> None:
    desk = Desk(THINKING)
    desk.front.handle(Generate("a", messages=HELLO))
    desk.engine.wait_for("a")
    messages = desk.say(Text("a", 0, "Hm </thi", 2), done("a", completion_tokens=2))
    assert all_deltas(messages) == [Delta("a", 0, "reasoning", "Hm </thi", 2)]
    assert isinstance(messages[-1], Finished)
    assert messages[-1].usage.reasoning_tokens == 2
    desk.front.close(WAIT_S)


def test_logprobs_when_asked_then_stay_with_their_text(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO, options=GenerateOptions(logprobs=True)))
    desk.engine.wait_for("a")
    positions = tuple(PositionLogprobs(TokenLogprob(i, b"x", -0.5)) for i in range(2))
    messages = desk.say(Text("a", 0, "x", 1, positions[:1]), Text("a", 0, "x", 1, positions[1:]))
    assert all_deltas(messages) == [Delta("a", 0, "content", "xx", 2, positions)]


def test_very_long_texts_when_delivered_then_come_in_several_messages(desk: Desk) -> None:
    for name in "ab":
        desk.front.handle(Generate(name, messages=HELLO))
        desk.engine.wait_for(name)
    long = "x" * delivery_module.MAX_STEP_CHARS
    messages = desk.say(Text("a", 0, long, 9), Text("b", 0, long, 9), Text("a", 0, "!", 1))
    assert [len(message.deltas) for message in messages if isinstance(message, Step)] == [1, 1, 1]
    assert sum(len(delta.text) for delta in all_deltas(messages)) == 2 * len(long) + 1


def test_prompt_when_to_be_repeated_then_stands_before_each_choice(desk: Desk) -> None:
    desk.front.handle(Generate("a", prompt="Once", options=GenerateOptions(echo=True, n=2)))
    request = desk.engine.wait_for("a")
    assert desk.vocab.shown(request.prompt) == "Once"
    messages = desk.say(Text("a", 1, " b", 1), Text("a", 0, " a", 1), done("a", 2))
    texts = {choice: "".join(d.text for d in all_deltas(messages) if d.choice == choice) for choice in (0, 1)}
    assert texts == {0: "Once a", 1: "Once b"}


def test_prompt_when_only_to_be_read_and_repeated_then_is_the_whole_answer(desk: Desk) -> None:
    desk.front.handle(Generate("a", prompt_tokens=(0, 1104), options=GenerateOptions(echo=True, max_tokens=0)))
    desk.engine.wait_for("a")
    assert all_deltas(desk.say(done("a", completion_tokens=0))) == [Delta("a", 0, "content", "<|im_start|>h", 0)]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Generate("a"), "BugFault"),
        (Generate("a", messages=HELLO, prompt="x"), "BugFault"),
        (Generate("a", messages=()), "BadRequest"),
        (Generate("a", prompt=""), "BadRequest"),
        (Generate("a", prompt_tokens=(2**31,)), "BadRequest"),
        (Generate("a", messages=(Message("user", "x" * 2000),)), "ContextExceeded"),
        (Count("a", ()), "BadRequest"),
        (Embed("a", ()), "BadRequest"),
        (Embed("a", ("x",) * 2049), "BadRequest"),
        (Embed("a", ("",)), "BadRequest"),
    ],
)
def test_request_that_makes_no_sense_when_handled_then_fails_once_and_says_why(
    desk: Desk, request_: Generate | Count | Embed, kind: str
) -> None:
    desk.front.handle(request_)
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.kind == kind
    assert failed.failure.message
    assert desk.front._registry.ids() == []


def test_model_without_a_template_when_asked_then_stops_where_the_person_would_speak() -> None:
    desk = Desk(None)
    desk.vocab.control = ()
    language = Language(
        desk.vocab, HeaderWords((), ()), n_ctx=1000, clock=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    )
    front = Front(language, FACTS, desk.engine, desk.outbox)
    front.start()
    front.handle(Generate("a", messages=HELLO))
    request = desk.engine.wait_for("a")
    assert desk.vocab.shown(request.prompt) == "User: hello\nAssistant:"
    assert request.options.stop == ("\nUser:",)
    front.close(WAIT_S)
    desk.front.close(WAIT_S)


@pytest.mark.parametrize(("model_id", "told"), [("some-model-q4_k_m", "some-model-q4_k_m"), ("", FACTS.name)])
def test_model_that_cannot_embed_when_asked_then_is_named_as_callers_name_it(
    desk: Desk, model_id: str, told: str
) -> None:
    language = Language(
        desk.vocab, HeaderWords((), ()), n_ctx=1000, clock=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    )
    front = Front(language, replace(FACTS, can_embed=False), desk.engine, desk.outbox, model_id=model_id)
    front.start()
    front.handle(Embed("e", ("x",)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.message == f"{told} cannot make embeddings."
    front.close(WAIT_S)


def test_count_when_asked_then_is_answered_without_the_engine(desk: Desk) -> None:
    desk.front.handle(Count("c", HELLO))
    (counted,) = desk.take()
    assert isinstance(counted, Counted)
    assert counted.n_ctx == 1000
    assert counted.n_tokens == len("user\nhello\nassistant\n") + 3
    assert desk.engine.requests == {}


def test_texts_to_embed_then_are_one_request_and_its_vectors_keep_their_order(desk: Desk) -> None:
    desk.front.handle(Embed("e", ("one", (1100, 1101))))
    task = desk.engine.wait_for("e").pooled
    assert task is not None
    assert task.kind == "vector"
    assert [desk.vocab.shown(tokens) for tokens in task.inputs] == ["one", "de"]
    (embedded,) = desk.say(done("e", vectors=(b"1111", b"2222")))
    assert embedded == Embedded("e", (b"1111", b"2222"), Usage(prompt_tokens=5, completion_tokens=1))


def test_texts_to_embed_when_too_long_then_are_cut_only_if_that_was_asked_for(desk: Desk) -> None:
    desk.front.handle(Embed("e", ("x" * 2000, "ab"), truncate=True))
    task = desk.engine.wait_for("e").pooled
    assert task is not None
    assert [len(tokens) for tokens in task.inputs] == [1000, 2]
    desk.front.handle(Embed("f", ("x" * 2000,)))
    task = desk.engine.wait_for("f").pooled
    assert task is not None
    assert len(task.inputs[0]) == 2000


def test_texts_to_embed_when_cancelled_then_the_engine_hears_it_and_they_end_as_cancelled(desk: Desk) -> None:
    desk.front.handle(Embed("e", ("one", "two", "three")))
    desk.engine.wait_for("e")
    desk.front.handle(Cancel("e"))
    assert desk.engine.cancelled == ["e"]
    (finished,) = desk.say(Done("e", ("cancelled",), ("",), Usage(), Timings()))
    assert isinstance(finished, Finished)
    assert finished.reasons == ("cancelled",)


def test_texts_to_embed_when_the_engine_refuses_then_fail(desk: Desk) -> None:
    desk.engine.refusal = Busy("full", retry_after_s=1)
    desk.front.handle(Embed("e", ("one", "two")))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)


def test_documents_to_rank_then_stand_with_the_query_and_scores_keep_their_order() -> None:
    desk = Desk(can_rerank=True)
    desk.front.handle(Rerank("r", "q", ("one", "two")))
    task = desk.engine.wait_for("r").pooled
    assert task is not None
    assert task.kind == "score"
    assert [desk.vocab.shown(tokens) for tokens in task.inputs] == ["qone", "qtwo"]
    (ranked,) = desk.say(done("r", vectors=(struct.pack("<f", 0.5), struct.pack("<f", -2.0))))
    assert ranked == Reranked("r", (0.5, -2.0), Usage(prompt_tokens=5, completion_tokens=1))
    desk.front.close(WAIT_S)


def test_model_that_cannot_rank_when_asked_to_then_says_so(desk: Desk) -> None:
    desk.front.handle(Rerank("r", "q", ("one",)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert "rank" in failed.failure.message


def test_model_that_cannot_embed_when_asked_to_then_says_so() -> None:
    desk = Desk(can_embed=False)
    desk.front.handle(Embed("e", ("x",)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert "embed" in failed.failure.message
    desk.front.close(WAIT_S)


def test_front_when_closed_then_what_waits_ends_as_cancelled_and_what_comes_is_refused() -> None:
    desk = Desk(start=False)
    desk.front.handle(Generate("a", messages=HELLO))
    desk.front.close(WAIT_S)
    desk.front.handle(Generate("b", messages=HELLO))
    finished, failed = desk.take()
    assert isinstance(finished, Finished)
    assert isinstance(failed, Failed)
    assert (finished.request_id, failed.request_id) == ("a", "b")


def test_engine_that_is_gone_when_all_are_failed_then_each_ends_once(desk: Desk) -> None:
    for name in "ab":
        desk.front.handle(Generate(name, messages=HELLO))
        desk.engine.wait_for(name)
    failure = Failure("WorkerDied", "gone")
    desk.front.fail_all(failure)
    desk.front.fail_all(failure)
    assert desk.say(done("a")) == [Failed("a", failure), Failed("b", failure)]
