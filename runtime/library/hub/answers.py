"""What the hub's API answers, as typed values. Unknown fields are left out, missing ones have a default.

Source: the answers that huggingface_hub 2.4 reads (`hf_api.py`, ModelInfo and RepoFile).
"""

import contextlib
from datetime import datetime
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

MAX_ENTRIES = 20_000
"""Most files of a repository looked at."""


class Gguf(msgspec.Struct, frozen=True):
    """What the hub read from one of a repository's GGUF files. `total` counts parameters."""

    total: int | None = None
    architecture: str | None = None
    context_length: int | None = None


class ModelRecord(msgspec.Struct, frozen=True):
    """A repository, in a list or alone."""

    id: str
    sha: str | None = None
    author: str | None = None
    downloads: int | None = None
    likes: int | None = None
    last_modified: str | None = msgspec.field(name="lastModified", default=None)
    gated: bool | str | None = None
    tags: list[str] | None = None
    pipeline_tag: str | None = None
    gguf: Gguf | None = None


class Lfs(msgspec.Struct, frozen=True):
    """A large file: `oid` is its SHA-256."""

    oid: str | None = None
    size: int | None = None


class TreeRecord(msgspec.Struct, frozen=True):
    """A file or folder of a repository at one commit."""

    type: str
    path: str
    size: int | None = None
    lfs: Lfs | None = None


class Who(msgspec.Struct, frozen=True):
    """The owner of a token."""

    name: str = ""


def decode(body: bytes, kind: type[T]) -> T:
    """One value.

    Raises:
        msgspec.DecodeError: if it is none (`ValidationError` is one of these).
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def decode_list(body: bytes, kind: type[T]) -> list[T]:
    """A list, without the elements that are not as expected: one odd entry must not hide the others.

    Raises:
        msgspec.DecodeError: if it is no list.
    """
    try:
        raw_list = msgspec.json.decode(body, type=list[msgspec.Raw])
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    found: list[T] = []
    for raw in raw_list[:MAX_ENTRIES]:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(decode(bytes(raw), kind))
    return found


def seconds(raw: str | None) -> float:
    """`2025-08-05T17:00:00.000Z` as seconds since 1970; 0 for what is no date."""
    if not raw:
        return 0.0
    try:
        return datetime.fromisoformat(raw).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
