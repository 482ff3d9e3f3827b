"""Code point ranges as sequences of byte ranges: a grammar over characters as one over UTF-8 bytes."""

from collections.abc import Iterable, Iterator, Sequence

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_LENGTH_ENDS = (0x7F, 0x7FF, 0xFFFF, MAX_CODE_POINT)
"""Last code point of one, two, three and four bytes."""

Ranges = tuple[tuple[int, int], ...]
"""Code points from, to (both included); ascending and apart."""


def normalized(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges, join those that touch, and leave the surrogates out: UTF-8 has none."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if high < low:
            continue
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    apart: list[tuple[int, int]] = []
    for low, high in joined:
        if low < _SURROGATES[0]:
            apart.append((low, min(high, _SURROGATES[0] - 1)))
        if high > _SURROGATES[1]:
            apart.append((max(low, _SURROGATES[1] + 1), min(high, MAX_CODE_POINT)))
    return tuple(pair for pair in apart if pair[0] <= pair[1])


def inverted(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Every code point outside of these."""
    found: list[tuple[int, int]] = []
    low = 0
    for first, last in sorted(ranges):
        if first > low:
            found.append((low, first - 1))
        low = max(low, last + 1)
    if low <= MAX_CODE_POINT:
        found.append((low, MAX_CODE_POINT))
    return normalized(found)


def byte_sequences(ranges: Ranges) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sequences of byte ranges that together are exactly the UTF-8 of these code points."""
    for low, high in ranges:
        start = low
        for end in _LENGTH_ENDS:
            if start <= min(high, end):
                yield from _split(_encode(start), _encode(min(high, end)))
                start = end + 1


def _encode(code_point: int) -> bytes:
    return chr(code_point).encode("utf-8", "surrogatepass")


def _split(low: Sequence[int], high: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The same for two encodings of one length."""
    if len(low) == 1:
        yield ((low[0], high[0]),)
        return
    if low[0] == high[0]:
        for rest in _split(low[1:], high[1:]):
            yield ((low[0], low[0]), *rest)
        return
    n_rest = len(low) - 1
    least, most = (0x80,) * n_rest, (0xBF,) * n_rest
    first, last = low[0], high[0]
    if tuple(low[1:]) != least:
        for rest in _split(low[1:], most):
            yield ((first, first), *rest)
        first += 1
    ends_whole = tuple(high[1:]) == most
    if not ends_whole:
        last -= 1
    if first <= last:
        yield ((first, last), *((0x80, 0xBF),) * n_rest)
    if not ends_whole:
        for rest in _split(least, high[1:]):
            yield ((high[0], high[0]), *rest)
