"""Targets: files that this program, its person or another program wrote, and that a disk, a hand or a crash damaged."""

import contextlib
import datetime
import os
import plistlib
import random
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication

from app.settings import Settings, WindowSettings
from runtime.cli.elf import needed_libraries
from runtime.errors import RuntimeFault, WorldFault
from runtime.gguf.adapter import read_adapters
from runtime.hardware.apple import AppleReader
from runtime.host.key_book import KeyBook
from runtime.host.settings import SettingsFile
from runtime.host.tls import TlsFiles, ensure_own, open_files
from runtime.library.catalogue import Catalogue
from runtime.library.downloads import record as download_record
from runtime.library.foreign import gpt4all, jan, lm_studio, ollama
from runtime.library.foreign.program import Surroundings
from runtime.library.records import Records
from runtime.messages.fit import LoadRecord
from runtime.messages.hardware import GpuSample
from runtime.messages.load import DeviceMemory
from runtime.tool_servers.secrets import SECRETS_FILE, SecretStore
from runtime.worker import state_file
from runtime.worker.projector import projector_facts
from runtime.worker.state_disk import StateDisk
from tests.fakes.keyring import FakeKeyring
from tests.fakes.tiny_gguf import write_transformer
from tests.fakes.tiny_lora import random_pairs, shapes_of, write_lora
from tests.fakes.tiny_vision import write_projector
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.target import TOML_WORDS, Target, bytes_maker, json_text_maker, text_maker

_NOW = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
_ARRIVAL_S = 20.0


def targets() -> tuple[Target, ...]:
    """All of them."""
    return (
        Target("prompt state", _damaged_state, _check_state, (state_file.NotAStateError,)),
        Target("window settings", text_maker([_WINDOW], TOML_WORDS), _check_window_settings, ()),
        Target("uses of keys", json_text_maker([_KEY_USES]), _check_key_uses, ()),
        Target("kept secrets", json_text_maker([_SECRETS]), _check_secrets, ()),
        Target("other programs", _foreign_file, _check_foreign, ()),
        Target("certificate", bytes_maker(_pem_files()), _check_certificate, (WorldFault,)),
        Target("adapter", _gguf_maker(_adapters()), _check_adapter, (RuntimeFault,)),
        Target("projector header", _gguf_maker(_projectors()), _check_projector, (RuntimeFault,)),
        Target("shared library", bytes_maker(_libraries()), _check_library, ()),
        Target("registry of devices", bytes_maker(_PLISTS), _check_plist, ()),
        Target("remembered loads", bytes_maker(_load_records()), _check_load_record, ()),
        Target("remembered downloads", bytes_maker(_downloads()), _check_download, ()),
    )


# --- prompt states ----------------------------------------------------------------------------------------

_KEY = "0123456789abcdef0123456789abcdef"
_TOKENS = (*range(40), -(7 << 40), -(7 << 40) - 1, 2**62)
_STATE = bytes(range(256)) * 3


def _state_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one"
        state_file.write(path, _KEY, state_file.packed(_TOKENS), memoryview(_STATE))
        return path.read_bytes()


def _damaged_state(draw: random.Random) -> bytes:
    """Mostly the head and the sizes in it, which are believed until the digest is checked."""
    raw = _state_bytes()
    if draw.random() < 0.5:
        return damaged_bytes(draw, raw, [])
    at = draw.randrange(min(len(raw), 120))
    return raw[:at] + bytes(draw.randrange(256) for _ in range(draw.choice((1, 1, 4, 9)))) + raw[at + 1 :]


def _check_state(raw: bytes, draw: random.Random) -> None:
    name = state_file.name_of(state_file.packed(_TOKENS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _KEY / name
        path.parent.mkdir()
        path.write_bytes(raw)
        arrived = threading.Event()
        disk = StateDisk(
            Path(folder),
            _KEY,
            Path("model.gguf"),
            1 << 24,
            prefixes_do=draw.random() < 0.5,
            on_arrival=arrived.set,
            least_free_bytes=0,
        )
        ticket = disk.seek((*_TOKENS, 5), len(_TOKENS) + 1, 1, whole=False)
        disk.start()
        assert arrived.wait(_ARRIVAL_S), "nobody answered"
        found = disk.take(ticket)
        disk.close(_ARRIVAL_S)
        if found is None:
            assert not path.exists(), "a damaged state stayed"
            raise state_file.NotAStateError
        assert found.tokens == _TOKENS
        assert bytes(found.state) == _STATE


# --- settings and what is kept beside them ----------------------------------------------------------------

_TOML = (
    "[",
    "]",
    "=",
    '"',
    "\n",
    "[[x]]",
    "page = 1",
    "version = 99",
    "true",
    "1e9",
    "'''",
    "nan",
    "#",
    "[" * 2000,
    f"x = {'[' * 300}{']' * 300}\n",
)
_WINDOW = """\
version = 1
page = "chat"
theme = "dark"
zoom_percent = 120
last_model = "org/model"
kept_host_pid = 5
tools_allowed = [["a", "b", "c"]]

[splitters]
chat = [200, 800]

[default_tools]
servers = ["files"]
off = [["files", "delete"]]
"""
_KEY_USES = {"laptop": {"used_s": 1.5, "n_requests": 3, "n_tokens": 20, "day": "2026-11-30", "n_tokens_today": 7}}
_SECRETS = {"files": {"env": {"TOKEN": "abc"}, "headers": {"Authorization": "Bearer x"}}}


@cache
def _application() -> QCoreApplication:
    """Timers want one. As tests of the window make it, since a process can have only one kind."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    return QCoreApplication.instance() or QApplication([])


def _check_window_settings(text: str, draw: random.Random) -> None:
    del draw
    _application()
    said: list[str] = []
    written: list[Any] = []
    lane: Any = SimpleNamespace(submit=lambda work, *_: written.append(work))

    def say(_level: str, sentence: str) -> int:
        said.append(sentence)
        return len(said)

    notices: Any = SimpleNamespace(say=say)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "window.toml"
        path.write_text(text, encoding="utf-8")
        settings = Settings(path, lane, notices)
        settings.update(last_model="another")
        settings.flush()
        written[0]()
        assert Settings(path, lane, notices).values.last_model == "another"
        kept = [one.read_bytes() for one in path.parent.glob("window.damaged-*")]
        assert not said or text.encode() in kept, "what a person wrote was lost"
    msgspec.convert(msgspec.to_builtins(settings.values), WindowSettings)


def _check_key_uses(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uses.json"
        path.write_bytes(raw)
        book = KeyBook(SettingsFile(Path(folder) / "settings.toml"), path, None)
        book.infos()


def _check_secrets(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / SECRETS_FILE).write_bytes(raw)
        store = SecretStore(Path(folder), FakeKeyring(is_there=False))
        store.get("files")
        store.forget("files")


# --- other programs ---------------------------------------------------------------------------------------

_HASH = "ab" * 32
_SETTINGS_OF: dict[str, list[bytes]] = {
    ".lmstudio-home-pointer": [b"/home/me/.lmstudio\n"],
    ".lmstudio/settings.json": [b'{"downloadsFolder": "/models", "more": {"a": [1, 2]}}'],
    ".local/share/Jan/settings.json": [b'{"data_folder": "~/jan", "x": [[1]]}'],
    ".config/nomic.ai/GPT4All.ini": [b'[General]\nmodelPath="/data/gpt\\x20ac/models"\n'],
    "jan/llamacpp/models/org/one/model.yml": [b"name: One\nmodel_path: llamacpp/models/org/one/model.gguf\n# x\n"],
    ".ollama/models/manifests/registry.ollama.ai/library/one/latest": [
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s", "size": 5}]}'
        % _HASH.encode()
    ],
    "etc/systemd/system/ollama.service": [b'[Service]\nEnvironment="OLLAMA_MODELS=/big/ollama"\n'],
}


def _foreign_file(draw: random.Random) -> tuple[str, bytes]:
    name = draw.choice(list(_SETTINGS_OF))
    if draw.random() < 0.02:
        return name, draw.choice((b"[", b'{"a":')) * 60_000
    return name, damaged_bytes(draw, draw.choice(_SETTINGS_OF[name]), [b'"\\ud800\\xdbff:\0/~'])


def _check_foreign(given: tuple[str, bytes], draw: random.Random) -> None:
    del draw
    name, raw = given
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for other, (sound,) in _SETTINGS_OF.items():
            path = home / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw if other == name else sound)
        blob = home / ".ollama/models/blobs" / f"sha256-{_HASH}"
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"GGUF1")
        (home / "jan/llamacpp/models/org/one/model.gguf").write_bytes(b"GGUF1")
        around = Surroundings("linux", home, {}, home)
        for program in (lm_studio, jan, gpt4all, ollama):
            for place in program.folders(around):
                # Places elsewhere are told as they stand; here none but ours may be walked.
                if place.is_relative_to(home):
                    program.models(place)
                else:
                    with contextlib.suppress(OSError):
                        place.is_dir()


# --- certificates -----------------------------------------------------------------------------------------


@cache
def _pem_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        files = TlsFiles(Path(folder) / "certificate.pem", Path(folder) / "key.pem")
        ensure_own(files, _NOW)
        return [files.certificate_path.read_bytes(), files.key_path.read_bytes()]


def _check_certificate(raw: bytes, draw: random.Random) -> None:
    del draw
    certificate, key = _pem_files()
    with tempfile.TemporaryDirectory() as folder:
        files = TlsFiles(Path(folder) / "certificate.pem", Path(folder) / "key.pem")
        is_key = b"PRIVATE" in raw
        files.certificate_path.write_bytes(certificate if is_key else raw)
        files.key_path.write_bytes(raw if is_key else key)
        try:
            open_files(files, _NOW, is_own=False)
        finally:
            ensure_own(files, _NOW)
            open_files(files, _NOW, is_own=True)


# --- headers of what is loaded beside a model -------------------------------------------------------------


def _gguf_maker(seeds: list[bytes]) -> Any:
    """Mostly the header: behind it are only numbers."""

    def make(draw: random.Random) -> bytes:
        raw = draw.choice(seeds)
        n = min(len(raw), 4000)
        return damaged_bytes(draw, raw[:n], seeds) + raw[n:]

    return make


def _adapters() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        model = write_transformer(Path(folder) / "model.gguf")
        pairs = random_pairs(shapes_of(model))
        return [write_lora(Path(folder) / "lora.gguf", pairs).read_bytes()]


def _projectors() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        kinds: tuple[Any, ...] = ("llava", "qwen2vl", "gemma3", "ultravox")
        return [write_projector(Path(folder) / f"{kind}.gguf", kind).read_bytes() for kind in kinds]


def _check_adapter(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.gguf"
        model.write_bytes(_model_bytes())
        path = Path(folder) / "lora.gguf"
        path.write_bytes(raw)
        (found,) = read_adapters(model, [path])
        assert found.rank >= 0
        assert found.size_bytes >= 0


def _model_bytes() -> bytes:
    if not _MODEL:
        with tempfile.TemporaryDirectory() as folder:
            _MODEL.append(write_transformer(Path(folder) / "model.gguf").read_bytes())
    return _MODEL[0]


_MODEL: list[bytes] = []


def _check_projector(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mmproj.gguf"
        path.write_bytes(raw)
        facts = projector_facts(path)
        assert facts.whole_rows >= 0


# --- what the machine tells -------------------------------------------------------------------------------

_PLISTS = [
    b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><array><dict><key>gpu-core-count</key><integer>10</integer>
<key>PerformanceStatistics</key><dict><key>Device Utilization %</key><integer>7</integer></dict></dict></array></plist>
""",
    plistlib.dumps([{"gpu-core-count": 10, "PerformanceStatistics": {"x": 1.5}}], fmt=plistlib.FMT_BINARY),
]


def _check_plist(raw: bytes, draw: random.Random) -> None:
    del draw
    for sample in AppleReader("M9", ask=lambda: raw).read():
        msgspec.convert(msgspec.to_builtins(sample), GpuSample)


def _libraries() -> list[bytes]:
    """The beginning of a library of this machine, and its end, where the names are."""
    folder = Path(msgspec.__file__).parent
    return [path.read_bytes()[: 1 << 16] for path in folder.glob("*.so")] or [b"\x7fELF\x02\x01" + bytes(58)]


def _check_library(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.so"
        path.write_bytes(raw)
        needed_libraries(path)


# --- what the catalogue remembers -------------------------------------------------------------------------


def _load_records() -> list[bytes]:
    return [msgspec.msgpack.encode(LoadRecord("org/model", 5.0, None, (DeviceMemory("CPU", 1, 2, 3),), 4.0))]


def _check_load_record(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Catalogue(Path(folder) / "models.sqlite3")
        try:
            records = Records(catalogue)
            catalogue.run(lambda one: one.execute("INSERT INTO load VALUES ('org/model', 5.0, ?)", (raw,)))
            catalogue.run(lambda one: one.execute("INSERT INTO speed (key, at_s, record) VALUES ('k', 5, ?)", (raw,)))
            records.load("org/model")
            records.speeds(LoadRecord)
        finally:
            catalogue.close()


def _downloads() -> list[bytes]:
    parts = [download_record.Part("a.gguf", "org/a.gguf", 5, "00", "e", 1, 2, 3.0)]
    one = download_record.Record("1", 1, "org/model", "main", "c", "a", "Q4_0", "/models", parts)
    return [download_record.encode(one)]


def _check_download(raw: bytes, draw: random.Random) -> None:
    del draw
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Catalogue(Path(folder) / "models.sqlite3")
        try:
            store = download_record.Store(catalogue)
            store.save("1", raw)
            for one in store.load():
                assert one.size_bytes is not None
        finally:
            catalogue.close()
