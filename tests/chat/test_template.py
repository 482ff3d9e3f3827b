import datetime
from typing import Literal

import pytest

from runtime.chat.template import (
    CHATML_TEMPLATE,
    PLAIN_STOPS,
    PLAIN_TEMPLATE,
    ChatTemplate,
    choose_template_text,
    system_length,
)
from runtime.errors import TemplateRefused
from runtime.messages.shared import Message

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ '<start_of_turn>' + m['role'] + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
DROPS_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
REASONS = (
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
DEVELOPER = (
    "{% for m in messages %}{{ m.role if m.role in ('developer', 'user', 'system') }}:{{ m.content }};{% endfor %}"
)


def make(text: str) -> ChatTemplate:
    return ChatTemplate(text, bos_token="<s>", eos_token="</s>", clock=lambda: NOW)


def render(text: str, *messages: Message, continue_last: bool = False) -> str:
    return make(text).render(messages, now=NOW, add_generation_prompt=not continue_last, continue_last=continue_last)


def message(role: Literal["system", "developer", "user", "assistant"], content: str, reasoning: str = "") -> Message:
    return Message(role, content, reasoning)


def test_conversation_when_rendered_then_the_models_own_template_is_used() -> None:
    assert render(CHATML, message("system", "s"), message("user", "u")) == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    )


def test_developer_message_when_the_template_does_not_know_it_then_is_a_system_message() -> None:
    assert "<|im_start|>system\nd<|im_end|>" in render(CHATML, message("developer", "d"), message("user", "u"))
    assert render(DEVELOPER, message("developer", "d"), message("user", "u")) == "developer:d;user:u;"


def test_several_system_messages_at_the_start_when_rendered_then_are_one() -> None:
    text = render(CHATML, message("system", "one"), message("developer", "two"), message("user", "u"))
    assert text.startswith("<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user")


@pytest.mark.parametrize("template", [GEMMA, DROPS_SYSTEM])
def test_system_message_when_the_template_has_no_place_for_it_then_heads_the_first_user_turn(template: str) -> None:
    text = render(template, message("system", "Be brief."), message("user", "Why?"))
    assert "Be brief.\n\nWhy?" in text


def test_template_that_refuses_when_rendered_then_its_words_are_told() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        render(GEMMA, message("user", "a"), message("user", "b"))


def test_template_that_wants_parts_when_rendered_then_gets_parts() -> None:
    assert render(PARTS, message("system", "s"), message("user", "u")) == "[system]s[user]u[assistant]"
    assert render(PARTS, message("user", "u"), message("assistant", "so"), continue_last=True) == "[user]u[assistant]so"


def test_template_that_walks_its_tools_unasked_when_there_are_none_then_gets_an_empty_list() -> None:
    template = "{% for tool in tools %}{{ tool.name }}{% endfor %}{{ messages[0].content }}"
    assert render(template, message("user", "u")) == "u"
    assert render("{{ tools is none }}{{ messages[0].content }}", message("user", "u")) == "Trueu"


def test_reasoning_when_the_template_reads_it_then_is_given() -> None:
    assert render(REASONS, message("user", "u"), message("assistant", "a", "r")) == (
        "[user]u[assistant]<think>r</think>a[assistant]"
    )


@pytest.mark.parametrize("content", ["The capital is", "The capital is ", "", "ends with newline\n"])
@pytest.mark.parametrize("template", [CHATML, GEMMA, PARTS, PLAIN_TEMPLATE, CHATML_TEMPLATE])
def test_unfinished_answer_when_continued_then_the_text_ends_exactly_there(template: str, content: str) -> None:
    text = render(template, message("user", "u"), message("assistant", content), continue_last=True)
    assert text.endswith(content)
    assert not text.endswith("<|im_end|>\n")
    assert "\ufdd2" not in text


def test_unfinished_thought_when_continued_then_the_text_ends_inside_it() -> None:
    text = render(REASONS, message("user", "u"), message("assistant", "", "so far"), continue_last=True)
    assert text == "[user]u[assistant]<think>so far"


def test_unfinished_thought_when_the_template_drops_thoughts_then_the_answer_is_begun() -> None:
    text = render(CHATML, message("user", "u"), message("assistant", "", "so far"), continue_last=True)
    assert text.endswith("<|im_start|>assistant\n")


def test_template_that_hides_the_last_answer_when_it_is_continued_then_is_refused() -> None:
    with pytest.raises(TemplateRefused, match="continued"):
        render("{{ messages[0].content }}", message("user", "u"), message("assistant", "a"), continue_last=True)


def test_time_when_the_template_asks_then_is_the_one_of_the_request() -> None:
    template = make("{{ strftime_now('%Y') }}{{ messages[0].content }}")
    later = NOW.replace(year=2031)
    assert template.render([message("user", "u")], now=later, add_generation_prompt=True) == "2031u"


def test_model_without_a_template_when_one_is_chosen_then_it_fits_its_vocabulary() -> None:
    assert choose_template_text("{{ own }}", frozenset()) == ("{{ own }}", ())
    assert choose_template_text("  ", frozenset({"<|im_start|>", "<|im_end|>"})) == (CHATML_TEMPLATE, ())
    assert choose_template_text(None, frozenset()) == (PLAIN_TEMPLATE, PLAIN_STOPS)
    assert render(PLAIN_TEMPLATE, message("system", "s"), message("user", "u"), message("assistant", "a")) == (
        "s\n\nUser: u\nAssistant: a\nAssistant:"
    )


def test_system_messages_at_the_start_when_counted_then_later_ones_do_not_count() -> None:
    rows = [message("system", "a"), message("developer", "b"), message("user", "c"), message("system", "d")]
    assert system_length(rows) == 2
    assert system_length([]) == 0


@pytest.mark.parametrize("own", [None, "", "mistral-v7-tekken"])
def test_model_of_mistrals_marks_when_it_brings_no_template_then_gets_one_with_them(own: str | None) -> None:
    marks = frozenset(("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"))
    text, stops = choose_template_text(own, marks)
    assert not stops
    talk = (message("system", "s"), message("user", "u"), message("assistant", "a"), message("user", "v"))
    assert render(text, *talk) == "<s>[SYSTEM_PROMPT]s[/SYSTEM_PROMPT][INST]u[/INST]a</s>[INST]v[/INST]"
