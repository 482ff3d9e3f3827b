"""When the memory of a guesser was too small for all conversations: it is not asked for a while, longer each time."""

FIRST_REST, LONGEST_REST = 32, 2048
"""Guesses not asked for after such a failure: each new try reads the conversations again."""


class Rest:
    """Home thread: the engine's."""

    def __init__(self) -> None:
        self._left = 0
        self._next = FIRST_REST

    def passes(self) -> bool:
        """Whether the guesser rests now; asked once for each guess."""
        if not self._left:
            return False
        self._left -= 1
        return True

    def begin(self) -> None:
        """It failed."""
        self._left = self._next
        self._next = min(2 * self._next, LONGEST_REST)

    def forget(self) -> None:
        """It guessed: the next rest is a short one again."""
        self._next = FIRST_REST
