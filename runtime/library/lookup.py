"""Which installed model a person or program means by a name."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from runtime.errors import ModelNotFound
from runtime.library.names import model_id
from runtime.messages.api import InstalledModel

N_HINTS = 3


def by_name(name: str, models: Iterable[InstalledModel]) -> InstalledModel | None:
    """The model of that id (in any case), file name, file stem or readable name; also a unique beginning of an id."""
    models = tuple(models)
    wanted = name.strip().lower()
    for model in models:
        if model.id == name:
            return model
    for model in models:
        path = Path(model.path)
        if wanted in (model.id, path.name.lower(), path.stem.lower(), model.name.lower()):
            return model
    as_id = model_id(name)
    candidates = [model for model in models if as_id and (model.id == as_id or model.id.startswith(f"{as_id}-"))]
    return candidates[0] if len(candidates) == 1 else None


def as_path(name: str) -> tuple[Path, bool, bool]:
    """The name as a path: with whether it is a file, and whether there is anything.

    Raises:
        ModelNotFound: if it cannot be a path.
    """
    try:
        path = Path(name).expanduser()
        return path, path.is_file(), path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a person who does not exist, a null
        raise ModelNotFound(
            f"{name[:200]!r} cannot be looked up: {error}."[:500], hint="Name a .gguf file.", model=name[:200]
        ) from None


def not_found(name: str, path: Path, models: Iterable[InstalledModel], *, is_there: bool) -> ModelNotFound:
    """What to say when nothing is meant by a name: the nearest ones."""
    known = {model.id: model for model in models if not model.problem}
    near = difflib.get_close_matches(model_id(name), known, n=N_HINTS, cutoff=0.4) or list(known)[:N_HINTS]
    looks_like_path = any(mark in name for mark in ("/", "\\")) or name.lower().endswith(".gguf")
    if looks_like_path and is_there:
        what = "a folder" if path.is_dir() else "no ordinary file"
        return ModelNotFound(f"{name} is {what}.", hint="Name a .gguf file.", model=name)
    message = f"There is no model file {name}." if looks_like_path else f"No model called {name!r} is installed."
    hint = f"Did you mean {', '.join(near)}?" if near else "Download a model or put one into the models folder."
    return ModelNotFound(message, hint=hint, model=name)
