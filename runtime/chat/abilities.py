"""Finds out by trial what a template makes of tools, calls and their results.

Templates want the same things in different forms, and say so nowhere: arguments as an object or as text, ids of
nine letters or ones that carry the function's name, one call in a turn, content that is empty or missing. So each
form is tried with words that can be found again in what comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from runtime.chat.ask import Ask
from runtime.chat.sandbox import TemplateValue

Row = dict[str, TemplateValue]
Run = Callable[[list[Row], Ask], str]
"""Renders rows; "" where the template refuses."""
ArgumentForm = Literal["text", "object"]
IdForm = Literal["as_is", "nine", "function"]

_NAME, _OTHER_NAME = "probe_alpha", "probe_omega"
_KEY, _VALUE, _OTHER_VALUE, _RESULT = "probe_key", "probe value", "probe other", "probe result"
_MORE, _THOUGHT = "probe more", "probe thought"
_JSON = f'{{"{_KEY}": "{_VALUE}"}}'
_IDS: dict[IdForm, tuple[str, str]] = {
    "as_is": ("call_0123456789abcdef01234567", "call_89abcdef0123456789abcdef"),
    "nine": ("abcdefgh0", "abcdefgh1"),
    "function": (f"functions.{_NAME}:0", f"functions.{_OTHER_NAME}:1"),
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template understands.

    Attributes:
        shows_tools: it tells the model about the tools.
        system_tools: it wants them as JSON text inside the system message (Phi-4).
        shows_calls: it writes earlier calls.
        shows_results: it writes their results.
        describes: it reads the description of each parameter, and fails where there is none.
        user_after_result: a user message may follow a result.
        thought_beside_text: a message with calls may have a thought and text.
        arguments: the form in which it wants arguments.
        empty_content: what a message without text has for content.
        one_call: of several calls in one message it shows only the first, or refuses.
        ids: what ids have to look like.
        switches_reasoning: the usual variables turn the model's reasoning on and off.
    """

    shows_tools: bool = False
    system_tools: bool = False
    shows_calls: bool = False
    shows_results: bool = False
    describes: bool = False
    user_after_result: bool = True
    thought_beside_text: bool = True
    arguments: ArgumentForm = "text"
    empty_content: Literal[""] | None = ""
    one_call: bool = False
    ids: IdForm = "as_is"
    switches_reasoning: bool = False


def probe_tool(name: str, **described: TemplateValue) -> dict[str, TemplateValue]:
    """A tool to try with; `described` goes into its parameter."""
    parameters: dict[str, TemplateValue] = {
        "type": "object",
        "properties": {_KEY: {"type": "string", **described}},
        "required": [_KEY],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": "A probe.", "parameters": parameters},
    }


def call_row(call_id: str, name: str, arguments: TemplateValue) -> TemplateValue:
    """A call in the form templates expect."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def find_abilities(run: Run, content: Callable[[str], TemplateValue], template_text: str) -> Abilities:
    """Try a template out (some thirty renders of a few words).

    Args:
        run: renders.
        content: text in the form of content that the template wants.
        template_text: its source.
    """
    user: Row = {"role": "user", "content": content("probe")}
    ask = Ask(tools=(probe_tool(_NAME, description=""), probe_tool(_OTHER_NAME, description="")))
    shows_tools = _NAME in run([user], ask)
    describes = shows_tools and _NAME not in run([user], Ask(tools=(probe_tool(_NAME),)))
    system_tools = False
    if not shows_tools and "tools" in template_text:
        system: Row = {"role": "system", "content": content("probe"), "tools": _NAME}
        shows_tools = system_tools = _NAME in run([system, user], ask)
    switches = _switches_reasoning(run, user)
    base = Abilities(
        shows_tools=shows_tools, system_tools=system_tools, switches_reasoning=switches, describes=describes
    )
    return _with_calls(run, user, ask if shows_tools else Ask(), base, content)


def _switches_reasoning(run: Run, user: Row) -> bool:
    on, off = (run([user], Ask(values={"enable_thinking": value, "thinking": value})) for value in (True, False))
    return on != off


def _with_calls(run: Run, user: Row, ask: Ask, base: Abilities, content: Callable[[str], TemplateValue]) -> Abilities:
    as_object = _try_calls(run, user, ask, base, content, "object")
    as_text = _try_calls(run, user, ask, base, content, "text")
    # Text keeps what the model wrote to the letter, but only where the model writes JSON.
    if as_text is not None and (as_object is None or as_object[1]):
        return as_text[0]
    return base if as_object is None else as_object[0]


def _try_calls(
    run: Run, user: Row, ask: Ask, base: Abilities, content: Callable[[str], TemplateValue], arguments: ArgumentForm
) -> tuple[Abilities, bool] | None:
    """Abilities with arguments in this form, and whether they came out as JSON; `None` if they did not come out."""
    for ids in _IDS:
        result: Row = {"role": "tool", "content": content(_RESULT), "tool_call_id": _IDS[ids][0], "name": _NAME}
        # Some templates write an answer only where something follows, some know no results.
        for tail in ([result], []):
            tried = {
                empty: text
                for empty in ("", None)
                if _shows_call(text := run([user, _calls(1, arguments, ids, empty), *tail], ask), arguments)
            }
            if not tried:
                continue
            # Where both are taken, the longer one leaves an empty turn behind.
            empty: Literal[""] | None = (
                "" if "" in tried and len(tried[""]) <= len(tried.get(None, tried[""])) else None
            )
            answered = run([user, _calls(1, arguments, ids, empty), result], ask)
            goes_on = run([user, _calls(1, arguments, ids, empty), result, {**user, "content": content(_MORE)}], ask)
            both = run([user, _calls(2, arguments, ids, empty), *tail], ask)
            full = {**_calls(1, arguments, ids, ""), "content": content(_MORE)}
            thinks = full | {"reasoning_content": _THOUGHT, "thinking": _THOUGHT}
            found = replace(
                base,
                shows_calls=True,
                shows_results=_RESULT in answered,
                user_after_result=_MORE in goes_on,
                thought_beside_text=not run([user, full, *tail], ask) or bool(run([user, thinks, *tail], ask)),
                arguments=arguments,
                empty_content=empty,
                one_call=not (_VALUE in both and _OTHER_VALUE in both),
                ids=ids,
            )
            return found, _JSON in tried[empty]
    return None


def _calls(count: int, arguments: ArgumentForm, ids: IdForm, empty: Literal[""] | None) -> Row:
    given = ((_NAME, _VALUE), (_OTHER_NAME, _OTHER_VALUE))[:count]
    rows: list[TemplateValue] = [
        call_row(call_id, name, {_KEY: value} if arguments == "object" else f'{{"{_KEY}": "{value}"}}')
        for call_id, (name, value) in zip(_IDS[ids], given, strict=False)
    ]
    return {"role": "assistant", "content": empty, "tool_calls": rows}


def _shows_call(text: str, arguments: ArgumentForm) -> bool:
    """Whether a call came out whole: not as the text of a text, nor as Python shows a dictionary."""
    # Behind the list of the tools, which names them too.
    text = text.rpartition(_OTHER_NAME)[2]
    if _NAME not in text or _VALUE not in text:
        return False
    if arguments == "text":
        return _JSON in text
    return _KEY in text and f"'{_KEY}': '{_VALUE}'" not in text
