"""Plain words for verdicts, speeds, qualities and contexts; the number always stands beside them."""

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from runtime.messages.api import ModelKind
from runtime.messages.fit import MemoryPlan, SpeedRange, VerdictKind
from runtime.messages.library import DownloadState, Origin
from runtime.units import format_bytes, format_speed, now

WORDS_PER_TOKEN = 0.75
"""English words a token, as a rule of thumb of tokenizer makers; other languages and code take more tokens."""

WORDS_PER_PAGE = 500
"""A printed page of plain text."""

FAST_TPS = 20.0
READING_TPS = 8.0
SLOW_TPS = 4.0
CRAWL_TPS = 1.5
"""Where words for a speed change: 240 words a minute, a usual reading speed, are some 5 tokens a second."""


def tr(text: str) -> str:
    """Translate in the context of the models page."""
    return QCoreApplication.translate("ModelsPage", text)


@dataclass(frozen=True, slots=True)
class Look:
    """How a verdict is drawn: an icon, the colour token of the icon, and the tone of its label."""

    icon: str
    ink: str
    tone: str


def verdict_look(verdict: VerdictKind) -> Look:
    """Icon and colours of a verdict; never the colour alone."""
    looks = {
        "gpu": Look("check", "ok", "ok"),
        "partial": Look("info", "warn", "warn"),
        "cpu": Look("hardware", "text_muted", ""),
        "too_large": Look("close", "red", "bad"),
        "unsupported": Look("error", "red", "bad"),
    }
    return looks[verdict]


def can_load(plan: MemoryPlan) -> bool:
    """Whether a plan says that the model can be loaded."""
    return plan.verdict not in ("too_large", "unsupported")


def speed_words(generation_tps: float) -> str:
    """How fast an answer appears, against reading."""
    if generation_tps >= FAST_TPS:
        return tr("Very fast")
    if generation_tps >= READING_TPS:
        return tr("Faster than reading")
    if generation_tps >= SLOW_TPS:
        return tr("About reading speed")
    if generation_tps >= CRAWL_TPS:
        return tr("Slower than reading")
    return tr("Very slow")


def speed_range(speed: SpeedRange) -> str:
    """`about 45 tok/s (38 to 52)`."""
    if speed.generation_high_tps <= 0:
        return tr("about {speed}").format(speed=format_speed(speed.generation_tps))
    return tr("about {speed} ({low} to {high})").format(
        speed=format_speed(speed.generation_tps),
        low=_short(speed.generation_low_tps),
        high=_short(speed.generation_high_tps),
    )


def speed_line(speed: SpeedRange | None) -> str:
    """Words first, then the number with its range."""
    if speed is None:
        return ""
    return f"{speed_words(speed.generation_tps)}, {speed_range(speed)}"


def speed_basis(speed: SpeedRange) -> str:
    """What a prediction rests on."""
    texts = {
        "measured": tr("This computer ran this model before."),
        "calibrated": tr("Corrected by what this computer measured with other models."),
        "formula": tr("From the measured speed of this computer's memory."),
        "guess": tr("A guess: this computer was not measured yet."),
    }
    return texts[speed.basis]


def _short(speed_tps: float) -> str:
    return f"{speed_tps:.0f}" if speed_tps >= 10 else f"{speed_tps:.1f}"  # noqa: PLR2004 - as `format_speed`


def context_words(n_ctx: int) -> str:
    """`about 6,100 words, 12 pages`."""
    words = n_ctx * WORDS_PER_TOKEN
    pages = max(1, round(words / WORDS_PER_PAGE))
    rounded = round(words, -2) if words >= 1000 else round(words, -1)  # noqa: PLR2004
    if pages == 1:
        return tr("about {words} words, one page").format(words=f"{rounded:,.0f}")
    return tr("about {words} words, {pages} pages").format(words=f"{rounded:,.0f}", pages=f"{pages:,}")


def quality_words(quality: str) -> tuple[str, int]:
    """A word for how close a quantization is to the original, and steps 0..5 for a meter."""
    texts = {
        "best": (tr("Like the original"), 5),
        "very_good": (tr("Very good"), 4),
        "good": (tr("Good"), 3),
        "fair": (tr("Fair"), 2),
        "poor": (tr("Poor"), 1),
    }
    return texts.get(quality, (tr("Unknown"), 0))


def kind_words(kind: ModelKind | str, *, is_vision: bool = False) -> str:
    """What a model is for."""
    if kind == "chat" and is_vision:
        return tr("Sees pictures")
    texts = {
        "embedding": tr("Embedding"),
        "vision": tr("Sees pictures"),
        "projector": tr("Projector"),
        "other": tr("Other"),
    }
    return texts.get(kind, tr("Chat"))


def origin_words(origin: Origin) -> str:
    """Whose files these are."""
    texts = {
        "folder": tr("Your folder"),
        "lm_studio": "LM Studio",
        "ollama": "Ollama",
        "jan": "Jan",
        "gpt4all": "GPT4All",
        "hf_cache": tr("Hub cache"),
        "starter": tr("Part of Deskside"),
    }
    return texts.get(origin, "Deskside")


def download_words(state: DownloadState) -> str:
    """The state of a download."""
    texts = {
        "queued": tr("Waiting for its turn"),
        "running": tr("Downloading"),
        "paused": tr("Paused"),
        "verifying": tr("Checking every byte"),
        "done": tr("Done"),
        "failed": tr("Failed"),
    }
    return texts[state]


def pair_bytes(used_bytes: float, total_bytes: float) -> str:
    """`5.9 of 8.0 GB`: both in the unit of the total."""
    total = format_bytes(total_bytes)
    number, unit = total.rsplit(" ", 1)
    scale = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}[unit]
    used = used_bytes / scale
    text = f"{used:.0f}" if abs(used) >= 100 or unit == "B" else f"{used:.1f}"  # noqa: PLR2004 - as `format_bytes`
    return tr("{used} of {total} {unit}").format(used=text, total=number, unit=unit)


HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
MONTH_DAYS = 30
YEAR_DAYS = 365


def ago_words(at_s: float) -> str:
    """How long ago a moment (seconds since 1970) was, as coarse as people say it."""
    age_s = max(0.0, now() - at_s)
    if age_s < HOUR_S:
        return tr("just now")
    if age_s < DAY_S:
        hours = int(age_s // HOUR_S)
        return tr("an hour ago") if hours == 1 else tr("{n} hours ago").format(n=hours)
    days = int(age_s // DAY_S)
    if days == 1:
        return tr("yesterday")
    if days < 2 * MONTH_DAYS:
        return tr("{n} days ago").format(n=days)
    if days < 2 * YEAR_DAYS:
        return tr("{n} months ago").format(n=days // MONTH_DAYS)
    return tr("{n} years ago").format(n=days // YEAR_DAYS)
