"""Choosing the next token of one choice: llama.cpp's sampler chain over an exactly narrowed set.

The chain is llama.cpp's usual one: logit bias, penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature,
draw (`common/sampling.cpp`); mirostat replaces what follows DRY. A guide stands beside the chain
(`runtime.worker.guide`): the token the chain chose is checked alone, and only if it is refused the chain runs again
over all that may come.

Narrowing is exact. Let P be the tokens whose logits the bias, the penalties or DRY may change. The set handed to
the chain holds every token at or above a lower bound of the (k + |P|)-th largest logit, and those of P that may be
lifted. At least k + |P| tokens are at or above the bound, at most |P| of them are lowered, so at least k of them
stay there: no token outside the set can be among the k largest afterwards. Without top-k, min-p alone bounds the
set in the same way. Everything else (top-p or typical without top-k, mirostat) runs on the whole vocabulary.
"""

import ctypes
import math
import secrets
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.errors import BadRequest, BugFault
from runtime.grammar.answer import FREE_ANSWER, AnswerPlan
from runtime.options import GenerateOptions, SamplingOptions
from runtime.scheduler.plan import NO_TOKEN
from runtime.worker import native
from runtime.worker.grammar import Grammars
from runtime.worker.guide import Guide
from runtime.worker.logits import FloatRow, IntRow, LogitRows
from runtime.worker.vocab import Vocab

_MARGIN = 1e-3
"""Slack in logits where our float32 arithmetic and llama.cpp's may round differently."""
MAX_DRY_PROTOTYPES = 8
"""DRY samplers kept for cloning: making one reads the whole vocabulary for each breaker (100 ms and more)."""


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """How a row may be narrowed: keep the `k` largest, or with `k` 0 those above max + `log_min_p`."""

    k: int
    log_min_p: float = 0.0


class DryPrototypes:
    """DRY samplers by their options, cloned for each choice. Home thread: any (locked)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def clone(self, vocab: Vocab, options: SamplingOptions, last_n: int) -> int:
        """A fresh DRY sampler."""
        breakers = tuple(text for text in options.dry_sequence_breakers if text)
        key = (options.dry_multiplier, options.dry_base, options.dry_allowed_length, last_n, breakers)
        with self._lock:
            prototype = self._known.get(key)
            if prototype is None:
                raw = [text.encode("utf-8", "replace").replace(b"\0", b"") for text in breakers]
                prototype = native.sampler_init_dry(
                    vocab.address,
                    options.dry_multiplier,
                    options.dry_base,
                    options.dry_allowed_length,
                    last_n,
                    (ctypes.c_char_p * len(raw))(*raw),
                    len(raw),
                )
                self._known[key] = prototype
                while len(self._known) > MAX_DRY_PROTOTYPES:
                    native.sampler_free(self._known.popitem(last=False)[1])
            self._known.move_to_end(key)
            return int(native.sampler_clone(prototype))

    def close(self) -> None:
        """Free the prototypes."""
        with self._lock:
            while self._known:
                native.sampler_free(self._known.popitem()[1])


class SamplerFactory:
    """Makes the samplers of a model's requests; usable from any thread."""

    def __init__(self, vocab: Vocab, n_ctx: int) -> None:
        self._vocab = vocab
        self._n_ctx = n_ctx
        self._dry = DryPrototypes()
        self._grammars = Grammars(vocab)

    def make(
        self, options: GenerateOptions, prompt: Sequence[int], plan: AnswerPlan = FREE_ANSWER
    ) -> tuple["Sampler", ...]:
        """One sampler for each choice; choice i draws with seed + i.

        Raises:
            BadRequest: the grammar does not parse or is too ambiguous to start, or a biased token is not in the
                vocabulary.
        """
        sampling = options.sampling
        for token in sampling.logit_bias:
            if not 0 <= token < self._vocab.n_tokens:
                raise BadRequest(
                    f"logit_bias names token {token}; the model has tokens 0 to {self._vocab.n_tokens - 1}.",
                    param="logit_bias",
                )
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        bias = dict(sampling.logit_bias)
        if options.ignore_eos:
            bias |= dict.fromkeys(self._vocab.eog_ids, -math.inf)
        guide = self._guide(plan, sampling.grammar)
        samplers: list[Sampler] = []
        for choice in range(options.n):
            own = guide.copy() if guide is not None and choice else guide
            # 2**32 - 1 means "draw a seed" to llama.cpp.
            drawn = (seed + choice) % native.LLAMA_DEFAULT_SEED
            samplers.append(self._make_one(sampling, prompt, bias, drawn, own))
        return tuple(samplers)

    def _guide(self, plan: AnswerPlan, own_grammar: str) -> Guide | None:
        grammar = plan.grammar or own_grammar
        if not grammar and plan.is_free:
            return None
        walk = self._grammars.walk(grammar, plan.root) if grammar else None
        close = self._vocab.tokenize(plan.forced_close, add_special=False, parse_special=True)
        return Guide(plan, walk, self._vocab, tuple(close))

    def _make_one(
        self, options: SamplingOptions, prompt: Sequence[int], bias: dict[int, float], seed: int, guide: Guide | None
    ) -> "Sampler":
        chain = _Chain()
        penalty_n = self._n_ctx if options.repeat_last_n < 0 else min(options.repeat_last_n, self._n_ctx)
        if options.repeat_penalty == 1 and not options.presence_penalty and not options.frequency_penalty:
            penalty_n = 0
        dry_n = self._n_ctx if options.dry_penalty_last_n < 0 else min(options.dry_penalty_last_n, self._n_ctx)
        if not options.dry_multiplier or options.dry_base < 1:
            dry_n = 0
        if bias:
            items = (native.LogitBias * len(bias))(*(native.LogitBias(token, value) for token, value in bias.items()))
            chain.add(native.sampler_init_logit_bias(self._vocab.n_tokens, len(bias), items))
        if penalty_n:
            chain.add(
                native.sampler_init_penalties(
                    self._vocab.n_tokens,
                    penalty_n,
                    options.repeat_penalty,
                    options.frequency_penalty,
                    options.presence_penalty,
                )
            )
        if dry_n:
            chain.add(self._dry.clone(self._vocab, options, dry_n))
        narrowing = _add_choosing(chain, options, seed)
        window = max(penalty_n, dry_n)
        for token in prompt[-window:] if window else ():
            native.sampler_accept(chain.address, token)
        penalties_lift = options.repeat_penalty < 1 or min(options.presence_penalty, options.frequency_penalty) < 0
        return Sampler(
            chain,
            narrowing,
            bias=bias,
            window=window,
            prompt=prompt,
            may_rise=any(value > 0 for value in bias.values()) or penalties_lift,
            greedy=options.temperature == 0,
            guide=guide,
        )

    def close(self) -> None:
        """Free what is kept for cloning."""
        self._dry.close()


def _add_choosing(chain: "_Chain", options: SamplingOptions, seed: int) -> _Narrowing | None:
    """Add what narrows and draws; returns how a row may be narrowed before it, None when it may not."""
    if options.temperature == 0:
        chain.add(native.sampler_init_greedy())
        return _Narrowing(1)
    if options.mirostat:
        chain.add(native.sampler_init_temp(options.temperature))
        chain.add(native.sampler_init_mirostat_v2(seed, options.mirostat_tau, options.mirostat_eta))
        return None
    if options.top_k > 0:
        chain.add(native.sampler_init_top_k(options.top_k))
    if options.typical_p < 1:
        chain.add(native.sampler_init_typical(options.typical_p, 1))
    if options.top_p < 1:
        chain.add(native.sampler_init_top_p(options.top_p, 1))
    if options.min_p > 0:
        chain.add(native.sampler_init_min_p(options.min_p, 1))
    if options.xtc_probability > 0:
        chain.add(native.sampler_init_xtc(options.xtc_probability, options.xtc_threshold, 1, seed))
    if options.dynatemp_range > 0:
        chain.add(native.sampler_init_temp_ext(options.temperature, options.dynatemp_range, options.dynatemp_exponent))
    else:
        chain.add(native.sampler_init_temp(options.temperature))
    chain.add(native.sampler_init_dist(seed))
    if options.top_k > 0:
        return _Narrowing(options.top_k)
    if options.min_p > 0 and options.top_p >= 1 and options.typical_p >= 1:
        return _Narrowing(0, math.log(options.min_p))
    return None


class _Chain:
    """A `llama_sampler_chain`, which owns the samplers added to it."""

    def __init__(self) -> None:
        params = native.sampler_chain_default_params()
        params.no_perf = True
        self.address: int = native.sampler_chain_init(params)

    def add(self, sampler: int | None) -> None:
        if not sampler:
            raise BugFault("llama.cpp refused the options of a sampler")
        native.sampler_chain_add(self.address, sampler)


class Sampler:
    """Chooses the tokens of one choice. Home thread: engine, once it is made.

    Frees its native parts when it is collected.
    """

    __slots__ = (
        "_banned_ids",
        "_bias_ids",
        "_can_prepare",
        "_chain",
        "_greedy",
        "_guide",
        "_k_with_bias",
        "_lowered",
        "_may_rise",
        "_narrowing",
        "_seen",
        "_window",
    )

    def __init__(
        self,
        chain: _Chain,
        narrowing: _Narrowing | None,
        *,
        bias: dict[int, float],
        window: int,
        prompt: Sequence[int],
        may_rise: bool,
        greedy: bool,
        guide: Guide | None,
    ) -> None:
        self._chain = chain.address
        self._narrowing = narrowing
        self._greedy = greedy
        self._guide = guide
        self._bias_ids = np.fromiter(bias, dtype=np.int64, count=len(bias))
        self._banned_ids = np.fromiter((i for i, value in bias.items() if value == -math.inf), dtype=np.int64)
        # Where tokens are only lowered, the likeliest stays the likeliest if it is none of them.
        self._lowered = frozenset(bias) if all(value <= 0 for value in bias.values()) else None
        self._may_rise = may_rise
        plain_greedy = greedy and not window and self._lowered is not None
        self._can_prepare = narrowing is not None and narrowing.k > 0 and not may_rise and not plain_greedy
        self._k_with_bias = (narrowing.k if narrowing else 0) + len(bias)
        self._window: deque[int] | None = None
        self._seen: Counter[int] = Counter()
        if window:
            self._window = deque(maxlen=window)
            for token in prompt[-window:]:
                self._remember(token)

    def __del__(self) -> None:
        native.sampler_free(self._chain)

    def pick(self, rows: LogitRows, index: int) -> int:
        """Choose from a row of logits; `NO_TOKEN` when the grammar lets nothing follow.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        token = self._choose(rows, index) if self._guide is None else self._obey(self._guide, rows, index)
        if token == NO_TOKEN:
            return token
        if self._window is not None:
            native.sampler_accept(self._chain, token)
            self._remember(token)
        return token

    def _choose(self, rows: LogitRows, index: int) -> int:
        if self._greedy and self._window is None and self._lowered is not None:
            token = rows.argmax(index)
            if token not in self._lowered:
                return token
        prepared = rows.take_prepared(index)
        if prepared is not None:
            return rows.candidates.apply_at(self._chain, *prepared)
        return rows.candidates.apply(self._chain, self._fill(rows, index))

    @property
    def prepared_k(self) -> int:
        """How many of the largest logits a row prepared together with others must hold; 0 to leave it alone."""
        if not self._can_prepare:
            return 0
        return self._k_with_bias + len(self._seen)

    def _fill(self, rows: LogitRows, index: int) -> int:
        """Put the narrowed row, or the whole, into the candidates; returns how many."""
        narrowing = self._narrowing
        if narrowing is None:
            return rows.candidates.fill_all(rows.row(index))
        k = max(narrowing.k, 1) + len(self._bias_ids) + len(self._seen)
        if k > rows.max_narrow:
            return rows.candidates.fill_all(rows.row(index))
        if narrowing.k:
            least, ids, logits = rows.largest(index, k)
        else:
            least, maxima = rows.bound(index, k)
            least = np.float32(float(least) + narrowing.log_min_p - _MARGIN)
            ids, logits = rows.above(index, least, maxima)
        if self._may_rise:
            ids, logits = self._add_changed(rows.row(index), least, ids, logits)
        return rows.candidates.fill(ids, logits)

    def _add_changed(self, row: FloatRow, least: np.float32, ids: IntRow, logits: FloatRow) -> tuple[IntRow, FloatRow]:
        """Add the tokens below the bound that a bias or a penalty may lift over it."""
        changed = np.array([*{*self._bias_ids.tolist(), *self._seen}], dtype=np.int64)
        below = changed[row[changed] < least]
        ids, logits = np.concatenate((ids, below)), np.concatenate((logits, row[below]))
        # Without top-k nothing sorts, and the draw runs along the order: keep the vocabulary's.
        order = ids.argsort()
        return ids[order], logits[order]

    def _obey(self, guide: Guide, rows: LogitRows, index: int) -> int:
        forced = guide.forced()
        token = self._choose(rows, index) if forced is None else forced
        if forced is None and not guide.allows(token):
            candidates = rows.candidates
            ids = np.flatnonzero(guide.mask())
            size = candidates.remove(self._banned_ids, candidates.fill(ids, rows.row(index)[ids]))
            if not size:
                return NO_TOKEN
            token = candidates.apply(self._chain, size)
        guide.accept(token)
        if guide.is_idle:
            self._guide = None
        return token

    def _remember(self, token: int) -> None:
        window, seen = self._window, self._seen
        if window is None:
            return
        if len(window) == window.maxlen:
            oldest = window[0]
            if seen[oldest] == 1:
                del seen[oldest]
            else:
                seen[oldest] -= 1
        window.append(token)
        seen[token] += 1
