"""Tokens of texts, texts of tokens, prompts as text, and what a code model is asked to fill in."""

import datetime

import pytest

from runtime.errors import BadRequest
from runtime.messages.ipc import ApplyTemplate, Detokenize, InfillPrompt, Rendered, Tokenize, Tokenized
from runtime.messages.shared import Message
from runtime.worker.language import HeaderWords, Language
from runtime.worker.text_tasks import text_answer
from tests.support.tokenizers import FIRST_CHARACTER_ID, CharacterTokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ("<s>", "<|im_start|>", "<|im_end|>", "<PRE>", "<SUF>", "<MID>", "<REPO>", "<FILE>")


def make(*, fim: bool = False) -> Language:
    vocab = CharacterTokenizer(CONTROL, chat_template=TEMPLATE, bos_token="<s>", add_bos=True)
    if fim:
        vocab.fim_ids = (3, 4, 5, 6, 7)
    words = HeaderWords(control=CONTROL, user_defined=())
    clock = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return Language(vocab, words, n_ctx=100, clock=lambda: clock)


def characters(text: str) -> tuple[int, ...]:
    return tuple(FIRST_CHARACTER_ID + ord(character) for character in text)


def text_of(language: Language, answer: object) -> str:
    assert isinstance(answer, Tokenized)
    return language.text_of(answer.token_ids)


def test_when_text_is_tokenized_then_tokens_and_pieces_come() -> None:
    answer = text_answer(Tokenize("a", "né"), make())
    assert isinstance(answer, Tokenized)
    assert answer.token_ids == characters("né")
    assert answer.pieces == (b"n", "é".encode())


def test_when_special_is_asked_for_then_the_start_token_is_in_front() -> None:
    language = make()
    assert text_of(language, text_answer(Tokenize("a", "x", add_special=True), language)) == "<s>x"
    plain = text_answer(Tokenize("a", "<s>", parse_special=False), language)
    assert isinstance(plain, Tokenized)
    assert plain.token_ids == characters("<s>")


def test_when_tokens_are_detokenized_then_the_text_comes_back() -> None:
    assert text_answer(Detokenize("a", (1, *characters("hi"))), make()) == Rendered("a", "<|im_start|>hi")
    assert text_answer(Detokenize("a", ()), make()) == Rendered("a", "")
    with pytest.raises(BadRequest, match="not in the model's vocabulary"):
        text_answer(Detokenize("a", (2_000_000,)), make())


def test_when_a_template_is_applied_then_marks_in_text_stay_text() -> None:
    answer = text_answer(ApplyTemplate("a", (Message("user", "<|im_end|>"),)), make())
    assert isinstance(answer, Rendered)
    assert answer.text == "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"


def test_when_an_answer_is_continued_then_the_prompt_ends_with_it() -> None:
    messages = (Message("user", "Hi"), Message("assistant", "Hel"))
    answer = text_answer(ApplyTemplate("a", messages, continue_last=True), make())
    assert isinstance(answer, Rendered)
    assert answer.text.endswith("assistant\nHel")


def test_when_filling_in_then_prefix_suffix_and_middle_are_marked() -> None:
    language = make(fim=True)
    answer = text_answer(InfillPrompt("a", "def f(", "): pass", "x"), language)
    assert text_of(language, answer) == "<s><PRE>def f(x<SUF>): pass<MID>"
    with_file = text_answer(InfillPrompt("a", "a", "b", files=(("x.py", "1"),)), language)
    assert text_of(language, with_file) == "<s><REPO>project\n<FILE>x.py\n1\n<FILE>this file\n<PRE>a<SUF>b<MID>"


def test_when_marks_are_in_the_code_then_they_are_text() -> None:
    language = make(fim=True)
    answer = text_answer(InfillPrompt("a", "<SUF>", ""), language)
    assert isinstance(answer, Tokenized)
    assert answer.token_ids.count(4) == 1


def test_when_the_model_cannot_fill_in_then_it_says_so() -> None:
    with pytest.raises(BadRequest, match="cannot fill in"):
        text_answer(InfillPrompt("a", "x", "y"), make())
