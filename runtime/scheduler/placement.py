"""Which sequence a prompt goes to: what the sequences hold, who is idle, and what may be reused.

The policy follows the memory kind chosen at load:

* `shared`: any prefix of any sequence can be shared cell by cell (`KvMemory.copy`) or kept by cutting the rest.
* `sequence`: a prefix can only be kept in the idle sequence that holds it.
* `points`: a sequence can only go on from exactly where it stands; saved states stand at the points where reuse
  is worth most.

`remove_range` may say no; then the sequence is dropped, not trusted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime.errors import BugFault
from runtime.scheduler.hostcache import HostCache, SavedState
from runtime.scheduler.media import PLAIN, Layout
from runtime.scheduler.memory import KvMemory
from runtime.scheduler.prefix import Match, PrefixTree, Tokens, common_prefix
from runtime.scheduler.statestore import MIN_STORED_TOKENS, StateStore

MIN_SAVED_TOKENS = 32
"""A sequence shorter than this is read anew faster than it is restored."""
HOST_GAIN_TOKENS = 32
"""A saved state must be better than what the sequences hold by this many tokens to be worth restoring."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A sequence taken for a prompt.

    Attributes:
        seq_id: the sequence.
        n_held: tokens of the prompt it holds already.
        n_shared: of those, tokens whose cells another sequence holds too.
    """

    seq_id: int
    n_held: int
    n_shared: int


class Placement:
    """Books of all sequences: what each holds, which are taken, which are idle and since when."""

    def __init__(
        self,
        memory: KvMemory,
        n_seq_max: int,
        host_cache_bytes: int,
        store: StateStore | None = None,
        *,
        reads_all_cells: bool = False,
    ) -> None:
        """With `reads_all_cells` (`runtime.scheduler.limits.Limits`) nothing idle stays in the cells while others run.

        Each cell in use costs every row then; from host memory a conversation comes back in milliseconds.
        """
        self.memory = memory
        self.tree = PrefixTree()
        self.host = HostCache(host_cache_bytes, self._on_crowded_out)
        self._store = store
        self._empty: list[int] = list(range(n_seq_max - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._n_seq_max = n_seq_max
        # Where nothing can be kept outside, an idle sequence is worth its cost.
        self._moves_idle = reads_all_cells and host_cache_bytes > 0 and memory.kind != "points"
        # Who ran beside others may stand in cells far behind, and its rows would pay for all cells before them.
        self._was_crowded = False

    @property
    def n_idle(self) -> int:
        """Sequences that hold something nobody is using."""
        return len(self._idle)

    def is_idle(self, seq_id: int) -> bool:
        """Whether the sequence holds something nobody is using."""
        return seq_id in self._idle

    def known(self, tokens: Tokens, limit: int) -> int:
        """How many tokens of a prompt are held by a sequence, or by a state in host memory."""
        is_whole = self.memory.kind == "points"
        found = self.host.find(tokens, limit, whole=is_whole)
        saved = 0 if found is None else found[1]
        if not is_whole:
            return max(saved, self.tree.match(tokens, limit).length)
        wanted = list(tokens[:limit])
        return max([saved, *(self.tree.length(seq_id) for seq_id in self._idle if self._begins(wanted, seq_id))])

    def place(self, tokens: Tokens, limit: int, layout: Layout = PLAIN, fetched: SavedState | None = None) -> Placed:
        """Take a sequence for a prompt; at least one sequence must be free or idle.

        Args:
            tokens: the prompt.
            limit: most tokens that may be reused; below its length, so that one is always evaluated
                [KEEP-ONE-TOKEN].
            layout: where the prompt's tokens stand; what is reused ends at no place inside a picture.
            fetched: a state of the store, to be used if it is the best.
        """
        if self.memory.kind == "points":
            return self._place_at_point(tokens, limit, fetched)
        if not self._moves_idle:
            return self._place(tokens, limit, layout, fetched)
        self._move_idle(self._match(tokens, limit, layout).holders)  # before it takes cells: it gets theirs
        was_empty = len(self._empty) == self._n_seq_max
        placed = self._place(tokens, limit, layout, fetched)
        self._move_idle(frozenset())
        self._was_crowded = len(self._empty) < self._n_seq_max - 1 or (self._was_crowded and not was_empty)
        return placed

    def _place(self, tokens: Tokens, limit: int, layout: Layout, fetched: SavedState | None) -> Placed:
        match = self._match(tokens, limit, layout)
        found = self._find(tokens, limit, fetched)
        if found is not None and layout.floor(found[1]) >= match.length + HOST_GAIN_TOKENS:
            saved, length = found
            seq_id = self._take()
            if self._restore(seq_id, saved):
                if 2 * length >= len(saved.tokens):
                    self.host.drop(saved)  # else most of it is cut off here, and stays there
                self.tree.extend(seq_id, saved.tokens)
                return Placed(seq_id, self._cut(seq_id, layout.floor(length), layout), 0)
            self._empty.append(seq_id)
            match = self._match(tokens, limit, layout)  # taking a sequence may have evicted a holder
        if not match.length:
            return Placed(self._take(), 0, 0)
        return self._place_on_match(match, layout)

    def _find(self, tokens: Tokens, limit: int, fetched: SavedState | None) -> tuple[SavedState, int] | None:
        is_whole = self.memory.kind == "points"
        found = self.host.find(tokens, limit, whole=is_whole)
        if fetched is None:
            return found
        shared = common_prefix(fetched.tokens, tuple(tokens[:limit]))
        if (is_whole and shared < len(fetched.tokens)) or (found is not None and found[1] >= shared):
            return found
        return fetched, shared

    def _restore(self, seq_id: int, saved: SavedState) -> bool:
        """Put a state into an empty sequence; others that are idle give way to it, oldest first."""
        while not self.memory.restore(seq_id, saved.state):
            if not self._evict(-1):
                if self._store is not None and len(self._empty) == self._n_seq_max - 1:
                    self._store.refuse(saved)
                return False
        return True

    def _match(self, tokens: Tokens, limit: int, layout: Layout) -> Match:
        match = self.tree.match(tokens, limit)
        return replace(match, length=layout.floor(match.length))

    def _place_on_match(self, match: Match, layout: Layout) -> Placed:
        idle = [seq_id for seq_id in self._idle if seq_id in match.holders]
        # Keep the sequence with the least to lose, if the greater part of it is what the prompt wants.
        idle.sort(key=self.tree.length)
        can_copy = self.memory.kind == "shared"
        if idle and (not can_copy or 2 * match.length >= self.tree.length(idle[0]) or self._only_free(idle[0])):
            seq_id = idle[0]
            if 2 * match.length < self.tree.length(seq_id):
                self._keep(seq_id)  # most of it is cut off
            del self._idle[seq_id]
            shared = match.length if len(match.holders) > 1 else 0
            return Placed(seq_id, self._cut(seq_id, match.length, layout), shared)
        if not can_copy:
            return Placed(self._take(), 0, 0)
        source = min(match.holders)
        held = self.tree.tokens(source)[: match.length]
        seq_id = self._take(keep=source)
        self.memory.copy(source, seq_id, 0, layout.position(match.length))
        self.tree.extend(seq_id, held)
        return Placed(seq_id, match.length, match.length)

    def _only_free(self, seq_id: int) -> bool:
        return not self._empty and len(self._idle) == 1 and seq_id in self._idle

    def _place_at_point(self, tokens: Tokens, limit: int, fetched: SavedState | None) -> Placed:
        # Only idle ones: an active one stands further on than its books, which wait for its end.
        wanted = list(tokens[:limit])
        whole = [seq_id for seq_id in self._idle if self._begins(wanted, seq_id)]
        standing = max(whole, key=self.tree.length, default=None)
        reached = self.tree.length(standing) if standing is not None else 0
        found = self._find(tokens, limit, fetched)
        if found is not None and found[1] > reached:
            saved, length = found
            seq_id = self._take()
            if self._restore(seq_id, saved):
                self.tree.extend(seq_id, saved.tokens)
                return Placed(seq_id, length, 0)
            self._empty.append(seq_id)
            return Placed(self._take(), 0, 0)
        if standing is None:
            return Placed(self._take(), 0, 0)
        del self._idle[standing]
        return Placed(standing, reached, 0)

    def _begins(self, wanted: list[int], seq_id: int) -> bool:
        held = self.tree.tokens(seq_id)
        return wanted[: len(held)] == held

    def fork(self, source: int) -> int | None:
        """A new sequence that holds all that `source` holds; None when the memory cannot share or none is free."""
        if self.memory.kind == "sequence" or not (self._empty or self._idle):
            return None
        held = self.tree.tokens(source)
        seq_id = self._take(keep=source)
        self.memory.copy(source, seq_id, 0, -1)
        self.tree.extend(seq_id, held)
        self._was_crowded = True
        return seq_id

    def _take(self, keep: int = -1) -> int:
        if not self._empty and not self._evict(keep):
            raise BugFault("a sequence was asked for while all were taken")
        return self._empty.pop()

    def _evict(self, keep: int) -> bool:
        for seq_id in self._idle:
            if seq_id != keep:
                self.evict(seq_id)
                return True
        return False

    def evict_oldest(self) -> bool:
        """Free the cells of the sequence idle for longest, saving its state. False: none is idle."""
        return self._evict(-1)

    def evict(self, seq_id: int) -> None:
        """Free an idle sequence; its state moves to host memory where that is worth it."""
        self._keep(seq_id)
        self.drop(seq_id)

    def _keep(self, seq_id: int) -> None:
        held = tuple(self.tree.tokens(seq_id))
        if len(held) >= MIN_SAVED_TOKENS and not self.host.holds(held):
            self._save(seq_id, held)

    def _save(self, seq_id: int, held: tuple[int, ...]) -> None:
        most = self.host.max_bytes
        if self._store is not None and len(held) >= MIN_STORED_TOKENS:
            most = max(most, self._store.max_bytes)
        state = self.memory.save(seq_id, most) if most > 0 else None
        if state is None:
            return
        if state.nbytes <= self.host.max_bytes:
            self.host.put(held, state, replace_prefixes=self.memory.kind != "points")
        else:
            self._on_crowded_out(SavedState(held, state))

    def _on_crowded_out(self, saved: SavedState) -> None:
        if self._store is not None and len(saved.tokens) >= MIN_STORED_TOKENS:
            self._store.offer(saved.tokens, saved.state)

    def left_behind(self) -> Iterator[SavedState]:
        """What only memory holds and is worth storing before it goes, used last first. Nothing is taken away."""
        store = self._store
        if store is None or not store.max_bytes:
            return
        for seq_id in reversed(self._idle):
            held = tuple(self.tree.tokens(seq_id))
            if len(held) >= MIN_STORED_TOKENS and not store.holds(held) and not self.host.holds(held):
                state = self.memory.save(seq_id, store.max_bytes)
                if state is not None:
                    yield SavedState(held, state)
        for saved in self.host.newest_first():
            if len(saved.tokens) >= MIN_STORED_TOKENS and not store.holds(saved.tokens):
                yield saved

    def save_point(self, seq_id: int) -> None:
        """Keep the state of a sequence as it is now, for a memory that cannot be cut."""
        held = tuple(self.tree.tokens(seq_id))
        if not self.host.holds(held):
            self._save(seq_id, held)

    def extend(self, seq_id: int, tokens: Tokens) -> None:
        """A decode put these tokens behind what the sequence held."""
        self.tree.extend(seq_id, tokens)

    def release(self, seq_id: int) -> None:
        """Nobody uses the sequence any more; what it holds stays until the place is needed."""
        if not self.tree.length(seq_id):
            self.drop(seq_id)
            return
        self._idle[seq_id] = None
        if self._moves_idle and self._was_crowded:
            self._move_idle(frozenset())

    def _move_idle(self, but: frozenset[int]) -> None:
        """Idle sequences go to host memory while others run; one that is too large for it keeps its cells."""
        for seq_id in [one for one in self._idle if one not in but]:
            held = tuple(self.tree.tokens(seq_id))
            if len(held) >= MIN_SAVED_TOKENS and not self.host.holds(held):
                state = self.memory.save(seq_id, self.host.max_bytes)
                if state is None:
                    continue
                self.host.put(held, state, replace_prefixes=True)
            self.drop(seq_id)

    def drop(self, seq_id: int) -> None:
        """Forget what a sequence holds (removing a whole sequence never fails, llama.h)."""
        self.memory.remove_range(seq_id, -1, -1)
        self.tree.remove(seq_id)
        self._idle.pop(seq_id, None)
        self._empty.append(seq_id)

    def _cut(self, seq_id: int, length: int, layout: Layout) -> int:
        """Keep only the first tokens of a sequence; returns how many it holds then."""
        if self.tree.length(seq_id) == length:
            return length
        if length and self.memory.remove_range(seq_id, layout.position(length), -1):
            self.tree.truncate(seq_id, length)
            return length
        self.memory.remove_range(seq_id, -1, -1)
        self.tree.remove(seq_id)
        return 0

    def reset(self) -> None:
        """Forget everything: it is not known any more what the memory holds."""
        self.memory.clear()
        self.tree.clear()
        self._idle.clear()
        self._empty = list(range(self._n_seq_max - 1, -1, -1))
