"""LM Studio: `<home>/models/<publisher>/<repo>/<file>.gguf`.

Its home is named by `~/.lmstudio-home-pointer`; else it is `~/.lmstudio`, or `~/.cache/lm-studio` of versions before
0.3.5. `downloadsFolder` of its `settings.json` (in that home, earlier in the folder of the desktop program) moves the
models elsewhere.
"""

from pathlib import Path

import msgspec

from runtime.library.disk import walk
from runtime.library.foreign.program import Listing, Surroundings, each_once, read_settings
from runtime.unreadable import UNREADABLE

HOME_POINTER = ".lmstudio-home-pointer"


class _Settings(msgspec.Struct):
    downloads_folder: str = msgspec.field(default="", name="downloadsFolder")


def folders(around: Surroundings) -> tuple[Path, ...]:
    """Where its models are."""
    pointer = read_settings(around.home / HOME_POINTER).decode("utf-8", "replace").strip()
    homes = each_once(
        around.path(pointer.splitlines()[0].strip()) if pointer else None,
        around.home / ".lmstudio",
        around.home / ".cache" / "lm-studio",
    )
    settings = (*(home / "settings.json" for home in homes), around.config / "LM Studio" / "settings.json")
    return each_once(*(_chosen(path, around) for path in settings), *(home / "models" for home in homes))


def models(folder: Path) -> Listing:
    """The usual layout: files are grouped as in any folder."""
    tree = walk(folder)
    return Listing(tree.files, problem=tree.problem)


def _chosen(path: Path, around: Surroundings) -> Path | None:
    try:
        chosen = msgspec.json.decode(read_settings(path), type=_Settings).downloads_folder
    except UNREADABLE:
        return None
    return around.path(chosen) if chosen else None
