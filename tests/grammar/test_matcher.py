"""A step ends in bounded work whatever the grammar is, and harmless ambiguity costs nothing."""

import pytest

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import DEAD, MAX_STACKS, Matcher

# Each of them has more ways to read its text than there are atoms; llama.cpp walks them all.
HARMLESS = {
    "a repetition of a repetition": ('root ::= ([ ]*)* "x"', " " * 4000),
    "alternatives that begin alike": ('root ::= ("a" | "a" "a" | [a-z]+)* "!"', "a" * 4000),
    "white space beside white space": ('root ::= ws ws ws ws ws ws ws ws "x"\nws ::= [ \\n]*', " \n" * 2000),
    "two readings at each level": ('root ::= s "x"\ns ::= ("a" | "b")* t\nt ::= ("a" | [ab])*', "ab" * 2000),
    "optional parts in a row": ("root ::= " + '"a"? ' * 100 + '"b"', "a" * 100),
    "a bounded repetition of a class twice": ("root ::= [a-z]{0,90} [a-z]{0,90} [a-z]{0,90}", "q" * 200),
}
HOSTILE = {
    "stacks that double": 'root ::= s "x"\ns ::= "a" s "b" | "a" s "c" | "a" s "d" | ""',
    "expressions on both sides": 'root ::= e\ne ::= "a" e "+" e | "a" e "-" e | "a" | "a" e "*"',
    "a large bounded repetition of nothing": 'root ::= ("a"? "b"? "c"?){0,100000} "x"',
    "a large number of empty ways": 'root ::= (("a"?){0,300} ("a"?){0,300}){0,300} "b"',
}


@pytest.mark.parametrize("name", HARMLESS)
def test_when_a_grammar_is_ambiguous_but_small_then_reading_costs_little(name: str) -> None:
    grammar, text = HARMLESS[name]
    matcher = Matcher(read_gbnf(grammar), fuel=1_000_000)
    assert matcher.read(matcher.start, text.encode()) != DEAD
    assert matcher.fuel > 0


@pytest.mark.parametrize("name", HOSTILE)
def test_when_a_grammar_is_hopelessly_ambiguous_then_reading_ends_with_an_error(name: str) -> None:
    fuel = 200_000
    with pytest.raises(BadRequest, match="too ambiguous"):
        _read_all(Matcher(read_gbnf(HOSTILE[name]), fuel=fuel))


def _read_all(matcher: Matcher) -> None:
    matcher.read(matcher.start, b"a" * 100_000)


def test_when_the_fuel_is_used_up_then_what_was_made_is_bounded_by_it() -> None:
    matcher = Matcher(read_gbnf(HOSTILE["stacks that double"]), fuel=50_000)
    with pytest.raises(BadRequest):
        _read_all(matcher)
    assert len(matcher._positions) < 50_000
    assert max(len(stacks) for stacks in matcher._states) <= MAX_STACKS


def test_when_the_same_place_comes_again_then_it_is_the_same_state_and_costs_nothing() -> None:
    matcher = Matcher(read_gbnf('root ::= "[" (item ("," item)*)? "]"\nitem ::= [0-9]+ | root'), fuel=10_000)
    first = matcher.read(matcher.start, b"[1,22,[3],")
    left = matcher.fuel
    assert matcher.read(first, b"22,[3],") == first
    assert matcher.fuel >= left - 10


def test_when_a_counted_repetition_is_long_then_it_takes_no_room_until_it_is_walked() -> None:
    matcher = Matcher(read_gbnf('root ::= "\\"" [a-z]{5,2000000000} "\\""'), fuel=10_000)
    state = matcher.read(matcher.start, b'"abcd')
    assert matcher.read(state, b'"') == DEAD
    assert matcher.may_end(matcher.read(state, b'e"'))
    assert len(matcher._positions) < 50


def test_when_a_state_is_taken_over_by_a_fresh_matcher_then_the_same_texts_follow() -> None:
    program = read_gbnf('root ::= "(" root ")" | [a-z]{2,4} "." | "x"{3}')
    old = Matcher(program, fuel=10_000)
    fresh = Matcher(program, fuel=10_000)
    for begun, rest in ((b"((x", b"xx))"), (b"((ab", b"c.))"), (b"", b"xxx"), (b"((xx", b".))")):
        state = fresh.take(old.export(old.read(old.start, begun)))
        assert fresh.may_end(fresh.read(state, rest))
        assert fresh.read(state, b"?") == DEAD
    assert fresh.take(old.export(DEAD)) == DEAD
