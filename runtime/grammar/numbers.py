"""Numbers in bounds, as GBNF over their decimal digits."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from runtime.grammar.rules import either

MAX_DIGITS = 15
"""Digits of a whole number beyond those of its bound: what a double holds exactly."""
MAX_FRACTION = 6
"""Fraction digits beyond those of a bound."""
UNREACHABLE = Decimal("1e114")
"""No number is written so far from 0: 15 digits, and an exponent of two."""
INTEGER = '"-"? ("0" | [1-9] [0-9]{0,14})'
NUMBER = INTEGER + ' ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?'


def integer_between(low: int | None, high: int | None) -> str:
    """Whole numbers from `low` to `high`; "" when there is none."""
    if low is None and high is None:
        return INTEGER
    parts = []
    if low is None or low < 0:
        negative = _natural(max(1, -high) if high is not None and high < 0 else 1, None if low is None else -low)
        if negative:
            parts.append(f'"-" {negative}')
    if high is None or high >= 0:
        natural = _natural(max(0, low or 0), high)
        if natural:
            parts.append(natural)
    return either(parts) if parts else ""


def number_between(low: Decimal | None, high: Decimal | None, *, above: bool = False, below: bool = False) -> str:
    """Decimal numbers in bounds; `above` and `below` exclude the bound itself. "" when there is none."""
    if low is None and high is None:
        return NUMBER
    parts = []
    if high is None or high > 0 or (high == 0 and not below):
        is_cut = low is not None and low >= 0
        least = low if low is not None and is_cut else Decimal(0)
        parts.append(_positive(least, high, above=above and is_cut, below=below))
    if low is None or low < 0:
        is_cut = high is not None and high <= 0
        least = -high if high is not None and is_cut else Decimal(0)
        # Without the bound, 0 is left to the other half.
        negative = _positive(least, None if low is None else -low, above=(below and is_cut) or not is_cut, below=above)
        if negative:
            parts.append(f'"-" {negative}')
    parts = [part for part in parts if part]
    return either(parts) if parts else ""


def _natural(low: int, high: int | None) -> str:
    if high is None:
        n_digits = len(str(low))
        first = "0" * 0 + "9" * n_digits
        same = _digits(str(low), first)
        return either([same, f"[1-9] [0-9]{{{n_digits},{n_digits + MAX_DIGITS - 1}}}"])
    if low > high:
        return ""
    parts = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        parts.append(_digits(str(low), str(end)))
        low = end + 1
    return either(parts)


def _digits(low: str, high: str) -> str:
    """Digit strings of one length from `low` to `high`."""
    if not low:
        return '""'
    if low == high:
        return f'"{low}"'
    if low[0] == high[0]:
        return f'"{low[0]}" {_digits(low[1:], high[1:])}'
    n_rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    parts = []
    if low[1:].strip("0"):
        parts.append(f'"{first}" {_digits(low[1:], "9" * n_rest)}')
        first += 1
    ends_whole = not high[1:].strip("9")
    if not ends_whole:
        last -= 1
    if first <= last:
        rest = f" [0-9]{{{n_rest}}}" if n_rest else ""
        parts.append(f"[{first}-{last}]{rest}")
    if not ends_whole:
        parts.append(f'"{high[0]}" {_digits("0" * n_rest, high[1:])}')
    return either(parts)


def _positive(low: Decimal, high: Decimal | None, *, above: bool, below: bool) -> str:
    if high is not None and (low > high or (low == high and (above or below))):
        return ""
    low_whole = int(low)
    low_rest = low - low_whole
    parts = []
    if high is None:
        inner = _natural(low_whole + 1, None)
        parts.append(f'{inner} ("." [0-9]{{1,{MAX_FRACTION}}})?')
        parts += _with_fraction(low_whole, low_rest, None, above=above, below=False)
        return either(parts)
    high_whole = int(high)
    high_rest = high - high_whole
    if low_whole == high_whole:
        return either(_with_fraction(low_whole, low_rest, high_rest, above=above, below=below) or [""])
    inner = _natural(low_whole + 1, high_whole - 1)
    if inner:
        parts.append(f'{inner} ("." [0-9]{{1,{MAX_FRACTION}}})?')
    parts += _with_fraction(low_whole, low_rest, None, above=above, below=False)
    parts += _with_fraction(high_whole, Decimal(0), high_rest, above=False, below=below)
    return either(parts) if parts else ""


def _with_fraction(whole: int, low: Decimal, high: Decimal | None, *, above: bool, below: bool) -> list[str]:
    """`whole` with a fraction from `low` to `high` (both below 1; None is up to the next whole number)."""
    n_digits = max(1, _n_fraction(low), _n_fraction(high) if high is not None else 0)
    parts = []
    top = Decimal(1) if high is None else high
    is_below = below or high is None

    def holds(value: Decimal) -> bool:
        return (value > low or (value == low and not above)) and (value < top or (value == top and not is_below))

    if holds(Decimal(0)):
        parts.append(f'"{whole}"')
    for size in range(1, n_digits + 1):
        scale = Decimal(10) ** size
        least = int((low * scale).to_integral_value(ROUND_CEILING))
        most = int((top * scale).to_integral_value(ROUND_FLOOR))
        if not holds(Decimal(least) / scale):
            least += 1
        if not holds(Decimal(most) / scale):
            most -= 1
        if least <= most:
            parts.append(f'"{whole}." {_digits(str(least).zfill(size), str(most).zfill(size))}')
    # Beyond the digits of the bounds anything may follow where both neighbours are inside.
    scale = Decimal(10) ** n_digits
    first = int((low * scale).to_integral_value(ROUND_CEILING))
    last = int((top * scale).to_integral_value(ROUND_FLOOR)) - 1
    if first <= last:
        if not holds(Decimal(first) / scale):
            head = f'"{whole}.{str(first).zfill(n_digits)}"'
            parts.append(f"{head} [0-9]{{0,{MAX_FRACTION - 1}}} [1-9]")
            first += 1
        if first <= last:
            digits = _digits(str(first).zfill(n_digits), str(last).zfill(n_digits))
            parts.append(f'"{whole}." {digits} [0-9]{{1,{MAX_FRACTION}}}')
    return parts


def _n_fraction(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
