"""Tokenizers for tests: one of single characters, and the starter model's own."""

import re
from functools import cache

from runtime.library.starter import find_starter
from runtime.worker import native
from runtime.worker.vocab import Vocab

FIRST_CHARACTER_ID = 1000


class CharacterTokenizer:
    """Every character is a token, every control token one more; also stands in for a worker's `Vocab`.

    With `adds_space` it puts a space before each text, as SentencePiece vocabularies do.
    """

    n_tokens = FIRST_CHARACTER_ID + 0x110000

    def __init__(
        self,
        control: tuple[str, ...] = ("<s>", "</s>"),
        user_defined: tuple[str, ...] = (),
        *,
        chat_template: str | None = None,
        bos_token: str = "",
        add_bos: bool = False,
        adds_space: bool = False,
    ) -> None:
        self.control = control
        self.words = (*control, *user_defined)
        self.chat_template = chat_template
        self.tool_template: str | None = None
        self.rerank_template: str | None = None
        self.bos_id = control.index(bos_token) if bos_token else -1
        self.eos_id = self.sep_id = -1
        self.add_eos = self.add_sep = False
        self.bos_token = bos_token
        self.eos_token = ""
        self.add_bos = add_bos
        self.fim_ids = (-1, -1, -1, -1, -1)
        self._adds_space = adds_space
        self._user_defined = user_defined

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids = [self.words.index(self.bos_token)] if add_special and self.add_bos and self.bos_token else []
        known = self.words if parse_special else self._user_defined
        parts = re.split("(" + "|".join(map(re.escape, known)) + ")", text) if known else [text]
        space_is_due = self._adds_space and not text.startswith("\n")
        for part in parts:
            if part in known and part:
                ids.append(self.words.index(part))
            else:
                if part and space_is_due:
                    ids.append(FIRST_CHARACTER_ID + ord(" "))
                ids += [FIRST_CHARACTER_ID + ord(character) for character in part]
            space_is_due = space_is_due and not part
        return ids

    def token_bytes(self, token_id: int, *, special: bool) -> bytes:
        if token_id >= FIRST_CHARACTER_ID:
            return chr(token_id - FIRST_CHARACTER_ID).encode()
        text = self.words[token_id]
        return text.encode() if special or text not in self.control else b""

    def shown(self, ids: list[int] | tuple[int, ...]) -> str:
        """Control tokens in brackets, so that they differ from text that looks like them."""
        return "".join(chr(i - FIRST_CHARACTER_ID) if i >= FIRST_CHARACTER_ID else f"[{self.words[i]}]" for i in ids)


@cache
def starter_vocab() -> Vocab:
    """The starter model's vocabulary; loaded once and kept until the process ends."""
    path = find_starter()
    assert path is not None
    params = native.model_default_params()
    params.vocab_only = True
    return Vocab(native.model_load_from_file(str(path).encode(), params))
