"""A model's chat template, fed with messages in the form it understands.

What people expect is done here, not asked of them: a `developer` message becomes a system message where the
template does not know the role; several system messages at the start become one; a template without a system turn
gets the text at the head of the first user turn; a model without a template gets a plain one.
"""

import datetime
from collections.abc import Callable, Sequence

from runtime.chat.guard import CUT
from runtime.chat.sandbox import SandboxedTemplate, TemplateValue
from runtime.errors import TemplateRefused
from runtime.messages.shared import Message

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

_PROBE_SYSTEM = "probe-of-the-system-turn"
_PROBE_USER = "probe-of-the-user-turn"

Clock = Callable[[], datetime.datetime]


class ChatTemplate:
    """Renders conversations. Home thread: any (immutable after construction)."""

    def __init__(self, text: str, *, bos_token: str, eos_token: str, clock: Clock) -> None:
        """Compile, and try out what the template understands.

        Raises:
            TemplateRefused: if it does not compile.
        """
        self._template = SandboxedTemplate(text)
        self._tokens: dict[str, TemplateValue] = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock
        self._knows_developer = "developer" in text
        self._content_in_parts = False
        self._system_in_user = False
        self._tools: TemplateValue = None
        self._tools = self._no_tools()
        self._content_in_parts = self._wants_parts()
        self._system_in_user = self._lacks_system_turn()

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
    ) -> str:
        """Render; texts may carry the guard's marks.

        Args:
            messages: the conversation.
            now: the time the template sees.
            add_generation_prompt: open the assistant's turn at the end.
            continue_last: end inside the last message, an unfinished answer, where its text ends.

        Raises:
            TemplateRefused: if the template refuses the conversation, or cannot leave its last answer open.
        """
        rows = self._rows(messages)
        if not continue_last:
            return self._run(rows, now, add_generation_prompt=add_generation_prompt)
        last = rows[-1]
        if not last["content"] and messages[-1].reasoning:
            last["reasoning_content"] = last["thinking"] = messages[-1].reasoning + CUT
            head, cut, _ = self._run(rows, now, add_generation_prompt=False).rpartition(CUT)
            if cut:
                return head
            last["reasoning_content"] = last["thinking"] = messages[-1].reasoning
        last["content"] = self._content(messages[-1].content + CUT)
        head, cut, _ = self._run(rows, now, add_generation_prompt=False).rpartition(CUT)
        if not cut:
            raise TemplateRefused(
                "The model's chat template does not let an unfinished answer be continued.",
                hint="Generate a new answer instead.",
            )
        return head

    def _run(self, rows: Sequence[TemplateValue], now: datetime.datetime, *, add_generation_prompt: bool) -> str:
        values: dict[str, TemplateValue] = {
            **self._tokens,
            "messages": list(rows),
            "add_generation_prompt": add_generation_prompt,
            "tools": self._tools,
            "documents": None,
        }
        return self._template.render(values, now=now, input_chars=_n_chars(rows))

    def _rows(self, messages: Sequence[Message]) -> list[dict[str, TemplateValue]]:
        merged = _with_one_system(messages, knows_developer=self._knows_developer)
        if self._system_in_user:
            merged = _with_system_in_user(merged)
        return [self._row(message) for message in merged]

    def _row(self, message: Message) -> dict[str, TemplateValue]:
        row: dict[str, TemplateValue] = {"role": message.role, "content": self._content(message.content)}
        if message.name:
            row["name"] = message.name
        if message.reasoning:
            # Qwen, DeepSeek and most others read the first name, gpt-oss the second.
            row["reasoning_content"] = row["thinking"] = message.reasoning
        return row

    def _content(self, text: str) -> TemplateValue:
        return [{"type": "text", "text": text}] if self._content_in_parts else text

    def _probe(self, messages: Sequence[Message]) -> str:
        try:
            return self.render(messages, now=self._clock(), add_generation_prompt=True)
        except TemplateRefused:
            return ""

    def _no_tools(self) -> TemplateValue:
        """How "no tools" is said: `None` to most templates, an empty list to those that walk it unasked."""
        user = [Message(role="user", content=_PROBE_USER)]
        if self._probe(user):
            return None
        self._tools = []
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
    if own and own.strip():
        return own, ()
    if {"<|im_start|>", "<|im_end|>"} <= control_texts:
        return CHATML_TEMPLATE, ()
    return PLAIN_TEMPLATE, PLAIN_STOPS
