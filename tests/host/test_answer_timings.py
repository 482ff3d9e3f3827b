"""Timings in the answers of dialects: drafts are told where there were any."""

import msgspec

from runtime.host.api.openai_answer import timings_shape
from runtime.messages.shared import Timings, Usage


def test_when_tokens_were_guessed_then_their_counts_are_in_the_timings() -> None:
    usage = Usage(10, 2, 8)
    told = msgspec.to_builtins(timings_shape(usage, Timings(draft_tokens=6, draft_accepted=5)))
    assert (told["draft_n"], told["draft_n_accepted"]) == (6, 5)
    plain = msgspec.to_builtins(timings_shape(usage, Timings()))
    assert "draft_n" not in plain
    assert plain["predicted_n"] == 8
    assert plain["cache_n"] == 2
