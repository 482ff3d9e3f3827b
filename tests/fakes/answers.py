"""Values a pretended host tells: models, a machine, answers word by word."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from runtime.errors import Failure, WorkerDied
from runtime.messages.api import (
    ChatDelta,
    ChatEvent,
    ChatFailed,
    ChatFinished,
    ChatProgress,
    ChatQueued,
    InstalledModel,
    LoadedModel,
)
from runtime.messages.hardware import CpuSample, HardwareSample, MemorySample
from runtime.messages.shared import ModelFacts, Timings, ToolCallHead, Usage

MODEL_ID = "smollm2-135m-instruct-q4_1"


def installed_model(model_id: str = MODEL_ID, name: str = "SmolLM2 135M Instruct", **fields: object) -> InstalledModel:
    """A model on disk."""
    return msgspec.structs.replace(
        InstalledModel(
            id=model_id,
            name=name,
            path=f"models/{model_id}.gguf",
            size_bytes=98_362_432,
            publisher="HuggingFaceTB",
            architecture="llama",
            quantization="Q4_1",
            n_params=134_515_008,
            n_ctx_train=8192,
            n_layer=30,
            starter=model_id == MODEL_ID,
        ),
        **fields,
    )


def ready_model(model_id: str = MODEL_ID, name: str = "SmolLM2 135M Instruct", *, n_ctx: int = 4096) -> LoadedModel:
    """A model that answers."""
    facts = ModelFacts(
        name=name,
        architecture="llama",
        quantization="Q4_1",
        n_params=134_515_008,
        size_bytes=98_362_432,
        n_layer=30,
        n_vocab=49_152,
        n_ctx=n_ctx,
        n_ctx_train=8192,
        n_parallel=4,
        has_chat_template=True,
        can_embed=False,
        reasoning=False,
        device_names=("CPU",),
        n_gpu_layers=0,
        kv_bytes=94_371_840,
        compute_bytes=18_350_080,
        load_s=0.4,
        engine="llama.cpp (fake)",
    )
    return LoadedModel(id=model_id, name=name, state="ready", fraction=1.0, facts=facts, pid=4242)


def hardware_sample(at_s: float = 1_000.0) -> HardwareSample:
    """A plain machine without a GPU."""
    return HardwareSample(
        at_s=at_s,
        cpu=CpuSample(name="Fake CPU", cores_physical=2, cores_logical=2, utilisation_percent=12.5, temperature_c=48.0),
        memory=MemorySample(
            total_bytes=24_000_000_000, available_bytes=16_000_000_000, ours_bytes=300_000_000, swap_used_bytes=0
        ),
    )


def words(text: str, *, reasoning: str = "", prompt_tokens: int = 12, cached_tokens: int = 0) -> tuple[ChatEvent, ...]:
    """A whole answer, one token a word (spaces kept), from queueing to its end."""
    events: list[ChatEvent] = [
        ChatQueued(1),
        ChatProgress(0, prompt_tokens),
        ChatProgress(prompt_tokens, prompt_tokens),
    ]
    for kind, whole in (("reasoning", reasoning), ("content", text)):
        pieces = [piece for piece in whole.replace(" ", "\0 ").split("\0") if piece]
        events += [ChatDelta("reasoning" if kind == "reasoning" else "content", piece, n_tokens=1) for piece in pieces]
    n_tokens = sum(event.n_tokens for event in events if isinstance(event, ChatDelta))
    events.append(finished(n_tokens, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens))
    return tuple(events)


def calls(*made: tuple[str, str], text: str = "", prompt_tokens: int = 12) -> tuple[ChatEvent, ...]:
    """An answer that calls tools: names and arguments. Ids are "call-0", "call-1", ..."""
    deltas = [
        ChatDelta("tool_call", arguments, n_tokens=5, tool_call=ToolCallHead(at, f"call-{at}", name))
        for at, (name, arguments) in enumerate(made)
    ]
    end = msgspec.structs.replace(finished(5 * len(made), prompt_tokens=prompt_tokens), reasons=("tool_calls",))
    before = (ChatDelta("content", text, n_tokens=1),) if text else ()
    return (ChatProgress(prompt_tokens, prompt_tokens), *before, *deltas, end)


def long_answer(n_tokens: int, *, prompt_tokens: int = 12) -> tuple[ChatEvent, ...]:
    """An answer of `n_tokens` tokens: paragraphs of ten short lines, deterministic."""
    deltas = [
        ChatDelta(
            "content",
            f" word{index}" + ("\n\n" if index % 200 == 199 else "\n" if index % 20 == 19 else ""),
            n_tokens=1,
        )
        for index in range(n_tokens)
    ]
    return (ChatProgress(prompt_tokens, prompt_tokens), *deltas, finished(n_tokens, prompt_tokens=prompt_tokens))


def finished(n_tokens: int, *, prompt_tokens: int = 12, cached_tokens: int = 0) -> ChatFinished:
    """The end of an answer at 50 tokens a second."""
    return ChatFinished(
        reasons=("stop",),
        usage=Usage(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, completion_tokens=n_tokens),
        timings=Timings(
            queue_s=0.001,
            prompt_s=0.1,
            time_to_first_token_s=0.12,
            generation_s=n_tokens / 50,
            prompt_tps=120.0,
            generation_tps=50.0,
        ),
        model=MODEL_ID,
    )


WORKER_DIED = Failure(
    kind=WorkerDied.__name__,
    message="The process that ran the model ended (signal 9).",
    hint="It is being started again; try once more in a moment.",
    status=503,
)
"""How an answer ends when its worker was killed."""


@dataclass(frozen=True)
class Reply:
    """What one chat request gets.

    Attributes:
        events: sent in order.
        pace_s: pause between events.
        hold_after: after so many events the stream waits for `FakeHost.release`.
        cut_after: after so many events the connection is cut without an end.
        refuse: instead of a stream, this error with its status.
        events_per_write: how many events share one write to the socket.
    """

    events: Sequence[ChatEvent] = ()
    pace_s: float = 0.0
    hold_after: int | None = None
    cut_after: int | None = None
    refuse: Failure | None = None
    events_per_write: int = 1


def worker_dies(text: str) -> Reply:
    """Some text, then the worker is gone."""
    return Reply((*words(text)[:-1], ChatFailed(WORKER_DIED)))
