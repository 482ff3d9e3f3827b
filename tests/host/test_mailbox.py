"""Messages of a request, bounded without loss."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import Failure
from runtime.host.mailbox import MAX_WAITING, Mailbox
from runtime.messages.ipc import Delta, Failed, Finished, PromptProgress, Queued
from runtime.messages.shared import DeltaKind, PositionLogprobs, Timings, TokenLogprob, ToolCallHead, Usage

KINDS: tuple[DeltaKind, ...] = ("reasoning", "content")


def finished(request_id: str = "r") -> Finished:
    return Finished(request_id, ("stop",), Usage(), Timings())


def test_when_messages_come_then_they_are_taken_in_order() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        mailbox.put(Queued("r", 1))
        mailbox.put(Delta("r", 0, "content", "a"))
        assert await mailbox.take() == [Queued("r", 1), Delta("r", 0, "content", "a")]
        taking = asyncio.create_task(mailbox.take())
        await asyncio.sleep(0)
        mailbox.put(finished())
        assert await taking == [finished()]
        assert mailbox.has_ended

    asyncio.run(run())


def test_when_nothing_comes_then_the_list_is_empty_after_the_patience() -> None:
    assert asyncio.run(Mailbox().take(0.01)) == []


def test_when_a_request_has_ended_then_more_is_ignored() -> None:
    mailbox = Mailbox()
    mailbox.put(Failed("r", Failure("BugFault", "x")))
    mailbox.put(finished())
    assert len(mailbox) == 1


def test_when_it_holds_two_requests_then_it_ends_with_the_second() -> None:
    mailbox = Mailbox(2)
    mailbox.put(finished("a"))
    assert not mailbox.has_ended
    mailbox.put(finished("b"))
    assert mailbox.has_ended


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from(KINDS)), min_size=1, max_size=6))
def test_when_full_then_texts_are_merged_and_nothing_is_lost(pattern: list[tuple[str, int, DeltaKind]]) -> None:
    mailbox = Mailbox(2)
    logprob = PositionLogprobs(TokenLogprob(1, b"x", -1.0))
    sent: dict[tuple[str, int], list[tuple[DeltaKind, str]]] = {}
    n_sent = MAX_WAITING * 3
    for number in range(n_sent):
        request_id, choice, kind = pattern[number * len(pattern) // n_sent]
        mailbox.put(PromptProgress(request_id, number, n_sent, 0))
        mailbox.put(Delta(request_id, choice, kind, f"{number} ", 1, (logprob,)))
        sent.setdefault((request_id, choice), []).append((kind, f"{number} "))
        assert len(mailbox) <= MAX_WAITING + 1
    mailbox.put(finished("a"))
    taken = asyncio.run(mailbox.take())
    deltas = [message for message in taken if isinstance(message, Delta)]
    for (request_id, choice), texts in sent.items():
        own = [delta for delta in deltas if (delta.request_id, delta.choice) == (request_id, choice)]
        for kind in KINDS:
            joined = "".join(delta.text for delta in own if delta.kind == kind)
            assert joined == "".join(text for sent_kind, text in texts if sent_kind == kind)
        runs = [kind for index, (kind, _text) in enumerate(texts) if index == 0 or texts[index - 1][0] != kind]
        got = [delta.kind for index, delta in enumerate(own) if index == 0 or own[index - 1].kind != delta.kind]
        assert got == runs
    assert sum(delta.n_tokens for delta in deltas) == n_sent
    assert sum(len(delta.logprobs) for delta in deltas) == n_sent
    assert isinstance(taken[-1], Finished)


def test_when_full_of_calls_then_each_keeps_its_own_arguments() -> None:
    mailbox = Mailbox()
    heads = [ToolCallHead(index, f"call_{index}", "f") for index in range(3)]
    per_call = MAX_WAITING
    for head in heads:
        for number in range(per_call):
            mailbox.put(Delta("r", 0, "tool_call", f"{number},", 1, (), head))
            assert len(mailbox) <= MAX_WAITING + 1
    arguments: dict[str, str] = {}
    for message in asyncio.run(mailbox.take()):
        assert isinstance(message, Delta)
        assert message.tool_call is not None
        arguments[message.tool_call.id] = arguments.get(message.tool_call.id, "") + message.text
    whole = "".join(f"{number}," for number in range(per_call))
    assert arguments == {head.id: whole for head in heads}
