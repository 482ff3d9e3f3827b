"""The front of a worker: takes the host's requests, makes prompts of them, and hands those to the engine.

Threads: `handle` runs on the reader thread and never waits, so a `Cancel` is seen at once however many templates
are being rendered. Rendering, tokenizing and decoding pictures run on two threads of their own, the window's requests
first; two, so that one slow template does not hold up everyone, and no more, since all of them share one interpreter
lock. Pictures and sounds are encoded on one more thread. The engine's thread only drops its outputs into the outbox.
The writer thread parses and sends.

Each request has exactly one ending: whoever takes it out of the registry sends it.
"""

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from runtime.chat.prompt import Prompt, with_stops
from runtime.errors import BadRequest, BugFault, Busy, Failure, RuntimeFault, WorkerDied, to_failure
from runtime.grammar.plan import plan_answer
from runtime.messages.ipc import (
    Cancel,
    Count,
    Counted,
    Embed,
    Failed,
    Finished,
    Generate,
    Rerank,
    TextAsk,
)
from runtime.messages.shared import FinishReason, MediaPart, Message, ModelFacts, PicturePart, Timings, Usage
from runtime.options import MAX_STOPS
from runtime.scheduler.adapters import chosen_adapters
from runtime.scheduler.types import EngineOutput, EngineRequest, PooledTask
from runtime.worker.delivery import Delivery
from runtime.worker.encode_line import EncodeJob, EncodeLine
from runtime.worker.language import Language
from runtime.worker.live import Live, Registry
from runtime.worker.media_prompt import mix
from runtime.worker.media_rows import ReadMedia
from runtime.worker.outbox import Outbox
from runtime.worker.text_tasks import cost_bytes, text_answer

MAX_INPUTS = 2048
"""Texts of one request for vectors or scores, as OpenAI's API allows."""
MAX_UNRENDERED = 256
"""Requests that may wait for their template; behind them stands the engine's own queue."""
MAX_UNRENDERED_BYTES = 256 * 1024 * 1024
"""Text that may wait for its template."""
N_RENDERERS = 2
LARGE_BYTES = 1024 * 1024
"""Texts of this size take the tokenizer a second or more. One of them is read at a time, so that a thread is left
for everyone else. Requests with pictures count as such."""
MESSAGE_COST_BYTES = 64
"""What a message costs beside its text, since its turn marks are read too."""

_log = logging.getLogger(__name__)


class EnginePort(Protocol):
    """What the front needs of `runtime.worker.engine.Engine`; callable from any thread."""

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; raises instead of ending it."""

    def cancel(self, request_id: str) -> None:
        """End a request between two steps."""


class MediaPort(Protocol):
    """What the front needs of `runtime.worker.media.MediaReader`."""

    def read(self, part: MediaPart) -> ReadMedia:
        """Decode a file and cut it up; from several threads."""

    def encode(self, media: ReadMedia) -> None:
        """Give a medium its rows; from one thread."""


class Front:
    """Between the host's messages and the engine's requests."""

    def __init__(
        self,
        language: Language,
        facts: ModelFacts,
        engine: EnginePort,
        outbox: Outbox,
        media: "MediaPort | None" = None,
        model_id: str = "",
    ) -> None:
        """`model_id` is what callers call the model; "" takes the name that the file gives itself."""
        self._language = language
        self._model_id = model_id or facts.name
        self._facts = facts
        self._engine = engine
        self._outbox = outbox
        self._media = media
        self._line = EncodeLine(media.encode) if media is not None else None
        self._registry = Registry()
        self._delivery = Delivery(self._registry)
        self._condition = threading.Condition()
        self._first: deque[Live] = deque()
        self._then: deque[Live] = deque()
        self._waiting_bytes = 0
        self._is_reading_large = False
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._render_all, name=f"render-{i}", daemon=True) for i in range(N_RENDERERS)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self, timeout_s: float) -> bool:
        """Take no more requests; what is not with the engine yet ends as cancelled.

        Says whether the threads have ended, so that the model may be freed.
        """
        with self._condition:
            self._is_closed = True
            waiting = [*self._first, *self._then]
            self._first.clear()
            self._then.clear()
            self._condition.notify_all()
        for live in waiting:
            self._end_cancelled(live)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)
        has_ended = self._line is None or self._line.close(timeout_s)
        return has_ended and not any(thread.is_alive() for thread in self._threads)

    # --- reader thread ------------------------------------------------------------------------------------

    def handle(self, message: Generate | Embed | Count | Rerank | TextAsk | Cancel) -> None:
        """Take a message from the host. Never waits, never raises for what is in it."""
        if isinstance(message, Cancel):
            self._cancel(message.request_id)
            return
        live = Live(message, _cost_bytes(message))
        if "\n" in message.request_id or not self._registry.add(live):
            _log.error("request %r was dropped: its name is taken or not allowed", message.request_id)
            return
        with self._condition:
            n_waiting = len(self._first) + len(self._then)
            is_full = (
                n_waiting >= MAX_UNRENDERED or self._waiting_bytes + live.cost_bytes > MAX_UNRENDERED_BYTES
            ) and n_waiting > 0
            if not is_full and not self._is_closed:
                self._waiting_bytes += live.cost_bytes
                (self._first if getattr(message, "from_window", False) else self._then).append(live)
                self._condition.notify()
                return
        if is_full:
            self._fail(
                live.request_id,
                Busy("Too many requests wait to be read.", hint="Try again.", retry_after_s=1, waiting=n_waiting),
            )
        else:
            self._fail(live.request_id, WorkerDied("The model is being unloaded.", hint="Load it again."))

    def _cancel(self, request_id: str) -> None:
        live = self._registry.cancel(request_id)
        if live is None:
            return
        with self._condition:
            was_waiting = live in self._first or live in self._then
            if was_waiting:
                (self._first if live in self._first else self._then).remove(live)
                self._waiting_bytes -= live.cost_bytes
        if was_waiting:
            self._end_cancelled(live)
        elif live.stage == "encoding" and self._line is not None:
            self._line.drop(live)
            self._end_cancelled(live)
        elif live.stage == "submitted":
            self._engine.cancel(live.request_id)

    # --- engine thread ------------------------------------------------------------------------------------

    def on_outputs(self, outputs: tuple[EngineOutput, ...]) -> None:
        """Take the outputs of one step; never waits."""
        self._outbox.put(outputs)

    # --- writer thread ------------------------------------------------------------------------------------

    @property
    def delivery(self) -> Delivery:
        """What the writer thread uses."""
        return self._delivery

    # --- rendering threads --------------------------------------------------------------------------------

    def _render_all(self) -> None:
        while (live := self._next()) is not None:
            try:
                self._render(live)
            except RuntimeFault as error:
                self._fail(live.request_id, error)
            except Exception as error:  # noqa: BLE001 - the top of this thread; one bad request must not end it
                _log.exception("a request could not be read")
                self._fail(live.request_id, error)
            if live.cost_bytes > LARGE_BYTES:
                with self._condition:
                    self._is_reading_large = False
                    self._condition.notify()

    def _next(self) -> Live | None:
        with self._condition:
            while (live := self._pick()) is None:
                if self._is_closed:
                    return None
                self._condition.wait()
            self._waiting_bytes -= live.cost_bytes
            self._is_reading_large = self._is_reading_large or live.cost_bytes > LARGE_BYTES
            return live

    def _pick(self) -> Live | None:
        """Take the next one that may be read now. Called with the lock held."""
        for line in (self._first, self._then):
            for live in line:
                if live.cost_bytes <= LARGE_BYTES or not self._is_reading_large:
                    line.remove(live)
                    return live
        return None

    def _render(self, live: Live) -> None:
        if not self._registry.advance(live, "rendering"):
            self._end_cancelled(live)
            return
        request = live.request
        if isinstance(request, Count):
            builder = self._language.builder_for(request.messages, request.shape)
            media = self._read_media(request.messages)
            n_tokens = builder.count(request.messages, request.shape, [medium.n_tokens for medium in media])
            counted = Counted(request.request_id, n_tokens, self._language.n_ctx)
            if self._registry.take(request.request_id):
                self._outbox.put((counted,))
        elif isinstance(request, Embed):
            self._render_embed(live, request)
        elif isinstance(request, Generate):
            self._render_generate(live, request)
        elif isinstance(request, Rerank):
            self._render_rerank(live, request)
        else:
            answer = text_answer(request, self._language)
            if self._registry.take(request.request_id):
                self._outbox.put((answer,))

    def _render_generate(self, live: Live, request: Generate) -> None:
        media = self._read_media(request.messages or ())
        prompt = self._prompt(live, request, [medium.n_tokens for medium in media])
        options = (
            with_stops(request.options, self._language.extra_stops, MAX_STOPS)
            if request.messages
            else (request.options)
        )
        live.dropped_turns = prompt.dropped_turns
        if request.messages is not None:
            is_continued = request.continue_last and bool(request.messages[-1].content)
            for choice in range(options.n):
                live.parsers[choice] = self._language.reader(prompt, request.shape, is_continued=is_continued)
        if options.echo and request.messages is None:
            text = self._language.text_of(prompt.tokens) if request.prompt is None else request.prompt
            live.echoes = dict.fromkeys(range(options.n), text)
        kept = media[len(media) - len(prompt.media) :]
        mixed = mix(
            prompt.tokens,
            [(at, medium) for (at, _part), medium in zip(prompt.media, kept, strict=True)],
            prompt.save_points,
        )
        asked = EngineRequest(
            request_id=request.request_id,
            prompt=mixed.tokens,
            options=replace(options, echo=False),
            from_window=request.from_window,
            save_points=mixed.save_points,
            plan=plan_answer(request.shape, prompt.frame, options.sampling.grammar),
            adapters=chosen_adapters(self._facts.adapters, options.lora),
        )
        if self._line is None or not mixed.media:
            self._submit(live, asked)
            return
        if not self._registry.advance(live, "encoding"):
            self._end_cancelled(live)
            return
        self._line.put(
            EncodeJob(
                live,
                mixed,
                submit=lambda: self._submit(live, dataclasses.replace(asked, media=mixed.spans())),
                fail=lambda error: self._fail(live.request_id, error),
            )
        )

    def _read_media(self, messages: Sequence[Message]) -> list[ReadMedia]:
        """The pictures and sounds of a conversation, cut up.

        Raises:
            BadRequest: the model takes none of the kind, or a file cannot be read.
        """
        parts = [part.media for message in messages for part in message.parts if isinstance(part, PicturePart)]
        if not parts:
            return []
        if self._media is None:
            raise BadRequest(
                f"{self._model_id} cannot see pictures or hear sounds.",
                hint="Load a vision model together with its projector (the file whose name begins with mmproj).",
                param="messages",
            )
        found: list[ReadMedia] = []
        n_tokens = 0
        for part in reversed(parts):
            medium = self._media.read(part)
            n_tokens += medium.n_tokens
            if n_tokens > self._language.n_ctx:
                # With those behind it, it can be in no prompt: what is needed is its size alone.
                medium = dataclasses.replace(medium, source=None)
            found.append(medium)
        return found[::-1]

    def _prompt(self, live: Live, request: Generate, media_tokens: Sequence[int]) -> Prompt:
        given = [part for part in (request.messages, request.prompt, request.prompt_tokens) if part is not None]
        if len(given) != 1:
            raise BugFault("A request must have exactly one of messages, prompt and prompt_tokens.")
        if request.messages is not None:
            return self._language.prompt_of_messages(
                request.messages,
                request.options,
                request.shape,
                continue_last=request.continue_last,
                is_wanted=lambda: not live.is_cancelled,
                media_tokens=media_tokens,
            )
        if request.prompt is not None:
            return self._language.prompt_of_text(request.prompt)
        return self._language.prompt_of_tokens(request.prompt_tokens or ())

    def _render_embed(self, live: Live, request: Embed) -> None:
        if not self._facts.can_embed:
            raise BadRequest(
                f"{self._model_id} cannot make embeddings.", hint="Load an embedding model.", param="model"
            )
        if not 0 < len(request.inputs) <= MAX_INPUTS:
            raise BadRequest(f"From 1 to {MAX_INPUTS:,} inputs can be embedded at once.", param="input")
        inputs = tuple(self._language.embedding_tokens(item, truncate=request.truncate) for item in request.inputs)
        self._submit(live, self._pooled(request, PooledTask(inputs, "vector")))

    def _render_rerank(self, live: Live, request: Rerank) -> None:
        if not self._facts.can_rerank:
            raise BadRequest(f"{self._model_id} cannot rank documents.", hint="Load a rerank model.", param="model")
        if not 0 < len(request.documents) <= MAX_INPUTS:
            raise BadRequest(f"From 1 to {MAX_INPUTS:,} documents can be ranked at once.", param="documents")
        inputs = self._language.pairs.tokens(request.query, request.documents)
        self._submit(live, self._pooled(request, PooledTask(inputs, "score")))

    def _pooled(self, request: Embed | Rerank, task: PooledTask) -> EngineRequest:
        adapters = chosen_adapters(self._facts.adapters, request.lora)
        return EngineRequest(request.request_id, (), pooled=task, adapters=adapters)

    def _submit(self, live: Live, request: EngineRequest) -> None:
        if not self._registry.advance(live, "submitted"):
            self._end_cancelled(live)
            return
        self._engine.submit(request)
        if live.is_cancelled:
            # The cancel may have come between the two lines above, when the engine did not know the name yet.
            self._engine.cancel(request.request_id)

    # --- any thread ---------------------------------------------------------------------------------------

    def _fail(self, request_id: str, error: Exception) -> None:
        if self._registry.take(request_id):
            self._outbox.put((Failed(request_id, to_failure(error)),))

    def fail_all(self, failure: Failure) -> None:
        """End every live request with an error; for when the engine is gone."""
        for request_id in self._registry.ids():
            if self._registry.take(request_id):
                self._outbox.put((Failed(request_id, failure),))

    def _end_cancelled(self, live: Live) -> None:
        if self._registry.take(live.request_id):
            n = live.request.options.n if isinstance(live.request, Generate) else 1
            cancelled: FinishReason = "cancelled"
            reasons = tuple(cancelled for _ in range(n))
            self._outbox.put((Finished(live.request_id, reasons, Usage(), Timings(), ("",) * n),))


def _cost_bytes(message: Generate | Embed | Count | Rerank | TextAsk) -> int:
    """Roughly how much memory a request's texts hold."""
    if isinstance(message, TextAsk):
        return cost_bytes(message)
    if isinstance(message, Rerank):
        return sum(map(len, message.documents)) + len(message.query)
    if isinstance(message, Embed):
        return sum(len(item) * (1 if isinstance(item, str) else 8) for item in message.inputs)
    messages: tuple[Message, ...] = message.messages or ()
    total = sum(len(row.content) + len(row.reasoning) + MESSAGE_COST_BYTES for row in messages)
    total += sum(
        LARGE_BYTES + len(part.media.data) for row in messages for part in row.parts if isinstance(part, PicturePart)
    )
    if isinstance(message, Generate):
        total += len(message.prompt or "") + 8 * len(message.prompt_tokens or ())
    return total
