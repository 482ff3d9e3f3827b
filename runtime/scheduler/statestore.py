"""What the scheduler needs of a place where states outlive their process: the tier behind host memory.

The scheduler only asks and is told later; reading and writing are the store's business, on a thread of its own.
Tokens are those of the prefix tree, placeholders of pictures included.
"""

from typing import Protocol

from runtime.scheduler.hostcache import SavedState
from runtime.scheduler.prefix import Tokens

MIN_STORED_TOKENS = 256
"""A shorter state is not kept: reading so few tokens anew takes a second or two at most on slow machines."""
STORE_GAIN_TOKENS = 128
"""A stored state must be better than what is in memory by this many tokens to be worth waiting for."""


class StateStore(Protocol):
    """States on a slow medium, found by their longest common prefix. No call waits for the medium."""

    @property
    def max_bytes(self) -> int:
        """The largest state it would keep; 0 keeps none."""
        ...

    def holds(self, tokens: tuple[int, ...]) -> bool:
        """Whether exactly these tokens are kept, or a longer state that does as well."""
        ...

    def offer(self, tokens: tuple[int, ...], state: memoryview) -> None:
        """Keep a state that loses its place in memory, if there is room for it."""
        ...

    def seek(self, tokens: Tokens, limit: int, least: int, *, whole: bool) -> int:
        """Begin to fetch the state that shares most with `tokens[:limit]`; 0 when none does by `least` tokens.

        Args:
            tokens: the prompt.
            limit: most of it that may be reused.
            least: how much a state must share.
            whole: only states that are themselves a prefix of it.

        Returns:
            A ticket, a positive number, to be given back to `take`.
        """
        ...

    def is_coming(self, ticket: int) -> bool:
        """Whether the state is still being fetched."""
        ...

    def take(self, ticket: int) -> SavedState | None:
        """The fetched state, once; None when it could not be had. A ticket still coming is given up."""
        ...

    def refuse(self, saved: SavedState) -> None:
        """The memory did not take this state though it was empty: forget it."""
        ...
