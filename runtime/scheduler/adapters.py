"""Adapters (LoRA) as the scheduler sees them: which requests can share a decode, and which cannot share what they read.

llama.cpp applies adapters to a whole context, so the rows of one decode all have the same. What was read under one set
means nothing under another: the first token of every list that is compared (prompts, the prefix tree, saved states) is
*salted* with the set, and so no two sets ever have a prefix in common. A salted number is no token, the prompt has it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from runtime.errors import BadRequest
from runtime.messages.shared import AdapterFacts
from runtime.options import AdapterScale

TURN_STEPS = 8
"""Decodes before the next set has its turn; each change makes llama.cpp lay out its graphs anew."""
_TOKEN_BITS = 32
_SALT_BITS = 30


@dataclass(frozen=True, slots=True)
class AdapterSet:
    """Adapters with their scales; none at all is `None`, not a set.

    Attributes:
        scales: of every loaded adapter, in order; at least one is not 0.
        salt: made of the adapters' contents and scales, the same in another process; 30 bits, not 0.
    """

    scales: tuple[float, ...]
    salt: int

    def salted(self, token: int) -> int:
        """The first token of a prompt, as it stands in lists that are compared; fits in a signed 64-bit number."""
        return (self.salt << _TOKEN_BITS) | (token & ((1 << _TOKEN_BITS) - 1))


def adapter_set(keys: Sequence[str], scales: Sequence[float]) -> AdapterSet | None:
    """The set of these adapters, `None` when all scales are 0.

    Args:
        keys: what names the content of each loaded adapter.
        scales: one for each.
    """
    used = [(key, float(scale)) for key, scale in zip(keys, scales, strict=True) if scale]
    if not used:
        return None
    digest = hashlib.blake2b(repr(used).encode(), digest_size=4).digest()
    return AdapterSet(tuple(map(float, scales)), (int.from_bytes(digest, "little") & ((1 << _SALT_BITS) - 1)) | 1)


def chosen_adapters(facts: Sequence[AdapterFacts], asked: Sequence[AdapterScale] | None) -> AdapterSet | None:
    """What is applied for a request.

    Args:
        facts: the adapters of the model.
        asked: the request's own scales, 0 for those it does not name; `None` takes those of the load.

    Raises:
        BadRequest: the model has no adapter of that id.
    """
    scales = [fact.scale if asked is None else 0.0 for fact in facts]
    for one in asked or ():
        if one.id >= len(facts):
            raise BadRequest(
                f"The model has {len(facts)} adapters; there is none with the id {one.id}."
                if facts
                else "The model was loaded without adapters.",
                hint="GET /lora-adapters lists them.",
                param="lora",
            )
        scales[one.id] = one.scale
    return adapter_set([fact.key for fact in facts], scales)


class HasAdapters(Protocol):
    """A unit, as far as its adapters go."""

    @property
    def adapters(self) -> AdapterSet | None:
        """What is applied for it."""
        ...


U = TypeVar("U", bound=HasAdapters)


def having(chosen: AdapterSet | None, units: Sequence[U]) -> list[U]:
    """Those of the units that have this set."""
    return [unit for unit in units if unit.adapters == chosen]


class AdapterTurns:
    """Whose turn it is when requests with different sets are active."""

    def __init__(self) -> None:
        self._served: list[AdapterSet | None] = []  # the one served last at the end; bounded by the active sets
        self._left = 0

    def choose(self, units: Iterable[HasAdapters]) -> AdapterSet | None:
        """The set of the next decode, of those that active units have; there is at least one."""
        present = list(dict.fromkeys(unit.adapters for unit in units))
        self._served = [one for one in self._served if one in present]
        if self._served and self._left > 0:
            self._left -= 1
            return self._served[-1]
        # One that was never served goes first, then the one whose turn is longest ago.
        waiting = [one for one in present if one not in self._served] or self._served
        chosen = waiting[0]
        self._served = [*(one for one in self._served if one != chosen), chosen]
        self._left = TURN_STEPS - 1
        return chosen
