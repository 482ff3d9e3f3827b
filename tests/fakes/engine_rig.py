"""A real engine on its thread, with what it said kept for the test that asks."""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from runtime.library.starter import find_starter
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.types import Done, Ended, EngineOutput, EngineRequest, PooledTask, Text
from runtime.worker.engine import Engine
from runtime.worker.load import LlamaModel, load_model

TIMEOUT_S = 60.0
GREEDY = SamplingOptions(temperature=0)


def starter_path() -> Path:
    path = find_starter()
    assert path is not None
    return path


@functools.cache
def starter(n_parallel: int = 32, n_ctx: int = 2048) -> LlamaModel:
    """The starter model, loaded once for each shape and kept to the end of the test run."""
    options = LoadOptions(n_parallel=n_parallel, n_ctx=n_ctx, max_waiting=8)
    return load_model(starter_path(), options, lambda _stage, _fraction: None)


def chat(model: LlamaModel, *turns: str) -> tuple[int, ...]:
    """A conversation in the starter model's form, ending where the assistant begins."""
    roles = ("user", "assistant")
    text = "".join(f"<|im_start|>{roles[i % 2]}\n{turn}<|im_end|>\n" for i, turn in enumerate(turns))
    return tuple(model.vocab.tokenize(text + "<|im_start|>assistant\n", add_special=False, parse_special=True))


class EngineRig:
    """Collects outputs; home thread of the collecting is the engine's."""

    def __init__(self, model: LlamaModel) -> None:
        self.model = model
        self._changed = threading.Condition()
        self.outputs: list[EngineOutput] = []
        self.texts: dict[tuple[str, int], str] = defaultdict(str)
        self.ends: dict[str, list[Done | Ended]] = defaultdict(list)
        self.engine = Engine(model, self._on_outputs)
        self._names = iter(range(10**6))

    def _on_outputs(self, outputs: tuple[EngineOutput, ...]) -> None:
        with self._changed:
            self.outputs.extend(outputs)
            for output in outputs:
                if isinstance(output, Text):
                    self.texts[output.request_id, output.choice] += output.text
                elif isinstance(output, Done | Ended):
                    self.ends[output.request_id].append(output)
            self._changed.notify_all()

    def submit(
        self,
        prompt: str | Sequence[int],
        *,
        name: str = "",
        sampling: SamplingOptions = GREEDY,
        from_window: bool = False,
        **options: Any,
    ) -> str:
        request_id = name or f"r{next(self._names)}"
        tokens = chat(self.model, prompt) if isinstance(prompt, str) else tuple(prompt)
        chosen = GenerateOptions(**{"max_tokens": 24, **options}, sampling=sampling)
        self.engine.submit(EngineRequest(request_id, tokens, chosen, from_window))
        return request_id

    def read(
        self,
        *inputs: Sequence[int],
        kind: Literal["vector", "score"] = "vector",
        name: str = "",
        adapters: AdapterSet | None = None,
    ) -> str:
        """Submit texts to be read into vectors or scores."""
        request_id = name or f"r{next(self._names)}"
        task = PooledTask(tuple(map(tuple, inputs)), kind)
        self.engine.submit(EngineRequest(request_id, (), pooled=task, adapters=adapters))
        return request_id

    def vectors(self, *inputs: Sequence[int], kind: Literal["vector", "score"] = "vector") -> list[NDArray[np.float32]]:
        """Read texts and wait."""
        done = self.wait(self.read(*inputs, kind=kind))
        return [np.frombuffer(vector, dtype="<f4") for vector in done.vectors]

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, TIMEOUT_S), "timed out"

    def wait(self, request_id: str) -> Done:
        self.wait_until(lambda: bool(self.ends[request_id]))
        (end,) = self.ends[request_id]
        assert isinstance(end, Done), end
        return end

    def ask(self, prompt: str | Sequence[int], **options: Any) -> tuple[str, Done]:
        request_id = self.submit(prompt, **options)
        done = self.wait(request_id)
        return self.texts[request_id, 0], done


@contextmanager
def running(model: LlamaModel) -> Iterator[EngineRig]:
    rig = EngineRig(model)
    thread = threading.Thread(target=rig.engine.run, name="engine")
    thread.start()
    try:
        yield rig
    finally:
        rig.engine.stop(0)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
