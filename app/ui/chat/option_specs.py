"""What the inspector needs of an option, read from its declaration in `runtime.options`."""

from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

SOFT_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "dynatemp_range": (0, 2),
    "dynatemp_exponent": (0, 3),
    "top_k": (0, 200),
    "repeat_penalty": (0.8, 2),
    "repeat_last_n": (-1, 1024),
    "dry_multiplier": (0, 5),
    "dry_base": (1, 4),
    "dry_allowed_length": (0, 20),
    "dry_penalty_last_n": (-1, 4096),
    "mirostat_tau": (0, 10),
}
"""Range of the slider where the permitted one is wider than what is ever useful; the number field takes the rest."""

MIB = 2**20

SMALLEST_STEP = 0.0001
"""What stands for "above zero" in a number field."""

LARGEST_INT = 2**31 - 1
"""Qt's spin boxes end here."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: `kind` says what it is, `low` and `high` bound the number, `soft_*` the slider.

    `optional` options may be automatic (`None`).
    """

    name: str
    title: str
    description: str
    kind: Literal["int", "float", "choice"]
    low: float
    high: float
    soft_low: float
    soft_high: float
    default: float | str | None
    optional: bool = False
    choices: tuple[str | int, ...] = ()
    scale: int = 1
    """Bytes are shown in MiB: what is shown times this is the value."""


def option_specs(options: type[msgspec.Struct]) -> tuple[OptionSpec, ...]:
    """The numeric and choice options of a struct that have a title, in the order of declaration."""
    hints = get_type_hints(options, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
    found = (_spec(name, hints[name], defaults[name]) for name in options.__struct_fields__)
    return tuple(spec for spec in found if spec is not None)


def _unwrap(hint: Any) -> tuple[Any, list[Meta], bool]:  # noqa: ANN401 - type hints are of any kind
    """The plain type in a hint, the constraints around it, and whether `None` is allowed.

    Constraints may stand around the union with `None` or within it (msgspec moves them there).
    """
    metas: list[Meta] = []
    optional = False
    while True:
        if hasattr(hint, "__metadata__"):
            metas += [each for each in hint.__metadata__ if isinstance(each, Meta)]
            hint = get_args(hint)[0]
        elif NoneType in get_args(hint):
            optional = True
            hint = next(each for each in get_args(hint) if each is not NoneType)
        else:
            return hint, metas, optional


def _spec(name: str, hint: Any, default: Any) -> OptionSpec | None:  # noqa: ANN401 - type hints are of any kind
    inner, metas, optional = _unwrap(hint)
    title = next((str(meta.title) for meta in metas if meta.title), "")
    if not title:
        return None
    text = next((str(meta.description) for meta in metas if meta.description), "")
    if get_origin(inner) is Literal:
        return OptionSpec(name, title, text, "choice", 0, 0, 0, 0, default, choices=get_args(inner))
    if inner not in (int, float):
        return None
    unit = next((str((meta.extra or {}).get("unit", "")) for meta in metas if meta.title), "")
    scale = MIB if unit == "bytes" else 1
    above = next((meta.gt for meta in metas if meta.gt is not None), None)
    low = float(next((meta.ge for meta in metas if meta.ge is not None), 0)) / scale
    if above is not None:
        low = float(above) + SMALLEST_STEP
    high = float(next((meta.le for meta in metas if meta.le is not None), LARGEST_INT * scale)) / scale
    high = min(high, LARGEST_INT)
    soft_low, soft_high = SOFT_RANGES.get(name, (low, min(high, 4096.0)))
    if scale > 1:
        title = f"{title} (MiB)"
    kind: Literal["int", "float"] = "int" if inner is int else "float"
    return OptionSpec(name, title, text, kind, low, high, soft_low, soft_high, default, optional, scale=scale)
