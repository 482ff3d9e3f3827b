"""A worker as the host sees it: a real process, a real socket, the starter model."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import (
    Cancel,
    Count,
    Counted,
    Embed,
    Embedded,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Load,
    LoadFailed,
    LoadProgress,
    PromptProgress,
    Ready,
    Shutdown,
    Step,
)
from runtime.messages.shared import Message
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.worker import process as worker_process
from tests.support.gguf_files import write_tiny_model, write_with_architecture, write_with_template
from tests.support.worker_process import WorkerUnderTest, deltas, text_of

pytestmark = pytest.mark.e2e

GREEDY = SamplingOptions(temperature=0)
N_CTX = 512


def starter() -> Path:
    path = find_starter()
    assert path is not None
    return path


@pytest.fixture(scope="module")
def loading() -> list[FromWorker]:
    """What the shared worker said while it loaded."""
    return []


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, loading: list[FromWorker]) -> Iterator[WorkerUnderTest]:
    with WorkerUnderTest(tmp_path_factory.mktemp("worker") / "worker.log") as started:
        started.send(Load(str(starter()), LoadOptions(n_ctx=N_CTX, n_parallel=4)))
        while not loading or not isinstance(loading[-1], Ready):
            message = started.next()
            assert message is not None, started.log_text()
            loading.append(message)
        yield started


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[WorkerUnderTest]:
    with WorkerUnderTest(tmp_path / "worker.log") as started:
        yield started


def chat(request_id: str, text: str, max_tokens: int = 24, **more: object) -> Generate:
    options = GenerateOptions(max_tokens=max_tokens, sampling=GREEDY, **more)  # type: ignore[arg-type]
    return Generate(request_id, messages=(Message("user", text),), options=options)


def ask_again(worker: WorkerUnderTest, request_id: str) -> None:
    """The worker is well: it answers."""
    messages, finished = worker.answer(chat(request_id, "Say hello.", 8))
    assert finished.request_id == request_id
    assert text_of(messages, request_id)


def test_when_a_model_is_loaded_then_progress_rises_and_the_facts_are_true(
    loading: list[FromWorker], worker: WorkerUnderTest
) -> None:
    assert worker.process.poll() is None
    progress = [message.fraction for message in loading if isinstance(message, LoadProgress)]
    assert len(progress) == len(loading) - 1
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    ready = loading[-1]
    assert isinstance(ready, Ready)
    assert ready.facts.architecture == "llama"
    assert ready.facts.quantization == "Q4_1"
    assert ready.facts.n_ctx == N_CTX
    assert ready.facts.n_parallel == 4
    assert ready.facts.has_chat_template
    assert not ready.facts.reasoning


def test_when_a_worker_starts_then_its_token_stands_in_no_argument_and_no_variable(worker: WorkerUnderTest) -> None:
    process = psutil.Process(worker.process.pid)
    assert not any(worker.token in word for word in process.cmdline())
    assert not any(worker.token in value for value in process.environ().values())


def test_when_a_question_is_asked_then_the_answer_streams_with_exact_counts(worker: WorkerUnderTest) -> None:
    messages, finished = worker.answer(chat("one", "Count from one to ten in words.", 24))
    pieces = deltas(messages, "one")
    assert len(pieces) > 3
    assert sum(delta.n_tokens for delta in pieces) == finished.usage.completion_tokens
    assert len(finished.reasons) == len(finished.stop_strings) == 1
    assert finished.usage.prompt_tokens == [m for m in messages if isinstance(m, PromptProgress)][-1].total
    assert finished.timings.generation_tps > 0
    assert finished.timings.time_to_first_token_s > 0


def test_when_the_next_turn_comes_then_only_what_is_new_is_read(worker: WorkerUnderTest) -> None:
    turns: tuple[Message, ...] = (Message("user", "Name three colours and say something long about each of them."),)
    messages, _ = worker.answer(
        Generate("turn1", messages=turns, options=GenerateOptions(max_tokens=40, sampling=GREEDY))
    )
    turns = (*turns, Message("assistant", text_of(messages, "turn1")), Message("user", "Go on."))
    _, finished = worker.answer(
        Generate("turn2", messages=turns, options=GenerateOptions(max_tokens=4, sampling=GREEDY))
    )
    assert finished.usage.cached_tokens > 0.7 * finished.usage.prompt_tokens


def first_choices(messages: list[FromWorker], request_id: str) -> dict[bytes, float]:
    """The likeliest first tokens with their log probabilities."""
    positions = [
        position
        for message in messages
        if isinstance(message, Step)
        for delta in message.deltas
        if delta.request_id == request_id
        for position in delta.logprobs
    ]
    return {token.token_bytes: token.logprob for token in positions[0].top}


def test_when_several_ask_at_once_then_each_gets_its_own_answer(worker: WorkerUnderTest) -> None:
    things = ("France", "a prime number", "frying an egg", "the moon", "C++", "sleep")
    questions = {f"many{i}": f"Tell me about {thing}." for i, thing in enumerate(things)}
    told: dict[str, object] = {"logprobs": True, "top_logprobs": 5}
    alone = {}
    for name, question in questions.items():
        messages, _ = worker.answer(chat(f"{name}alone", question, 12, **told))
        alone[name] = first_choices(messages, f"{name}alone")
    for name, question in questions.items():
        worker.send(chat(name, question, 12, **told))
    together: list[FromWorker] = []
    for _ in questions:
        messages, finished = worker.collect()
        together += [*messages, finished]
    endings = [message.request_id for message in together if isinstance(message, Finished)]
    assert sorted(endings) == sorted(questions)
    # Sums in a batch are rounded in another order, so a near tie may fall otherwise and the words part: what each
    # was offered is compared, and that another question's offer is far from it.
    for name in questions:
        offered = first_choices(together, name)
        shared = offered.keys() & alone[name].keys()
        assert len(shared) >= 4
        assert all(offered[token] == pytest.approx(alone[name][token], abs=0.3) for token in shared)
    assert len({max(choices, key=lambda token: choices[token]) for choices in alone.values()}) > 1


def test_when_an_answer_is_cancelled_then_it_ends_soon_and_the_worker_goes_on(worker: WorkerUnderTest) -> None:
    worker.send(chat("long", "Tell me a very long story.", 300, ignore_eos=True))
    worker.until(Step)
    asked_at = time.monotonic()
    worker.send(Cancel("long"))
    finished = worker.until(Finished)
    assert finished.request_id == "long"
    assert finished.reasons == ("cancelled",)
    assert finished.usage.completion_tokens < 300
    assert time.monotonic() - asked_at < 5
    worker.send(Cancel("long"))
    worker.send(Cancel("never was"))
    ask_again(worker, "after cancel")


def test_when_a_request_is_cancelled_in_the_same_breath_then_it_still_ends_once(worker: WorkerUnderTest) -> None:
    names = [f"quick{i}" for i in range(12)]
    for name in names:
        worker.send(chat(name, "Tell me a long story. " * 8, 300, ignore_eos=True))
        worker.send(Cancel(name))
    ended = [worker.until(Finished) for _ in names]
    assert sorted(finished.request_id for finished in ended) == sorted(names)
    assert all(finished.reasons == ("cancelled",) for finished in ended)
    ask_again(worker, "after the quick ones")


def test_when_tokens_are_counted_then_it_is_what_a_request_would_have(worker: WorkerUnderTest) -> None:
    worker.send(Count("count", (Message("user", "How many tokens?"),)))
    counted = worker.until(Counted)
    _, finished = worker.answer(chat("counted", "How many tokens?", 1))
    assert counted.n_tokens == finished.usage.prompt_tokens
    assert counted.n_ctx == N_CTX


def test_when_texts_are_embedded_then_each_has_a_unit_vector_and_like_is_near_like(worker: WorkerUnderTest) -> None:
    texts = ("A cat sleeps on the mat.", "A cat is sleeping on a mat.", "Quarterly tax forms are due.", "x", "y")
    worker.send(Embed("embed", texts))
    embedded = worker.until(Embedded)
    vectors = [memoryview(vector).cast("f").tolist() for vector in embedded.vectors]
    assert len(vectors) == len(texts)
    assert all(sum(value * value for value in vector) == pytest.approx(1, abs=1e-3) for vector in vectors)

    def alike(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    assert alike(vectors[0], vectors[1]) > alike(vectors[0], vectors[2])
    assert embedded.usage.prompt_tokens > len(texts)


def test_when_nothing_is_given_to_embed_then_it_is_refused(worker: WorkerUnderTest) -> None:
    worker.send(Embed("nothing", ()))
    assert worker.until(Failed).failure.kind == "BadRequest"


def test_when_plain_text_is_continued_then_it_is_not_put_into_turns(worker: WorkerUnderTest) -> None:
    options = GenerateOptions(max_tokens=6, sampling=GREEDY, echo=True)
    messages, finished = worker.answer(Generate("raw", prompt="The capital of France is", options=options))
    assert text_of(messages, "raw").startswith("The capital of France is Paris")
    assert finished.usage.prompt_tokens == 5
    assert finished.usage.completion_tokens <= 6


def test_when_tokens_are_given_then_they_are_the_prompt(worker: WorkerUnderTest) -> None:
    options = GenerateOptions(max_tokens=2, sampling=GREEDY)
    _, finished = worker.answer(Generate("ids", prompt_tokens=(504, 3575, 282), options=options))
    assert finished.usage.prompt_tokens == 3
    worker.send(Generate("bad ids", prompt_tokens=(504, 10**6), options=options))
    failed = worker.until(Failed)
    assert failed.failure.kind == "BadRequest"
    assert "1000000" in failed.failure.message


def test_when_several_choices_are_asked_then_each_is_told_apart(worker: WorkerUnderTest) -> None:
    request = Generate(
        "choices",
        messages=(Message("user", "Invent a name for a ship."),),
        options=GenerateOptions(max_tokens=10, n=3, sampling=SamplingOptions(temperature=1.5, seed=5)),
    )
    messages, finished = worker.answer(request)
    assert len(finished.reasons) == 3
    texts = [text_of(messages, "choices", choice) for choice in range(3)]
    assert all(texts)
    assert len(set(texts)) > 1


def test_when_an_answer_is_continued_then_it_goes_on_inside_the_same_turn(worker: WorkerUnderTest) -> None:
    begun = (Message("user", "What is the capital of France?"), Message("assistant", "The capital of France is"))
    request = Generate(
        "goes on", messages=begun, options=GenerateOptions(max_tokens=3, sampling=GREEDY), continue_last=True
    )
    messages, _ = worker.answer(request)
    assert text_of(messages, "goes on").startswith(" Paris")


def test_when_the_last_message_is_an_empty_answer_then_it_makes_no_difference(worker: WorkerUnderTest) -> None:
    turns = (Message("user", "Say hello."),)
    options = GenerateOptions(max_tokens=8, sampling=GREEDY)
    plain, one = worker.answer(Generate("plain", messages=turns, options=options))
    empty, other = worker.answer(Generate("empty", messages=(*turns, Message("assistant")), options=options))
    assert text_of(plain, "plain") == text_of(empty, "empty")
    assert one.usage.prompt_tokens == other.usage.prompt_tokens


def test_when_a_conversation_is_too_long_then_it_is_refused_with_both_numbers(worker: WorkerUnderTest) -> None:
    worker.send(chat("too long", "word " * 3000))
    failed = worker.until(Failed)
    assert failed.failure.kind == "ContextExceeded"
    assert failed.failure.details["n_ctx"] == N_CTX
    assert int(failed.failure.details["prompt_tokens"]) > 3000


def test_when_old_turns_may_be_dropped_then_the_answer_says_how_many_were(worker: WorkerUnderTest) -> None:
    old = [
        message
        for i in range(20)
        for message in (Message("user", f"Question {i}: " + "word " * 30), Message("assistant", f"Answer {i}."))
    ]
    request = Generate(
        "dropping",
        messages=(Message("system", "Be short."), *old, Message("user", "Last one?")),
        options=GenerateOptions(max_tokens=4, sampling=GREEDY, context_policy="drop_oldest"),
    )
    messages, finished = worker.answer(request)
    dropped = [message.dropped_turns for message in messages if isinstance(message, PromptProgress)]
    assert dropped
    assert set(dropped) == {dropped[0]}
    assert 0 < dropped[0] < 41
    assert dropped[0] % 2 == 0
    assert finished.usage.prompt_tokens < N_CTX


def test_when_the_host_reads_late_then_nothing_is_lost(worker: WorkerUnderTest) -> None:
    request = chat("prompt", "Tell me a long story.", 40, ignore_eos=True)
    messages, _ = worker.answer(request)
    expected = text_of(messages, "prompt")
    worker.pause_reading()
    worker.send(Generate("late", messages=request.messages, options=request.options))
    # The process is done when its engine rests again; its processor time stands still then.
    process = psutil.Process(worker.process.pid)
    spent_s, before_s = process.cpu_times().user, -1.0
    deadline = time.monotonic() + 60
    while spent_s - before_s > 0.05 and time.monotonic() < deadline:
        before_s = spent_s
        threading.Event().wait(0.5)
        spent_s = process.cpu_times().user
    worker.resume_reading()
    messages, finished = worker.collect()
    assert finished.usage.completion_tokens == 40
    assert sum(delta.n_tokens for delta in deltas(messages, "late")) == 40
    assert text_of(messages, "late")[:20] == expected[:20]


def test_when_time_passes_then_health_is_told_every_second(worker: WorkerUnderTest) -> None:
    while not worker.health.empty():
        worker.health.get()
    worker.health.get(timeout=10)
    started = time.monotonic()
    health = worker.health.get(timeout=10)
    assert 0.5 < time.monotonic() - started < 3
    assert health.resident_bytes > 50_000_000
    assert health.kv_total >= N_CTX
    assert health.step_age_s < health.step_limit_s
    assert health.generated_tokens > 0
    assert 0 < health.decode_share <= 1


def test_when_the_queue_is_full_then_the_next_request_is_refused_with_a_time_to_come_back(
    fresh: WorkerUnderTest,
) -> None:
    fresh.load(starter(), LoadOptions(n_ctx=512, n_parallel=1, max_waiting=1))
    for i in range(8):
        fresh.send(chat(f"flood{i}", "Tell me a long story.", 200, ignore_eos=True))
    failed = fresh.until(Failed)
    assert failed.failure.kind == "Busy"
    assert failed.failure.status == 429
    assert float(failed.failure.details["retry_after_s"]) > 0


def test_when_the_template_is_broken_then_chat_is_refused_with_its_words_and_text_still_works(
    fresh: WorkerUnderTest, tmp_path: Path
) -> None:
    path = write_with_template(starter(), tmp_path / "broken.gguf", "{% for message in %}oops")
    fresh.load(path, LoadOptions(n_ctx=512, n_parallel=1))
    fresh.send(chat("refused", "Hello"))
    failed = fresh.until(Failed)
    assert failed.failure.kind == "TemplateRefused"
    assert failed.failure.status == 400
    assert "line 1" in failed.failure.message
    options = GenerateOptions(max_tokens=2, sampling=GREEDY)
    messages, _ = fresh.answer(Generate("text", prompt="The capital of France is", options=options))
    assert "Paris" in text_of(messages, "text")


def test_when_the_template_opens_a_thought_then_reasoning_is_told_apart(fresh: WorkerUnderTest, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if messages|length > 2 %}{{ raise_exception('only one question, please') }}{% endif %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
    )
    path = write_with_template(starter(), tmp_path / "thinks.gguf", template)
    ready = fresh.load(path, LoadOptions(n_ctx=512, n_parallel=1))
    assert ready.facts.reasoning
    messages, finished = fresh.answer(chat("thought", "What is 2 plus 2?", 12, ignore_eos=True))
    pieces = deltas(messages, "thought")
    assert {delta.kind for delta in pieces} == {"reasoning"}
    assert finished.usage.reasoning_tokens == finished.usage.completion_tokens == 12
    assert sum(delta.n_tokens for delta in pieces) == 12
    three = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    fresh.send(Generate("three", messages=three))
    assert "only one question, please" in fresh.until(Failed).failure.message


def test_when_a_model_has_no_template_then_it_answers_all_the_same(fresh: WorkerUnderTest, tmp_path: Path) -> None:
    path = write_with_template(starter(), tmp_path / "bare.gguf", None)
    ready = fresh.load(path, LoadOptions(n_ctx=512, n_parallel=1))
    assert not ready.facts.has_chat_template
    ask_again(fresh, "bare")


def test_when_the_worker_is_killed_then_the_socket_ends_at_once(fresh: WorkerUnderTest) -> None:
    fresh.load(starter(), LoadOptions(n_ctx=512, n_parallel=1))
    fresh.send(chat("doomed", "Tell me a long story.", 400, ignore_eos=True))
    fresh.until(Step)
    fresh.process.kill()
    while fresh.next() is not None:
        pass
    code = fresh.wait_for_exit()
    assert code == (-signal.SIGKILL if sys.platform != "win32" else 1)


def test_when_the_host_is_gone_then_the_worker_ends_at_once(fresh: WorkerUnderTest) -> None:
    fresh.load(starter(), LoadOptions(n_ctx=512, n_parallel=1))
    fresh.send(chat("orphan", "Tell me a long story.", 400, ignore_eos=True))
    fresh.until(Step)
    started = time.monotonic()
    fresh.close_socket()
    assert fresh.wait_for_exit() == worker_process.EXIT_HOST_GONE
    assert time.monotonic() - started < 5


def test_when_told_to_shut_down_with_time_then_the_running_answer_is_finished(fresh: WorkerUnderTest) -> None:
    fresh.load(starter(), LoadOptions(n_ctx=512, n_parallel=1))
    fresh.send(chat("last words", "Count to five.", 20, ignore_eos=True))
    fresh.until(Step)
    fresh.send(Shutdown(drain_s=30))
    finished = fresh.until(Finished)
    assert finished.reasons == ("length",)
    assert finished.usage.completion_tokens == 20
    assert fresh.wait_for_exit() == 0


def test_when_told_to_shut_down_now_then_every_request_still_ends_once(fresh: WorkerUnderTest) -> None:
    fresh.load(starter(), LoadOptions(n_ctx=512, n_parallel=1))
    names = [f"cut{i}" for i in range(4)]
    for name in names:
        fresh.send(chat(name, "Tell me a long story.", 400, ignore_eos=True))
    fresh.until(Step)
    fresh.send(Shutdown())
    endings = [message for message in iter(fresh.next, None) if isinstance(message, Finished | Failed)]
    assert sorted(ending.request_id for ending in endings) == names
    assert fresh.wait_for_exit() == 0


def test_when_told_to_shut_down_before_anything_is_loaded_then_it_ends(fresh: WorkerUnderTest) -> None:
    fresh.send(Shutdown())
    assert fresh.wait_for_exit() == worker_process.EXIT_OK


def test_when_the_host_sends_noise_then_the_worker_ends_itself(fresh: WorkerUnderTest) -> None:
    fresh.send_raw(b"\x03\x00\x00\x00\xff\xff\xff")
    assert fresh.wait_for_exit() == worker_process.EXIT_PROTOCOL


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda path: path.write_bytes(starter().read_bytes()[:40_000_000]), "FileTruncated", "98.4 MB"),
        (lambda path: write_with_architecture(starter(), path, "zebra"), "UnknownArchitecture", "zebra"),
        (write_tiny_model, "ModelLoadFailed", "llama.cpp"),
    ],
    ids=["cut in tensors", "unknown kind", "nonsense"],
)
def test_when_a_file_cannot_be_loaded_then_the_reason_is_its_own(
    fresh: WorkerUnderTest, tmp_path: Path, make: object, kind: str, words: str
) -> None:
    path = tmp_path / "model.gguf"
    assert callable(make)
    make(path)
    fresh.send(Load(str(path)))
    failure = fresh.until(LoadFailed).failure
    assert failure.kind == kind
    assert words in failure.message
    assert "model.gguf" in failure.message
    assert fresh.wait_for_exit() == worker_process.EXIT_LOAD_FAILED
