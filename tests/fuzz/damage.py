"""Inputs damaged in ways that parsers meet: bytes, texts made of a language's words, and JSON by its structure."""

import random
from collections.abc import Callable
from typing import Any

ODD_NUMBERS = (0, -1, 1, 2**31, -(2**31), 2**53, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e308, 5e-324)
ODD_TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\n",
        '"',
        "\\",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "é",
        "😀",
    ),
    *(
        "{{",
        "{%",
        "<|im_end|>",
        "</think>",
        "<tool_call>",
        "../..",
        "a" * 300,
        "\u0661",
        "\u2028",
        "-",
        "1e999",
        "null",
    ),
    *("data:image/png;base64,", "data:,", "https://example.org/a.png", "file:///etc/hosts", "iVBORw0KGgo="),
)


def damaged_bytes(draw: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """One to four changes of bytes; `others` lend pieces."""
    raw = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randint(0, len(raw))
        match draw.randrange(7):
            case 0 if raw:
                raw[min(place, len(raw) - 1)] ^= 1 << draw.randrange(8)
            case 1:
                raw[place:place] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 8)))
            case 2:
                del raw[place : place + draw.choice((1, 4, 64, 4096))]
            case 3:
                raw[place:place] = raw[place : place + draw.choice((1, 16, 256))] * draw.choice((1, 2, 20))
            case 4 if others:
                other = draw.choice(others)
                start = draw.randint(0, len(other))
                raw[place:place] = other[start : start + draw.choice((4, 64, 1024))]
            case 5:
                raw[place : place + 4] = draw.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"))
            case _:
                del raw[place:]
    return bytes(raw[: 1 << 20])


def damaged_text(draw: random.Random, text: str, words: tuple[str, ...], others: list[str]) -> str:
    """One to five changes of a text; `words` are what its language is made of."""
    for _ in range(draw.randint(1, 5)):
        place = draw.randint(0, len(text))
        end = place + draw.choice((0, 0, 1, 3, 20))
        match draw.randrange(5):
            case 0:
                piece = draw.choice(words)
            case 1:
                piece = chr(
                    draw.choice((draw.randrange(1, 128), draw.randrange(128, 0xD800), draw.randrange(0x110000)))
                )
            case 2:
                start = draw.randint(0, len(text))
                piece = text[start : start + draw.choice((1, 8, 80))] * draw.choice((1, 1, 2, 30))
            case 3 if others:
                other = draw.choice(others)
                start = draw.randint(0, len(other))
                piece = other[start : start + draw.choice((4, 40, 400))]
            case _:
                piece = ""
        text = text[:place] + piece + text[end:]
    return text[: 1 << 16].encode("utf-8", "replace").decode()


def damaged_json(draw: random.Random, value: Any, *, n_changes: int = 0) -> Any:
    """A copy with one to four nodes changed, taken away, doubled, moved or renamed."""
    for _ in range(n_changes or draw.randint(1, 4)):
        places = list(_places(value, ()))
        value = _with(draw, value, draw.choice(places))
    return value


def _places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in list(value.items())[:60]:
            found += _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:20]):
            found += _places(inner, (*path, index))
    return found


def _with(draw: random.Random, value: Any, path: tuple[Any, ...]) -> Any:
    if path:
        key, *rest = path
        inner = value[key]
        if isinstance(value, dict):
            copy = dict(value)
            if not rest and draw.random() < 0.35:
                del copy[key]
                if draw.random() < 0.5:
                    copy[draw.choice((f"{key} ", str(key).upper(), *ODD_TEXTS[:8]))] = inner
                return copy
            copy[key] = _with(draw, inner, tuple(rest))
            return copy
        items = list(value)
        if not rest and draw.random() < 0.35:
            items[key : key + 1] = draw.choice(([], [inner] * draw.choice((2, 40))))
            return items
        items[key] = _with(draw, inner, tuple(rest))
        return items
    return _instead(draw, value)


def _instead(draw: random.Random, value: Any) -> Any:
    if draw.random() < 0.2 and isinstance(value, str):
        return damaged_text(draw, value, ODD_TEXTS, [])
    if draw.random() < 0.2 and isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice((-value, value + 1, value * 1000, str(value), float(value) if abs(value) < 2**63 else 0))
    plain: tuple[Callable[[], Any], ...] = (
        lambda: draw.choice(ODD_NUMBERS),
        lambda: draw.choice(ODD_TEXTS),
        lambda: draw.choice((None, True, False, [], {}, [[]], [None], {"": None})),
        lambda: [value],
        lambda: {"type": value},
        lambda: _nested(draw.choice((3, 40, 150)), value),
        lambda: [value] * draw.choice((0, 2, 17, 300)),
        lambda: str(value)[:1000],
    )
    return draw.choice(plain)()


def _nested(depth: int, value: Any) -> Any:
    for index in range(depth):
        value = [value] if index % 2 else {"a": value}
    return value
