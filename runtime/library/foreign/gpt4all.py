"""GPT4All: `.gguf` files in one folder, `modelPath` of its settings or the program's local data.

Settings are Qt's in INI form: `nomic.ai/GPT4All.ini` in the folder of settings (on macOS also below `~/.config`).
Unfinished downloads are called `incomplete-*`. The Python package keeps its files in `~/.cache/gpt4all`.
"""

import re
from pathlib import Path

from runtime.library.disk import walk
from runtime.library.foreign.program import Listing, Surroundings, each_once, read_settings

UNFINISHED = "incomplete-"

_MODEL_PATH = re.compile(r"^\s*modelPath\s*=\s*(?P<value>.*?)\s*$", re.MULTILINE)
_HEX = re.compile(r"\\x(?P<code>[0-9a-fA-F]{1,4})")


def folders(around: Surroundings) -> tuple[Path, ...]:
    """Where its models are."""
    settings = each_once(
        around.config / "nomic.ai" / "GPT4All.ini", around.home / ".config" / "nomic.ai" / "GPT4All.ini"
    )
    return each_once(
        *(_chosen(path, around) for path in settings),
        around.local_data / "nomic.ai" / "GPT4All",
        around.home / ".cache" / "gpt4all",
    )


def models(folder: Path) -> Listing:
    """Files as in any folder, without unfinished ones."""
    tree = walk(folder)
    whole = tuple(file for file in tree.files if not file.path.name.startswith(UNFINISHED))
    return Listing(whole, problem=tree.problem)


def _chosen(path: Path, around: Surroundings) -> Path | None:
    found = _MODEL_PATH.search(read_settings(path).decode("utf-8", "replace"))
    if found is None:
        return None
    value = found["value"]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    # QSettings' INI form: non-ASCII characters of Qt 5 as \x..., a backslash doubled.
    value = _HEX.sub(lambda match: chr(int(match["code"], 16)), value).replace("\\\\", "\\")
    return around.path(value)
