"""Which quantization of a model to take on this machine, and why.

The rule, in the order it is applied to the files that fit with the context asked for:

1. Of those at least "good" (`runtime.gguf.quality`) that write `COMFORT_TPS` or more, the best.
2. Of those at least "fair" that write `USABLE_TPS` or more, the best.
3. Of those at least "fair", the fastest.
4. Of the rest, the best.

Formats that nobody can tell from the original count as equally good, and the smallest of them wins: what it saves is
context, or speed. A file that is larger than another without being better is never taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.fit.choice import FLOOR_N_CTX
from runtime.gguf.quality import QUALITIES, Quality, quality_of
from runtime.gguf.quantization import is_removed
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import QuantVerdict

COMFORT_TPS = 20.0
"""Tokens a second that nobody waits for, also with a few hundred tokens of reasoning before the answer."""
USABLE_TPS = 8.0
"""As fast as people read: 250 to 300 words a minute are about 6 tokens a second, and some room."""
EQUAL_KLD = 0.006
"""Divergence up to which a format counts as the original: Q6_K and better (perplexity changes by 0.4 % at most;
`tools/perplexity/README.md` of llama.cpp)."""

RULE = (
    f"Recommended is the best quality that fits with this context and writes at least {COMFORT_TPS:.0f} tokens a "
    f"second, or else {USABLE_TPS:.0f}. Formats that cannot be told from the original count as equal: then the "
    "smallest wins."
)
NOTHING_FITS = "No file of this model fits with these settings. Choose a smaller model, or a shorter context."

_GOOD = ("best", "very_good", "good")
_FAIR = (*_GOOD, "fair")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file with its plan. `name` is the row's, `quantization` as its name or header tells it."""

    name: str
    quantization: str
    size_bytes: int
    plan: MemoryPlan


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`name` of the row to take, empty when nothing fits; `reason` in one or two sentences."""

    name: str
    reason: str
    rule: str = RULE


def recommend(candidates: Sequence[Candidate], *, n_ctx_train: int = 0) -> Recommendation:
    """Choose one file.

    Args:
        candidates: all files of one model, planned with the same options.
        n_ctx_train: of the model, where known: an automatic context need not be longer.
    """
    enough = min(FLOOR_N_CTX, n_ctx_train or FLOOR_N_CTX)
    rated = [_Rated(candidate, quality_of(candidate.quantization)) for candidate in candidates]
    fitting = [one for one in rated if one.fits(enough)]
    # With less context than that is better than not at all.
    fitting = fitting or [one for one in rated if one.fits(0)]
    if not fitting:
        return Recommendation("", NOTHING_FITS)
    known = [one for one in fitting if one.quality.quality != "unknown"] or fitting
    offered = [one for one in known if not any(one.is_dominated_by(other) for other in known)]
    chosen, speed = _chosen(offered)
    return Recommendation(chosen.candidate.name, _reason(chosen, speed, rated, enough))


def judged(candidates: Sequence[Candidate], *, n_ctx_train: int = 0) -> tuple[QuantVerdict, ...]:
    """A row for every candidate, in their order, one of them recommended."""
    found = recommend(candidates, n_ctx_train=n_ctx_train)
    return tuple(
        QuantVerdict(
            name=candidate.name,
            plan=candidate.plan,
            recommended=candidate.name == found.name,
            reason=found.reason if candidate.name == found.name else "",
        )
        for candidate in candidates
    )


@dataclass(frozen=True, slots=True)
class _Rated:
    candidate: Candidate
    quality: Quality

    @property
    def tps(self) -> float:
        """Predicted generation speed; 0 where nothing is known."""
        return self.candidate.plan.speed.generation_tps if self.candidate.plan.speed is not None else 0.0

    @property
    def is_as_original(self) -> bool:
        return self.quality.rank <= _EQUAL_RANK

    @property
    def rank(self) -> int:
        """Place from best to worst; those that cannot be told from the original share the first."""
        return 0 if self.is_as_original else self.quality.rank

    def fits(self, n_ctx: int) -> bool:
        plan = self.candidate.plan
        if plan.verdict in ("too_large", "unsupported") or is_removed(self.candidate.quantization):
            return False
        return plan.options.n_ctx is not None or plan.resolved.n_ctx >= n_ctx

    def is_dominated_by(self, other: "_Rated") -> bool:
        """Whether the other is no larger and no worse, and one of both truly."""
        mine, its = (self.rank, self.candidate.size_bytes), (other.rank, other.candidate.size_bytes)
        return its[0] <= mine[0] and its[1] <= mine[1] and its != mine


_EQUAL_RANK = max(
    quality.rank
    for quality in QUALITIES.values()
    if quality.kl_divergence is not None and quality.kl_divergence <= EQUAL_KLD
)


def _chosen(offered: Sequence[_Rated]) -> tuple[_Rated, float]:
    """The one to take, and the speed it was asked for (0 where speed did not decide)."""

    def best(found: Sequence[_Rated]) -> _Rated:
        return min(found, key=lambda one: (one.rank, one.candidate.size_bytes))

    def of(classes: Sequence[str], tps: float) -> list[_Rated]:
        return [one for one in offered if one.quality.quality in classes and one.tps >= tps]

    if found := of(_GOOD, COMFORT_TPS):
        return best(found), COMFORT_TPS
    if found := of(_FAIR, USABLE_TPS):
        return best(found), USABLE_TPS
    if found := of(_FAIR, 0.0):
        return max(found, key=lambda one: one.tps), 0.0
    return best(offered), 0.0


def _reason(chosen: _Rated, speed_tps: float, rated: Sequence[_Rated], enough: int) -> str:
    name = chosen.candidate.quantization or chosen.candidate.name
    better = [one for one in rated if one.rank < chosen.rank and not is_removed(one.candidate.quantization)]
    if chosen.is_as_original:
        gain = any(one.candidate.size_bytes > chosen.candidate.size_bytes and one.is_as_original for one in rated)
        return f"{name} cannot be told from the original" + (", and larger files gain nothing." if gain else ".")
    if not better:
        return f"{name} is the best quality there is of this model."
    following = max(better, key=lambda one: (one.rank, -one.candidate.size_bytes))
    return f"{_why_chosen(name, speed_tps)} {_why_not(following, enough)}".strip()


def _why_chosen(name: str, speed_tps: float) -> str:
    if speed_tps:
        return f"{name} is the best quality that fits and writes at least {speed_tps:.0f} tokens a second."
    return f"{name} is the fastest that keeps a fair quality."


def _why_not(other: _Rated, enough: int) -> str:
    """Why the next better one was not taken."""
    plan, name = other.candidate.plan, other.candidate.quantization or other.candidate.name
    if plan.verdict in ("too_large", "unsupported"):
        return f"{name} does not fit."
    if not other.fits(enough):
        return f"{name} leaves room for {plan.resolved.n_ctx:,} tokens of context only."
    if plan.speed is None or plan.speed.basis == "guess":
        return f"{name} would be slower."
    return f"{name} would write about {_told(other.tps)}."


def _told(tps: float) -> str:
    return f"{tps:.0f}" if tps >= 10 else f"{tps:.1f}"  # noqa: PLR2004 - two digits are enough
