"""A store of states for the scheduler's tests: in memory, and it answers when the test says so."""

from dataclasses import dataclass, field

from runtime.scheduler.hostcache import SavedState
from runtime.scheduler.prefix import Tokens, common_prefix


@dataclass
class FakeStore:
    """`answers` False leaves what was sought on its way."""

    max_bytes: int = 1_000_000
    answers: bool = True
    kept: dict[tuple[int, ...], memoryview] = field(default_factory=dict)
    coming: dict[int, SavedState] = field(default_factory=dict)
    n_sought: int = 0
    n_taken: int = 0
    refused: list[SavedState] = field(default_factory=list)

    def holds(self, tokens: tuple[int, ...]) -> bool:
        return any(known[: len(tokens)] == tokens for known in self.kept)

    def offer(self, tokens: tuple[int, ...], state: memoryview) -> None:
        self.kept[tokens] = state

    def seek(self, tokens: Tokens, limit: int, least: int, *, whole: bool) -> int:
        wanted = tuple(tokens[:limit])
        found = [
            known
            for known in self.kept
            if common_prefix(known, wanted) >= least and (not whole or wanted[: len(known)] == known)
        ]
        if not found:
            return 0
        best = max(found, key=lambda known: common_prefix(known, wanted))
        self.n_sought += 1
        self.coming[self.n_sought] = SavedState(best, self.kept[best])
        return self.n_sought

    def is_coming(self, ticket: int) -> bool:
        return not self.answers and ticket in self.coming

    def take(self, ticket: int) -> SavedState | None:
        saved = self.coming.pop(ticket, None)
        self.n_taken += saved is not None
        return saved if self.answers else None

    def refuse(self, saved: SavedState) -> None:
        self.refused.append(saved)
        self.kept.pop(saved.tokens, None)
