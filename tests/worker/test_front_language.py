import datetime
from pathlib import Path

import pytest

from runtime.chat.response import TagSpec
from runtime.chat.tool_parser import AnswerReader
from runtime.errors import BadRequest, TemplateRefused
from runtime.library.starter import find_starter
from runtime.messages.shared import AnswerShape, Message, Tool
from runtime.options import GenerateOptions
from runtime.worker.language import HeaderWords, Language, read_header_words
from tests.support.gguf_files import write_tiny_model
from tests.support.tokenizers import CharacterTokenizer

CONTROL = ("<s>", "<|im_start|>", "<|im_end|>")
HELLO = (Message("user", "hello"),)


def make(
    template: str | None, *, bos_token: str = "", add_bos: bool = False, control: tuple[str, ...] = CONTROL
) -> tuple[CharacterTokenizer, Language]:
    vocab = CharacterTokenizer(control, chat_template=template, bos_token=bos_token, add_bos=add_bos)
    words = HeaderWords(control, ())
    return vocab, Language(vocab, words, n_ctx=1000, clock=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


def shown_chat(vocab: CharacterTokenizer, language: Language) -> str:
    prompt = language.prompt_of_messages(HELLO, GenerateOptions(), continue_last=False, is_wanted=lambda: True)
    return vocab.shown(prompt.tokens)


def test_header_of_the_starter_model_when_read_then_its_control_tokens_are_known() -> None:
    path = find_starter()
    assert path is not None
    words = read_header_words(path)
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= set(words.control)
    assert words.user_defined == ()


def test_header_with_both_kinds_when_read_then_they_are_told_apart(tmp_path: Path) -> None:
    words = read_header_words(write_tiny_model(tmp_path / "tiny.gguf"))
    assert words == HeaderWords(("token0", "token1"), ("token2",))


def test_raw_prompt_when_read_then_the_start_token_is_there_once_and_marks_are_marks() -> None:
    vocab, language = make(None, bos_token="<s>", add_bos=True)
    assert vocab.shown(language.prompt_of_text("a<|im_end|>").tokens) == "[<s>]a[<|im_end|>]"
    assert vocab.shown(language.prompt_of_text("<s>a").tokens) == "[<s>]a"
    assert vocab.shown(language.prompt_of_text("").tokens) == "[<s>]"


def test_raw_prompt_when_the_model_wants_no_start_token_then_gets_none() -> None:
    vocab, language = make(None, bos_token="<s>", add_bos=False)
    assert vocab.shown(language.prompt_of_text("a").tokens) == "a"


def test_empty_prompt_when_there_is_no_start_token_then_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        make(None)[1].prompt_of_text("")


def test_text_to_embed_when_read_then_marks_in_it_are_plain_text() -> None:
    vocab, language = make(None, bos_token="<s>", add_bos=True)
    assert vocab.shown(language.embedding_tokens("a<|im_end|>")) == "[<s>]a<|im_end|>"


@pytest.mark.parametrize("field", ["prompt", "input"])
def test_token_id_out_of_range_when_read_then_the_field_it_came_in_is_named(field: str) -> None:
    vocab, language = make(None)
    read = language.prompt_of_tokens if field == "prompt" else language.embedding_tokens
    with pytest.raises(BadRequest) as raised:
        read((vocab.n_tokens,))
    assert raised.value.details["param"] == field


def test_start_token_when_the_template_lacks_it_then_is_put_in_front_of_a_conversation() -> None:
    vocab, language = make("{{ messages[0].content }}", bos_token="<s>", add_bos=True)
    assert shown_chat(vocab, language) == "[<s>]hello"
    vocab, language = make("{{ bos_token }}{{ messages[0].content }}", bos_token="<s>", add_bos=True)
    assert shown_chat(vocab, language) == "[<s>]hello"


def test_model_without_a_template_when_its_vocabulary_has_turn_marks_then_they_are_used() -> None:
    vocab, language = make(None)
    assert shown_chat(vocab, language) == "[<|im_start|>]user\nhello[<|im_end|>]\n[<|im_start|>]assistant\n"
    assert language.extra_stops == ()
    vocab, language = make(None, control=())
    assert shown_chat(vocab, language) == "User: hello\nAssistant:"
    assert language.extra_stops == ("\nUser:",)


def test_broken_template_when_asked_then_its_failure_is_told_each_time_and_text_still_works() -> None:
    vocab, language = make("{% for %}")
    assert language.template_failure is not None
    for _ in range(2):
        with pytest.raises(TemplateRefused, match="broken"):
            shown_chat(vocab, language)
    assert language.prompt_of_text("a").tokens


def test_template_that_mentions_thoughts_when_looked_at_then_the_model_reasons() -> None:
    reasons, silent = make("{{ messages[0].content }}<think>")[1], make("{{ messages[0].content }}")[1]
    assert (reasons.spec is not None, reasons.reasons) == (True, True)
    assert (silent.spec, silent.reasons) == (None, False)


def test_vocabulary_with_thought_tags_when_the_template_is_silent_then_they_are_looked_for() -> None:
    language = make("{{ messages[0].content }}", control=(*CONTROL, "<think>", "</think>"))[1]
    assert language.spec is not None
    assert language.spec.name == "think"
    assert not language.reasons


CALLS = (
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<|thought|>{{ m.reasoning_content }}<|/thought|>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}({{ c.function.arguments }})</call>{% endfor %}"
    "<|im_end|>{% endfor %}"
)


def test_template_of_an_unknown_family_when_loaded_then_its_thought_and_calls_are_known() -> None:
    _, language = make(CALLS)
    assert language.reasons
    assert isinstance(language.spec, TagSpec)
    assert (language.spec.open, language.spec.close) == ("<|thought|>", "<|/thought|>")
    assert language.can_use_tools
    assert (language.tool_form.call_open, language.tool_form.name_close) == ("<call>", "(")


def test_template_that_knows_neither_when_loaded_then_answers_without_tools_need_no_reader() -> None:
    _, language = make("{{ messages[0].content }}")
    assert not language.reasons
    assert not language.can_use_tools
    shape = AnswerShape(tools=(Tool("f"),))

    def reader(shape: AnswerShape) -> AnswerReader | None:
        prompt = language.prompt_of_messages(
            HELLO, GenerateOptions(), shape, continue_last=False, is_wanted=lambda: True
        )
        return language.reader(prompt, shape, is_continued=False)

    assert reader(AnswerShape()) is None
    assert reader(shape) is not None


def test_template_for_tools_when_the_model_brings_one_then_conversations_with_tools_use_it() -> None:
    vocab = CharacterTokenizer(CONTROL, chat_template="plain:{{ messages[0].content }}")
    vocab.tool_template = (
        "{# <tool_call> and </tool_call> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}:"
        "{{ messages[0].content }}"
    )
    clock = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    language = Language(vocab, HeaderWords(CONTROL, ()), n_ctx=1000, clock=lambda: clock)
    shape = AnswerShape(tools=(Tool("now"),))
    assert language.can_use_tools
    assert language.builder_for(HELLO, AnswerShape()).text(HELLO, AnswerShape()) == "plain:hello"
    assert language.builder_for(HELLO, shape).text(HELLO, shape) == "now:hello"
    prompt = language.prompt_of_messages(HELLO, GenerateOptions(), shape, continue_last=False, is_wanted=lambda: True)
    assert vocab.shown(prompt.tokens) == "now:hello"


def test_template_for_tools_when_it_is_broken_then_the_other_one_tells_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vocab = CharacterTokenizer(CONTROL, chat_template="{{ messages[0].content }}")
    vocab.tool_template = "{% for"
    clock = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    language = Language(vocab, HeaderWords(CONTROL, ()), n_ctx=1000, clock=lambda: clock)
    shape = AnswerShape(tools=(Tool("now"),))
    assert "cannot be used" in caplog.text
    assert '"name": "now"' in language.builder_for(HELLO, shape).text(HELLO, shape)
