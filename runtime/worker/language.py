"""A loaded model as the front sees it: text in, tokens out, and how its answers are read."""

import datetime
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.chat.guard import ControlTokenGuard
from runtime.chat.pairs import PairBuilder, PairVocab
from runtime.chat.prompt import PLAIN_SHAPE, Prompt, PromptBuilder
from runtime.chat.regions import make_parser
from runtime.chat.response import ResponseSpec, choose_spec, load_specs
from runtime.chat.template import ChatTemplate, choose_template_text
from runtime.chat.tool_parser import AnswerReader, ToolParser
from runtime.chat.tool_specs import PLAIN_FORM
from runtime.errors import BadRequest, TemplateRefused
from runtime.gguf.facts import SpecialToken, read_special_tokens
from runtime.gguf.header import read_header
from runtime.gguf.source import FileSource
from runtime.messages.shared import AnswerShape, Message
from runtime.options import GenerateOptions

_log = logging.getLogger(__name__)


class VocabPort(PairVocab, Protocol):
    """The parts of `runtime.worker.vocab.Vocab` that the front uses."""

    chat_template: str | None
    tool_template: str | None
    bos_token: str
    eos_token: str
    n_tokens: int
    fim_ids: tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class HeaderWords:
    """What only the file's header tells: its special tokens."""

    control: tuple[str, ...]
    user_defined: tuple[str, ...]


def read_header_words(path: Path) -> HeaderWords:
    """Read the special tokens of a model file (about 50 ms for 50,000 tokens).

    Raises:
        ModelLoadFailed, OSError: as `runtime.gguf.header.read_header`.
    """
    with FileSource(path) as source:
        tokens: tuple[SpecialToken, ...] = read_special_tokens(source, read_header(source))
    return HeaderWords(
        control=tuple(token.text for token in tokens if token.is_control),
        user_defined=tuple(token.text for token in tokens if not token.is_control),
    )


class Language:
    """Templates, guard and response spec of one model. Home thread: any (immutable after construction).

    Attributes:
        n_ctx: tokens a conversation may have.
        extra_stops: stop strings that belong to the template.
        spec: how the model marks its thought.
        reasons: it thinks, as far as its template tells.
        can_use_tools: its template tells it of tools; others are told in the system turn.
        tool_form: how it writes calls.
        pairs: a query and a document as a rerank model reads them.
        template_failure: why its template cannot be used, if so.
    """

    def __init__(
        self, vocab: VocabPort, words: HeaderWords, *, n_ctx: int, clock: Callable[[], datetime.datetime]
    ) -> None:
        self.n_ctx = n_ctx
        self._vocab = vocab
        text, self.extra_stops = choose_template_text(vocab.chat_template, frozenset(words.control))
        special = (*words.control, *words.user_defined)
        self.spec: ResponseSpec | None = choose_spec(text, load_specs(), special)
        self.reasons = choose_spec(text, load_specs()) is not None
        self.pairs = PairBuilder(vocab, words.control, words.user_defined)
        self.can_use_tools = False
        self.tool_form = PLAIN_FORM
        self._bos_ids = tuple(
            vocab.tokenize(vocab.bos_token, add_special=False, parse_special=True) if vocab.bos_token else ()
        )
        self._builder: PromptBuilder | None = None
        self._tool_builder: PromptBuilder | None = None
        self.template_failure: TemplateRefused | None = None

        def compiled(text: str) -> ChatTemplate:
            return ChatTemplate(
                text, bos_token=vocab.bos_token, eos_token=vocab.eos_token, clock=clock, special_texts=special
            )

        def builder(template: ChatTemplate) -> PromptBuilder:
            guard = ControlTokenGuard(vocab, words.control, words.user_defined, template.text)
            return PromptBuilder(template, guard, bos_ids=self.bos_ids, n_ctx=n_ctx, spec=self.spec)

        try:
            template = compiled(text)
        except TemplateRefused as error:
            # The model can still complete plain text and embed; only conversations are refused.
            self.template_failure = error
            return
        if self.spec is None and template.tags is not None:
            self.spec = template.tags
            self.reasons = True
        self._builder = builder(template)
        if vocab.tool_template and not template.abilities.shows_tools:
            try:
                template = compiled(vocab.tool_template)
                self._tool_builder = builder(template)
            except TemplateRefused as error:
                _log.warning("the model's template for tools cannot be used: %s", error.message)
        self.can_use_tools = template.abilities.shows_tools
        self.tool_form = template.form

    @property
    def vocab(self) -> VocabPort:
        """The vocabulary."""
        return self._vocab

    @property
    def bos_ids(self) -> tuple[int, ...]:
        """The start token, if the model wants one in front."""
        return self._bos_ids if self._vocab.add_bos else ()

    @property
    def builder(self) -> PromptBuilder:
        """The prompt builder.

        Raises:
            TemplateRefused: if the model's template is broken.
        """
        if self._builder is None:
            failure = self.template_failure
            raise TemplateRefused(failure.message if failure else "no template", hint=failure.hint if failure else "")
        return self._builder

    def builder_for(self, messages: Sequence[Message], shape: AnswerShape) -> PromptBuilder:
        """The prompt builder for a conversation: some models bring a template of its own for those with tools.

        Raises:
            TemplateRefused: if the model's template is broken.
        """
        has_tools = bool(shape.tools) and shape.tool_choice != "none"
        if self._tool_builder is not None and (has_tools or any(message.tool_calls for message in messages)):
            return self._tool_builder
        return self.builder

    def prompt_of_messages(
        self,
        messages: Sequence[Message],
        options: GenerateOptions,
        shape: AnswerShape = PLAIN_SHAPE,
        *,
        continue_last: bool,
        is_wanted: Callable[[], bool],
        media_tokens: Sequence[int] = (),
    ) -> Prompt:
        """Build the prompt of a conversation; arguments and errors as `PromptBuilder.build`."""
        return self.builder_for(messages, shape).build(
            messages,
            options,
            shape,
            continue_last=continue_last,
            is_wanted=is_wanted,
            media_tokens=media_tokens,
        )

    def reader(self, prompt: Prompt, shape: AnswerShape, *, is_continued: bool) -> AnswerReader | None:
        """What takes one answer apart; `None` where all of it is content."""
        thought = None
        if self.spec is not None:
            thought = make_parser(self.spec, prompt.answer_start, is_continued=is_continued)
        calls = None
        if prompt.frame.tools is not None:
            calls = ToolParser(prompt.frame.tools, shape.tools, only_calls=shape.tool_choice == "required")
        reader = AnswerReader(thought, calls)
        return None if reader.is_plain else reader

    def prompt_of_text(self, text: str) -> Prompt:
        """Tokens of a raw prompt, read as llama-server does.

        The start token is put in front where the model wants it (once, also if the text has it), and control
        tokens written out in the text are control tokens, since whoever sends a raw prompt writes the model's own
        format.

        Raises:
            BadRequest: if there is nothing to go on from.
        """
        ids = self._vocab.tokenize(text, add_special=True, parse_special=True)
        n_bos = len(self._bos_ids)
        if n_bos and tuple(ids[: 2 * n_bos]) == self._bos_ids * 2:
            ids = ids[n_bos:]
        return Prompt(tokens=self._at_least_bos(ids))

    def prompt_of_tokens(self, token_ids: Sequence[int], *, param: str = "prompt") -> Prompt:
        """Check token ids; `param` names the field they came in.

        Raises:
            BadRequest: if one is not in the vocabulary, or there is none to go on from.
        """
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab.n_tokens:
                raise BadRequest(
                    f"The token id {token_id} is not in the model's vocabulary of {self._vocab.n_tokens:,}.",
                    param=param,
                )
        return Prompt(tokens=self._at_least_bos(list(token_ids)))

    def embedding_tokens(self, item: str | tuple[int, ...], *, truncate: bool = False) -> tuple[int, ...]:
        """Tokens of one input to embed; text is read as plain text throughout.

        With `truncate`, what is over the context is cut off, before the end token where the model wants one.

        Raises:
            BadRequest: if it is empty or a token id is not in the vocabulary.
        """
        if not isinstance(item, str):
            ids = self.prompt_of_tokens(item, param="input").tokens
            return ids[: self.n_ctx] if truncate else ids
        ids = self._at_least_bos(self._vocab.tokenize(item, add_special=True, parse_special=False))
        if not truncate or len(ids) <= self.n_ctx:
            return ids
        around = tuple(self._vocab.tokenize("", add_special=True, parse_special=False))
        end = around[len(self.bos_ids) :] if around[: len(self.bos_ids)] == self.bos_ids else ()
        return ids[: self.n_ctx - len(end)] + end

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Text of tokens, control tokens shown; broken UTF-8 at the ends becomes replacement characters."""
        return b"".join(self._vocab.token_bytes(token, special=True) for token in token_ids).decode("utf-8", "replace")

    def _at_least_bos(self, ids: list[int]) -> tuple[int, ...]:
        if not ids and not self._bos_ids:
            raise BadRequest("The prompt is empty.", param="prompt")
        return tuple(ids) or self._bos_ids
