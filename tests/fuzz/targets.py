"""Every parser of the program that reads what others wrote, each with seeds, a way to damage them, and its promise."""

import datetime
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from app.sse import EventTooLong, SseParser
from runtime.chat.regions import make_parser
from runtime.chat.response import load_specs
from runtime.chat.sandbox import SandboxedTemplate
from runtime.chat.tool_parser import CallPiece, ToolParser
from runtime.chat.tool_specs import load_tool_specs
from runtime.errors import BadRequest, BugFault, CallerFault, StorageFault, TemplateRefused
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.json_schema import grammar_of
from runtime.grammar.matcher import DEAD, Matcher
from runtime.grammar.regex import length_range, read_pattern
from runtime.host.api import anthropic_request, native_request, ollama_request, openai_request, responses_request
from runtime.host.api.http import decode_json
from runtime.host.api.media import picture_of_url
from runtime.host.ownership import read_host_file
from runtime.host.settings import SettingsFile
from runtime.library.catalogue import Catalogue
from runtime.library.files import MIGRATIONS
from runtime.library.hub import answers
from runtime.messages import frames
from runtime.messages.ipc import Cancel, Delta, Finished, Generate, Step
from runtime.messages.shared import Message, Timings, Tool, ToolCallHead, Usage
from runtime.paths import DataFolder
from tests.fuzz import file_targets, media_targets, store_targets, stranger_targets
from tests.fuzz.damage import damaged_bytes, damaged_json, damaged_text
from tests.fuzz.recorded import own_bodies, recorded_bodies
from tests.fuzz.target import TOML_WORDS, Target, bytes_maker, cuts, json_maker, text_maker
from tests.support import tool_templates

GRAMMAR_WORDS = (
    "::=",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "[^",
    "]",
    '"',
    "root",
    "{2,5}",
    "{,}",
    "\\x41",
    "#",
    "\n",
    "a-z",
    ".",
)
PATTERN_WORDS = (
    "(?:",
    ")",
    "|",
    "[",
    "]",
    "{2,}",
    "{0,9999}",
    "*?",
    "\\d",
    "\\w",
    "^",
    "$",
    "(?=",
    "\\u0041",
    "\\1",
    ".",
)
TEMPLATE_WORDS = (
    *("{{", "}}", "{%", "%}", "messages", "[0]", "content", "| tojson", "for x in range(99)", "endfor", "if", "endif"),
    *("set ns = namespace(a=1)", ".__class__", "| join", "* 10", "~", "loop.index", "raise_exception('x')", "range"),
    *("cycler", "joiner", "strftime_now('%Y')", "'%99d' % 1", "| format", "items()", "[::-1]", "include", "macro"),
)
_NOW = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
_FUEL = 200_000


class _Kept:
    """A store of answers that has one."""

    def conversation(self, response_id: str) -> tuple[Message, ...] | None:
        return (Message("user", "Hi"),) if response_id == "resp_1" else None

    def item(self, item_id: str) -> None:
        del item_id


_READERS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "/v1/chat/completions": (openai_request.chat_ask,),
    "/v1/completions": (openai_request.completion_ask,),
    "/v1/embeddings": (openai_request.embedding_ask,),
    "/v1/responses": (
        partial(responses_request.responses_ask, known=_Kept()),
        partial(responses_request.count_input_ask, known=_Kept()),
    ),
    "/v1/messages": (anthropic_request.messages_ask,),
    "/v1/messages/count_tokens": (anthropic_request.count_ask,),
    "/api/chat": (ollama_request.chat_ask,),
    "/api/generate": (ollama_request.generate_ask,),
    "/api/embed": (ollama_request.embed_ask,),
    "/api/embeddings": (ollama_request.embeddings_ask,),
    "/completion": (native_request.completion_ask,),
    "/infill": (native_request.infill_ask,),
    "/rerank": (native_request.rerank_ask,),
}


def targets() -> tuple[Target, ...]:
    """All of them."""
    return (
        *_bodies(),
        Target("GBNF", text_maker(_grammars(), GRAMMAR_WORDS), _check_gbnf, (BadRequest,)),
        Target("JSON schema", json_maker(_schemas()), _check_schema, (BadRequest,)),
        Target("pattern", text_maker(_patterns(), PATTERN_WORDS), _check_pattern, (BadRequest,)),
        Target("template", text_maker(_templates(), TEMPLATE_WORDS), _check_template, (TemplateRefused,)),
        Target("tool calls", _tool_answer, _check_tools, ()),
        Target("thoughts", _thought_answer, _check_thoughts, ()),
        Target("event stream", bytes_maker(_streams()), _check_sse, ()),
        Target("frames", bytes_maker(_frames()), _check_frames, (msgspec.DecodeError, BugFault)),
        Target("settings", text_maker([_SETTINGS], TOML_WORDS), _check_settings, (StorageFault,)),
        Target("host file", bytes_maker([_HOST_FILE]), _check_host_file, ()),
        Target("hub answers", json_maker(_HUB), _check_hub, (msgspec.DecodeError,)),
        Target(
            "data address",
            text_maker(_ADDRESSES, ("data:", ";base64,", "%41", "=", "\n")),
            _check_media,
            (CallerFault,),
        ),
        Target("catalogue", bytes_maker(_catalogues()), _check_catalogue, (StorageFault,)),
        *file_targets.targets(),
        *store_targets.targets(),
        *stranger_targets.targets(),
        *media_targets.targets(),
    )


# --- bodies of requests -----------------------------------------------------------------------------------


def _bodies() -> list[Target]:
    known = {**recorded_bodies(), **own_bodies()}
    return [
        Target(f"body of {path}", _body_maker(bodies), partial(_check_body, _READERS[path]), (CallerFault,))
        for path, bodies in known.items()
    ]


def _body_maker(bodies: Sequence[Any]) -> Callable[[random.Random], bytes]:
    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.01:
            return draw.choice((b"[", b'{"a":')) * 60_000
        raw = json.dumps(damaged_json(draw, draw.choice(bodies))).encode()
        return damaged_bytes(draw, raw, []) if draw.random() < 0.1 else raw

    return make


def _check_body(readers: tuple[Callable[[Any], Any], ...], raw: bytes, draw: random.Random) -> None:
    ask = draw.choice(readers)(decode_json(raw))
    # What was let through must also reach the worker.
    messages, options, shape = (getattr(ask, name, None) for name in ("messages", "options", "shape"))
    if messages and options is not None and shape is not None:
        sent = frames.encode_frame(Generate("id", messages=messages, options=options, shape=shape))
        frames.decode_to_worker(sent[4:])


# --- grammars ---------------------------------------------------------------------------------------------


def _grammars() -> list[str]:
    written = [grammar_of(json.dumps(schema)) for schema in _schemas()[:12]]
    return [
        'root ::= "a" | [b-z]+ ws\nws ::= [ \\t\\n]*',
        'root ::= item{2,5} ("," item)* # list\nitem ::= "\\"" [^"\\\\\\x00-\\x1F]* "\\""',
        'root ::= a b? (c | d)*\na ::= [^a-z]\nb ::= .\nc ::= "\\u00e9"\nd ::= b{0,3}',
        *(text for text in written if len(text) < 8_000),
    ]


def _schemas() -> list[Any]:
    folder = Path(__file__).parents[1] / "grammar" / "schemas"
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return [record["schema"] for record in map(json.loads, lines) if "expect" not in record]


def _patterns() -> list[str]:
    found = [
        "^[A-Z]{2}\\d{4}$",
        "(foo|bar)+",
        "^\\S+@\\S+\\.[a-z]{2,}$",
        "[^\\x00-\\x1f]{1,80}",
        "^(?:a|b(?:c|d){2,4})?$",
    ]

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                found.append(value["pattern"])
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(_schemas())
    return found


def _walk(text: str, draw: random.Random) -> None:
    program = read_gbnf(text)
    matcher = Matcher(program, fuel=_FUEL)
    state = matcher.start
    for _ in range(24):
        matcher.fuel = _FUEL
        steps = [matcher.step(state, index) for index in range(min(program.n_classes, 12))]
        living = [after for after in steps if after != DEAD]
        matcher.may_end(state)
        if not living:
            return
        state = draw.choice(living)


def _check_gbnf(text: str, draw: random.Random) -> None:
    _walk(text, draw)


def _check_schema(schema: Any, draw: random.Random) -> None:
    grammar = grammar_of(json.dumps(schema))
    if draw.random() < 0.3:
        _walk(grammar, draw)


def _check_pattern(pattern: str, draw: random.Random) -> None:
    del draw
    low, high = length_range(read_pattern(pattern))
    assert low >= 0
    assert high is None or high >= low
    grammar_of(json.dumps({"type": "string", "pattern": pattern}))


# --- what models and their makers write -------------------------------------------------------------------


def _templates() -> list[str]:
    return [text for name, text in vars(tool_templates).items() if name.isupper() and isinstance(text, str)]


def _check_template(text: str, draw: random.Random) -> None:
    del draw
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho", "tool_calls": []}]
    values: dict[str, Any] = {"messages": turns, "tools": [], "add_generation_prompt": True, "bos_token": "<s>"}
    SandboxedTemplate(text).render(values, now=_NOW, input_chars=10)


_TOOLS = (
    Tool(
        "get_weather", "", '{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}'
    ),
    Tool(
        "search", "", '{"type": "object", "properties": {"query": {"type": "string"}, "filters": {"type": "object"}}}'
    ),
    Tool("now"),
)


def _tool_answer(draw: random.Random) -> Any:
    spec = draw.choice(load_tool_specs())
    samples = [sample.text for sample in spec.samples]
    marks = tuple(trigger.text for trigger in spec.form.triggers)
    words = (*marks, '{"', '"}', "}}", "[", "get_weather", "\\", "<", ">")
    return spec, damaged_text(draw, draw.choice(samples), words, samples)


def _check_tools(given: Any, draw: random.Random) -> None:
    spec, text = given

    def parse(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
        parser = ToolParser(spec.form, _TOOLS)
        content, calls = "", []
        for piece in [piece for part in pieces for piece in parser.feed(part)] + parser.finish():
            if isinstance(piece, CallPiece):
                json.loads(piece.text)
                calls.append((piece.head.name, piece.text))
            else:
                content += piece[1]
        return content, calls

    whole = parse([text])
    assert parse(cuts(draw, text)) == whole, "another cut gives another answer"
    assert parse(list(text)) == whole, "letter by letter gives another answer"


def _thought_answer(draw: random.Random) -> Any:
    spec = draw.choice(load_specs())
    sample = draw.choice(spec.samples)
    texts = [other.text for other in spec.samples]
    return (
        spec,
        sample.answer_start,
        damaged_text(draw, sample.text, ("<think>", "</think>", "<|", "|>", "\n\n"), texts),
    )


def _check_thoughts(given: Any, draw: random.Random) -> None:
    spec, start, text = given

    def parse(pieces: list[str]) -> dict[str, str]:
        parser = make_parser(spec, start, is_continued=False)
        found = {"reasoning": "", "content": ""}
        for part in pieces:
            for kind, piece in parser.feed(part, 1):
                found[kind] += piece
        for kind, piece in parser.finish():
            found[kind] += piece
        return found

    assert parse(cuts(draw, text)) == parse([text]), "another cut gives another answer"


# --- what processes tell one another ----------------------------------------------------------------------


def _streams() -> list[bytes]:
    return [
        b'data: {"a": 1}\n\ndata: [DONE]\n\n',
        b": comment\r\nevent: x\r\ndata: one\r\ndata: two\r\n\r\nid: 7\rdata:three\r\r",
        "\ufeffdata: é😀\n\nretry: 5\ndata\n\n".encode(),
    ]


def _check_sse(raw: bytes, draw: random.Random) -> None:
    def parse(pieces: list[bytes]) -> list[bytes] | None:
        parser = SseParser(max_event_bytes=2_000)
        try:
            return [event for piece in pieces for event in parser.feed(piece)]
        except EventTooLong:
            return None

    whole, cut = parse([raw]), parse(cuts(draw, raw))
    assert whole is None or cut is None or whole == cut, "another cut gives other events"


def _frames() -> list[bytes]:
    head = ToolCallHead(0, "call_1", "weather")
    sent = (
        Generate("a", messages=(Message("user", "Hi"),)),
        Cancel("a"),
        Step((Delta("a", 0, "content", "Hi", 1), Delta("a", 0, "tool_call", "{}", 1, (), head))),
        Finished("a", ("stop",), Usage(1, 2, 3, 4), Timings(), ("",)),
    )
    return [frames.encode_frame(message)[4:] for message in sent]


def _check_frames(raw: bytes, draw: random.Random) -> None:
    (frames.decode_to_worker if draw.random() < 0.5 else frames.decode_from_worker)(raw)


# --- files ------------------------------------------------------------------------------------------------

_SETTINGS = """\
version = 1
last_model = "org/model"

[api]
enabled = true
port = 1234
allowed_origins = ["http://a.example"]

[models]
max_loaded = 2
folders = ["/models"]

[load."org/model"]
n_ctx = 4096
flash_attn = "on"
"""
_HOST_FILE = b'{"address":"http://127.0.0.1:4000","token":"abc","pid":17,"version":"0.1.0"}'
_HUB: list[Any] = [
    {
        "id": "org/model",
        "gated": "manual",
        "downloads": 10,
        "lastModified": "2025-08-05T17:00:00.000Z",
        "tags": ["gguf", "license:mit"],
        "gguf": {"total": 7_000_000_000, "architecture": "llama", "context_length": 8192},
        "siblings": [{"rfilename": "a.gguf", "size": 5, "lfs": {"sha256": "00", "size": 5}}],
    },
    {"type": "file", "path": "a.gguf", "size": 5, "oid": "0", "lfs": {"oid": "00", "size": 5, "pointerSize": 1}},
    {"name": "someone", "orgs": [{"name": "o"}], "auth": {"accessToken": {"role": "read"}}},
]
_ADDRESSES = [
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "data:image/webp;base64,UklGRhIAAABXRUJQVlA4TAYAAAAvAAAAAAfQ//73v/+BiOh/AAA=",
    "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    "https://example.org/picture.png",
]


def _check_settings(text: str, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text(text, encoding="utf-8")
        SettingsFile(path).change(last_model="x")
        assert SettingsFile(path).current.last_model == "x"


def _check_host_file(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        data = DataFolder(Path(folder))
        data.host_file.parent.mkdir(parents=True, exist_ok=True)
        data.host_file.write_bytes(raw)
        read_host_file(data)


def _check_hub(value: Any, draw: random.Random) -> None:
    raw = json.dumps(value).encode()
    kind = draw.choice((answers.ModelRecord, answers.TreeRecord, answers.Who))
    if draw.random() < 0.5:
        answers.decode_list(b"[" + raw + b"]", kind)
    found = answers.decode(raw, kind)
    if isinstance(found, answers.ModelRecord):
        answers.seconds(getattr(found, "lastModified", None))


def _check_media(url: str, draw: random.Random) -> None:
    del draw
    picture_of_url(url, "image_url")


def _catalogues() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.sqlite3"
        catalogue = Catalogue(path)
        catalogue.migrate("files", MIGRATIONS)
        catalogue.close()
        return [path.read_bytes()]


def _check_catalogue(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.sqlite3"
        path.write_bytes(raw)
        catalogue = Catalogue(path)
        try:
            catalogue.migrate("files", MIGRATIONS)
            catalogue.run(lambda connection: connection.execute("SELECT count(*) FROM sqlite_master").fetchone())
        finally:
            catalogue.close()
