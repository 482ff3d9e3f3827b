"""GBNF is read as llama.cpp reads it, and what cannot be used is refused with its reason."""

import random
import re

import pytest

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import DEAD, Matcher


def matches(grammar: str, text: str) -> bool:
    matcher = Matcher(read_gbnf(grammar), fuel=10**6)
    state = matcher.read(matcher.start, text.encode())
    return state != DEAD and matcher.may_end(state)


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "ye", "yesno"]),
        ('root ::= "a"*', ["", "a", "aaaa"], ["b", "ab"]),
        ('root ::= "ab"+ "c"?', ["ab", "abab", "ababc"], ["", "a", "aba", "cc"]),
        ('root ::= "a"{3}', ["aaa"], ["aa", "aaaa"]),
        ('root ::= "a"{2,}', ["aa", "aaaaaa"], ["a"]),
        ('root ::= "a"{0,2} "b"{1,1}', ["b", "ab", "aab"], ["aaab", "abb"]),
        ('root ::= ("a" | "b" "c"){2,3}', ["aa", "bca", "bcbcbc"], ["a", "bc", "aaaa"]),
        ("root ::= [a-cx]", ["a", "c", "x"], ["d", "w"]),
        ("root ::= [^a-c]", ["d", "é", "\U0001f600", "\n"], ["a", "b"]),
        (r'root ::= [\]\[\\"-]', ["]", "[", "\\", '"', "-"], ["a"]),
        (r'root ::= "\x41\u00e9\U0001F600\n\""', ['Aé\U0001f600\n"'], ["A"]),
        ("root ::= . .", ["ab", "é\U0001f600"], ["a", "abc"]),
        ('root ::= a # why\n\n# nothing\na ::= (\n "x"\n | "y" )\n', ["x", "y"], ["z"]),
        ('root ::= a |\n b\na ::= "1"\nb ::= "2"', ["1", "2"], ["12"]),
        ('root ::= e\ne ::= "(" e ")" | "x"', ["x", "((x))"], ["((x)", "()"]),
        ("root ::= [à-ö]+", ["áé", "ö"], ["a", "À"]),
        ("root ::= ([ ]*)* [x]", ["x", "   x"], ["  "]),
        ('root ::= a b\na ::= "x"?\nb ::= a "y"', ["y", "xy", "xxy"], ["xxxy"]),
        ('root ::= "" "a"', ["a"], [""]),
    ],
)
def test_when_a_grammar_is_read_then_it_takes_its_texts_and_no_others(
    grammar: str, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert matches(grammar, text), text
    for text in bad:
        assert not matches(grammar, text), text


def test_when_classes_are_random_then_they_take_the_characters_a_regular_expression_takes() -> None:
    draw = random.Random(5)
    borders = [0x20, 0x41, 0x7E, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, 0x3B1, 0x1F600]
    for _ in range(60):
        ends = [sorted(draw.choice(borders) + draw.choice((0, 0, 1, 40)) for _ in range(2)) for _ in range(3)]
        pairs = [(low, min(high, 0x10FFFF)) for low, high in ends if low <= 0x10FFFF]
        caret = draw.choice(("", "^"))
        grammar = "root ::= [" + caret + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in pairs) + "]"
        wanted = re.compile("[" + caret + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in pairs) + "]")
        matcher = Matcher(read_gbnf(grammar), fuel=10**6)
        for border in borders:
            for code_point in (border - 1, border, border + 1, border + 40):
                if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
                    continue
                text = chr(code_point)
                state = matcher.read(matcher.start, text.encode())
                assert matcher.may_end(state) == bool(wanted.fullmatch(text)), (grammar, hex(code_point))


def test_when_a_token_is_named_then_its_id_is_asked_for() -> None:
    program = read_gbnf("root ::= <think> !<[7]>", {"<think>": 5}.get)
    assert program.tokens == {5, 7}
    matcher = Matcher(program, fuel=1000)
    inside = matcher.step_token(matcher.start, 5)
    assert matcher.step_token(matcher.start, 6) == DEAD
    assert matcher.step_token(inside, 7) == DEAD
    assert matcher.may_end(matcher.step_token(inside, 8))


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("", "no rule named root"),
        ("root = 1", "expecting ::= at line 1: = 1"),
        ('root ::= "a', "unexpected end of input"),
        ("root ::= [a", "unexpected end of input"),
        ("root ::= [z-a]", "runs backwards"),
        ("root ::= []", "empty"),
        ("root ::= *", "expecting preceding item"),
        ('root ::= "a"{2', "expecting '}'"),
        ('root ::= "a"{x}', "expecting an int"),
        ('root ::= "a"{3,2}', "runs backwards"),
        ('root ::= ("a"', r"expecting '\)'"),
        ('root ::= "a")', "expecting newline or end"),
        (r'root ::= "\q"', "unknown escape"),
        (r'root ::= "\x4"', "hex chars"),
        (r'root ::= "\U00FFFFFF"', "no such character"),
        ("root ::= missing", "Undefined rule identifier 'missing'"),
        ("root ::= <nothing>", "invalid token '<nothing>'"),
        ("root ::= <[x]>", "expecting a token id"),
        ("root ::= a\na ::= a", "never come to an end"),
        ('root ::= "x" root', "never come to an end"),
        ('root ::= a\na ::= a "x" | "y"', "refers to itself"),
        ('root ::= a\na ::= b? a "x" | "y"\nb ::= "z"', "refers to itself"),
        ('root ::= a\na ::= "" b "x" | "y"\nb ::= a', "refers to itself"),
        ("root ::= " + "(" * 201 + '"a"' + ")" * 201, "nests groups"),
        ("root ::= \0", "NUL"),
        ("root ::= " + "[a-z]+ " * 300_000, "more than"),
    ],
)
def test_when_a_grammar_cannot_be_used_then_the_reason_is_told(grammar: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read_gbnf(grammar)


def test_when_an_alternative_can_never_end_then_nobody_is_led_into_it() -> None:
    matcher = Matcher(read_gbnf('root ::= "a" "b" | "a" loop\nloop ::= "c" loop'), fuel=1000)
    inside = matcher.read(matcher.start, b"a")
    assert inside != DEAD
    assert matcher.read(inside, b"c") == DEAD
