"""A query and a document as one text, the way rerank models read them.

With a template of the file (`tokenizer.chat_template.rerank`), that; without one, both texts between the special tokens
that the tokenizer asks for, as llama-server does (`format_prompt_rerank`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from runtime.chat.guard import ControlTokenGuard, Tokenizer

_PLACE = re.compile(r"\{(query|document)\}")


class PairVocab(Tokenizer, Protocol):
    """What is needed of a model's vocabulary. Ids are -1 where the model has no such token."""

    rerank_template: str | None
    bos_id: int
    eos_id: int
    sep_id: int
    add_bos: bool
    add_eos: bool
    add_sep: bool


class PairBuilder:
    """Makes the tokens. Home thread: any (immutable)."""

    def __init__(self, vocab: PairVocab, control: Iterable[str], user_defined: Iterable[str]) -> None:
        self._vocab = vocab
        self._template = vocab.rerank_template
        self._guard = ControlTokenGuard(vocab, control, user_defined, vocab.rerank_template or "")

    def tokens(self, query: str, documents: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Tokens of the query with each document; control tokens written out in either are plain characters."""
        if self._template is not None:
            query = self._guard.mark(query, model_wrote_it=False)
            return tuple(self._templated(self._template, query, document) for document in documents)
        head = self._plain(query)
        return tuple(self._joined(head, self._plain(document)) for document in documents)

    def _templated(self, template: str, query: str, document: str) -> tuple[int, ...]:
        texts = {"query": query, "document": self._guard.mark(document, model_wrote_it=False)}
        # In one pass, so that a query which says "{document}" stays as it is.
        return tuple(self._guard.tokenize(_PLACE.sub(lambda place: texts[place[1]], template)))

    def _plain(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False)

    def _joined(self, query: list[int], document: list[int]) -> tuple[int, ...]:
        vocab = self._vocab
        end_id = vocab.eos_id if vocab.eos_id >= 0 else vocab.sep_id
        end = [end_id] if vocab.add_eos and end_id >= 0 else []
        start = [vocab.bos_id] if vocab.add_bos and vocab.bos_id >= 0 else []
        between = [vocab.sep_id] if vocab.add_sep and vocab.sep_id >= 0 else []
        return tuple(start + query + end + between + document + end)
