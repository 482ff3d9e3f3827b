"""Opening a model file: parameters, progress, and llama.cpp's reasons when it fails."""

from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.messages.shared import ModelFacts
from runtime.options import LoadOptions
from runtime.worker.vocab import Vocab


class LlamaModel:
    """A loaded model with its context. Made by `load_model`, freed by `close`."""

    facts: ModelFacts
    vocab: Vocab
    metadata: Mapping[str, str]

    def close(self) -> None:
        """Free the context and the model. No engine may run on it any more."""
        raise NotImplementedError


def load_model(path: Path, options: LoadOptions, on_progress: Callable[[str, float], None]) -> LlamaModel:
    """Load a model.

    Args:
        path: GGUF file; of a split model, its first part.
        options: how to load; None is automatic.
        on_progress: called with a stage and a fraction 0..1; an exception raised in it cancels the load.

    Raises:
        NotGguf: the file does not start as a GGUF file does.
        FileTruncated: the file ends before its tensors do.
        UnknownArchitecture: this llama.cpp does not know the model's kind.
        NotEnoughMemory: an allocation failed, or would.
        ModelLoadFailed: anything else, with llama.cpp's last words as `reason`.
    """
    raise NotImplementedError
