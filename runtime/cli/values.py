"""Words of the command line to values, each with a sentence when it is none; and the sentences of the options."""

import argparse
import enum
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from runtime.options import MAX_ADAPTER_SCALE, LoadOptions, declared_options

N = TypeVar("N", int, float)

MAX_PORT = 65_535
NONE = "none"
"""Takes a file away that is remembered."""
_COUNT = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMBT]?)$", re.IGNORECASE)
_ADAPTER = re.compile(r"^(?P<name>.+):(?P<scale>[+-]?\d+(?:\.\d+)?)$")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def option_sentence(owner: type[msgspec.Struct], field: str) -> str:
    """The sentence and the range of an option, from its declaration."""
    option = next((one for one in declared_options(owner) if one.name == field), None)
    if option is None:
        return "too many, or not understood."
    if option.low is not None and option.high is not None:
        return f"{option.text} {option.low:,} to {option.high:,}."
    return option.text if option.low is None else f"{option.text} At least {option.low:,}."


def option_help(field: str, owner: type[msgspec.Struct] = LoadOptions) -> str:
    """The sentence of an option as help text."""
    return escaped(option_sentence(owner, field))


def option_choices(field: str, owner: type[msgspec.Struct] = LoadOptions) -> tuple[str, ...]:
    """The words an option takes."""
    return tuple(str(one) for one in next(o for o in declared_options(owner) if o.name == field).choices)


def adapter(raw: str) -> dict[str, str | float]:
    """A LoRA adapter: its file (made absolute, since the host may run elsewhere) or id, and its scale behind a colon.

    `none` is empty: it takes the remembered ones away.

    Raises:
        argparse.ArgumentTypeError: if the scale is out of its range.
    """
    if raw == NONE:
        return {}
    found = _ADAPTER.match(given_text(raw))
    name, scale = (found["name"], float(found["scale"])) if found else (raw, 1.0)
    if abs(scale) > MAX_ADAPTER_SCALE:
        raise argparse.ArgumentTypeError(f"the scale {scale:g} is out of range; at most {MAX_ADAPTER_SCALE:g}")
    return {"path": file_or_name(name), "scale": scale}


def file_or_name(raw: str) -> str:
    """The absolute path of a file that is there (the host may run elsewhere), else the name as it was given.

    Raises:
        argparse.ArgumentTypeError: if there is nothing.
    """
    path = Path(given_text(raw)).expanduser()
    return str(path.absolute()) if path.is_file() else raw


def file_path(raw: str) -> str:
    """The absolute path of a file that is there.

    Raises:
        argparse.ArgumentTypeError: if there is none.
    """
    path = Path(given_text(raw)).expanduser()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {raw!r}")
    return str(path.absolute())


def escaped(text: str) -> str:
    """Text for argparse, which formats its help with %."""
    return text.replace("%", "%%")


def port_number(raw: str) -> int:
    """A TCP port.

    Raises:
        argparse.ArgumentTypeError: if it is none.
    """
    if not raw.isascii() or not raw.isdigit() or int(raw) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{raw!r} is no port; ports are 0 to {MAX_PORT}")
    return int(raw)


def given_text(raw: str) -> str:
    """A text that is there: an unset variable in quotes must not mean "the default".

    Raises:
        argparse.ArgumentTypeError: if it is empty.
    """
    if not raw.strip():
        raise argparse.ArgumentTypeError("it is empty; leave the option out or give it a value")
    return raw


def api_key(raw: str) -> str:
    """An API key that a client can send in a header.

    Raises:
        argparse.ArgumentTypeError: if none can.
    """
    if not raw.strip():
        raise argparse.ArgumentTypeError("the key is empty, so everyone could call")
    if raw != raw.strip() or not (raw.isascii() and raw.isprintable()):
        raise argparse.ArgumentTypeError("a key is printable ASCII without spaces around it, as it is sent in a header")
    return raw


class Automatic(enum.Enum):
    """`auto` as it was typed; an option that was not named is None."""

    AUTO = "auto"

    def __str__(self) -> str:
        return self.value


def auto_or_int(raw: str) -> int | Automatic:
    """A whole number, or `auto`.

    Raises:
        argparse.ArgumentTypeError: if it is neither.
    """
    return Automatic.AUTO if raw == Automatic.AUTO.value else _number(int, raw, "a whole number")


def auto_or_float(raw: str) -> float | Automatic:
    """A number, or `auto`.

    Raises:
        argparse.ArgumentTypeError: if it is neither.
    """
    return Automatic.AUTO if raw == Automatic.AUTO.value else _number(float, raw, "a number")


def _number(kind: Callable[[str], N], raw: str, named: str) -> N:
    try:
        return kind(raw)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{raw!r} is neither auto nor {named}") from None


def parameter_count(raw: str) -> int:
    """`8B` is 8,000,000,000.

    Raises:
        argparse.ArgumentTypeError: if it is no such number.
    """
    match = _COUNT.match(raw.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{raw!r} is no number of parameters; write 8B or 500M")
    return int(float(match["number"]) * _UNITS[match["unit"].upper()])
