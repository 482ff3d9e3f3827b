"""Makes the prompt of one request: marked, rendered, tokenized, and cut down to the context if asked."""

import datetime
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runtime.chat.ask import Ask, make_ask
from runtime.chat.framing import make_frame, text_without_thought
from runtime.chat.guard import MEDIA, ControlTokenGuard, strip_marks
from runtime.chat.response import ResponseSpec
from runtime.chat.template import ChatTemplate, system_length
from runtime.chat.tool_format import FREE_FRAME, AnswerFrame
from runtime.errors import BadRequest, ContextExceeded, TemplateRefused
from runtime.messages.shared import AnswerShape, MediaPart, Message, Part, TextPart, ToolCall
from runtime.options import GenerateOptions

PLAIN_SHAPE = AnswerShape()
DEFAULT_RESERVE = 1024
"""Tokens kept free for an answer of automatic length, when old turns are dropped."""

_TAIL_CHARS = 32
"""Looked at for an opened thought where the start of the answer cannot be told; earlier answers are not in it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that fits.

    Attributes:
        tokens: ids, the start token included where the model wants one.
        save_points: lengths at which the memory is worth keeping: the end of the system part and the start of the
            generation prompt.
        answer_start: what of the answer is already written: by the template (an opened `<think>`) or, when an
            answer is continued, by the model before.
        dropped_turns: how many of the oldest messages were left out.
        frame: what stands around the answer.
        media: pictures and sounds, each before the token of this number; they are not among `tokens`.
    """

    tokens: tuple[int, ...]
    save_points: tuple[int, ...] = ()
    answer_start: str = ""
    dropped_turns: int = 0
    frame: AnswerFrame = FREE_FRAME
    media: tuple[tuple[int, MediaPart], ...] = ()


class PromptBuilder:
    """Builds prompts for one model. Home thread: any (immutable).

    Args:
        template: the chat template.
        guard: its guard against control tokens in text.
        bos_ids: the start token (one id) if the model wants it put in front, else empty.
        n_ctx: tokens a conversation may have.
        spec: how the model thinks.
    """

    def __init__(
        self,
        template: ChatTemplate,
        guard: ControlTokenGuard,
        *,
        bos_ids: tuple[int, ...],
        n_ctx: int,
        spec: ResponseSpec | None = None,
    ) -> None:
        self._spec = spec
        self._template = template
        self._guard = guard
        self._bos_ids = list(bos_ids)
        self._n_ctx = n_ctx

    def count(
        self, messages: Sequence[Message], shape: AnswerShape = PLAIN_SHAPE, media_tokens: Sequence[int] = ()
    ) -> int:
        """Tokens of a conversation as it would be asked, the generation prompt included; `media_tokens` as in `build`.

        Raises:
            TemplateRefused, BadRequest: as `build`.
        """
        text = self._rendered(messages, shape)
        return len(self._tokenize(text)) + _media_size(text, media_tokens)

    def text(self, messages: Sequence[Message], shape: AnswerShape, *, continue_last: bool = False) -> str:
        """A conversation as it would be asked, as text; errors as `build`."""
        return strip_marks(self._rendered(messages, shape, continue_last=continue_last))

    def _rendered(self, messages: Sequence[Message], shape: AnswerShape, *, continue_last: bool = False) -> str:
        marked, ask, now = self._marked(messages, continue_last=continue_last), self._ask(shape), self._template.now()
        text = self._template.render(
            marked, now=now, add_generation_prompt=not continue_last, continue_last=continue_last, ask=ask
        )
        return text if continue_last else text + self._skipped(marked, text, shape, ask, now)

    def _ask(self, shape: AnswerShape) -> Ask:
        return make_ask(shape, lambda text: self._guard.mark(text, model_wrote_it=False))

    def _skipped(
        self, marked: Sequence[Message], text: str, shape: AnswerShape, ask: Ask, now: datetime.datetime
    ) -> str:
        """What to put behind a rendered conversation so that the model does not think, where that is asked."""
        if shape.reasoning != "off" or self._spec is None:
            return ""
        before = self._before_answer(marked, now, ask, continue_last=False)
        return text_without_thought(
            self._spec,
            _answer_start(text, before),
            has_tools=bool(ask.tools),
            template_obeys=self._template.abilities.switches_reasoning,
        )

    def build(
        self,
        messages: Sequence[Message],
        options: GenerateOptions,
        shape: AnswerShape = PLAIN_SHAPE,
        *,
        continue_last: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
        media_tokens: Sequence[int] = (),
    ) -> Prompt:
        """Build the prompt.

        Args:
            messages: the conversation; an empty assistant message at its end is left out.
            options: `max_tokens` and `context_policy` decide what fits.
            shape: tools, and whether to think.
            continue_last: go on writing the last assistant message.
            is_wanted: asked between renders and parts of a long text; once it says no, what was made so far is
                returned.
            media_tokens: what each picture and sound of the conversation will take, in order.

        Raises:
            BadRequest: if there is nothing to answer or to continue.
            TemplateRefused: if the template refuses the conversation.
            ContextExceeded: if it is too long and may not be, or cannot be, cut.
        """
        marked = self._marked(messages, continue_last=continue_last)
        now, ask = self._template.now(), self._ask(shape)
        starts = _turn_starts(marked)
        skipped = ""

        def attempt(n_dropped: int) -> tuple[str, list[int], int]:
            nonlocal skipped
            kept = _without_oldest(marked, starts, n_dropped)
            text = self._template.render(
                kept, now=now, add_generation_prompt=not continue_last, continue_last=continue_last, ask=ask
            )
            if not n_dropped and not continue_last:
                skipped = self._skipped(kept, text, shape, ask, now)
            ids = self._tokenize(text + skipped, is_wanted)
            return text + skipped, ids, len(ids) + _media_size(text, media_tokens)

        text, ids, n_tokens = attempt(0)
        n_dropped = 0
        room = self._n_ctx - (0 if options.max_tokens == 0 else 1)
        if options.context_policy == "drop_oldest" and n_tokens + self._reserve(options) > self._n_ctx:
            n_dropped = self._turns_to_drop(n_tokens, len(starts) - 1, self._reserve(options), attempt, is_wanted)
            text, ids, n_tokens = attempt(n_dropped)
        if n_tokens > room and is_wanted():
            raise ContextExceeded(
                f"The conversation has {n_tokens:,} tokens, and the model was loaded with a context of "
                f"{self._n_ctx:,}.",
                hint="Shorten it, load the model with a longer context, or let the oldest turns be dropped.",
                prompt_tokens=n_tokens,
                n_ctx=self._n_ctx,
            )
        kept = _without_oldest(marked, starts, n_dropped)
        before_answer = self._before_answer(kept, now, ask, continue_last=continue_last)
        answer_start = strip_marks(_answer_start(text, before_answer))
        is_continued = continue_last and bool(messages[-1].content)
        return Prompt(
            tokens=tuple(ids),
            save_points=self._save_points(kept, text, ids, before_answer, now, ask),
            answer_start=answer_start,
            dropped_turns=len(marked) - len(kept),
            frame=make_frame(self._spec, self._template.form, answer_start, shape, is_continued=is_continued),
            media=self._media(messages, text),
        )

    def _reserve(self, options: GenerateOptions) -> int:
        wanted = DEFAULT_RESERVE if options.max_tokens is None else options.max_tokens
        return max(1, min(wanted, self._n_ctx // 4))

    def _turns_to_drop(
        self,
        n_tokens: int,
        most: int,
        reserve: int,
        attempt: Callable[[int], tuple[str, list[int], int]],
        is_wanted: Callable[[], bool],
    ) -> int:
        """The fewest turns to drop so that the reserve fits, then rounded up to a quarter of the context.

        [STABLE-CUT] Rounded, the cut stays where it is for several turns, so that the prompt keeps its beginning
        and most of it need not be read again; cut to the token, it would move with every turn.
        """
        quarter = max(self._n_ctx // 4, 1)
        excess = n_tokens + reserve - self._n_ctx
        goal = n_tokens - -(-excess // quarter) * quarter

        def fewest(limit: int) -> int:
            low, high = 1, most
            while low < high and is_wanted():
                middle = (low + high) // 2
                if attempt(middle)[2] <= limit:
                    high = middle
                else:
                    low = middle + 1
            return low

        if most < 1:
            return 0
        stable = fewest(max(goal, 0))
        if attempt(stable)[2] <= goal:
            return stable
        return fewest(self._n_ctx - reserve)

    def _marked(self, messages: Sequence[Message], *, continue_last: bool) -> list[Message]:
        rows = [self._marked_message(message) for message in messages]
        if continue_last:
            if not rows or rows[-1].role != "assistant":
                raise BadRequest("There is no answer to continue: the last message is not the assistant's.")
            return rows
        while rows and rows[-1].role == "assistant" and _is_empty(rows[-1]):
            rows.pop()
        if not rows:
            raise BadRequest("The conversation is empty.", param="messages")
        return rows

    def _marked_message(self, message: Message) -> Message:
        """The message for the template: texts marked, pictures and sounds as a mark in the text."""
        is_models = message.role == "assistant"

        def mark(text: str) -> str:
            return self._guard.mark(text, model_wrote_it=is_models)

        return Message(
            role=message.role,
            content=_text_of_parts(message.parts, mark) if message.parts else mark(message.content),
            reasoning=self._guard.mark(message.reasoning, model_wrote_it=True),
            name=self._guard.mark(message.name, model_wrote_it=False),
            tool_calls=tuple(
                ToolCall(
                    self._guard.mark(call.id, model_wrote_it=False),
                    self._guard.mark(call.name, model_wrote_it=False),
                    self._guard.mark(_unescaped(call.arguments), model_wrote_it=True),
                )
                for call in message.tool_calls
            ),
            tool_call_id=self._guard.mark(message.tool_call_id, model_wrote_it=False),
        )

    def _tokenize(self, text: str, is_wanted: Callable[[], bool] = lambda: True) -> list[int]:
        return self._tokens_and_places(text, is_wanted)[0]

    def _tokens_and_places(
        self, text: str, is_wanted: Callable[[], bool] = lambda: True
    ) -> tuple[list[int], list[int]]:
        """Tokens of a text, and how many stand before each picture or sound in it."""
        ids: list[int] = []
        lengths: list[int] = []
        for piece in text.split(MEDIA):
            ids += self._guard.tokenize(piece, is_wanted=is_wanted, goes_on=bool(ids))
            lengths.append(len(ids))
        n_bos = len(self._bos_ids)
        has_bos = not n_bos or ids[:n_bos] == self._bos_ids
        return (ids, lengths[:-1]) if has_bos else (self._bos_ids + ids, [n_bos + length for length in lengths[:-1]])

    def _media(self, messages: Sequence[Message], text: str) -> tuple[tuple[int, MediaPart], ...]:
        """The pictures and sounds that are left in the rendered text: the last ones, as old turns may be gone."""
        if MEDIA not in text:
            return ()
        given = [part.media for message in messages for part in message.parts if not isinstance(part, TextPart)]
        places = self._tokens_and_places(text)[1]
        if len(places) > len(given):
            raise TemplateRefused("The model's chat template repeats the pictures of the conversation.")
        return tuple(zip(places, given[len(given) - len(places) :], strict=True))

    def _before_answer(
        self, messages: Sequence[Message], now: datetime.datetime, ask: Ask, *, continue_last: bool
    ) -> str:
        """The conversation up to the answer, without a turn opened for it; "" if it cannot be rendered alone.

        Usually it is the beginning of the prompt; some templates end it with a mark of their own.
        """
        previous = messages[:-1] if continue_last else messages
        if not previous:
            return ""
        try:
            return self._template.render(previous, now=now, add_generation_prompt=False, ask=ask)
        except TemplateRefused:
            return ""

    def _save_points(
        self,
        messages: Sequence[Message],
        text: str,
        ids: list[int],
        before_answer: str,
        now: datetime.datetime,
        ask: Ask,
    ) -> tuple[int, ...]:
        points = {self._length_before(before_answer, text, ids)} if before_answer else set()
        n_system = system_length(messages)
        if 0 < n_system < len(messages):
            try:
                system = self._template.render(messages[:n_system], now=now, add_generation_prompt=False, ask=ask)
            except TemplateRefused:
                system = ""
            if system and text.startswith(system):
                points.add(_common_length(self._tokenize(system), ids))
        return tuple(sorted(point for point in points if 0 < point < len(ids)))

    def _length_before(self, before: str, text: str, ids: list[int]) -> int:
        """How many of `ids`, the tokens of `text`, are those of `before`."""
        if not text.startswith(before):
            return _common_length(self._tokenize(before), ids)
        # The rest is short and mostly starts with a control token, so that it can be tokenized by itself.
        rest = self._guard.tokenize(text[len(before) :])
        n_before = len(ids) - len(rest)
        return n_before if ids[n_before:] == rest else _common_length(self._tokenize(before), ids)


def _media_size(text: str, media_tokens: Sequence[int]) -> int:
    """What the pictures and sounds take that are left in a rendered text: the last ones."""
    n_media = text.count(MEDIA)
    return sum(media_tokens[-n_media:]) if n_media else 0


def _answer_start(text: str, before_answer: str) -> str:
    is_prefix = bool(before_answer) and text.startswith(before_answer)
    return text[len(before_answer) :] if is_prefix else text[-_TAIL_CHARS:]


def _is_empty(message: Message) -> bool:
    return not (message.content or message.reasoning or message.tool_calls)


def _text_of_parts(parts: Sequence[Part], mark: Callable[[str], str]) -> str:
    """Texts that follow each other are one: a control token cut over two of them would be whole again."""
    found: list[str] = []
    for is_text, several in itertools.groupby(parts, lambda part: isinstance(part, TextPart)):
        if is_text:
            found.append(mark("".join(part.text for part in several if isinstance(part, TextPart))))
        else:
            found += [MEDIA for _ in several]
    return "".join(found)


def _unescaped(arguments: str) -> str:
    """JSON without escapes that could hide a control token from its guard."""
    if "\\" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments, strict=False), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _common_length(left: list[int], right: list[int]) -> int:
    if right[: len(left)] == left:
        return len(left)
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where each turn begins: a user message with all that follows it up to the next one."""
    n_head = system_length(messages)
    starts = [i for i in range(n_head, len(messages)) if messages[i].role == "user"]
    if not starts or starts[0] != n_head:
        starts.insert(0, n_head)
    return starts


def _without_oldest(messages: Sequence[Message], starts: list[int], n_dropped: int) -> list[Message]:
    return [*messages[: starts[0]], *messages[starts[n_dropped] :]]


def with_stops(options: GenerateOptions, stops: tuple[str, ...], limit: int) -> GenerateOptions:
    """Add stop strings that belong to the template, as far as `limit` allows."""
    missing = tuple(stop for stop in stops if stop not in options.stop)
    return replace(options, stop=(*options.stop, *missing)[:limit]) if missing else options
