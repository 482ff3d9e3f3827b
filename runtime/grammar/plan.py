"""From what a request asks of its answer, and how the model writes, to the plan that leads it."""

from runtime.chat.tool_format import AnswerFrame, ToolFormat
from runtime.errors import BadRequest
from runtime.grammar.answer import AnswerPlan
from runtime.grammar.calls import CallWriter
from runtime.grammar.json_schema import write_schema
from runtime.grammar.rules import RuleSet, either, literal, sequence
from runtime.messages.shared import AnswerShape, Tool

ROOT = "deskside-answer"
"""Root of a grammar around one that a request brought, which has a rule `root` of its own."""


def plan_answer(shape: AnswerShape, frame: AnswerFrame, own_grammar: str = "") -> AnswerPlan:
    """Plan an answer.

    Args:
        shape: what the request asks for.
        frame: what stands around the parts of the answer.
        own_grammar: GBNF the request brought.

    Raises:
        BadRequest: the wishes contradict each other, name a tool that is not there, or a schema is not supported.
    """
    tools = _tools(shape)
    is_forced = bool(tools) and shape.tool_choice == "required"
    if own_grammar and (shape.json_schema or is_forced):
        raise BadRequest(
            "A grammar cannot be combined with a JSON schema or with tools that must be called.",
            hint="Use one of them.",
            param="grammar",
        )
    rules = RuleSet()
    lead = _lead(frame)
    triggers: tuple[tuple[str, bool], ...] = ()
    root = "root"
    calls = CallWriter(rules, _form(frame), tools, several=shape.parallel_tool_calls) if tools else None
    if is_forced and calls is not None:
        grammar = rules.text(sequence([lead, calls.answer()]))
    elif own_grammar:
        # Tools that may be called cannot be, since the grammar says what is written.
        framed = _framed(frame, "root")
        root = ROOT if lead or framed != "root" else "root"
        grammar = f"{ROOT} ::= {sequence([lead, framed])}\n{own_grammar}" if root == ROOT else own_grammar
    elif shape.json_schema:
        written = _framed(frame, write_schema(rules, shape.json_schema))
        grammar = rules.text(sequence([lead, written if calls is None else either([written, calls.answer()])]))
    elif calls is not None and frame.tools is not None and frame.tools.triggers:
        triggers = tuple((trigger.text, trigger.at_start) for trigger in frame.tools.triggers)
        grammar = rules.text(either(calls.behind(trigger) for trigger in frame.tools.triggers))
    else:
        grammar = ""
    return AnswerPlan(
        grammar=grammar,
        root=root,
        triggers=triggers,
        thought_open=frame.thought_open,
        thought_close=frame.thought_close,
        thought_is_open=frame.thought_is_open and bool(frame.thought_close),
        may_think=frame.may_think and bool(frame.thought_open and frame.thought_close),
        thought_budget=frame.thought_budget if frame.thought_close else None,
        forced_close=frame.forced_close or frame.thought_close,
    )


def _tools(shape: AnswerShape) -> tuple[Tool, ...]:
    """Those the answer may call."""
    if shape.tool_choice == "none":
        return ()
    if shape.tool_choice == "required" and not shape.tools:
        raise BadRequest("A tool call is required, but the request has no tools.", param="tool_choice")
    if not shape.tool_name:
        return shape.tools
    named = tuple(tool for tool in shape.tools if tool.name == shape.tool_name)
    if not named:
        raise BadRequest(f"There is no tool named {shape.tool_name!r} in the request.", param="tool_choice")
    return named


def _form(frame: AnswerFrame) -> ToolFormat:
    if frame.tools is None:
        raise BadRequest("This model has no known way to call tools.", param="tools")
    return frame.tools


def _framed(frame: AnswerFrame, content: str) -> str:
    if not frame.content_open and not frame.content_close:
        return content
    return sequence([literal(frame.content_open), content, literal(frame.content_close)])


def _lead(frame: AnswerFrame) -> str:
    """What may stand between a thought and the answer."""
    if not (frame.may_think or frame.thought_is_open):
        return ""
    after = f"{literal(frame.after_thought)}? " if frame.after_thought else ""
    return f"{after}[ \\n]{{0,4}}"
