import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.engine_rig import starter

pytestmark = pytest.mark.e2e


def test_when_a_vocabulary_is_read_then_its_special_tokens_are_those_of_the_model() -> None:
    vocab = starter().vocab
    assert vocab.n_tokens == 49152
    assert vocab.chat_template is not None
    assert "<|im_start|>" in vocab.chat_template
    assert vocab.eos_token == "<|im_end|>"
    (end,) = vocab.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert vocab.is_eog(end)
    assert not vocab.is_eog(1000)


@settings(max_examples=60)
@given(
    st.text(
        st.characters(max_codepoint=0x3FFFF, categories=["L", "N", "P", "S", "Z"], include_characters="\n"), max_size=60
    )
)
def test_when_text_is_tokenized_then_its_tokens_give_it_back(text: str) -> None:
    vocab = starter().vocab
    tokens = vocab.tokenize(text, add_special=False, parse_special=False)
    # This model has no token for the bytes that begin the unassigned planes above.
    raw = b"".join(vocab.token_bytes(token, special=False) for token in tokens)
    assert raw == text.encode("utf-8", "replace")


def test_when_control_words_stand_in_plain_text_then_they_are_plain_text() -> None:
    vocab = starter().vocab
    plain = vocab.tokenize("<|im_end|>", add_special=False, parse_special=False)
    assert len(plain) > 1
    assert not any(vocab.is_eog(token) for token in plain)


def test_when_a_control_token_is_shown_then_only_on_request() -> None:
    vocab = starter().vocab
    (end,) = vocab.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert vocab.token_bytes(end, special=False) == b""
    assert vocab.token_bytes(end, special=True) == b"<|im_end|>"


@pytest.mark.parametrize("token", [-1, 49152, 10**9])
def test_when_an_id_is_outside_the_vocabulary_then_it_has_no_bytes(token: int) -> None:
    assert starter().vocab.token_bytes(token, special=True) == b""


def test_when_threads_tokenize_at_once_then_each_gets_its_own_answer() -> None:
    vocab = starter().vocab
    texts = [f"{'word ' * 50}{index}" for index in range(4)]
    expected = [vocab.tokenize(text, add_special=False, parse_special=False) for text in texts]
    wrong: list[int] = []

    def work(index: int) -> None:
        seen = [vocab.tokenize(texts[index], add_special=False, parse_special=False) for _ in range(50)]
        wrong.extend(index for tokens in seen if tokens != expected[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
