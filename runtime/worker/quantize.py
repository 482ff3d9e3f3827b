"""`python -m runtime.worker.quantize`: make a smaller file of an F32, F16 or BF16 model, with llama.cpp's quantizer.

One order comes as a line of JSON on standard input, answers go to standard output as lines of JSON (see
`runtime.messages.quantize`), llama.cpp's own words to standard error. The end of standard input cancels: the partial
file is removed and the process ends. A killed process leaves `<target>.partial`, which the host removes.
"""

import contextlib
import ctypes
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_cpp
import msgspec
import psutil

from runtime.errors import (
    ENGINE_QUOTE,
    BadRequest,
    DiskFull,
    FileTruncated,
    ModelLoadFailed,
    ModelNotFound,
    RuntimeFault,
    StorageFault,
    UnknownArchitecture,
    to_failure,
)
from runtime.gguf.facts import split_name
from runtime.gguf.header import GgufHeader, TensorInfo, read_header
from runtime.gguf.quantization import FILE_TYPES, TENSOR_TYPES, tensor_bytes
from runtime.gguf.source import FileSource
from runtime.messages.quantize import (
    PARTIAL_SUFFIX,
    QuantizeAnswer,
    QuantizeDone,
    QuantizeFailed,
    QuantizeOrder,
    QuantizeProgress,
)
from runtime.units import format_bytes
from runtime.worker import native

SOURCE_TYPES = frozenset({"F32", "F16", "BF16"})
SPARE_DISK_BYTES = 64 * 1024 * 1024
"""Left free on the disk beside the result."""
MAX_BUFFER_BYTES = 1024**3
"""Rows llama.cpp holds at once; its own default is 8 GiB, which small machines do not have."""
PROGRESS_PERIOD_S = 0.1
MAX_NOTES = 8
MAX_ORDER_BYTES = 64 * 1024
ALIGNMENT = 32
"""Tensors of the result start at multiples of it (GGUF_DEFAULT_ALIGNMENT: the quantizer keeps no other)."""

_FILE_TYPE_IDS = {name: type_id for type_id, name in FILE_TYPES.items()}
_TYPES_BY_GGML_NAME = {kind.name.lower(): kind for kind in TENSOR_TYPES.values()}
_TENSOR_LINE = re.compile(r"^\[ *(?P<index>\d+)/ *\d+\] +(?P<name>\S+) +- .*?type = +(?P<type>\w+), (?P<rest>.*)$")
_TARGET = re.compile(r"-> +[\d.]+ MiB \((?P<type>\w+)\)")
_UNKNOWN_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']*)'")
_FALLBACK = re.compile(r"(\d+) of (\d+) tensor\(s\) required fallback")

_model_quantize = native._bind(  # noqa: SLF001 - the binding table is this package's own
    "llama_model_quantize",
    ctypes.c_uint32,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(llama_cpp.llama_model_quantize_params),
)
Answer = Callable[[QuantizeAnswer], None]


class Log:
    """llama.cpp's words as whole lines: kept (the last 200), printed, and handed on. Home thread: the quantizer's."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._open = ""
        self.lines: list[str] = []
        self.callback = native.LogCallback(self._on_text)

    def install(self) -> None:
        """Make llama.cpp print here; the object must live as long as it may print."""
        native.log_set(ctypes.cast(self.callback, ctypes.c_void_p), None)

    def _on_text(self, level: int, raw: bytes | None, _user_data: int | None) -> None:
        if raw is None or level == 1:  # GGML_LOG_LEVEL_DEBUG
            return
        *whole, self._open = (self._open + raw.decode("utf-8", "replace")).split("\n")
        for line in whole:
            print(line, file=sys.stderr)  # noqa: T201 - the log of this process
            self.lines = [*self.lines[-199:], line]
            self._on_line(line)
        if match := _TENSOR_LINE.match(self._open):
            # The line is finished only when the tensor is: its beginning is the sign that the tensor before is done.
            self._on_line(match[0])


def source_parts(path: Path) -> tuple[Path, ...]:
    """The files of a model, in order; just the one if it is not split."""
    split = split_name(path.name)
    if split is None or split.count == 1:
        return (path,)
    return tuple(
        path.with_name(f"{split.stem}-{number:05d}-of-{split.count:05d}.gguf") for number in range(1, split.count + 1)
    )


def read_source(path: Path) -> tuple[GgufHeader, tuple[TensorInfo, ...]]:
    """Header of the first part, and the tensors of all.

    Raises:
        ModelNotFound: a file is missing.
        NotGguf, FileTruncated, ModelLoadFailed: a header is damaged.
        BadRequest: the model is quantized already.
        StorageFault: a file cannot be read.
    """
    headers: list[GgufHeader] = []
    for part in source_parts(path):
        try:
            with FileSource(part) as source:
                headers.append(read_header(source))
        except FileNotFoundError:
            raise ModelNotFound(f"There is no file {part.name}.", model=str(part)) from None
        except OSError as error:
            raise StorageFault(f"{part.name} cannot be read: {error.strerror or error}.", path=str(part)) from error
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    found = {_type_name(tensor) for tensor in tensors if len(tensor.shape) > 1} - SOURCE_TYPES
    if found:
        raise BadRequest(
            f"{path.name} is quantized already ({', '.join(sorted(found))}): making it smaller from there would lose "
            "far more than from the original.",
            hint="Use an F16, BF16 or F32 file of the model.",
            param="model",
        )
    return headers[0], tensors


def _type_name(tensor: TensorInfo) -> str:
    kind = TENSOR_TYPES.get(tensor.type_id)
    return kind.name if kind else f"type {tensor.type_id}"


def file_type_id(quantization: str) -> int:
    """llama.cpp's number of a file type.

    Raises:
        BadRequest: there is none of that name.
    """
    found = _FILE_TYPE_IDS.get(quantization.upper())
    if found is None:
        raise BadRequest(
            f"{quantization} is no quantization that llama.cpp makes.",
            hint=f"It makes {', '.join(sorted(_FILE_TYPE_IDS))}.",
            param="quantization",
        )
    return found


def preview(order: QuantizeOrder) -> QuantizeDone:
    """What the result would be; nothing is written. Reads the header alone.

    Raises:
        BadRequest: an unknown quantization, a source that is quantized already, or one that needs an importance matrix.
        RuntimeFault: the source cannot be read.
    """
    started = time.monotonic()
    header, tensors = read_source(Path(order.source))
    by_name = {tensor.name: tensor for tensor in tensors}
    types: dict[str, str] = {}

    def on_line(line: str) -> None:
        match = _TENSOR_LINE.match(line)
        if match is None or match["name"] not in by_name:
            return
        target = _TARGET.search(match["rest"])
        kind = _TYPES_BY_GGML_NAME.get((target or match)["type"].lower())
        types[match["name"]] = kind.name if kind else match["type"].upper()

    log = Log(on_line)
    _run(order, log, dry_run=True)
    if any("require an imatrix" in line for line in log.lines):
        raise BadRequest(
            f"{order.quantization} needs an importance matrix, without which the result would be useless.",
            hint="Choose Q4_K_M or IQ4_XS, or download a file that was made with one.",
            param="quantization",
        )
    ids = {kind.name: type_id for type_id, kind in TENSOR_TYPES.items()}
    sizes = [tensor_bytes(ids.get(types.get(tensor.name, ""), tensor.type_id), tensor.shape) or 0 for tensor in tensors]
    n_params = sum(tensor.n_elements for tensor in tensors)
    return QuantizeDone(
        size_bytes=_head_bytes(header, tensors) + sum(_padded(size) for size in sizes),
        bits_per_weight=sum(sizes) * 8 / n_params if n_params else 0.0,
        tensor_types=types,
        notes=_notes(log, order.quantization),
        took_s=time.monotonic() - started,
    )


def _head_bytes(header: GgufHeader, tensors: tuple[TensorInfo, ...]) -> int:
    """Header of the result: that of the source (of a split one, with the other parts' tensors)."""
    described = sum(24 + len(tensor.name.encode()) + 8 * len(tensor.shape) for tensor in tensors[len(header.tensors) :])
    return _padded(header.data_offset + described)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def quantize(order: QuantizeOrder, answer: Answer, on_partial: Callable[[Path], None]) -> QuantizeDone:
    """Make the file.

    Args:
        order: what to make.
        answer: is told the progress.
        on_partial: is told which file to remove, should this be broken off.

    Raises:
        BadRequest: as `preview`, or the target exists.
        DiskFull: the result does not fit, known before or only on the way.
        RuntimeFault: source or target cannot be used.
    """
    started = time.monotonic()
    target = Path(order.target)
    if target.exists():
        raise BadRequest(f"{target.name} exists already.", hint="Remove it or choose another name.", param="target")
    expected = preview(order)
    _header, tensors = read_source(Path(order.source))
    _check_room(target, expected.size_bytes)
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    on_partial(partial)
    sizes = {tensor.name: tensor_bytes(tensor.type_id, tensor.shape) or 0 for tensor in tensors}
    progress = _Progress(sizes, answer)
    log = Log(progress.on_line)
    try:
        _run(msgspec.structs.replace(order, target=str(partial)), log, dry_run=False)
        _check_result(partial, expected.size_bytes)
        if target.exists():
            raise BadRequest(f"{target.name} appeared meanwhile.", hint="Choose another name.", param="target")
        partial.replace(target)
    except OSError as error:
        raise StorageFault(f"{target.name} cannot be written: {error.strerror or error}.", path=str(target)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return msgspec.structs.replace(
        expected,
        size_bytes=target.stat().st_size,
        tensor_types={},
        notes=_notes(log, order.quantization),
        took_s=time.monotonic() - started,
    )


class _Progress:
    """Bytes of the tensors that are done, told ten times a second at most."""

    def __init__(self, sizes: dict[str, int], answer: Answer) -> None:
        self._sizes = sizes
        self._answer = answer
        self._total = sum(sizes.values())
        self._done = 0
        self._current = ""
        self._told_at = float("-inf")

    def on_line(self, line: str) -> None:
        match = _TENSOR_LINE.match(line)
        if match is None or match["name"] == self._current or match["name"] not in self._sizes:
            return
        self._done += self._sizes.get(self._current, 0)
        self._current = match["name"]
        now = time.monotonic()
        if now - self._told_at >= PROGRESS_PERIOD_S:
            self._told_at = now
            self._answer(QuantizeProgress(min(self._done, self._total), self._total, self._current))


def _run(order: QuantizeOrder, log: Log, *, dry_run: bool) -> None:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type_id(order.quantization)
    params.nthread = order.n_threads or psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    params.dry_run = dry_run
    params.max_buf_size = MAX_BUFFER_BYTES
    log.install()
    with _usable_path(Path(order.target) if order.target else None) as target:
        code = _model_quantize(os.fsencode(order.source), target, ctypes.byref(params))
    if code:
        raise _error(order, log.lines, dry_run=dry_run)


@contextlib.contextmanager
def _usable_path(path: Path | None) -> Iterator[bytes]:
    """The path as llama.cpp can open it for writing.

    On Windows it hands the bytes to a stream that takes them for the system's code page, so a name beyond ASCII is
    written as a plain name in the same folder and renamed.
    """
    if path is None or os.name != "nt" or str(path).isascii():
        yield b"" if path is None else os.fsencode(path)
        return
    before, plain = Path.cwd(), f"quantize-{os.getpid()}.gguf{PARTIAL_SUFFIX}"
    os.chdir(path.parent)
    try:
        yield plain.encode()
        (path.parent / plain).replace(path)
    finally:
        os.chdir(before)


def _error(order: QuantizeOrder, lines: list[str], *, dry_run: bool) -> RuntimeFault:
    """The class of a failure, from llama.cpp's own words."""
    name, reason = Path(order.source).name, next((line for line in reversed(lines) if line.strip()), "")
    text = "\n".join(lines)
    if unknown := _UNKNOWN_ARCHITECTURE.search(text):
        return UnknownArchitecture(
            f"{name} is a model of the kind '{unknown[1]}', which the built-in llama.cpp does not know.",
            hint="A newer Deskside may know it.",
            path=order.source,
            architecture=unknown[1],
        )
    if not dry_run:
        free = shutil.disk_usage(Path(order.target).parent).free
        if free < SPARE_DISK_BYTES:
            return _full(Path(order.target), 0, free)
    return ModelLoadFailed(
        f"{name} could not be quantized.{ENGINE_QUOTE}{reason or 'nothing'}", path=order.source, reason=reason
    )


def _check_room(target: Path, size_bytes: int) -> None:
    try:
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise StorageFault(
            f"The folder {target.parent} cannot be used: {error.strerror or error}.", path=str(target.parent)
        ) from error
    if free < size_bytes + SPARE_DISK_BYTES:
        raise _full(target, size_bytes, free)


def _full(target: Path, needed_bytes: int, free_bytes: int) -> DiskFull:
    need = f"{format_bytes(needed_bytes)} are needed and " if needed_bytes else ""
    return DiskFull(
        f"There is not enough room for {target.name}: {need}{format_bytes(free_bytes)} are free.",
        hint="Remove models you do not use, or choose another folder.",
        path=str(target.parent),
        needed_bytes=needed_bytes,
        free_bytes=free_bytes,
    )


def _check_result(path: Path, expected_bytes: int) -> None:
    """llama.cpp does not notice a write that failed: look whether all of it stands, and bring it to the disk.

    Raises:
        DiskFull: it ends early and the disk is full.
        FileTruncated: it ends early.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    with FileSource(path) as source:
        header = read_header(source)
    ends = [
        header.data_offset + tensor.offset + (tensor_bytes(tensor.type_id, tensor.shape) or 0)
        for tensor in header.tensors
    ]
    size_bytes = path.stat().st_size
    if size_bytes >= max(ends, default=0):
        return
    free = shutil.disk_usage(path.parent).free
    if free < SPARE_DISK_BYTES:
        raise _full(path, expected_bytes, free)
    raise FileTruncated(
        f"{path.name} came out incomplete: {format_bytes(size_bytes)} of {format_bytes(max(ends))} were written.",
        hint="Check the disk and try again.",
        path=str(path),
        size_bytes=size_bytes,
        needed_bytes=max(ends),
    )


def _notes(log: Log, quantization: str) -> tuple[str, ...]:
    notes = [
        f"{match[1]} of {match[2]} tensors have rows that {quantization} cannot hold and take a larger format."
        for line in log.lines
        if (match := _FALLBACK.search(line))
    ]
    return tuple(notes[:MAX_NOTES])


class _Process:
    """The order of one process, its answers, and what to remove when it is cancelled."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._partial: Path | None = None

    def answer(self, message: QuantizeAnswer) -> None:
        with self._lock, contextlib.suppress(OSError):
            os.write(self._answers, msgspec.json.encode(message) + b"\n")

    def on_partial(self, path: Path) -> None:
        self._partial = path

    def watch(self) -> None:
        """End when standard input does."""
        while os.read(sys.stdin.fileno(), 4096):
            pass
        if self._partial is not None:
            with contextlib.suppress(OSError):
                self._partial.unlink()
        os._exit(0)

    def order(self, raw_order: bytes) -> QuantizeOrder | None:
        """What is asked for; `None` once it was answered that this is no order."""
        try:
            return msgspec.json.decode(raw_order, type=QuantizeOrder)
        except msgspec.MsgspecError as error:
            self.answer(QuantizeFailed(to_failure(BadRequest(f"That is no order: {error}."))))
            return None

    def run(self, order: QuantizeOrder) -> int:
        try:
            done = preview(order) if order.preview else quantize(order, self.answer, self.on_partial)
        except Exception as error:  # noqa: BLE001 - the top of this process
            self.answer(QuantizeFailed(to_failure(error)))
            return 1
        self.answer(done)
        return 0


def main() -> int:
    """Read one order, carry it out."""
    answers = os.dup(1)
    os.dup2(2, 1)
    process = _Process(answers)
    order = process.order(_read_line())
    if order is None:
        return 1
    threading.Thread(target=process.watch, name="stdin", daemon=True).start()
    native.backend_init()
    return process.run(order)


def _read_line() -> bytes:
    """Byte by byte, so that what follows is left for `watch`."""
    line = b""
    while len(line) < MAX_ORDER_BYTES and (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    return line


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
