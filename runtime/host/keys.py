"""API keys: made here, kept as SHA-256 of themselves.

A key has 256 random bits, so a plain hash is as good as a slow one: there is nothing to guess.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

KEY_PREFIX = "dsk-"
MAX_KEYS = 64


def new_key() -> str:
    """A key with 256 random bits, to be shown once."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What is kept of a key: 64 hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def matches_any(key: str, hashes: Iterable[str]) -> bool:
    """True if `key` is one of those; the time it takes does not tell which, or how near it was."""
    given = hash_key(key)
    found = False
    for known in hashes:
        found |= hmac.compare_digest(given, known)
    return found
