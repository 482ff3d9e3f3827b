"""Making smaller files of models: a process does it (`python -m runtime.worker.quantize`), a job shows it."""

import asyncio
import logging
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from runtime.errors import BadRequest, BugFault, RuntimeFault, StorageFault, WorldFault, from_failure
from runtime.gguf.facts import split_name
from runtime.host.jobs import JobControl, Jobs
from runtime.host.json_child import JsonChild, json_child
from runtime.library.progress import Cancelled, Progress
from runtime.messages.api import InstalledModel
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import Job, QuantizePreview, QuantizeRequest
from runtime.messages.quantize import (
    PARTIAL_SUFFIX,
    QuantizeAnswer,
    QuantizeDone,
    QuantizeFailed,
    QuantizeOrder,
    QuantizeProgress,
)
from runtime.units import format_bytes

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "runtime.worker.quantize")
CANCEL_CHECK_S = 0.2
PREVIEW_TIMEOUT_S = 120.0
MAX_NAMES = 100
"""How many names are tried for the new file before giving up."""

_decoder = msgspec.json.Decoder(QuantizeAnswer)
_SOURCE_TYPE = re.compile(r"(?i)(?<![A-Za-z0-9])(?:F32|F16|BF16|FP16|FP32)(?![A-Za-z0-9])")


class Shelf(Protocol):
    """Where models are. Blocking: called in a thread."""

    @property
    def main(self) -> Path:
        """The main models folder."""
        ...

    def find(self, name: str, /) -> InstalledModel:
        """By id; raises `ModelNotFound`."""
        ...

    def record_arrival(self, paths: Sequence[Path], sha256: Sequence[str], repo: str = "", /) -> str:
        """Note files of ours; the answer is the model's id."""
        ...


class Quantizing:
    """Home: the event loop."""

    def __init__(
        self,
        shelf: Shelf,
        jobs: Jobs,
        *,
        plan_scaled: Callable[[InstalledModel, int], Awaitable[MemoryPlan]],
        tell_installed: Callable[[], Awaitable[None]],
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`plan_scaled` plans a model as if its file had so many bytes."""
        self._shelf = shelf
        self._jobs = jobs
        self._plan_scaled = plan_scaled
        self._tell_installed = tell_installed
        self._command = tuple(command)

    async def preview(self, request: QuantizeRequest) -> QuantizePreview:
        """What the result would be.

        Raises:
            ModelNotFound: no such model.
            BadRequest: it is quantized already, or no such quantization.
        """
        model = await asyncio.to_thread(self._shelf.find, request.model)
        order = QuantizeOrder(model.path, request.quantization, n_threads=request.n_threads, preview=True)
        done = await self._ask_preview(order)
        target = await asyncio.to_thread(self._target, model, request.quantization)
        free_bytes = await asyncio.to_thread(_free_bytes, target)
        try:
            plan = await self._plan_scaled(model, done.size_bytes)
        except RuntimeFault:  # the size is worth telling all the same
            plan = None
        return QuantizePreview(
            quantization=request.quantization,
            size_bytes=done.size_bytes,
            bits_per_weight=round(done.bits_per_weight, 3),
            note=" ".join(done.notes),
            free_bytes=free_bytes,
            path=str(target),
            plan=plan,
        )

    async def start(self, request: QuantizeRequest) -> Job:
        """Begin; the file appears whole or not at all.

        Raises:
            ModelNotFound: no such model.
            BadRequest, DiskFull: as the preview says.
        """
        model = await asyncio.to_thread(self._shelf.find, request.model)
        order = QuantizeOrder(model.path, request.quantization, n_threads=request.n_threads, preview=True)
        await self._ask_preview(order)  # what is wrong with the request is its answer, not a failed job's
        target = await asyncio.to_thread(self._target, model, request.quantization)

        async def work(control: JobControl) -> str:
            await asyncio.to_thread(_make_folder, target.parent)
            done = await self._make(msgspec.structs.replace(order, target=str(target), preview=False), control)
            await asyncio.to_thread(self._shelf.record_arrival, (target,), ("",))
            await self._tell_installed()
            return " ".join((f"Made {target.name} ({format_bytes(done.size_bytes)}).", *done.notes))

        return self._jobs.start("quantize", model.id, f"Making {request.quantization} of {model.name}", work)

    async def _ask_preview(self, order: QuantizeOrder) -> QuantizeDone:
        try:
            async with asyncio.timeout(PREVIEW_TIMEOUT_S), json_child(self._command, _line(order)) as child:
                async for answer in _answers(child):
                    if isinstance(answer, QuantizeDone):
                        return answer
                raise await _died(child)
        except TimeoutError:
            raise WorldFault(
                f"The size could not be worked out within {PREVIEW_TIMEOUT_S:.0f} s.", hint="Try again."
            ) from None

    async def _make(self, order: QuantizeOrder, control: JobControl) -> QuantizeDone:
        control.report(Progress(0, 1, "Reading"))
        try:
            async with json_child(self._command, _line(order)) as child:
                making = asyncio.create_task(_made(child, control), name="quantize")
                try:
                    while not making.done():
                        await asyncio.wait({making}, timeout=CANCEL_CHECK_S)
                        if control.is_cancelled() and not making.done():
                            raise Cancelled  # leaving the block ends the process, which removes what it wrote
                    return making.result()
                finally:
                    making.cancel()
        finally:
            # One that was killed could not remove it.
            await asyncio.to_thread(_remove_half, Path(order.target + PARTIAL_SUFFIX))

    def _target(self, model: InstalledModel, quantization: str) -> Path:
        """A name that is free, beside the source where that is ours, else below the main folder."""
        source = Path(model.path)
        split = split_name(source.name)
        stem = split.stem if split is not None else source.stem
        renamed, n_found = _SOURCE_TYPE.subn(quantization, stem)
        stem = renamed if n_found == 1 else f"{stem}-{quantization}"
        main = self._shelf.main
        folder = source.parent if source.is_relative_to(main) else main / (model.publisher or "local") / model.name
        for number in range(1, MAX_NAMES):
            target = folder / (f"{stem}.gguf" if number == 1 else f"{stem} ({number}).gguf")
            if not target.exists():
                return target
        raise BadRequest(f"{folder} is full of files named {stem}.", hint="Remove some of them.", param="quantization")


def _line(order: QuantizeOrder) -> bytes:
    return msgspec.json.encode(order)


async def _answers(child: JsonChild) -> AsyncIterator[QuantizeProgress | QuantizeDone]:
    async for line in child.lines():
        try:
            answer = _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise BugFault(f"The quantizer gave an answer that cannot be read ({error}).") from error
        if isinstance(answer, QuantizeFailed):
            raise from_failure(answer.failure)
        yield answer


async def _made(child: JsonChild, control: JobControl) -> QuantizeDone:
    async for answer in _answers(child):
        if isinstance(answer, QuantizeDone):
            return answer
        if isinstance(answer, QuantizeProgress):
            control.report(Progress(answer.done_bytes, answer.total_bytes, "Converting"))
    raise await _died(child)


async def _died(child: JsonChild) -> WorldFault:
    outcome = await child.ended()
    return WorldFault(
        f"The process that converts the model {outcome.sentence}.", hint="Try again.", reason=child.last_words()
    )


def _free_bytes(target: Path) -> int:
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _remove_half(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFault(f"{folder} cannot be made: {error.strerror or error}.", path=str(folder)) from error
