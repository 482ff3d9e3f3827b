import json
from collections.abc import Callable

import pytest

from runtime.chat.derive import Calls, can_read, derive_form, derive_tags
from runtime.chat.tool_format import (
    BraceArguments,
    JsonArguments,
    KeywordArguments,
    TaggedArguments,
    write_calls,
)
from runtime.chat.tool_specs import PLAIN_FORM, ToolSpec, load_tool_specs

Write = Callable[[Calls], str]


def family(
    write: Write, *, answer_open: str = "<|a|>", turn_end: str = "<|e|>", thought: tuple[str, str] = ("", "")
) -> Callable[[str, str, Calls], str]:
    """A family that writes its turns so."""

    def render(content: str, reasoning: str, calls: Calls) -> str:
        before = thought[0] + reasoning + thought[1] if reasoning else ""
        return f"<|u|>probe<|e|>{answer_open}{before}{content}{write(calls) if calls else ''}{turn_end}"

    return render


def hermes(calls: Calls) -> str:
    return write_calls(PLAIN_FORM, calls)


def listed(calls: Calls) -> str:
    return "<CALLS>[" + ", ".join(json.dumps({"name": name, "arguments": given}) for name, given in calls) + "]</CALLS>"


def name_as_key(calls: Calls) -> str:
    return "<|tools|>[" + ", ".join(json.dumps({name: given}) for name, given in calls) + "]<|/tools|>"


def bare(calls: Calls) -> str:
    return "\n".join(json.dumps({"name": name, "parameters": given}) for name, given in calls)


def code(calls: Calls) -> str:
    made = (f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls)
    return "<|code|>[" + ", ".join(made) + "]<|/code|>"


@pytest.mark.parametrize("write", [hermes, listed, name_as_key, bare, code])
def test_calls_when_a_template_writes_them_then_the_form_reads_and_writes_the_same(write: Write) -> None:
    form = derive_form(family(write), one_call=False)
    assert form is not None
    assert can_read(family(write), form)
    if write is not code:  # Python's own quotes are single ones
        calls: Calls = (("get", {"a": "b"}), ("put", {"c": 1}))
        assert write_calls(form, calls) == write(calls)


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
def test_form_of_a_known_family_when_derived_then_is_that_of_its_spec(spec: ToolSpec) -> None:
    form = spec.form
    if "{index}" in form.call_open + form.name_close:
        return  # a number in the form is not told from one in the text

    derived = derive_form(family(lambda calls: write_calls(form, calls)), one_call=form.one_call)
    assert derived is not None
    calls: Calls = (("get", {"a": "b", "c": 1}), ("put", {"d": "e"}))
    calls = calls[:1] if form.one_call else calls
    assert write_calls(derived, calls) == write_calls(form, calls).strip()


def test_end_of_the_turn_when_it_differs_behind_calls_then_is_no_part_of_the_form() -> None:
    def write(calls: Calls) -> str:
        return listed(calls) + "<|call_end|>"

    form = derive_form(family(write), one_call=False)
    assert form is not None
    assert form.section_close == "]</CALLS>"


def test_marks_that_begin_alike_when_compared_then_are_kept_whole() -> None:
    def render(content: str, reasoning: str, calls: Calls) -> str:
        del reasoning
        answer = f"CALLS|>{bare(calls)}<|END_CALLS|>" if calls else f"TEXT|>{content}<|END_TEXT|>"
        return f"<|u|>probe<|START_{answer}<|e|>"

    form = derive_form(render, one_call=False)
    assert form is not None
    assert form.section_open == "<|START_CALLS|>"
    assert form.section_close == "<|END_CALLS|>"


def test_styles_when_derived_then_are_told_apart() -> None:
    def braces(calls: Calls) -> str:
        return "".join(
            f"<call>{name}"
            "{"
            + ",".join(
                f"{key}:{value if isinstance(value, int) else '~' + str(value) + '~'}" for key, value in given.items()
            )
            + "}</call>"
            for name, given in calls
        )

    def tagged(calls: Calls) -> str:
        return "".join(
            f'<call name="{name}">' + "".join(f"<p k={key}>{value}</p>" for key, value in given.items()) + "</call>"
            for name, given in calls
        )

    found = [derive_form(family(write), one_call=False) for write in (hermes, code, braces, tagged)]
    styles = [type(form.arguments) for form in found if form is not None]
    assert styles == [JsonArguments, KeywordArguments, BraceArguments, TaggedArguments]


def test_form_with_an_id_in_its_marks_when_derived_then_is_not_trusted() -> None:
    def write(calls: Calls) -> str:
        return "".join(
            f"<|id|>probeid{n}<|name|>{name}<|args|>{json.dumps(given)}<|x|>" for n, (name, given) in enumerate(calls)
        )

    assert derive_form(family(write), one_call=False) is None


@pytest.mark.parametrize(
    "write", [lambda _: "", lambda _: "I call.", lambda calls: str(calls[0][0]), lambda calls: json.dumps(calls[0][1])]
)
def test_calls_that_are_not_shown_when_derived_then_there_is_no_form(write: Write) -> None:
    assert derive_form(family(write), one_call=False) is None


@pytest.mark.parametrize(
    ("thought", "expected"),
    [
        (("<think>\n", "\n</think>\n\n"), ("<think>", "</think>")),
        (("<|thought|>", "<|/thought|>"), ("<|thought|>", "<|/thought|>")),
        (("[REASON]", "[/REASON]"), ("[REASON]", "[/REASON]")),
        (("", "\n\n"), None),
        (("Thinking: ", "\nAnswer: "), None),
    ],
)
@pytest.mark.parametrize("answer_open", ["<|a|>", "<|a|>\n", "<|turn>model\n"])
def test_tags_of_a_thought_when_a_template_writes_them_then_are_found(
    answer_open: str, thought: tuple[str, str], expected: tuple[str, str] | None
) -> None:
    tags = derive_tags(family(hermes, answer_open=answer_open, thought=thought))
    assert (tags and (tags.open, tags.close)) == expected
