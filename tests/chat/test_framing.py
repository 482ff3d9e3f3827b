import pytest

from runtime.chat.framing import make_frame, text_without_thought
from runtime.chat.response import RegionSpec, ResponseSpec, load_specs
from runtime.chat.tool_specs import PLAIN_FORM
from runtime.messages.shared import AnswerShape, Tool

SPECS: dict[str, ResponseSpec] = {spec.name: spec for spec in load_specs()}
TOOLS = AnswerShape(tools=(Tool("f"),))


@pytest.mark.parametrize(
    ("name", "answer_start", "has_tools", "obeys", "expected"),
    [
        ("think", "<|im_start|>assistant\n", False, False, "<think>\n\n</think>\n\n"),
        ("think", "<|im_start|>assistant\n", False, True, ""),
        ("think", "<|im_start|>assistant\n<think>\n", False, True, "\n</think>\n\n"),
        ("think", "<|assistant|><think>", False, False, "\n\n</think>\n\n"),
        ("think", "<think>\n\n</think>\n\n", False, False, ""),
        ("gpt_oss", "<|start|>assistant", False, False, "<|channel|>final<|message|>"),
        ("gpt_oss", "<|start|>assistant", True, False, ""),
        ("cohere", "<|CHATBOT_TOKEN|><|START_THINKING|>", True, True, "<|END_THINKING|>"),
        ("cohere", "<|CHATBOT_TOKEN|>", False, False, "<|START_THINKING|><|END_THINKING|>"),
    ],
)
def test_thought_when_it_is_not_wanted_then_the_prompt_has_an_empty_one(
    name: str, answer_start: str, has_tools: bool, obeys: bool, expected: str
) -> None:
    assert text_without_thought(SPECS[name], answer_start, has_tools=has_tools, template_obeys=obeys) == expected


def test_frame_when_the_template_opened_the_thought_then_says_so() -> None:
    frame = make_frame(SPECS["think"], PLAIN_FORM, "<think>\n", AnswerShape(reasoning_budget=7), is_continued=False)
    assert (frame.thought_is_open, frame.may_think, frame.thought_budget) == (True, True, 7)
    assert (frame.thought_open, frame.thought_close, frame.forced_close) == ("<think>", "</think>", "\n</think>\n\n")
    assert frame.tools is None


@pytest.mark.parametrize(
    ("name", "answer_start", "shape", "is_continued", "may_think"),
    [
        ("think", "assistant\n", AnswerShape(), False, True),
        ("think", "assistant\n", AnswerShape(reasoning="off"), False, False),
        ("think", "<think>\n\n</think>\n\n", AnswerShape(), False, False),
        ("think", "Hello, I", AnswerShape(), True, False),
        ("gpt_oss", "<|start|>assistant", AnswerShape(), False, True),
        ("gpt_oss", "<|start|>assistant", AnswerShape(tools=TOOLS.tools, reasoning="off"), False, True),
        ("gpt_oss", "<|start|>assistant<|channel|>final<|message|>", AnswerShape(reasoning="off"), False, False),
    ],
)
def test_frame_when_a_thought_cannot_come_then_says_so(
    name: str, answer_start: str, shape: AnswerShape, is_continued: bool, may_think: bool
) -> None:
    frame = make_frame(SPECS[name], PLAIN_FORM, answer_start, shape, is_continued=is_continued)
    assert frame.may_think is may_think


def test_frame_of_channels_when_there_are_no_tools_then_a_closed_thought_leads_to_the_answer() -> None:
    spec = SPECS["gpt_oss"]
    assert isinstance(spec, RegionSpec)
    plain = make_frame(spec, PLAIN_FORM, "<|start|>assistant", AnswerShape(), is_continued=False)
    assert plain.forced_close == "<|end|><|start|>assistant<|channel|>final<|message|>"
    with_tools = make_frame(spec, PLAIN_FORM, "<|start|>assistant", TOOLS, is_continued=False)
    assert with_tools.forced_close == "<|end|><|start|>assistant"
    assert with_tools.tools == PLAIN_FORM


def test_frame_when_tools_may_not_be_called_or_nothing_is_known_then_is_empty() -> None:
    shape = AnswerShape(tools=TOOLS.tools, tool_choice="none")
    frame = make_frame(None, PLAIN_FORM, "", shape, is_continued=False)
    assert (frame.tools, frame.may_think, frame.thought_open) == (None, False, "")
