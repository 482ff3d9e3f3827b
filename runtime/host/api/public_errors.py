"""Errors as other programs may read them: what happened and what to do, without this machine's folders and log lines.

What a worker printed last, and what llama.cpp said, may hold paths, names and pieces of what others asked. They stay
with the person: in the private API (`Failure.details`), in the window and in `logs/worker.log`.
"""

import re
from pathlib import Path

from runtime.errors import ENGINE_QUOTE, WORKER_LOG, CallerFault, RuntimeFault

_QUOTED = re.compile(r"""(['"])((?:[A-Za-z]:)?[\\/][^'"\n]*[\\/])([^'"\n\\/]*)\1""")
_POSIX = re.compile(r"(?<![\w:/.~\\-])/(?:[^\s/'\"`,;:()]+/)+")
_WINDOWS = re.compile(r"(?<!\w)(?:[A-Za-z]:|\\)\\(?:[^\s\\'\"`,;:()]+\\)+")


def sentences_for_programs(error: RuntimeFault) -> str:
    """Message and hint in one text, since most clients show only that."""
    if isinstance(error, CallerFault):  # says nothing but what the caller sent, and what may be sent
        return f"{error.message} {error.hint}".strip()
    message, quote, _words = error.message.partition(ENGINE_QUOTE)
    parts = [message.strip(), error.hint, WORKER_LOG if quote and WORKER_LOG not in error.hint else ""]
    return without_folders(" ".join(filter(None, parts)), str(error.details.get("path", "")))


def without_folders(text: str, known_path: str = "") -> str:
    """The text with the last part of each path alone; `known_path` is one whose blanks cannot mislead."""
    if len(known_path) > 1:
        text = text.replace(known_path, re.split(r"[\\/]", known_path.rstrip("\\/"))[-1])
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    text = _QUOTED.sub(r"\1\3\1", text)
    return _WINDOWS.sub("", _POSIX.sub("", text))
