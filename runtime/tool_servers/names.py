"""Names of tools that every model family can write, unique among all servers."""

import hashlib
import re
from collections.abc import Iterable

MAX_NAME_CHARS = 64
"""What the strictest programs and model families take."""

_DIGEST_CHARS = 6
_NOT_LEGAL = re.compile(r"[^A-Za-z0-9_-]+")


def call_names(tools: Iterable[tuple[str, str]]) -> list[str]:
    """A name for each (server, tool): `server__tool`, with a piece of a hash where that is too long or taken.

    The same pair gets the same name as long as those before it stay.
    """
    taken: set[str] = set()
    names: list[str] = []
    for server, tool in tools:
        plain = f"{_legal(server)}__{_legal(tool)}"
        name = plain
        serial = 0
        while name in taken or len(name) > MAX_NAME_CHARS:
            digest = hashlib.sha256(f"{server}\0{tool}\0{serial}".encode()).hexdigest()[:_DIGEST_CHARS]
            name = f"{plain[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"
            serial += 1
        taken.add(name)
        names.append(name)
    return names


def _legal(text: str) -> str:
    return _NOT_LEGAL.sub("_", text).strip("_") or "tool"
