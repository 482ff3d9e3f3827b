"""What the scheduler needs of a model's memory (llama.cpp's KV cache or recurrent state)."""

from typing import Protocol

from runtime.scheduler.types import MemoryKind


class KvMemory(Protocol):
    """Memory of all sequences. Positions count from 0; ranges are `[p0, p1)`, and -1 as `p1` means to the end."""

    @property
    def kind(self) -> MemoryKind:
        """How it can be reused."""
        ...

    def remove_range(self, seq_id: int, p0: int, p1: int) -> bool:
        """Forget positions of a sequence. False: this memory cannot, and the sequence must be dropped whole."""
        ...

    def copy(self, source: int, target: int, p0: int, p1: int) -> None:
        """Let `target` hold `source`'s positions too, without computing them; `target` must be empty."""
        ...

    def clear(self) -> None:
        """Forget everything of every sequence."""
        ...

    def last_position(self, seq_id: int) -> int:
        """Largest position held, or -1."""
        ...

    def save(self, seq_id: int, max_bytes: int) -> memoryview | None:
        """State of a sequence in host memory, or None when it would be larger than `max_bytes`."""
        ...

    def restore(self, seq_id: int, state: memoryview) -> bool:
        """Put a saved state into an empty sequence. False: there is no room, and the sequence is empty."""
        ...
