"""How much of a model a quantization keeps, in a class, a figure and a sentence for people.

Sources, both from the llama.cpp that is built in:

* bits a weight: `tools/quantize/README.md`, Llama 3.1 8B; for the older Q4_0 to Q5_1 the file sizes in
  `tools/perplexity/README.md`, Llama 3 8B. Small models with a large vocabulary have more.
* Kullback-Leibler divergence (how far the next token's probabilities move, 0 is not at all):
  `tools/perplexity/README.md`, Llama 3 8B against 16-bit weights; from 4 bits down with an importance matrix, as such
  files are published today.

Larger models lose less by the same format, and small ones more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

QualityClass = Literal["best", "very_good", "good", "fair", "poor", "unknown"]

BEST_KLD = 0.002
VERY_GOOD_KLD = 0.012
GOOD_KLD = 0.045
FAIR_KLD = 0.12
"""Upper ends of the classes by divergence; what is above is `poor`."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What to expect of one quantization.

    Attributes:
        name: as files are called by it.
        rank: place in the list from best (0) to worst; equal ranks are equally good.
        quality: class.
        bits_per_weight: typical, 0.0 where no figure was published.
        kl_divergence: against 16-bit weights; None where none was published.
        note: one sentence for people who do not know the word quantization.
        better: a format that is both smaller and better, where there is one; then this one need not be offered.
    """

    name: str
    rank: int
    quality: QualityClass
    bits_per_weight: float
    kl_divergence: float | None
    note: str
    better: str = ""


_ORIGINAL = "The weights as they were published: nothing is lost, and it is the largest."
_ALMOST = "No difference can be noticed, at about half the size of the original."
_TINY = "Loses almost nothing."
_SMALL = "Loses very little; a good choice when it fits."
_MIDDLE = "The usual choice: about a third of the original's size for a small loss."
_LEAN = "A little smaller than the usual choice, and a little less exact."
_LOOKUP = "Small for what it keeps, but slower on a processor than other formats of its size."
_OLD = "An older format: a newer one is smaller and better."
_VISIBLE = "The loss can be noticed: now and then a wrong word or a worse answer."
_STRONG = "Clearly worse answers; only when nothing larger fits."
_LAST = "Often wrong or incoherent; only for very large models that would not fit otherwise."
_DYNAMIC = "Gives more bits to the layers that need them most."
_NATIVE = "Lossless where the model was published in this format (gpt-oss was); otherwise like other 4-bit formats."
_TERNARY = "Only for models that were trained with so few values a weight."

_ROWS: tuple[tuple[str, float, float | None, str, str], ...] = (
    ("F32", 32.0, 0.0, _ORIGINAL, ""),
    ("BF16", 16.0, 0.0, _ORIGINAL, ""),
    ("F16", 16.0, 0.000551, _ORIGINAL, ""),
    ("Q8_0", 8.5008, 0.001355, _ALMOST, ""),
    ("Q6_K", 6.5633, 0.005452, _TINY, ""),
    ("Q5_K_M", 5.7036, 0.010762, _SMALL, ""),
    ("Q5_K_S", 5.5704, 0.016595, _SMALL, ""),
    ("Q5_1", 6.04, 0.018045, _OLD, "Q5_K_S"),
    ("Q5_0", 5.57, 0.022239, _OLD, "Q5_K_S"),
    ("Q4_K_M", 4.8944, 0.028152, _MIDDLE, ""),
    ("Q4_K_S", 4.6672, 0.031951, _LEAN, ""),
    ("IQ4_NL", 4.6818, 0.035742, _LOOKUP, ""),
    ("IQ4_XS", 4.4597, 0.036334, _LOOKUP, ""),
    ("Q4_1", 5.11, 0.071683, _OLD, "Q4_K_S"),
    ("Q4_0", 4.64, 0.071940, _OLD, "IQ4_XS"),
    ("Q3_K_L", 4.2979, 0.073077, _VISIBLE, ""),
    ("Q3_K_M", 3.9960, 0.084358, _VISIBLE, ""),
    ("IQ3_M", 3.7628, 0.102534, _VISIBLE, ""),
    ("IQ3_S", 3.6606, 0.111278, _VISIBLE, ""),
    ("IQ3_XS", 3.4977, 0.138693, _STRONG, ""),
    ("IQ3_XXS", 3.2548, 0.183625, _STRONG, ""),
    ("Q3_K_S", 3.6429, 0.199821, _STRONG, "IQ3_XS"),
    ("IQ2_M", 2.9294, 0.325989, _LAST, ""),
    ("Q2_K", 3.1593, 0.332223, _LAST, "IQ2_M"),
    ("Q2_K_S", 2.9697, 0.403360, _LAST, "IQ2_M"),
    ("IQ2_S", 2.7403, 0.439197, _LAST, ""),
    ("IQ2_XS", 2.5882, 0.546, _LAST, ""),
    ("IQ2_XXS", 2.3824, 0.812, _LAST, ""),
    ("IQ1_M", 2.1460, 1.39, _LAST, ""),
    ("IQ1_S", 2.0042, 2.2, _LAST, ""),
)
"""Best to worst."""

_UNMEASURED: tuple[tuple[str, str, float, QualityClass, str], ...] = (
    ("MXFP4", "Q4_K_S", 4.25, "good", _NATIVE),
    ("MXFP4_MOE", "Q4_K_S", 4.25, "good", _NATIVE),
    ("NVFP4", "Q4_K_S", 4.5, "good", _NATIVE),
    ("Q2_0", "Q2_K", 2.25, "unknown", _TERNARY),
    ("TQ2_0", "IQ2_XXS", 2.0625, "unknown", _TERNARY),
    ("TQ1_0", "IQ1_S", 1.6875, "unknown", _TERNARY),
    ("Q1_0", "IQ1_S", 1.125, "unknown", _TERNARY),
)
"""Formats nobody published a divergence for: name, the measured one they are ranked with, bits of the format itself."""

_BASE_OF_LARGE: Mapping[str, str] = {
    "Q8_K_XL": "Q8_0",
    "Q6_K_XL": "Q6_K",
    "Q5_K_XL": "Q5_K_M",
    "Q4_K_XL": "Q4_K_M",
    "Q3_K_XL": "Q3_K_L",
    "Q2_K_XL": "Q2_K",
    "Q6_K_L": "Q6_K",
    "Q5_K_L": "Q5_K_M",
    "Q4_K_L": "Q4_K_M",
    "Q2_K_L": "Q2_K",
}
"""Mixtures of publishers that keep more bits in some tensors than the one they are named after."""
_ALIASES: Mapping[str, str] = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "FP16": "F16", "FP32": "F32"}
_DYNAMIC_PREFIX = "UD-"


def _class_of(divergence: float) -> QualityClass:
    limits: tuple[tuple[float, QualityClass], ...] = (
        (BEST_KLD, "best"),
        (VERY_GOOD_KLD, "very_good"),
        (GOOD_KLD, "good"),
        (FAIR_KLD, "fair"),
    )
    return next((name for limit, name in limits if divergence <= limit), "poor")


def _table() -> dict[str, Quality]:
    found: dict[str, Quality] = {}
    for rank, (name, bits, divergence, note, better) in enumerate(_ROWS):
        quality: QualityClass = "unknown" if divergence is None else _class_of(divergence)
        found[name] = Quality(name, rank, quality, bits, divergence, note, better)
    for name, like, bits, quality, note in _UNMEASURED:
        found[name] = Quality(name, found[like].rank, quality, bits, None, note)
    for name, base in _BASE_OF_LARGE.items():
        note = f"{_DYNAMIC} Otherwise like {base}."
        found[name] = replace(found[base], name=name, kl_divergence=None, note=note, better="")
    return found


QUALITIES: Mapping[str, Quality] = _table()
"""All quantizations there is something to say about, by name, best first among the measured ones."""

UNKNOWN_RANK = len(_ROWS)
_PLAIN = re.compile(r"[A-Z0-9_]{1,32}")


def quality_of(quantization: str) -> Quality:
    """What to expect of a quantization, by the name its file has (`Q4_K_M`, `UD-Q4_K_XL`, in any case).

    A name that is not known gets the class `unknown` and the last rank.
    """
    name = quantization.strip().upper()
    is_dynamic = name.startswith(_DYNAMIC_PREFIX)
    plain = name.removeprefix(_DYNAMIC_PREFIX)
    found = QUALITIES.get(_ALIASES.get(plain, plain))
    if found is None:
        label = name if _PLAIN.fullmatch(plain) else ""
        return Quality(label, UNKNOWN_RANK, "unknown", 0.0, None, "Nothing is known about this format.")
    if is_dynamic and plain not in _BASE_OF_LARGE:
        return replace(found, name=name, kl_divergence=None, note=f"{_DYNAMIC} Otherwise like {plain}.", better="")
    return replace(found, name=name) if name != found.name else found
