"""The tokenizer of a loaded model.

Home thread: any. llama.cpp's tokenizer is thread-safe (`llama.h`, "Tokenization"), and the byte table is filled
with values that do not change, so two threads that fill the same entry write the same bytes.
"""

import ctypes

from runtime.errors import BadRequest, BugFault
from runtime.worker import native

_PIECE_BYTES = 64
MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Most text in one `tokenize` call; far over any context, under llama.cpp's 32-bit limit."""


class Vocab:
    """Text to tokens and tokens to bytes.

    Attributes:
        n_tokens: size of the vocabulary; ids are 0 .. n_tokens - 1.
        chat_template: the model's own Jinja template, or None.
        tool_template: one of its own for conversations with tools, or None (Command R, Hermes).
        rerank_template: how a query and a document are put together, with `{query}` and `{document}` in it, or None.
        bos_token: text of the start token; empty when the model has none.
        eos_token: text of the end token; empty when the model has none.
        add_bos: whether the model wants the start token put before a plain prompt.
        add_eos, add_sep: whether it wants the end and separator tokens between and after two texts.
        bos_id, eos_id, sep_id: those tokens; -1 where there is none.
        eog_ids: ids of all tokens that end a generation.
        fim_ids: tokens for filling in the middle: prefix, suffix, middle, repository, file; -1 where there is none.
    """

    def __init__(self, model: int) -> None:
        self._vocab: int = native.model_get_vocab(model)
        self.n_tokens: int = native.vocab_n_tokens(self._vocab)
        self.chat_template = _template(model, None)
        # Where there is none of this name, llama.cpp gives nothing, or the other one.
        tool_template = _template(model, b"tool_use")
        self.tool_template = None if tool_template == self.chat_template else tool_template
        self.rerank_template = _template(model, b"rerank")
        self.bos_id: int = native.vocab_bos(self._vocab)
        self.eos_id: int = native.vocab_eos(self._vocab)
        self.sep_id: int = native.vocab_sep(self._vocab)
        self.bos_token = self._text_of(self.bos_id)
        self.eos_token = self._text_of(self.eos_id)
        self.add_bos: bool = bool(native.vocab_get_add_bos(self._vocab))
        self.add_eos: bool = bool(native.vocab_get_add_eos(self._vocab))
        self.add_sep: bool = bool(native.vocab_get_add_sep(self._vocab))
        self.eog_ids = frozenset(i for i in range(self.n_tokens) if native.vocab_is_eog(self._vocab, i))
        self.fim_ids: tuple[int, int, int, int, int] = (
            native.vocab_fim_pre(self._vocab),
            native.vocab_fim_suf(self._vocab),
            native.vocab_fim_mid(self._vocab),
            native.vocab_fim_rep(self._vocab),
            native.vocab_fim_sep(self._vocab),
        )
        self._plain: list[bytes | None] = [None] * self.n_tokens
        self._special: list[bytes | None] = [None] * self.n_tokens

    @property
    def address(self) -> int:
        """The `llama_vocab` pointer, for samplers that read the vocabulary."""
        return self._vocab

    def token_text(self, token_id: int) -> str:
        """A token as the file writes it; empty for an id outside the vocabulary."""
        return self._text_of(token_id) if token_id < self.n_tokens else ""

    def _text_of(self, token_id: int) -> str:
        if token_id < 0:
            return ""
        raw: bytes | None = native.vocab_get_text(self._vocab, token_id)
        return raw.decode("utf-8", "replace") if raw else ""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Tokenize.

        Args:
            text: any text; lone surrogates become the replacement character.
            add_special: put the start (and end) tokens the model is configured for.
            parse_special: read control tokens in the text as control tokens, not as plain text.

        Raises:
            BadRequest: the text is over `MAX_TEXT_BYTES`.
        """
        raw = text.encode("utf-8", "replace")
        if len(raw) > MAX_TEXT_BYTES:
            raise BadRequest(f"The text is {len(raw):,} bytes long; at most {MAX_TEXT_BYTES:,} can be read at once.")
        room = len(raw) // 2 + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            count: int = native.tokenize(self._vocab, raw, len(raw), tokens, room, add_special, parse_special)
            if count >= 0:
                return tokens[:count]
            if -count <= room:
                raise BugFault(f"llama.cpp's tokenizer refused {len(raw)} bytes of text")
            room = -count

    def token_bytes(self, token_id: int, *, special: bool) -> bytes:
        """Bytes of one token, which may be a part of a UTF-8 character; empty for an id outside the vocabulary.

        Args:
            token_id: the token.
            special: show control tokens as their text instead of as nothing.
        """
        if not 0 <= token_id < self.n_tokens:
            return b""
        table = self._special if special else self._plain
        piece = table[token_id]
        if piece is None:
            piece = self._piece(token_id, special=special)
            table[token_id] = piece
        return piece

    def _piece(self, token_id: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        size: int = native.token_to_piece(self._vocab, token_id, buffer, _PIECE_BYTES, 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = native.token_to_piece(self._vocab, token_id, buffer, -size, 0, special)
        return buffer.raw[: max(size, 0)]

    def is_eog(self, token_id: int) -> bool:
        """Whether the token ends a generation."""
        return token_id in self.eog_ids


def _template(model: int, name: bytes | None) -> str | None:
    raw: bytes | None = native.model_chat_template(model, name)
    return raw.decode("utf-8", "replace") if raw else None
