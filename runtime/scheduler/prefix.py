"""The radix tree of what the sequences hold: which of them begins like this prompt, and for how long?

Every edge is a run of tokens, every node knows the sequences whose tokens pass through it. Bound: there are at
most as many leaves as sequences, and the edges together hold at most the tokens in the model's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Tokens = Sequence[int]


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Length of the longest common prefix of two lists, or two tuples, by bisection over slices (compared in C)."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


class _Node:
    __slots__ = ("children", "edge", "holders", "parent")

    def __init__(self, edge: list[int], parent: "_Node | None", holders: set[int]) -> None:
        self.edge = edge
        self.parent = parent
        self.holders = holders
        self.children: dict[int, _Node] = {}


@dataclass(frozen=True, slots=True)
class Match:
    """The longest known prefix: its length, and the sequences that hold all of it."""

    length: int
    holders: frozenset[int]


class PrefixTree:
    """Tokens held by each sequence. Only changed after a decode that returned 0."""

    def __init__(self) -> None:
        self._root = _Node([], None, set())
        self._ends: dict[int, _Node] = {}
        self._lengths: dict[int, int] = {}
        self.n_tokens = 0
        """Tokens on all edges: cells in use, when equal prefixes share their cells."""

    def length(self, seq_id: int) -> int:
        """Tokens the sequence holds; 0 for an unknown one."""
        return self._lengths.get(seq_id, 0)

    def tokens(self, seq_id: int) -> list[int]:
        """All tokens the sequence holds, in order."""
        runs: list[list[int]] = []
        node: _Node | None = self._ends.get(seq_id)
        while node is not None:
            runs.append(node.edge)
            node = node.parent
        return [token for run in reversed(runs) for token in run]

    def extend(self, seq_id: int, tokens: Tokens) -> None:
        """The sequence now holds these tokens after what it held."""
        if not tokens:
            return
        tokens = list(tokens)  # a tuple never equals a run of an edge
        node = self._ends.get(seq_id, self._root)
        done, total = 0, len(tokens)
        while done < total:
            if node is not self._root and not node.children and len(node.holders) == 1:
                # The one holder of a leaf just grows it.
                node.edge.extend(tokens[done:])
                self.n_tokens += total - done
                break
            child = node.children.get(tokens[done])
            if child is None:
                child = _Node(list(tokens[done:]), node, {seq_id})
                node.children[tokens[done]] = child
                self.n_tokens += total - done
                node = child
                break
            shared = common_prefix(child.edge, tokens[done : done + len(child.edge)])
            node = child if shared == len(child.edge) else self._split(child, shared)
            node.holders.add(seq_id)
            done += shared
        self._ends[seq_id] = node
        self._lengths[seq_id] = self._lengths.get(seq_id, 0) + total

    def _split(self, node: _Node, at: int) -> _Node:
        """Cut an edge in two; returns the upper node. Sequences that end at `node` still end at the lower one."""
        upper = _Node(node.edge[:at], node.parent, set(node.holders))
        if node.parent is not None:
            node.parent.children[upper.edge[0]] = upper
        node.edge = node.edge[at:]
        node.parent = upper
        upper.children[node.edge[0]] = node
        return upper

    def match(self, tokens: Tokens, limit: int) -> Match:
        """The longest prefix of `tokens[:limit]` that some sequence holds."""
        tokens = list(tokens[:limit])
        node, done = self._root, 0
        while done < len(tokens):
            child = node.children.get(tokens[done])
            if child is None:
                break
            shared = common_prefix(child.edge, tokens[done : min(done + len(child.edge), limit)])
            done += shared
            node = child
            if shared < len(child.edge):
                break
        return Match(done, frozenset(node.holders))

    def remove(self, seq_id: int) -> None:
        """The sequence holds nothing any more."""
        node: _Node | None = self._ends.pop(seq_id, None)
        self._lengths.pop(seq_id, None)
        self._leave(node, seq_id)

    def truncate(self, seq_id: int, length: int) -> None:
        """The sequence now holds only its first `length` tokens."""
        if length <= 0:
            self.remove(seq_id)
            return
        node = self._ends[seq_id]
        end = self._lengths[seq_id]
        if length >= end:
            return
        while node.parent is not None and end - len(node.edge) >= length:
            end -= len(node.edge)
            parent = node.parent
            self._drop(node, seq_id)
            node = parent
        if end > length:
            upper = self._split(node, len(node.edge) - (end - length))
            self._drop(node, seq_id)
            node = upper
        self._ends[seq_id] = node
        self._lengths[seq_id] = length

    def _leave(self, node: _Node | None, seq_id: int) -> None:
        while node is not None and node.parent is not None:
            parent = node.parent
            self._drop(node, seq_id)
            node = parent

    def _drop(self, node: _Node, seq_id: int) -> None:
        node.holders.discard(seq_id)
        if not node.holders and node.parent is not None:
            self.n_tokens -= len(node.edge)
            del node.parent.children[node.edge[0]]

    def clear(self) -> None:
        """No sequence holds anything."""
        self._root = _Node([], None, set())
        self._ends.clear()
        self._lengths.clear()
        self.n_tokens = 0
