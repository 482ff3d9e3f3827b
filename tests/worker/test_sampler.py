"""Narrowing changes nothing, and every sampler does what its option says."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from runtime.errors import BadRequest
from runtime.options import GenerateOptions, SamplingOptions
from runtime.scheduler.plan import NO_TOKEN
from runtime.worker.logits import FloatRow, LogitRows
from runtime.worker.sampler import Sampler, SamplerFactory
from tests.fakes.engine_rig import starter

N_CTX = 512
PROMPT = tuple(range(100, 180))


@pytest.fixture(scope="module")
def factory() -> SamplerFactory:
    return SamplerFactory(starter().vocab, N_CTX)


def rows(seed: int, count: int, scale: float = 3.0, n_vocab: int = 49152) -> LogitRows:
    """Logits with a long tail, as a model gives, and the prompt's tokens among the likely ones."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, scale, (count, n_vocab)).astype(np.float32)
    if n_vocab > max(PROMPT):
        logits[:, list(PROMPT)] += 2 * scale
    found = LogitRows(n_vocab, count)
    found.view(logits)
    return found


def make(factory: SamplerFactory, options: SamplingOptions, **more: object) -> Sampler:
    (sampler,) = factory.make(GenerateOptions(sampling=options, **more), PROMPT)  # type: ignore[arg-type]
    return sampler


def unnarrowed(factory: SamplerFactory, options: SamplingOptions, **more: object) -> Sampler:
    sampler = make(factory, options, **more)
    sampler._narrowing = None
    return sampler


CASES = {
    "default": SamplingOptions(seed=7),
    "greedy": SamplingOptions(temperature=0),
    "greedy with penalties": SamplingOptions(temperature=0, repeat_penalty=1.5, frequency_penalty=0.4),
    "greedy with lifted tokens": SamplingOptions(temperature=0, presence_penalty=-2, repeat_penalty=0.5),
    "hot": SamplingOptions(seed=7, temperature=2.5, top_k=100, top_p=1, min_p=0),
    "top_k 1": SamplingOptions(seed=7, top_k=1),
    "min_p alone": SamplingOptions(seed=7, top_k=0, top_p=1, min_p=0.02),
    "min_p alone with lifted tokens": SamplingOptions(
        seed=7, top_k=0, top_p=1, min_p=0.02, presence_penalty=-1, logit_bias={9: 30.0}
    ),
    "typical": SamplingOptions(seed=7, typical_p=0.6),
    "xtc": SamplingOptions(seed=7, temperature=1.5, xtc_probability=0.7, xtc_threshold=0.02, min_p=0),
    "penalties": SamplingOptions(seed=7, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2),
    "penalties that lift": SamplingOptions(seed=7, repeat_penalty=0.7, presence_penalty=-0.5),
    "dry": SamplingOptions(seed=7, dry_multiplier=0.8, dry_penalty_last_n=64),
    "dry and bias": SamplingOptions(seed=7, dry_multiplier=0.8, logit_bias={5: 12.0, 110: -8.0, 111: 3.0}),
    "dynamic temperature": SamplingOptions(seed=7, dynatemp_range=0.5),
    "mirostat": SamplingOptions(seed=7, mirostat=2),
    "top_p over all": SamplingOptions(seed=7, top_k=0, top_p=0.5, min_p=0),
    "top_k over half": SamplingOptions(seed=7, top_k=30_000),
}


@pytest.mark.parametrize("name", CASES)
def test_when_a_row_is_narrowed_then_every_token_is_the_one_of_the_whole_vocabulary(
    factory: SamplerFactory, name: str
) -> None:
    for scale in (1.0, 4.0):
        found = rows(int(scale), 48, scale)
        narrowed, whole = make(factory, CASES[name]), unnarrowed(factory, CASES[name])
        picked = [narrowed.pick(found, index) for index in range(48)]
        assert picked == [whole.pick(found, index) for index in range(48)]


def test_when_rows_are_narrowed_together_then_every_token_is_the_one_of_the_whole_vocabulary(
    factory: SamplerFactory,
) -> None:
    names = [name for name, options in CASES.items() if make(factory, options).prepared_k]
    assert len(names) > 5
    together = [make(factory, CASES[name]) for name in names]
    whole = [unnarrowed(factory, CASES[name]) for name in names]
    n_prepared = 0
    for seed in range(12):
        found = rows(seed, len(names))
        found.prepare([(row, sampler.prepared_k) for row, sampler in enumerate(together) if sampler.prepared_k < 200])
        n_prepared += len(found.prepared)
        picked = [sampler.pick(found, row) for row, sampler in enumerate(together)]
        assert picked == [sampler.pick(found, row) for row, sampler in enumerate(whole)]
    assert n_prepared > 40


@pytest.mark.parametrize("n_vocab", [4096 + 17, 32_000, 151_936])
def test_when_the_vocabulary_has_any_size_then_the_bound_holds_the_k_largest(n_vocab: int) -> None:
    found = rows(3, 8, n_vocab=n_vocab)
    for index in range(8):
        row = found.row(index)
        for k in (1, 5, found.max_narrow):
            least, maxima = found.bound(index, k)
            ids, logits = found.above(index, least, maxima)
            assert set(np.argsort(row)[-k:].tolist()) <= set(ids.tolist())
            assert (row[ids] == logits).all()
            assert len(set(ids.tolist())) == len(ids)
            assert sorted(ids.tolist()) == np.flatnonzero(row >= least).tolist()


@pytest.mark.parametrize("n_vocab", [1_000, 4096 + 17, 32_000, 151_936])
@pytest.mark.parametrize("shape", ["spread", "ranks by id", "few values", "mostly banned", "all banned"])
def test_when_a_bound_is_guessed_then_the_k_largest_are_held_all_the_same(n_vocab: int, shape: str) -> None:
    found = rows(3, 4, n_vocab=n_vocab)
    shapes: dict[str, Callable[[FloatRow], FloatRow]] = {
        "spread": lambda row: row,
        "ranks by id": lambda row: np.sort(row)[::-1],
        "few values": np.round,
        "mostly banned": lambda row: np.where(np.arange(len(row)) % 97 == 0, row, -np.inf),
        "all banned": lambda row: np.full_like(row, -np.inf),
    }
    for index in range(4):
        row = found.row(index)
        row[:] = shapes[shape](row)
        for k in (1, 5, 43, found.max_narrow):
            least, ids, logits = found.largest(index, k)
            assert len(ids) >= k
            assert np.sort(row)[-k:].tolist() == np.sort(logits)[-k:].tolist()
            assert (row[ids] == logits).all()
            assert sorted(ids.tolist()) == np.flatnonzero(row >= least).tolist()


def test_when_the_largest_logits_stand_in_the_unfolded_tail_then_they_are_found() -> None:
    found = rows(3, 1, n_vocab=4096 + 17)
    found.row(0)[-3:] = 50.0, 60.0, 40.0
    assert found.argmax(0) == 4096 + 15
    least, maxima = found.bound(0, 3)
    ids, _logits = found.above(0, least, maxima)
    assert {4096 + 14, 4096 + 15, 4096 + 16} <= set(ids.tolist())


def test_when_the_seed_is_the_same_then_the_tokens_are(factory: SamplerFactory) -> None:
    found = rows(1, 48)
    options = SamplingOptions(seed=11, temperature=1.5)
    first, second = make(factory, options), make(factory, options)
    other = make(factory, SamplingOptions(seed=12, temperature=1.5))
    picked = [first.pick(found, index) for index in range(48)]
    assert picked == [second.pick(found, index) for index in range(48)]
    assert picked != [other.pick(found, index) for index in range(48)]


def test_when_the_seed_is_the_one_llama_cpp_reads_as_random_then_it_is_a_seed_still(factory: SamplerFactory) -> None:
    found = rows(1, 48)
    options = SamplingOptions(seed=2**32 - 1, temperature=1.5)
    first, second = make(factory, options), make(factory, options)
    assert [first.pick(found, i) for i in range(48)] == [second.pick(found, i) for i in range(48)]


def test_when_there_are_several_choices_then_they_draw_differently(factory: SamplerFactory) -> None:
    found = rows(1, 48)
    one, two = factory.make(GenerateOptions(n=2, sampling=SamplingOptions(seed=3, temperature=2)), PROMPT)
    assert [one.pick(found, i) for i in range(48)] != [two.pick(found, i) for i in range(48)]


def test_when_end_tokens_are_to_be_ignored_then_they_are_never_picked(factory: SamplerFactory) -> None:
    found = rows(1, 8)
    for eog in starter().vocab.eog_ids:
        found.rows[:, eog] = 100.0
    for options in (SamplingOptions(temperature=0), SamplingOptions(seed=1), SamplingOptions(seed=1, mirostat=2)):
        sampler = make(factory, options, ignore_eos=True)
        assert not {sampler.pick(found, index) for index in range(8)} & starter().vocab.eog_ids


def test_when_a_token_is_biased_then_it_wins_or_never_comes(factory: SamplerFactory) -> None:
    found = rows(1, 8)
    likeliest = [found.argmax(index) for index in range(8)]
    lifted = make(factory, SamplingOptions(seed=1, logit_bias={40_000: 100.0}))
    assert {lifted.pick(found, index) for index in range(8)} == {40_000}
    banned = make(factory, SamplingOptions(temperature=0, logit_bias=dict.fromkeys(likeliest, -100.0)))
    assert not {banned.pick(found, index) for index in range(8)} & set(likeliest)


def test_when_frequency_is_penalised_then_a_token_loses_with_every_use(factory: SamplerFactory) -> None:
    logits = np.full((1, 49152), -20, dtype=np.float32)
    logits[0, [200, 300]] = 5.0, 4.0
    found = LogitRows(49152, 1)
    found.view(logits)
    sampler = make(factory, SamplingOptions(temperature=0, frequency_penalty=0.6))
    assert [sampler.pick(found, 0) for _ in range(6)] == [200, 200, 300, 200, 300, 200]


def test_when_the_penalty_window_is_full_then_the_oldest_use_is_forgiven(factory: SamplerFactory) -> None:
    logits = np.full((1, 49152), -20, dtype=np.float32)
    logits[0, [200, 300, 400]] = 5.0, 4.5, 4.0
    found = LogitRows(49152, 1)
    found.view(logits)
    sampler = make(factory, SamplingOptions(temperature=0, presence_penalty=2.0, repeat_last_n=2))
    assert [sampler.pick(found, 0) for _ in range(6)] == [200, 300, 400] * 2


def test_when_dry_sees_a_phrase_again_then_its_next_token_is_avoided(factory: SamplerFactory) -> None:
    prompt = (500, 501, 502, 503, 600, 500, 501, 502)
    logits = np.full((1, 49152), -20, dtype=np.float32)
    logits[0, [503, 700]] = 5.0, 4.5
    found = LogitRows(49152, 1)
    found.view(logits)
    options = GenerateOptions(sampling=SamplingOptions(temperature=0, dry_multiplier=2.0, dry_sequence_breakers=()))
    (sampler,) = factory.make(options, prompt)
    assert sampler.pick(found, 0) == 700


def test_when_temperature_is_high_then_draws_spread_as_the_probabilities(factory: SamplerFactory) -> None:
    logits = np.full((1, 49152), -50, dtype=np.float32)
    logits[0, [200, 300]] = math.log(0.75), math.log(0.25)
    found = LogitRows(49152, 1)
    found.view(logits)
    sampler = make(factory, SamplingOptions(seed=5, temperature=1, top_p=1, min_p=0))
    counts = Counter(sampler.pick(found, 0) for _ in range(4_000))
    assert counts[200] / 4_000 == pytest.approx(0.75, abs=0.03)
    assert counts[200] + counts[300] == 4_000


# --- grammar ---


def test_when_the_likeliest_token_breaks_the_grammar_then_the_likeliest_allowed_is_picked(
    factory: SamplerFactory,
) -> None:
    vocab = starter().vocab
    (yes,) = vocab.tokenize("yes", add_special=False, parse_special=False)
    found = rows(1, 1)
    found.row(0)[yes] = -5.0
    sampler = make(factory, SamplingOptions(temperature=0, grammar='root ::= "yes" | "no"'))
    first = sampler.pick(found, 0)
    assert vocab.token_bytes(first, special=False) in {b"y", b"ye", b"yes", b"n", b"no"}


def test_when_the_grammar_is_at_its_end_and_the_end_token_is_forbidden_then_nothing_follows(
    factory: SamplerFactory,
) -> None:
    vocab = starter().vocab
    (yes,) = vocab.tokenize("yes", add_special=False, parse_special=False)
    found = rows(1, 1)
    found.row(0)[yes] = 100.0
    sampler = make(factory, SamplingOptions(temperature=0, grammar='root ::= "yes"'), ignore_eos=True)
    assert [sampler.pick(found, 0), sampler.pick(found, 0)] == [yes, NO_TOKEN]


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("root = 1", "expecting ::="),
        ('root ::= "a', "unexpected end of input"),
        ("root ::= missing", "Undefined rule identifier 'missing'"),
        ('other ::= "a"', "no rule named root"),
        ("root ::= root", "never come to an end"),
        ('root ::= root "a" | "b"', "refers to itself"),
        ("root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000, "nests groups"),
        ('root ::= "a"{9999999999}', "repetitions exceeds"),
        ("root ::= \0", "NUL"),
    ],
)
def test_when_a_grammar_cannot_be_used_then_the_reason_is_told_and_nothing_ends(
    factory: SamplerFactory, grammar: str, words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        make(factory, SamplingOptions(grammar=grammar))


def test_when_brackets_stand_in_literals_then_they_do_not_count_as_nesting(factory: SamplerFactory) -> None:
    make(factory, SamplingOptions(grammar='root ::= "' + "(" * 300 + r"\"" + '" [((\\]]* # ' + "(" * 300))


def test_when_a_biased_token_is_outside_the_vocabulary_then_the_request_is_refused(factory: SamplerFactory) -> None:
    with pytest.raises(BadRequest, match="49151"):
        make(factory, SamplingOptions(logit_bias={49152: 1.0}))


# --- log-probabilities ---


def test_when_logprobs_are_asked_for_then_they_are_those_of_the_model_likeliest_first() -> None:
    found = rows(2, 1)
    row = found.row(0).astype(np.float64)
    expected = row - (np.log(np.exp(row - row.max()).sum()) + row.max())
    told = found.log_probabilities(0, 123, 5, starter().vocab)
    assert told.chosen.token_id == 123
    assert told.chosen.logprob == pytest.approx(expected[123])
    assert [entry.token_id for entry in told.top] == np.argsort(-expected)[:5].tolist()
    assert [entry.logprob for entry in told.top] == pytest.approx(sorted(expected)[::-1][:5])
    assert found.log_probabilities(0, 123, 0, starter().vocab).top == ()
