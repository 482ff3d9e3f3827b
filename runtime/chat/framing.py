"""What stands around an answer that is about to be made: from what the prompt ends with and what is asked."""

from runtime.chat.response import RegionSpec, ResponseSpec, TagSpec
from runtime.chat.tool_format import AnswerFrame, ToolFormat
from runtime.messages.shared import AnswerShape


def _marks(spec: ResponseSpec) -> tuple[str, str]:
    return (spec.open, spec.close) if isinstance(spec, TagSpec) else (spec.thought_open, spec.thought_close)


def _is_open(spec: ResponseSpec, answer_start: str) -> bool:
    opening, closing = _marks(spec)
    return bool(opening) and answer_start.rfind(opening) > answer_start.rfind(closing)


def text_without_thought(spec: ResponseSpec, answer_start: str, *, has_tools: bool, template_obeys: bool) -> str:
    """What to write behind the prompt so that no thought follows.

    Args:
        spec: how the model thinks.
        answer_start: what the template wrote of the answer.
        has_tools: the answer may call tools; where a thought is one part among others, it cannot be left out then.
        template_obeys: the template was told already, in its own way.
    """
    opening, closing = _marks(spec)
    if isinstance(spec, TagSpec):
        if _is_open(spec, answer_start):
            return f"\n{closing}\n\n" if answer_start.endswith("\n") else f"\n\n{closing}\n\n"
        return "" if closing in answer_start or template_obeys else f"{opening}\n\n{closing}\n\n"
    if _is_open(spec, answer_start):
        return closing
    if template_obeys or not opening or closing in answer_start:
        return ""
    if spec.after_thought:
        return "" if has_tools else spec.content_open
    return opening + closing


def make_frame(
    spec: ResponseSpec | None, form: ToolFormat, answer_start: str, shape: AnswerShape, *, is_continued: bool
) -> AnswerFrame:
    """The frame of one answer.

    Args:
        spec: how the model thinks; `None` if it does not.
        form: how it writes tool calls.
        answer_start: what of the answer the prompt holds already.
        shape: what is asked.
        is_continued: the answer goes on where its content was broken off.
    """
    tools = form if shape.tools and shape.tool_choice != "none" else None
    if spec is None:
        return AnswerFrame(tools=tools)
    opening, closing = _marks(spec)
    is_open = _is_open(spec, answer_start)
    after, content_open, content_close = "", "", ""
    if isinstance(spec, RegionSpec):
        after, content_open, content_close = spec.after_thought, spec.content_open, spec.content_close
    is_over = is_continued or closing in answer_start
    if content_open and content_open in answer_start:
        content_open, is_over = "", True
    # Where a thought is one part among others, tools keep it from being left out.
    is_over = is_over or (shape.reasoning == "off" and not (after and tools))
    forced = f"\n{closing}\n\n" if isinstance(spec, TagSpec) else closing + after
    if after and tools is None:
        forced += content_open  # or the next part may be a thought again
    return AnswerFrame(
        tools=tools,
        thought_open=opening,
        thought_close=closing,
        thought_is_open=is_open,
        may_think=is_open or not is_over,
        forced_close=forced,
        thought_budget=shape.reasoning_budget,
        after_thought=after,
        content_open=content_open,
        content_close=content_close,
    )
