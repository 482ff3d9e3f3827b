"""API keys: made here, kept as SHA-256 of themselves.

A key has 256 random bits, so a plain hash is as good as a slow one: there is nothing to guess.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

KEY_PREFIX = "dsk-"
MAX_KEYS = 64


def new_key() -> str:
    """A key with 256 random bits, to be shown once."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What is kept of a key: 64 hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def find_key(key: str, names: Mapping[str, str]) -> str | None:
    """The name of a key among hashes with their names, or None.

    The time it takes does not tell which it is, or how near it was.
    """
    given = hash_key(key)
    found = None
    for known, name in names.items():
        if hmac.compare_digest(given, known):
            found = name
    return found
