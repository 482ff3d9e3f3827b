"""The life of a worker process: connect, load, serve, end.

Threads: *main* loads, and then is the *engine*, which steps; *reader* reads frames from the first moment on, so that
the host's end is noticed also during a load; *writer* is the only one that sends; *render-0/1* make prompts; *encode*
encodes pictures, while there are any; *health* reports. The loss of the connection is the sign that the host is gone:
the process ends at once, wherever it is.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec.structs import replace

from runtime.chat.regions import prepare
from runtime.chat.response import choose_spec, load_specs
from runtime.errors import (
    BugFault,
    ModelLoadFailed,
    ModelLoading,
    RuntimeFault,
    StorageFault,
    WorkerDied,
    to_failure,
)
from runtime.gguf.facts import read_facts
from runtime.messages.frames import FrameSocket
from runtime.messages.ipc import Cancel, Failed, Hello, Load, LoadFailed, LoadProgress, Ready, Shutdown, ToWorker
from runtime.messages.shared import ModelFacts
from runtime.units import now_local
from runtime.worker.delivery import ready_made
from runtime.worker.engine import Engine
from runtime.worker.front import Front
from runtime.worker.health import HealthReporter
from runtime.worker.language import HeaderWords, Language, read_header_words
from runtime.worker.load import LOG, LlamaModel, load_model
from runtime.worker.outbox import Outbox
from runtime.worker.speculation import load_draft
from runtime.worker.state_disk import StateDisk, start_states
from runtime.worker.state_key import state_key

if TYPE_CHECKING:
    from runtime.worker.media import MediaReader
    from runtime.worker.media_cache import MediaCache

EXIT_OK = 0
EXIT_LOAD_FAILED = 3
EXIT_HOST_GONE = 4
EXIT_ENGINE_FAILED = 5
EXIT_PROTOCOL = 6
EXIT_DRAIN_OVERDUE = 7

CONNECT_TIMEOUT_S = 10.0
FLUSH_TIMEOUT_S = 5.0
DRAIN_GRACE_S = 10.0
"""A shutdown that takes this much longer than its drain ends the process all the same."""
PROGRESS_PERIOD_S = 0.05

_log = logging.getLogger(__name__)


class WorkerProcess:
    """One connection, one model. `run` ends the process; it does not return."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._address = address
        self._token = token
        self._outbox = Outbox()
        self._loaded = threading.Event()
        self._front: Front | None = None
        self._engine: Engine | None = None
        self._engine_failure: RuntimeFault | None = None
        self._last_progress = ("", 0.0)
        self._writer: threading.Thread | None = None

    def run(self) -> None:
        """Serve until told to stop, then end the process."""
        try:
            sock = socket.create_connection(self._address, CONNECT_TIMEOUT_S)
        except OSError as error:
            _log.error("the host at %s:%d does not answer: %s", *self._address, error)
            _exit(EXIT_HOST_GONE)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = FrameSocket(sock)
        frames.send(Hello(token=self._token, pid=os.getpid()))
        first = _receive(frames)
        if first is None:
            _exit(EXIT_HOST_GONE)
        if isinstance(first, Shutdown):
            _exit(EXIT_OK)
        if not isinstance(first, Load):
            _log.error("the first message was no Load")
            _exit(EXIT_PROTOCOL)
        self._writer = threading.Thread(target=self._write, args=(frames,), name="writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, args=(frames,), name="reader", daemon=True).start()
        self._serve(first)

    # --- main thread --------------------------------------------------------------------------------------

    def _serve(self, order: Load) -> None:
        try:
            model, language, facts = self._load(Path(order.path), order)
            store = self._open_store(model, order)
            engine = Engine(model, self._outbox.put, store)
        except RuntimeFault as error:
            _log.error("the model was not loaded: %s", error.message)
            self._outbox.put((LoadFailed(to_failure(error)),))
            self._flush_and_exit(EXIT_LOAD_FAILED)
        if language.template_failure is not None:
            _log.warning("%s", language.template_failure.message)
        media, cache = _media(model)
        front = Front(language, facts, engine, self._outbox, media, order.model_id or Path(order.path).stem)
        health = HealthReporter(engine.figures, self._outbox, lambda: cache.live_bytes if cache is not None else 0)
        self._engine, self._front = engine, front
        self._loaded.set()
        front.start()
        health.start()
        self._outbox.put((Ready(facts),))
        _log.info(
            "ready: %s, %d tokens of context, %d slots", order.model_id or facts.name, facts.n_ctx, facts.n_parallel
        )
        # On the thread that loaded: each thread that ever computed keeps threads of OpenMP for itself, and once there
        # are more of them than processors, libgomp lets all of them sleep at every barrier instead of spinning
        # (libgomp's `gomp_throttled_spin_count_var`): hundreds of sleeps a token.
        threading.current_thread().name = "engine"
        self._run_engine(engine)
        if store is not None:
            store.close(FLUSH_TIMEOUT_S)
        may_free = front.close(FLUSH_TIMEOUT_S)
        health.stop(FLUSH_TIMEOUT_S)
        if self._engine_failure is not None:
            front.fail_all(to_failure(self._engine_failure))
            self._flush_and_exit(EXIT_ENGINE_FAILED)
        front.fail_all(to_failure(WorkerDied("The model was unloaded.", hint="Load it again.")))
        self._flush()
        if may_free:
            model.close()
        _exit(EXIT_OK)

    def _open_store(self, model: LlamaModel, order: Load) -> StateDisk | None:
        if not model.has_memory:
            return None
        path = Path(order.path)
        return start_states(
            Path(order.states_folder) if order.states_folder else None,
            lambda: state_key(path, model.resolved, model.metadata),
            path,
            order.options.disk_cache_bytes,
            prefixes_do=model.memory_kind != "points",
        )

    def _load(self, path: Path, order: Load) -> tuple[LlamaModel, Language, ModelFacts]:
        try:
            header = read_facts(path)
            header.check_whole()
            # The words of the header and what reads the answers come while llama.cpp reads the weights.
            with ThreadPoolExecutor(1, "header") as pool:
                words = pool.submit(_prepare, path, header.chat_template)
                beside = Path(order.projector) if order.projector else None
                model = load_model(path, order.options, self._on_progress, order.resolved, projector=beside)
                if order.draft_path:
                    load_draft(model, Path(order.draft_path), order.draft, self._on_progress)
                language = Language(model.vocab, words.result(), n_ctx=model.facts.n_ctx, clock=now_local)
        except OSError as error:
            raise StorageFault(f"{path.name} cannot be read: {error.strerror or error}.", path=str(path)) from error
        except RuntimeFault:
            raise
        except Exception as error:
            _log.exception("loading failed in an unexpected way")
            raise ModelLoadFailed(
                f"{path.name} could not be loaded: {type(error).__name__}: {error}", path=str(path), reason=str(error)
            ) from error
        quantization = header.quantization or model.facts.quantization
        return (
            model,
            language,
            replace(
                model.facts, quantization=quantization, reasoning=language.reasons, can_use_tools=language.can_use_tools
            ),
        )

    def _on_progress(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        last_stage, last_at = self._last_progress
        if fraction < 1.0 and stage == last_stage and now - last_at < PROGRESS_PERIOD_S:
            return
        self._last_progress = (stage, now)
        self._outbox.put((LoadProgress(stage, min(max(fraction, 0.0), 1.0)),))

    def _run_engine(self, engine: Engine) -> None:
        try:
            engine.run()
        except RuntimeFault as error:
            _log.exception("the engine gave up")
            self._engine_failure = error
        except Exception as error:  # noqa: BLE001 - the top of this thread
            _log.exception("the engine broke")
            self._engine_failure = BugFault(f"The engine broke: {type(error).__name__}: {error}")

    # --- reader thread ------------------------------------------------------------------------------------

    def _read(self, frames: FrameSocket) -> None:
        while (message := _receive(frames)) is not None:
            if isinstance(message, Shutdown):
                self._shut_down(message.drain_s)
            elif isinstance(message, Load):
                _log.error("a second Load was ignored")
            elif self._front is not None and self._loaded.is_set():
                self._front.handle(message)
            elif not isinstance(message, Cancel):
                error = ModelLoading("The model is still being loaded.", hint="Try again in a moment.")
                self._outbox.put((Failed(message.request_id, to_failure(error)),))
        _log.info("the host is gone")
        _exit(EXIT_HOST_GONE)

    def _shut_down(self, drain_s: float) -> None:
        engine = self._engine
        if engine is None:
            _exit(EXIT_OK)
        overdue = threading.Timer(drain_s + DRAIN_GRACE_S, _exit, (EXIT_DRAIN_OVERDUE,))
        overdue.daemon = True
        overdue.start()
        engine.stop(drain_s)

    # --- writer thread ------------------------------------------------------------------------------------

    def _write(self, frames: FrameSocket) -> None:
        try:
            while (items := self._outbox.take()) is not None:
                front = self._front
                for message in ready_made(items) if front is None else front.delivery.translate(items):
                    frames.send(message)
        except OSError:
            _log.info("the host is gone")
            _exit(EXIT_HOST_GONE)
        except Exception:  # noqa: BLE001 - the top of this thread
            _log.exception("the writer broke")
            _exit(EXIT_PROTOCOL)

    def _flush(self) -> None:
        self._outbox.close()
        if self._writer is not None:
            self._writer.join(FLUSH_TIMEOUT_S)

    def _flush_and_exit(self, code: int) -> NoReturn:
        self._flush()
        _exit(code)


def _media(model: LlamaModel) -> "tuple[MediaReader, MediaCache] | tuple[None, None]":
    if model.projector is None:
        return None, None
    # libmtmd is only brought in by models that have use for it.
    from runtime.worker.media import MediaReader
    from runtime.worker.media_cache import MediaCache

    cache = MediaCache()
    n_ubatch = model.resolved.n_ubatch
    return MediaReader(model.projector, n_vocab=model.vocab.n_tokens, n_ubatch=n_ubatch, cache=cache, log=LOG), cache


def _prepare(path: Path, template_text: str) -> HeaderWords:
    words = read_header_words(path)
    prepare(choose_spec(template_text, load_specs()))
    return words


def _receive(frames: FrameSocket) -> ToWorker | None:
    try:
        return frames.receive()
    except (msgspec.DecodeError, BugFault) as error:
        _log.error("the host sent what is no message: %s", error)
        _exit(EXIT_PROTOCOL)


def _exit(code: int) -> NoReturn:
    """End the process now: native code may be running on other threads, and must not be waited for."""
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        os.fsync(2)
    os._exit(code)
