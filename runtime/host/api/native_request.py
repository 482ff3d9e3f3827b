"""Bodies of llama-server's own routes: raw JSON in, typed and checked values out.

As there, unknown fields are ignored, sampling parameters go by llama.cpp's names, and `n_predict` -1 is no limit.
"""

from typing import Annotated, Any

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import Raw, json_text, seed_of, typed, without_nulls
from runtime.messages.shared import AnswerShape
from runtime.options import MAX_ADAPTERS, AdapterScale, GenerateOptions, SamplingOptions

MAX_DOCUMENTS = 2048
MAX_FILES = 256
_ALIASES = {"max_tokens": "n_predict", "typ_p": "typical_p"}
_TOKEN_LIMIT = 2**31

Name = Annotated[str, msgspec.Meta(max_length=1024)]
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=_TOKEN_LIMIT)]


class TokenizeBody(msgspec.Struct, frozen=True):
    """POST /tokenize."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    model: Name = ""


class DetokenizeBody(msgspec.Struct, frozen=True):
    """POST /detokenize."""

    tokens: tuple[TokenId, ...]
    model: Name = ""


class DocumentText(msgspec.Struct, frozen=True):
    """A document as Cohere and Jina write it."""

    text: str


class RerankBody(msgspec.Struct, frozen=True):
    """POST /rerank.

    With `documents` the answer is that of Jina and Cohere (and of vLLM and llama-server); with `texts` it is a plain
    list, as Text Embeddings Inference answers. `top_n` keeps the best so many; `return_documents`, there `return_text`,
    shows their texts.
    """

    query: str
    documents: Annotated[tuple[str | DocumentText, ...], msgspec.Meta(max_length=MAX_DOCUMENTS)] = ()
    texts: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_DOCUMENTS)] = ()
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_documents: bool = False
    return_text: bool = False
    model: Name = ""
    lora: Annotated[tuple[AdapterScale, ...], msgspec.Meta(max_length=MAX_ADAPTERS)] | None = None


class RerankAsk(msgspec.Struct, frozen=True):
    """A checked /rerank request."""

    model: str
    query: str
    documents: tuple[str, ...]
    top_n: int | None
    shows_texts: bool
    is_plain: bool
    lora: tuple[AdapterScale, ...] | None = None


class _Completing(SamplingOptions, frozen=True, forbid_unknown_fields=False):
    model: Name = ""
    stream: bool = False
    n_predict: int = -1
    stop: str | tuple[str, ...] = ()
    n_probs: int = 0
    ignore_eos: bool = False
    json_schema: dict[str, Any] | None = None
    lora: tuple[AdapterScale, ...] | None = None


class NativeCompletionBody(_Completing, frozen=True, forbid_unknown_fields=False):
    """POST /completion. The prompt is text or token ids."""

    prompt: str | tuple[TokenId, ...] = ""


class _ExtraFile(msgspec.Struct, frozen=True):
    filename: str = ""
    text: str = ""


class InfillBody(_Completing, frozen=True, forbid_unknown_fields=False):
    """POST /infill: what stands between prefix and suffix; `prompt` is its beginning."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[tuple[_ExtraFile, ...], msgspec.Meta(max_length=MAX_FILES)] = ()
    prompt: str = ""


class NativeAsk(msgspec.Struct, frozen=True):
    """A checked /completion or /infill request. `files` are (name, text) pairs."""

    model: str
    options: GenerateOptions
    shape: AnswerShape
    stream: bool
    prompt: str | tuple[int, ...] = ""
    prefix: str = ""
    suffix: str = ""
    files: tuple[tuple[str, str], ...] = ()


def completion_ask(raw: Raw) -> NativeAsk:
    """Check a /completion body.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    raw = _tidied(raw)
    if "prompt" not in raw:
        raise BadRequest("`prompt` is missing.", hint="Send the text to go on from.", param="prompt")
    body = typed(raw, NativeCompletionBody)
    return NativeAsk(body.model, _options(body), _shape(body), body.stream, body.prompt)


def infill_ask(raw: Raw) -> NativeAsk:
    """Check an /infill body; errors as `completion_ask`."""
    raw = _tidied(raw)
    for name in ("input_prefix", "input_suffix"):
        if name not in raw:
            raise BadRequest(f"`{name}` is missing.", hint="Send the code around the gap.", param=name)
    body = typed(raw, InfillBody)
    files = tuple((extra.filename or "file", extra.text) for extra in body.input_extra)
    return NativeAsk(
        body.model,
        _options(body),
        _shape(body),
        body.stream,
        body.prompt,
        body.input_prefix,
        body.input_suffix,
        files,
    )


def rerank_ask(raw: Raw) -> RerankAsk:
    """Check a /rerank body; errors as `completion_ask`."""
    body = typed(without_nulls(raw), RerankBody)
    documents = tuple(document if isinstance(document, str) else document.text for document in body.documents)
    if not documents and not body.texts:
        raise BadRequest("`documents` is missing or empty.", hint="Send a list of texts.", param="documents")
    return RerankAsk(
        body.model,
        body.query,
        documents or body.texts,
        body.top_n,
        body.return_documents or body.return_text,
        not documents,
        body.lora,
    )


def _tidied(raw: Raw) -> Raw:
    raw = without_nulls(raw)
    for alias, name in _ALIASES.items():
        if alias in raw and name not in raw:
            raw[name] = raw[alias]
    if "seed" in raw:
        raw["seed"] = seed_of(raw["seed"])
    return raw


def _shape(body: _Completing) -> AnswerShape:
    return AnswerShape(json_schema=json_text(body.json_schema) if body.json_schema else "")


def _options(body: _Completing) -> GenerateOptions:
    stops = (body.stop,) if isinstance(body.stop, str) else body.stop
    raw: Raw = {
        "max_tokens": body.n_predict if body.n_predict >= 0 else None,
        "stop": [stop for stop in stops if stop],
        "logprobs": body.n_probs > 0,
        "top_logprobs": body.n_probs,
        "ignore_eos": body.ignore_eos,
        "lora": body.lora,
        "sampling": {name: getattr(body, name) for name in SamplingOptions.__struct_fields__},
    }
    return typed(raw, GenerateOptions)
