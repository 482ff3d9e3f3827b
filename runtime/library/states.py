"""Prompts stored for models (`runtime.worker.state_disk`), as seen by whoever removes a model."""

import logging
import shutil
from pathlib import Path

from runtime.paths import STATES_NOTE

_log = logging.getLogger(__name__)


def remove_states(folder: Path, model_path: str) -> None:
    """Delete what is stored for a model, under all options it was loaded with. Never raises for a file's sake.

    Args:
        folder: `DataFolder.states`.
        model_path: the model's file, as it was loaded.
    """
    for note in folder.glob(f"*/{STATES_NOTE}"):
        try:
            if note.read_text("utf-8", "replace") == model_path:
                shutil.rmtree(note.parent)
        except OSError as error:
            _log.warning("stored prompts of %s were not deleted: %s", Path(model_path).name, error)
