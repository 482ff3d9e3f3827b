"""What the tokenizer and the template answer by themselves: tokens of a text, text of tokens, prompts as text."""

from dataclasses import dataclass

from runtime.errors import BadRequest
from runtime.messages.ipc import (
    ApplyTemplate,
    Detokenize,
    InfillPrompt,
    Rendered,
    TextAnswer,
    TextAsk,
    Tokenize,
    Tokenized,
)
from runtime.worker.language import Language


@dataclass(frozen=True, slots=True)
class _Marks:
    """Tokens of a code model around what is filled in; -1 is none."""

    prefix: int
    suffix: int
    middle: int
    repository: int
    file: int


def text_answer(request: TextAsk, language: Language) -> TextAnswer:
    """The answer to one of these; called in a rendering thread.

    Raises:
        BadRequest: a token id is not in the vocabulary, or the model cannot fill in.
        TemplateRefused: the template refuses the conversation.
    """
    if isinstance(request, Tokenize):
        ids = language.vocab.tokenize(
            request.text, add_special=request.add_special, parse_special=request.parse_special
        )
        return _tokenized(request.request_id, ids, language)
    if isinstance(request, Detokenize):
        known = language.prompt_of_tokens(request.token_ids, param="tokens").tokens if request.token_ids else ()
        return Rendered(request.request_id, language.text_of(known))
    if isinstance(request, ApplyTemplate):
        builder = language.builder_for(request.messages, request.shape)
        text = builder.text(request.messages, request.shape, continue_last=request.continue_last)
        return Rendered(request.request_id, text)
    return _tokenized(request.request_id, infill_tokens(request, language), language)


def infill_tokens(request: InfillPrompt, language: Language) -> list[int]:
    """Prefix, suffix and the mark behind which the model writes the middle, as llama.cpp's server orders them.

    Raises:
        BadRequest: the model has no tokens for it.
    """
    marks = _Marks(*language.vocab.fim_ids)
    if min(marks.prefix, marks.suffix, marks.middle) < 0:
        raise BadRequest(
            "This model cannot fill in the middle: it has no tokens for it.",
            hint="Use a code model such as Qwen2.5-Coder, or ask for a plain completion.",
            param="input_suffix",
        )

    def plain(text: str) -> list[int]:
        return language.vocab.tokenize(text, add_special=False, parse_special=False) if text else []

    ids = list(language.bos_ids)
    has_files = marks.repository >= 0 and marks.file >= 0
    if request.files and has_files:
        ids += [marks.repository, *plain("project\n")]
    for name, text in request.files:
        ids += [marks.file, *plain(f"{name}\n{text}\n")] if has_files else plain(f"{text}\n")
    if request.files and has_files:
        ids += [marks.file, *plain("this file\n")]
    before = [marks.prefix, *plain(request.prefix + request.prompt)]
    return [*ids, *before, marks.suffix, *plain(request.suffix), marks.middle]


def _tokenized(request_id: str, ids: list[int], language: Language) -> Tokenized:
    pieces = tuple(language.vocab.token_bytes(token, special=True) for token in ids)
    return Tokenized(request_id, tuple(ids), pieces)


def cost_bytes(request: TextAsk) -> int:
    """Roughly how much memory its texts hold."""
    if isinstance(request, Tokenize):
        return len(request.text)
    if isinstance(request, Detokenize):
        return 8 * len(request.token_ids)
    if isinstance(request, ApplyTemplate):
        return sum(len(row.content) + len(row.reasoning) for row in request.messages)
    texts = (request.prefix, request.suffix, request.prompt, *(text for _, text in request.files))
    return sum(map(len, texts))
