"""The engine: one thread that steps the scheduler and llama.cpp."""

from collections.abc import Callable

from runtime.scheduler.types import EngineFigures, EngineOutput, EngineRequest
from runtime.worker.load import LlamaModel


class Engine:
    """Runs requests on a loaded model.

    `run` belongs to one thread; `submit`, `cancel` and `stop` may be called from any. Outputs of one step arrive
    together in one call of `on_outputs`, on the thread of `run`.
    """

    def __init__(self, model: LlamaModel, on_outputs: Callable[[tuple[EngineOutput, ...]], None]) -> None:
        self.figures = EngineFigures()
        self._model = model
        self._on_outputs = on_outputs

    def run(self) -> None:
        """Block until stopped.

        Raises:
            GenerationFailed: llama.cpp failed twice within a minute; the process should end and be started anew.
        """
        raise NotImplementedError

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; it ends with exactly one `Done` or `Ended`, unless this raises.

        Raises:
            Busy: the queue is full (`retry_after_s`, `waiting`).
            ContextExceeded: the prompt is longer than the context (`prompt_tokens`, `n_ctx`).
            BadRequest: an option is out of range, or the grammar does not parse.
        """
        raise NotImplementedError

    def cancel(self, request_id: str) -> None:
        """End a request between two steps; unknown ids are ignored."""
        raise NotImplementedError

    def stop(self, drain_s: float) -> None:
        """Finish what runs for at most `drain_s` seconds, end the rest as cancelled, and let `run` return."""
        raise NotImplementedError
