import pytest

from runtime.chat.tool_format import (
    ArgumentStyle,
    BraceArguments,
    JsonArguments,
    KeywordArguments,
    TaggedArguments,
    ToolFormat,
    Trigger,
    write_arguments,
    write_calls,
)

ARGUMENTS: dict[str, object] = {"city": 'Zürich "old"', "days": 3, "deep": {"on": True, "none": None, "list": ["a", 1]}}


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (
            JsonArguments(),
            r'{"city": "Zürich \"old\"", "days": 3, "deep": {"on": true, "none": null, "list": ["a", 1]}}',
        ),
        (
            TaggedArguments("<k>", "</k><v>", "</v>\n", other_key_close="</k><j>"),
            (
                '<k>city</k><v>Zürich "old"</v>\n<k>days</k><j>3</v>\n'
                '<k>deep</k><j>{"on": true, "none": null, "list": ["a", 1]}</v>\n'
            ),
        ),
        (
            BraceArguments('<|"|>'),
            '{city:<|"|>Zürich "old"<|"|>,days:3,deep:{on:true,none:null,list:[<|"|>a<|"|>,1]}}',
        ),
        (
            KeywordArguments(),
            r'city="Zürich \"old\"", days=3, deep={"on": True, "none": None, "list": ["a", 1]}',
        ),
    ],
)
def test_arguments_when_written_then_are_in_the_style_of_the_family(style: ArgumentStyle, expected: str) -> None:
    assert write_arguments(style, ARGUMENTS) == expected


def test_calls_when_written_then_are_numbered_and_separated() -> None:
    form = ToolFormat(
        section_open="<all>",
        call_open="<call>functions.",
        name_close=":{index}<arguments>",
        call_close="</call>",
        call_separator=",",
        section_close="</all>",
        triggers=(Trigger("<all>", "<call>functions."),),
    )
    assert write_calls(form, [("f", {"a": 1}), ("g", {})]) == (
        '<all><call>functions.f:0<arguments>{"a": 1}</call>,<call>functions.g:1<arguments>{}</call></all>'
    )
