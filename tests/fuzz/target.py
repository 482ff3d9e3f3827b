"""What a target of the fuzzing is, and the usual ways to make its inputs."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.damage import damaged_bytes, damaged_json, damaged_text

TOML_WORDS = (
    *("[", "]", "=", '"', "\n", "[[x]]", "api", "port = -1", "version = 99", "page = 1", "true", "1e9", "'''", "inf"),
    *("nan", "#", "[" * 2000, f"\nx = {'[' * 300}{']' * 300}\n"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parser: `make` draws an input, `check` puts it through and raises only what `promised` lists."""

    name: str
    make: Callable[[random.Random], Any]
    check: Callable[[Any, random.Random], None]
    promised: tuple[type[BaseException], ...]


def bytes_maker(seeds: Sequence[bytes]) -> Callable[[random.Random], bytes]:
    """Damaged bytes of one of the seeds."""
    return lambda draw: damaged_bytes(draw, draw.choice(seeds), list(seeds))


def text_maker(seeds: Sequence[str], words: tuple[str, ...]) -> Callable[[random.Random], str]:
    """A damaged text; `words` are what its language is made of."""
    return lambda draw: damaged_text(draw, draw.choice(seeds), words, list(seeds))


def json_maker(seeds: Sequence[Any]) -> Callable[[random.Random], Any]:
    """A value damaged by its structure."""
    return lambda draw: damaged_json(draw, draw.choice(seeds))


def json_text_maker(seeds: Sequence[Any]) -> Callable[[random.Random], bytes]:
    """JSON as a file or an answer brings it: damaged by its structure or its bytes, now and then without an end."""

    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.03:
            return draw.choice((b"[", b'{"a":')) * 60_000
        raw = json.dumps(damaged_json(draw, draw.choice(seeds))).encode()
        return damaged_bytes(draw, raw, []) if draw.random() < 0.3 else raw

    return make


def cuts(draw: random.Random, text: Any) -> list[Any]:
    """The text in pieces, cut anywhere."""
    places = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 12)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
