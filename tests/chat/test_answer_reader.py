import itertools

import pytest

from runtime.chat.regions import make_parser
from runtime.chat.response import load_specs
from runtime.chat.tool_parser import AnswerReader, CallPiece, ToolParser
from runtime.chat.tool_specs import load_tool_specs
from runtime.messages.shared import Tool

SPECS = {spec.name: spec for spec in load_specs()}
FORMS = {spec.name: spec.form for spec in load_tool_specs()}
TOOLS = (Tool("f", parameters='{"properties": {"a": {"type": "integer"}}}'), Tool("g"))
Parts = list[tuple[str, str]]


def read(spec: str, form: str, answer_start: str, parts: list[str]) -> Parts:
    reader = AnswerReader(make_parser(SPECS[spec], answer_start, is_continued=False), ToolParser(FORMS[form], TOOLS))
    pieces = [piece for part in parts for piece in reader.feed(part, 1)] + reader.finish()
    assert reader.n_calls == sum(isinstance(piece, CallPiece) for piece in pieces)
    told = [
        (piece.head.name, piece.text) if isinstance(piece, CallPiece) else (str(piece[0]), piece[1]) for piece in pieces
    ]
    joined: Parts = []
    for kind, group in itertools.groupby(told, key=lambda item: item[0]):
        texts = [text for _, text in group]
        joined += [(kind, "".join(texts))] if kind in ("content", "reasoning") else [(kind, text) for text in texts]
    return joined


@pytest.mark.parametrize(
    ("spec", "form", "answer_start", "text", "expected"),
    [
        (
            "think",
            "hermes",
            "",
            '<think>\nI call f.\n</think>\n\nSo:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
            [("reasoning", "I call f."), ("content", "So:"), ("f", '{"a": 1}')],
        ),
        (
            "think",
            "glm4",
            "<|assistant|><think>",
            "Hm.</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call><tool_call>g</tool_call>",
            [("reasoning", "Hm."), ("f", '{"a": 1}'), ("g", "{}")],
        ),
        (
            "magistral",
            "mistral_args",
            "",
            '[THINK]Hm.[/THINK]Well.[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}',
            [("reasoning", "Hm."), ("content", "Well."), ("f", '{"a": 1}'), ("g", "{}")],
        ),
        (
            "gemma4",
            "gemma4_tools",
            "<|turn>model\n",
            "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{a:1}<tool_call|>",
            [("reasoning", "Hm."), ("f", '{"a": 1}')],
        ),
        (
            "cohere",
            "command",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
            (
                'Hm.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": '
                '{"a": 1}}\n]<|END_ACTION|>'
            ),
            [("reasoning", "Hm."), ("f", '{"a": 1}')],
        ),
        (
            "gpt_oss",
            "gpt_oss_tools",
            "<|start|>assistant",
            (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                '<|constrain|>json<|message|>{"a": 1}'
            ),
            [("reasoning", "Hm."), ("f", '{"a": 1}')],
        ),
        (
            "gpt_oss",
            "gpt_oss_tools",
            "<|start|>assistant",
            (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>First f."
                '<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}'
            ),
            [("reasoning", "Hm."), ("content", "First f."), ("f", '{"a": 1}')],
        ),
        (
            "gpt_oss",
            "gpt_oss_tools",
            "<|start|>assistant",
            ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}',
            [("f", '{"a": 1}')],
        ),
        (
            "gpt_oss",
            "gpt_oss_tools",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>No call.",
            [("reasoning", "Hm."), ("content", "No call.")],
        ),
    ],
)
def test_answer_with_thought_and_calls_when_cut_anywhere_then_gives_the_same_parts(
    spec: str, form: str, answer_start: str, text: str, expected: Parts
) -> None:
    for cut in range(len(text) + 1):
        assert read(spec, form, answer_start, [text[:cut], text[cut:]]) == expected
    assert read(spec, form, answer_start, list(text)) == expected


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def test_thought_that_never_closes_when_it_ends_with_calls_then_they_are_made() -> None:
    text = f"A <tool_call> is needed:\n<tool_call> or two\n{CALL}\n{CALL}\n"
    for cut in range(len(text) + 1):
        found = read("think", "hermes", "<think>\n", [text[:cut], text[cut:]])
        assert found == [("reasoning", text.rstrip()), ("f", '{"a": 1}'), ("f", '{"a": 1}')]


@pytest.mark.parametrize("text", [f"I may write\n{CALL}\nor not.", f"Inside {CALL}", "<tool_call>", "None."])
def test_thought_that_never_closes_when_it_only_speaks_of_calls_then_none_is_made(text: str) -> None:
    assert read("think", "hermes", "<think>\n", list(text)) == [("reasoning", text)]


def test_thought_that_closes_when_it_holds_a_call_then_that_is_not_made() -> None:
    assert read("think", "hermes", "", [f"<think>\n{CALL}\n</think>"]) == [("reasoning", CALL)]
