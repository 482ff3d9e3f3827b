"""Names of models: a readable one for people, and an id that every API client can type."""

import re
import unicodedata

from runtime.gguf.quantization import quantization_in_name

MAX_ID_CHARS = 120
_NOTHING_SAID = re.compile(r"^(ggml-?)?model$|^[0-9a-f]{16,}$|^$", re.IGNORECASE)


def model_id(stem: str) -> str:
    """`SmolLM2-135M-Instruct.Q4_1` -> `smollm2-135m-instruct-q4_1`; only `a-z 0-9 . _ -` remain.

    Dots stay between digits (`qwen2.5`). A name without any such character gives "".
    """
    plain = unicodedata.normalize("NFKD", stem.casefold()).encode("ascii", "ignore").decode()
    plain = re.sub(r"(?<!\d)\.|\.(?!\d)", "-", plain)
    plain = re.sub(r"[^a-z0-9._-]+", "-", plain)
    return re.sub(r"-{2,}", "-", plain).strip("-._")[:MAX_ID_CHARS]


def readable_name(stem: str, own_name: str) -> str:
    """`SmolLM2-135M-Instruct.Q4_1` -> `SmolLM2 135M Instruct`.

    The file's name is what a person chose or saw on the page it came from; the name inside the file is used where
    the file's says nothing.
    """
    base = stem
    quantization = quantization_in_name(stem)
    if quantization:
        at = base.upper().rfind(quantization)
        base = base[:at] + base[at + len(quantization) :]
    words = re.sub(r"(?<!\d)\.|\.(?!\d)|[_\s-]+", " ", base).strip()
    if _NOTHING_SAID.match(words.replace(" ", "-")):
        return own_name or stem
    return re.sub(r" {2,}", " ", words)


def unique_id(wanted: str, folder_name: str, fallback: str, taken: set[str]) -> str:
    """An id that is not taken: as wanted, with the folder in front, or with the fallback behind."""
    base = wanted or f"model-{fallback}"
    folder = model_id(folder_name)
    for candidate in (base, f"{folder}-{base}" if folder else "", f"{base}-{fallback}"):
        if candidate and candidate not in taken:
            return candidate
    number = 2
    while f"{base}-{fallback}-{number}" in taken:
        number += 1
    return f"{base}-{fallback}-{number}"
