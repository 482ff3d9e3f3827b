"""Where a quantized file goes, and what a quantizer that dies is to the person."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from runtime.errors import BadRequest, RuntimeFault
from runtime.host.jobs import Jobs
from runtime.host.quantizing import Quantizing
from runtime.messages.api import HostEvent, InstalledModel, JobChanged
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import QuantizeRequest


class Shelf:
    def __init__(self, main: Path, source: Path) -> None:
        self.main = main
        self.model = InstalledModel("m", "My Model", str(source), 1000, publisher="someone")
        self.arrived: list[Path] = []

    def find(self, name: str) -> InstalledModel:
        assert name == "m"
        return self.model

    def record_arrival(self, paths: Sequence[Path], sha256: Sequence[str], repo: str = "") -> str:
        assert (len(sha256), repo) == (1, "")
        self.arrived.extend(paths)
        return "made"


async def no_plan(_model: InstalledModel, _size_bytes: int) -> MemoryPlan:
    raise BadRequest("No plan here.")


async def tell() -> None:
    pass


DONE = 'print(\'{"type":"QuantizeDone","size_bytes":500,"bits_per_weight":4.5,"notes":["A note."]}\')'
MAKES = f"""
import json, sys
order = json.loads(sys.stdin.readline())
if not order.get('preview'):
    open(order['target'], 'w').close()
{DONE}
"""
DIES_LATE = f"""
import json, sys
order = json.loads(sys.stdin.readline())
if not order.get('preview'):
    open(order['target'] + '.partial', 'w').close()
    sys.exit(9)
{DONE}
"""
DIES = "import sys\nsys.stderr.write('GGML_ASSERT')\nsys.exit(3)"
NONSENSE = "print('[]')"


def make(shelf: Shelf, text: str, told: list[HostEvent] | None = None) -> Quantizing:
    jobs = Jobs((told if told is not None else []).append)
    return Quantizing(shelf, jobs, plan_scaled=no_plan, tell_installed=tell, command=(sys.executable, "-c", text))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("main/a/b/Model-F16.gguf", "main/a/b/Model-Q4_K_M.gguf"),
        ("main/a/b/model.bf16.gguf", "main/a/b/model.Q4_K_M.gguf"),
        ("main/a/b/model.gguf", "main/a/b/model-Q4_K_M.gguf"),
        ("main/a/b/Buf16er.gguf", "main/a/b/Buf16er-Q4_K_M.gguf"),
        ("main/a/b/F16-F16.gguf", "main/a/b/F16-F16-Q4_K_M.gguf"),
        ("main/a/b/Big-F16-00001-of-00003.gguf", "main/a/b/Big-Q4_K_M.gguf"),
        ("elsewhere/Model-F16.gguf", "main/someone/My Model/Model-Q4_K_M.gguf"),
    ],
)
def test_when_previewed_then_the_target_is_named_after_the_source(tmp_path: Path, source: str, expected: str) -> None:
    async def run() -> None:
        shelf = Shelf(tmp_path / "main", tmp_path / source)
        preview = await make(shelf, MAKES).preview(QuantizeRequest("m", "Q4_K_M"))
        assert preview.path == str(tmp_path / expected)
        assert (preview.size_bytes, preview.note, preview.plan) == (500, "A note.", None)
        assert preview.free_bytes > 0

    asyncio.run(run())


def test_when_the_name_is_taken_then_another_is_found_and_the_file_is_noted(tmp_path: Path) -> None:
    async def run() -> None:
        told: list[HostEvent] = []
        shelf = Shelf(tmp_path, tmp_path / "Model-F16.gguf")
        (tmp_path / "Model-Q8_0.gguf").touch()
        job = await make(shelf, MAKES, told).start(QuantizeRequest("m", "Q8_0"))
        assert job.title == "Making Q8_0 of My Model"
        async with asyncio.timeout(20):
            while not any(isinstance(event, JobChanged) and event.job.state != "running" for event in told):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        last = told[-1]
        assert isinstance(last, JobChanged)
        assert (last.job.state, last.job.result) == ("done", "Made Model-Q8_0 (2).gguf (500 B). A note.")
        assert shelf.arrived == [tmp_path / "Model-Q8_0 (2).gguf"]

    asyncio.run(run())


@pytest.mark.parametrize(("text", "words"), [(DIES, "exited with code 3"), (NONSENSE, "cannot be read")])
def test_when_the_quantizer_breaks_then_no_job_begins_and_it_is_said(tmp_path: Path, text: str, words: str) -> None:
    async def run() -> None:
        shelf = Shelf(tmp_path, tmp_path / "Model-F16.gguf")
        with pytest.raises(RuntimeFault, match=words):
            await make(shelf, text).start(QuantizeRequest("m", "Q8_0"))

    asyncio.run(run())


def test_when_the_quantizer_dies_midway_then_its_half_file_does_not_stay(tmp_path: Path) -> None:
    async def run() -> None:
        told: list[HostEvent] = []
        shelf = Shelf(tmp_path, tmp_path / "Model-F16.gguf")
        await make(shelf, DIES_LATE, told).start(QuantizeRequest("m", "Q8_0"))
        async with asyncio.timeout(20):
            while not any(isinstance(event, JobChanged) and event.job.state != "running" for event in told):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        last = told[-1]
        assert isinstance(last, JobChanged)
        assert (last.job.state, shelf.arrived) == ("failed", [])

    asyncio.run(run())
    assert not list(tmp_path.iterdir())
