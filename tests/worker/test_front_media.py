"""The front with pictures: read, counted, encoded beside the engine, cancelled."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from runtime.errors import BadRequest, GenerationFailed
from runtime.messages.ipc import Cancel, Count, Counted, Failed, Finished, Generate
from runtime.messages.shared import MediaPart, Message, PicturePart, TextPart
from runtime.options import GenerateOptions
from runtime.scheduler.media import placeholders
from runtime.worker.media_rows import Chunk, ReadMedia
from tests.support.front_desk import WAIT_S, Desk

N_ROWS = 30
BASE = np.arange(N_ROWS, dtype=np.int32).reshape(1, -1)


class FakeMedia:
    """Every picture is 30 rows between two marks; encoding waits at a gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.encoded: list[bytes] = []
        self.error: Exception | None = None

    def read(self, part: MediaPart) -> ReadMedia:
        if part.data == b"bad":
            raise BadRequest("A picture cannot be read.", param="messages")
        chunk = Chunk(placeholders(part.data, N_ROWS), N_ROWS, True, BASE, np.ones_like(BASE))
        return ReadMedia(part.data, part.kind, ((1,), chunk, (2,)), source=object())

    def encode(self, media: ReadMedia) -> None:
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        self.encoded.append(media.key)
        media.rows = (np.zeros((N_ROWS, 4), dtype=np.float32),)


@pytest.fixture
def media() -> FakeMedia:
    return FakeMedia()


@pytest.fixture
def desk(media: FakeMedia) -> Iterator[Desk]:
    made = Desk(media=media)
    yield made
    media.gate.set()
    assert made.front.close(WAIT_S)


def wait_for_stage(desk: Desk, name: str) -> None:
    """Until it is with the thread that encodes."""
    deadline = time.monotonic() + WAIT_S
    while (live := desk.front._registry.get(name)) is None or live.stage != "encoding":
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def picture(name: str, text: str = "what?") -> Message:
    part = PicturePart(MediaPart("image", name.encode(), "image/png"))
    return Message("user", text, parts=(TextPart(text), part))


def test_when_a_message_has_a_picture_then_its_rows_stand_in_the_prompt(desk: Desk, media: FakeMedia) -> None:
    desk.front.handle(Generate("a", messages=(picture("cat"),)))
    request = desk.engine.wait_for("a")
    (span,) = request.media
    assert request.prompt[span.start : span.end] == placeholders(b"cat", N_ROWS)
    assert (request.prompt[span.start - 1], request.prompt[span.end]) == (1, 2)
    text = desk.vocab.shown(request.prompt[: span.start - 1] + request.prompt[span.end + 1 :])
    assert text == "[<|im_start|>]user\nwhat?[<|im_end|>]\n[<|im_start|>]assistant\n"
    assert max(request.save_points) > span.end
    assert media.encoded == [b"cat"]


def test_when_counted_then_pictures_count_and_nothing_is_encoded(desk: Desk, media: FakeMedia) -> None:
    counted = {}
    for name, message in (("with", picture("cat")), ("without", Message("user", "what?"))):
        desk.front.handle(Count(name, (message,)))
        (answer,) = desk.take()
        assert isinstance(answer, Counted)
        counted[name] = answer.n_tokens
    assert counted["with"] - counted["without"] == N_ROWS + 2
    assert not media.encoded


def test_when_old_turns_are_dropped_then_the_pictures_left_are_the_last_ones(desk: Desk) -> None:
    turns: list[Message] = []
    for number in range(40):
        turns += [picture(f"p{number}"), Message("assistant", "I see.")]
    turns.append(Message("user", "And?"))
    options = GenerateOptions(context_policy="drop_oldest", max_tokens=10)
    desk.front.handle(Generate("a", messages=tuple(turns), options=options))
    request = desk.engine.wait_for("a")
    assert len(request.prompt) <= 990
    last = [request.prompt[span.start] for span in request.media]
    assert last == [placeholders(b"p%d" % number, 1)[0] for number in range(40 - len(last), 40)]


def test_when_pictures_alone_are_longer_than_the_context_then_the_request_is_refused(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=tuple(picture(f"p{number}") for number in range(40))))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "ContextExceeded"
    tokens = failed.failure.details["prompt_tokens"]
    assert isinstance(tokens, int)
    assert tokens > 40 * N_ROWS


def test_when_a_picture_is_being_encoded_then_other_requests_go_on(desk: Desk, media: FakeMedia) -> None:
    media.gate.clear()
    desk.front.handle(Generate("slow", messages=(picture("cat"),)))
    assert media.entered.wait(WAIT_S)
    desk.front.handle(Generate("quick", messages=(Message("user", "hello"),)))
    desk.engine.wait_for("quick")
    assert "slow" not in desk.engine.requests
    media.gate.set()
    desk.engine.wait_for("slow")


def test_when_cancelled_while_encoding_then_it_ends_at_once_and_never_reaches_the_engine(
    desk: Desk, media: FakeMedia
) -> None:
    media.gate.clear()
    for name in ("running", "behind"):
        desk.front.handle(Generate(name, messages=(picture(name),)))
    assert media.entered.wait(WAIT_S)
    for name in ("behind", "running"):
        wait_for_stage(desk, name)
        desk.front.handle(Cancel(name))
        (ended,) = desk.take()
        assert isinstance(ended, Finished)
        assert (ended.request_id, ended.reasons) == (name, ("cancelled",))
    media.gate.set()
    desk.front.handle(Generate("next", messages=(picture("next"),)))
    desk.engine.wait_for("next")
    assert set(desk.engine.requests) == {"next"}
    assert b"behind" not in media.encoded


def test_when_a_picture_cannot_be_read_or_encoded_then_only_its_request_fails(desk: Desk, media: FakeMedia) -> None:
    desk.front.handle(Generate("a", messages=(picture("bad"),)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "BadRequest"
    media.error = GenerationFailed("no memory")
    desk.front.handle(Generate("b", messages=(picture("cat"),)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.message == "no memory"
    media.error = None
    desk.front.handle(Generate("c", messages=(picture("cat"),)))
    desk.engine.wait_for("c")


def test_when_the_model_has_no_projector_then_a_picture_gets_a_helpful_refusal() -> None:
    desk = Desk()
    desk.front.handle(Generate("a", messages=(picture("cat"),)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.status == 400
    assert "cannot see" in failed.failure.message
    assert "projector" in failed.failure.hint
    desk.front.close(WAIT_S)
