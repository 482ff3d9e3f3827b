"""A front with an engine that does what the test says."""

import datetime
import threading

from msgspec.structs import replace

from runtime.errors import RuntimeFault
from runtime.messages.ipc import (
    FromWorker,
)
from runtime.messages.shared import (
    Message,
    ModelFacts,
)
from runtime.scheduler.types import EngineOutput, EngineRequest
from runtime.worker.front import Front, MediaPort
from runtime.worker.language import HeaderWords, Language
from runtime.worker.outbox import Outbox
from tests.support.tokenizers import CharacterTokenizer

WAIT_S = 30.0
CONTROL = ("<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
THINKING = CHATML.replace("assistant\n'", "assistant\n<think>\n'")
HELLO = (Message("user", "hello"),)
FACTS = ModelFacts(
    name="fake", architecture="fake", quantization="", n_params=1, size_bytes=1, n_layer=1, n_vocab=1, n_ctx=1000,
    n_ctx_train=1000, n_parallel=2, has_chat_template=True, can_embed=True, reasoning=False, device_names=("CPU",),
    n_gpu_layers=0, kv_bytes=0, compute_bytes=0, load_s=0, engine="fake",
)  # fmt: skip


class FakeEngine:
    """Remembers what it is handed; refuses when told to; can hold a submit back."""

    def __init__(self) -> None:
        self.requests: dict[str, EngineRequest] = {}
        self.cancelled: list[str] = []
        self.refusal: RuntimeFault | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self._changed = threading.Condition()

    def submit(self, request: EngineRequest) -> None:
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        if self.refusal is not None:
            raise self.refusal
        with self._changed:
            self.requests[request.request_id] = request
            self._changed.notify_all()

    def cancel(self, request_id: str) -> None:
        with self._changed:
            self.cancelled.append(request_id)
            self._changed.notify_all()

    def wait_for(self, request_id: str) -> EngineRequest:
        with self._changed:
            assert self._changed.wait_for(lambda: request_id in self.requests, WAIT_S)
            return self.requests[request_id]

    def wait_for_cancel(self, request_id: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: request_id in self.cancelled, WAIT_S)


class Desk:
    """A front with its fake engine; `take` is the writer's next batch."""

    def __init__(
        self,
        template: str | None = CHATML,
        *,
        start: bool = True,
        can_embed: bool = True,
        can_rerank: bool = False,
        media: MediaPort | None = None,
    ) -> None:
        self.engine = FakeEngine()
        self.outbox = Outbox()
        self.vocab = CharacterTokenizer(CONTROL, chat_template=template)
        language = Language(
            self.vocab,
            HeaderWords(CONTROL, ()),
            n_ctx=1000,
            clock=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )
        facts = replace(FACTS, can_embed=can_embed, can_rerank=can_rerank)
        self.front = Front(language, facts, self.engine, self.outbox, media)
        self._started = start
        if start:
            self.front.start()

    def say(self, *outputs: EngineOutput) -> list[FromWorker]:
        self.front.on_outputs(outputs)
        return self.take()

    def take(self) -> list[FromWorker]:
        items = self.outbox.take()
        assert items is not None
        return self.front.delivery.translate(items)

    def start(self) -> None:
        self.front.start()
