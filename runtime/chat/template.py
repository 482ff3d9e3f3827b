"""A model's chat template, fed with messages in the form it understands.

What people expect is done here, not asked of them: a `developer` message becomes a system message where the
template does not know the role; several system messages at the start become one; a template without a system turn
gets the text at the head of the first user turn; a model without a template gets a plain one.
"""

import datetime
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from runtime.chat.abilities import Abilities, Row, find_abilities
from runtime.chat.ask import NOTHING, Ask, make_ask
from runtime.chat.derive import PROBE_ID, PROBE_TOOLS, Calls, can_read, derive_form, derive_tags
from runtime.chat.guard import CUT
from runtime.chat.rows import RowMaker, described
from runtime.chat.sandbox import SandboxedTemplate, TemplateValue
from runtime.chat.tool_format import ToolFormat
from runtime.chat.tool_specs import PLAIN_FORM, choose_tool_spec, load_tool_specs
from runtime.errors import TemplateRefused
from runtime.messages.shared import AnswerShape, Message, ToolCall

PLAIN_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content }}

{% else -%}
{{ 'Assistant' if message.role == 'assistant' else 'User' }}: {{ message.content }}
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}Assistant:{% endif -%}
"""
"""For models that bring none: named turns, which a model that only continues text understands best."""

PLAIN_STOPS = ("\nUser:",)
"""With the plain template, the answer ends where the model begins to write the person's next turn."""

CHATML_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
"""For models that bring none but whose vocabulary has ChatML's turn marks."""

MISTRAL_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]
{%- elif message.role == 'user' -%}
[INST]{{ message.content }}[/INST]
{%- else -%}
{{ message.content }}{{ eos_token }}
{%- endif -%}
{%- endfor -%}
"""
"""For conversions of Mistral's models that bring none (theirs is code, not a template)."""

TRIAL_LIMIT_S = 5.0
"""A template that is slow (or never ends) is tried out for this long at most; what was not found out is not used."""

_PROBE_SYSTEM = "probe-of-the-system-turn"
_PROBE_USER = "probe-of-the-user-turn"

Clock = Callable[[], datetime.datetime]


class ChatTemplate:
    """Renders conversations. Home thread: any (immutable after construction).

    Attributes:
        abilities: what the template makes of tools.
        form: how the model writes tool calls.
        tags: tags around a thought, derived from what the template writes; `None` if it writes none.
    """

    def __init__(
        self, text: str, *, bos_token: str, eos_token: str, clock: Clock, special_texts: Iterable[str] = ()
    ) -> None:
        """Compile, and try out what the template understands.

        Args:
            text: the template's source.
            bos_token: text of the start token.
            eos_token: text of the end token.
            clock: tells the time that templates ask for.
            special_texts: the model's special tokens; they tell its tool calls where the template does not.

        Raises:
            TemplateRefused: if it does not compile.
        """
        self._template = SandboxedTemplate(text)
        self._tokens: dict[str, TemplateValue] = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock
        self._trial_ends_s = time.monotonic() + TRIAL_LIMIT_S
        self._knows_developer = "developer" in text
        self._knows_minimal = "minimal" in text
        self._tools_names = ("tools", "xml_tools") if "xml_tools" in text else ("tools",)
        self._content_in_parts = False
        self._system_in_user = False
        self._no_tools_value: TemplateValue = None
        self.abilities = Abilities()
        self.form = PLAIN_FORM
        self._row_maker = RowMaker(self.abilities, self.form, self._content)
        self._no_tools_value = self._no_tools()
        self._content_in_parts = self._wants_parts()
        self._system_in_user = self._lacks_system_turn()
        self.abilities = find_abilities(self._try_rows, self._content, text)
        self._row_maker = RowMaker(self.abilities, self.form, self._content)
        form = self._find_form(special_texts)
        if form is None:
            # Tools in words of ours, if they cannot be read in the model's own.
            self.abilities = replace(self.abilities, shows_tools=False, shows_calls=False, shows_results=False)
        self.form = form or PLAIN_FORM
        self._row_maker = RowMaker(self.abilities, self.form, self._content)
        self.tags = derive_tags(self._try_answer)

    @property
    def text(self) -> str:
        """The template's source."""
        return self._template.text

    def now(self) -> datetime.datetime:
        """The time to freeze for one request."""
        return self._clock()

    def render(
        self,
        messages: Sequence[Message],
        *,
        now: datetime.datetime,
        add_generation_prompt: bool,
        continue_last: bool = False,
        ask: Ask = NOTHING,
    ) -> str:
        """Render; texts may carry the guard's marks.

        Args:
            messages: the conversation.
            now: the time the template sees.
            add_generation_prompt: open the assistant's turn at the end.
            continue_last: end inside the last message, an unfinished answer, where its text ends.
            ask: tools and further variables.

        Raises:
            TemplateRefused: if the template refuses the conversation, or cannot leave its last answer open.
            BadRequest: if the arguments of an earlier call are no JSON and the template needs them as an object.
        """
        rows = self._rows(messages, ask)
        if not continue_last:
            return self._run(rows, now, ask, add_generation_prompt=add_generation_prompt)
        last = rows[-1]
        if not last["content"] and messages[-1].reasoning:
            last["reasoning_content"] = last["thinking"] = messages[-1].reasoning + CUT
            head, cut, _ = self._run(rows, now, ask, add_generation_prompt=False).rpartition(CUT)
            if cut:
                return head
            last["reasoning_content"] = last["thinking"] = messages[-1].reasoning
        last["content"] = self._content(messages[-1].content + CUT)
        head, cut, _ = self._run(rows, now, ask, add_generation_prompt=False).rpartition(CUT)
        if not cut:
            raise TemplateRefused(
                "The model's chat template does not let an unfinished answer be continued.",
                hint="Generate a new answer instead.",
            )
        return head

    def _run(self, rows: Sequence[Row], now: datetime.datetime, ask: Ask, *, add_generation_prompt: bool) -> str:
        tools: Sequence[Row] = ask.tools if self.abilities.shows_tools and not self.abilities.system_tools else ()
        if self.abilities.describes:
            tools = described(tools)
        return self._generate(rows, now, tools, ask.values, add_generation_prompt=add_generation_prompt)

    def _generate(
        self,
        rows: Sequence[Row],
        now: datetime.datetime,
        tools: Sequence[Row],
        own: Mapping[str, TemplateValue],
        *,
        add_generation_prompt: bool,
    ) -> str:
        values: dict[str, TemplateValue] = {
            **self._tokens,
            "messages": list(rows),
            "add_generation_prompt": add_generation_prompt,
            "tools": self._no_tools_value,
            "documents": None,
            **own,
        }
        if tools:
            values |= {name: list(tools) for name in self._tools_names}
        if values.get("reasoning_effort") == "minimal" and not self._knows_minimal:
            values["reasoning_effort"] = "low"
        return self._template.render(values, now=now, input_chars=_n_chars(list(values.values())))

    def _rows(self, messages: Sequence[Message], ask: Ask) -> list[Row]:
        merged = _with_one_system(messages, knows_developer=self._knows_developer)
        merged = self._row_maker.as_text(merged, ask)
        if self._system_in_user:
            merged = _with_system_in_user(merged)
        return self._row_maker.rows(merged, ask)

    def _content(self, text: str) -> TemplateValue:
        return [{"type": "text", "text": text}] if self._content_in_parts else text

    def _try(self, render: Callable[[], str]) -> str:
        """Render for trial; "" where the template refuses, or has taken too long already."""
        if time.monotonic() > self._trial_ends_s:
            return ""
        try:
            return render()
        except TemplateRefused:
            return ""

    def _probe(self, messages: Sequence[Message]) -> str:
        return self._try(lambda: self.render(messages, now=self._clock(), add_generation_prompt=True))

    def _try_rows(self, rows: list[Row], ask: Ask) -> str:
        return self._try(lambda: self._generate(rows, self._clock(), ask.tools, ask.values, add_generation_prompt=True))

    def _try_answer(self, content: str, reasoning: str, calls: Calls) -> str:
        """Render an answer, as `runtime.chat.derive` asks."""
        made = tuple(
            ToolCall(f"{PROBE_ID}{number}", name, json.dumps(arguments))
            for number, (name, arguments) in enumerate(calls)
        )
        tools = make_ask(AnswerShape(tools=PROBE_TOOLS))
        messages = [
            Message(role="user", content=_PROBE_USER),
            Message(role="assistant", content=content, reasoning=reasoning, tool_calls=made),
        ]
        return self._try(lambda: self.render(messages, now=self._clock(), add_generation_prompt=False, ask=tools))

    def _derived_form(self) -> ToolFormat | None:
        if not self.abilities.shows_calls:
            return None
        return derive_form(self._try_answer, one_call=self.abilities.one_call)

    def _find_form(self, special_texts: Iterable[str]) -> ToolFormat | None:
        """How the model writes calls: as its family does, unless the template shows something else."""
        spec = choose_tool_spec(self.text, load_tool_specs(), special_texts if self.abilities.shows_tools else ())
        if spec is not None and (not self.abilities.shows_calls or can_read(self._try_answer, spec.form)):
            return spec.form
        derived = self._derived_form()
        return derived or (spec.form if spec else None)

    def _no_tools(self) -> TemplateValue:
        """How "no tools" is said: `None` to most templates, an empty list to those that walk it unasked."""
        user = [Message(role="user", content=_PROBE_USER)]
        if self._probe(user):
            return None
        self._no_tools_value = []
        return [] if self._probe(user) else None

    def _wants_parts(self) -> bool:
        """Whether the template reads content only as a list of parts, as those of vision models may."""
        user = [Message(role="user", content=_PROBE_USER)]
        if _PROBE_USER in self._probe(user):
            return False
        self._content_in_parts = True
        return _PROBE_USER in self._probe(user)

    def _lacks_system_turn(self) -> bool:
        """Whether a system message is refused or silently dropped while a conversation without one is fine."""
        user = Message(role="user", content=_PROBE_USER)
        system = Message(role="system", content=_PROBE_SYSTEM)
        return _PROBE_SYSTEM not in self._probe([system, user]) and _PROBE_USER in self._probe([user])


def _n_chars(rows: Sequence[TemplateValue]) -> int:
    total = 0
    for row in rows:
        if isinstance(row, str):
            total += len(row)
        elif isinstance(row, dict):
            total += _n_chars(list(row.values()))
        elif isinstance(row, list):
            total += _n_chars(row)
    return total


def _with_one_system(messages: Sequence[Message], *, knows_developer: bool) -> list[Message]:
    rows = [
        Message(role="system", content=message.content, name=message.name)
        if message.role == "developer" and not knows_developer
        else message
        for message in messages
    ]
    n_head = system_length(rows)
    if n_head < 2:  # noqa: PLR2004 - nothing to join
        return rows
    role = rows[0].role
    joined = Message(role=role, content="\n\n".join(row.content for row in rows[:n_head] if row.content))
    return [joined, *rows[n_head:]]


def _with_system_in_user(rows: list[Message]) -> list[Message]:
    if not rows or rows[0].role not in ("system", "developer"):
        return rows
    head, rest = rows[0], rows[1:]
    if not rest or rest[0].role != "user":
        return [Message(role="user", content=head.content), *rest]
    content = "\n\n".join(text for text in (head.content, rest[0].content) if text)
    return [Message(role="user", content=content, name=rest[0].name), *rest[1:]]


def system_length(messages: Sequence[Message]) -> int:
    """How many messages at the start are system or developer messages."""
    count = 0
    while count < len(messages) and messages[count].role in ("system", "developer"):
        count += 1
    return count


def choose_template_text(own: str | None, control_texts: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The template to use for a model, and the stop strings that belong to it.

    Args:
        own: what the model brings.
        control_texts: its control tokens.
    """
    if own and "{" in own:  # llama.cpp names one of its own templates where some models bring none
        return own, ()
    if {"<|im_start|>", "<|im_end|>"} <= control_texts:
        return CHATML_TEMPLATE, ()
    if {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"} <= control_texts:
        return MISTRAL_TEMPLATE, ()
    return PLAIN_TEMPLATE, PLAIN_STOPS
