"""State of sequences that lost their place, in host memory, bounded in bytes and number."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runtime.scheduler.prefix import Tokens, common_prefix

MAX_ENTRIES = 128
"""Bound on entries, because a look-up compares with each of them."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a sequence held, and llama.cpp's bytes for it."""

    tokens: tuple[int, ...]
    state: memoryview


class HostCache:
    """Saved states, least recently used first out. An entry that another one continues is dropped.

    Args:
        max_bytes: bound of all states together.
        on_crowded_out: is given each entry that loses its place to another one.
    """

    def __init__(self, max_bytes: int, on_crowded_out: Callable[[SavedState], None] | None = None) -> None:
        self.max_bytes = max_bytes
        self._on_crowded_out = on_crowded_out
        self.size_bytes = 0
        self._entries: OrderedDict[tuple[int, ...], SavedState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def newest_first(self) -> Iterator[SavedState]:
        """All entries, the one used last first."""
        return reversed(self._entries.values())

    def holds(self, tokens: tuple[int, ...]) -> bool:
        """Whether exactly these tokens are saved."""
        return tokens in self._entries

    def put(self, tokens: tuple[int, ...], state: memoryview, *, replace_prefixes: bool) -> None:
        """Save a state.

        Args:
            tokens: what the sequence held.
            state: its bytes; nothing is saved when they alone are over the bound.
            replace_prefixes: drop entries this one continues (when any prefix of it can be used as well).
        """
        if state.nbytes > self.max_bytes:
            return
        self._drop(tokens)
        if replace_prefixes:
            for known in [key for key in self._entries if tokens[: len(key)] == key]:
                self._drop(known)
        while self._entries and (self.size_bytes + state.nbytes > self.max_bytes or len(self._entries) >= MAX_ENTRIES):
            oldest = next(iter(self._entries.values()))
            self._drop(oldest.tokens)
            if self._on_crowded_out is not None:
                self._on_crowded_out(oldest)
        self._entries[tokens] = SavedState(tokens, state)
        self.size_bytes += state.nbytes

    def find(self, tokens: Tokens, limit: int, *, whole: bool) -> tuple[SavedState, int] | None:
        """The entry that shares most with `tokens[:limit]`, and how much.

        Args:
            tokens: the prompt.
            limit: most of it that may be reused.
            whole: only entries that are themselves a prefix of it (memory that cannot be cut).
        """
        wanted = tuple(tokens[:limit])
        best: SavedState | None = None
        best_length = 0
        for entry in self._entries.values():
            shared = common_prefix(entry.tokens, wanted)
            if shared > best_length and (not whole or shared == len(entry.tokens)):
                best, best_length = entry, shared
        if best is None:
            return None
        self._entries.move_to_end(best.tokens)
        return best, best_length

    def drop(self, entry: SavedState) -> None:
        """Forget an entry."""
        self._drop(entry.tokens)

    def _drop(self, tokens: tuple[int, ...]) -> None:
        entry = self._entries.pop(tokens, None)
        if entry is not None:
            self.size_bytes -= entry.state.nbytes

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.size_bytes = 0
