"""GBNF grammars, checked before llama.cpp may end the process over one.

llama.cpp returns NULL for a grammar it cannot parse and says why on the C library's stderr only; its recursive
parser and its recursive matcher have no bound of their own on nesting.
"""

import os
import sys
import tempfile
import threading

from runtime.errors import BadRequest
from runtime.worker import native
from runtime.worker.vocab import Vocab

MAX_DEPTH = 200
"""Nested groups; each is a few stack frames of llama.cpp's parser."""

_stderr_lock = threading.Lock()


def make_grammar(vocab: Vocab, grammar: str) -> int:
    """A grammar sampler; free it with `native.sampler_free`.

    Raises:
        BadRequest: it does not parse, with llama.cpp's reason, or is nested too deeply.
    """
    if "\0" in grammar:
        raise BadRequest("The grammar contains a NUL character.", param="grammar")
    if _depth(grammar) > MAX_DEPTH:
        raise BadRequest(f"The grammar nests groups more than {MAX_DEPTH} deep.", param="grammar")
    raw = grammar.encode("utf-8", "replace")
    sampler: int | None = native.sampler_init_grammar(vocab.address, raw, b"root")
    if sampler:
        return sampler
    reason = _reason(vocab, raw)
    raise BadRequest(
        f"The grammar cannot be used: {reason}.",
        hint="A grammar in GBNF needs a rule named root; see llama.cpp's grammars/README.md.",
        param="grammar",
    )


def _depth(grammar: str) -> int:
    """Deepest nesting of round brackets outside of literals, classes and comments."""
    depth = deepest = 0
    closing = ""
    characters = iter(grammar)
    for character in characters:
        if closing:
            if character == "\\" and closing != "\n":
                next(characters, "")
            elif character == closing:
                closing = ""
        elif character in '"[#':
            closing = {'"': '"', "[": "]", "#": "\n"}[character]
        elif character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    return deepest


def _reason(vocab: Vocab, raw: bytes) -> str:
    """Parse once more with the C library's stderr in a file, to read what it prints there."""
    with _stderr_lock, tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        try:
            kept = os.dup(2)
        except OSError:
            return "it does not parse"
        try:
            os.dup2(file.fileno(), 2)
            sampler: int | None = native.sampler_init_grammar(vocab.address, raw, b"root")
            if sampler:
                native.sampler_free(sampler)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        said = file.read(4096).decode("utf-8", "replace")
    for line in said.splitlines():
        if "error parsing grammar:" in line:
            return line.split("error parsing grammar:", 1)[1].strip()[:300]
    return "it has no rule named root, or a rule refers to itself at its beginning"
