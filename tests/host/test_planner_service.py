"""Plans in the host: what our own models hold, what is kept of dry runs, and failures that are not the model's."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runtime.errors import (
    BadRequest,
    FileTruncated,
    HubNotFound,
    ModelLoadFailed,
    ModelNotFound,
    NotGguf,
    StorageFault,
    UnknownArchitecture,
)
from runtime.fit.inputs import PlanInputs
from runtime.fit.planner import plan_by_formula
from runtime.gguf.parts import read_shape
from runtime.host.machine import MachineView
from runtime.host.planner_service import HubAccess, PlannerService, freed_bytes, without_staying
from runtime.host.room import Holding
from runtime.host.subjects import Remote
from runtime.messages.api import InstalledModel
from runtime.messages.fit import Machine, Measured, PlanRequest, PlanTarget, SpeedSample
from runtime.messages.library import HubEntry, HubFile, HubModel, HubModelRequest, VerdictRequest
from runtime.messages.load import ComputeDevice, DeviceMemory
from runtime.options import LoadOptions, ModelsOptions
from runtime.probe.report import DryRun, EngineReport
from tests.fakes.tiny_gguf import write_transformer
from tests.fakes.tiny_heads import write_with_heads
from tests.fakes.tiny_vision import write_projector

CPU = ComputeDevice("CPU", "a processor", "cpu", 64_000, 32_000)
CARD = ComputeDevice("CUDA0", "a card", "gpu", 16_000, 12_000)


class FakeProbe:
    def __init__(self) -> None:
        self.asked: list[DryRun] = []
        self.error: ModelLoadFailed | None = None

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        assert not nodes
        return EngineReport("1.0", (), (), can_offload=False, compute=(CPU,))

    async def dry_run(self, request: DryRun) -> Measured:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        memory = DeviceMemory("CPU", 1000, 2000, 3000, 4000)
        return Measured((memory,), {"CPU": 3})


class FakeHistory:
    async def samples(self) -> tuple[SpeedSample, ...]:
        return ()


class Rig:
    """A service over tiny files."""

    def __init__(self, folder: Path) -> None:
        self.probe = FakeProbe()
        self.holdings: list[Holding] = []
        self.fetched: list[str] = []
        self.broken: set[str] = set()
        self.page = HubModel(HubEntry("a/b", "b", "a"), "c0ffee", ())
        self.models = {
            name: InstalledModel(name, name, str(write_transformer(folder / f"{name}.gguf")), 1000)
            for name in ("one", "two")
        }
        machine = MachineView(
            self.probe,
            nodes=tuple,
            telemetry=lambda: None,
            speed_file=folder / "machine.json",
            measure=None,
            is_busy=lambda: False,
        )
        self.service = PlannerService(
            self.probe,
            machine,
            self.find,
            HubAccess(self.model, self.fetch),
            models_options=ModelsOptions,
            holdings=lambda: self.holdings,
            history=FakeHistory(),
        )

    def size_of(self, name: str) -> int:
        return Path(self.models[name].path).stat().st_size

    def spoil(self, name: str) -> None:
        Path(self.models[name].path).write_bytes(b"not a model at all" * 10)

    def find(self, name: str) -> InstalledModel:
        if name not in self.models:
            raise ModelNotFound("No such model.")
        return self.models[name]

    async def model(self, request: HubModelRequest) -> HubModel:
        assert request.repo == self.page.entry.repo
        return self.page

    async def fetch(self, repo: str, file: str, revision: str) -> Remote:
        self.fetched.append(f"{repo}/{file}@{revision}")
        found = next((one for one in self.page.files if one.name == file), None)
        if found is None:
            raise HubNotFound("No such file.")
        if file in self.broken:
            raise FileTruncated(f"{file} ends inside its own header.", hint="Take another.")
        return FakeRemote(self.page, found, (Path(self.models["one"].path),), None, 77)


class FakeRemote:
    def __init__(
        self, model: HubModel, file: HubFile, paths: tuple[Path, ...], projector: Path | None, fetched_bytes: int
    ) -> None:
        self.model = model
        self.file = file
        self.paths = paths
        self.projector = projector
        self.fetched_bytes = fetched_bytes


def run(tmp_path: Path, work: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work(Rig(tmp_path)))


def ask(model: str = "one", **options: Any) -> PlanRequest:
    return PlanRequest(PlanTarget(model), LoadOptions(**options))


def test_when_planned_twice_then_llama_is_asked_once_for_a_layout(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        plan = await rig.service.plan(ask(n_ctx=512))
        assert plan.method == "dry_run"
        assert plan.needed_bytes == 10_000
        assert plan.made_s > 0
        n_asked = len(rig.probe.asked)
        assert n_asked > 0
        await rig.service.plan(ask(n_ctx=512))
        assert len(rig.probe.asked) == n_asked
        await rig.service.plan(ask(n_ctx=1024))
        assert len(rig.probe.asked) > n_asked

    run(tmp_path, work)


def test_when_the_file_changes_then_it_is_read_and_asked_for_anew(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await rig.service.plan(ask(n_ctx=512))
        before = rig.probe.asked[-1].revision
        write_transformer(Path(rig.models["one"].path), seed=2)
        n_asked = len(rig.probe.asked)
        await rig.service.plan(ask(n_ctx=512))
        assert len(rig.probe.asked) > n_asked
        assert rig.probe.asked[-1].revision != before

    run(tmp_path, work)


def test_when_a_slider_moves_then_nothing_is_asked(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        request = PlanRequest(PlanTarget("one"), LoadOptions(n_ctx=512), exact=False)
        assert (await rig.service.plan(request)).method == "formula"
        assert rig.probe.asked == []

    run(tmp_path, work)


def test_when_llama_refuses_the_file_then_the_plan_says_so_and_a_broken_probe_is_no_such_reason(
    tmp_path: Path,
) -> None:
    async def work(rig: Rig) -> None:
        rig.probe.error = UnknownArchitecture("It is a model of the kind 'x'.", architecture="x", path="/one.gguf")
        refused = await rig.service.plan(ask())
        assert refused.verdict == "unsupported"
        assert "kind 'x'" in refused.problem
        rig.probe.error = ModelLoadFailed("The memory check could not be started.", reason="no process")
        assert (await rig.service.plan(ask())).method == "formula"
        rig.probe.error = ModelLoadFailed("The node is gone.", node="n", path="/one.gguf")
        by_formula = await rig.service.plan(ask())
        assert (by_formula.method, by_formula.verdict) == ("formula", "cpu")
        rig.probe.error = None
        assert (await rig.service.plan(ask())).method == "dry_run"  # failures are not kept

    run(tmp_path, work)


def test_when_a_draft_is_named_then_it_is_measured_too(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        request = PlanRequest(PlanTarget("one"), LoadOptions(n_ctx=512), draft="two")
        plan = await rig.service.plan(request)
        assert plan.options.draft_model == "two"
        assert {Path(asked.path).stem for asked in rig.probe.asked} == {"one", "two"}

    run(tmp_path, work)


def test_when_a_model_is_to_guess_with_heads_of_its_own_then_they_are_planned_or_the_reason_is_told(
    tmp_path: Path,
) -> None:
    path = write_with_heads(tmp_path / "heads.gguf", "glm4moe")

    async def work(rig: Rig) -> None:
        rig.models["heads"] = InstalledModel("heads", "heads", str(path), 1000)
        sizes = []
        for speculation in ("off", "mtp"):
            options = LoadOptions(n_ctx=512, speculation=speculation)
            plan = await rig.service.plan(PlanRequest(PlanTarget("heads"), options, exact=False))
            assert plan.resolved.speculation == speculation
            sizes.append(plan.needed_bytes)
        assert sizes[1] > sizes[0] + read_shape(path).heads[0].weight_bytes
        with pytest.raises(BadRequest, match="cannot guess with heads of its own: it has no multi-token heads"):
            await rig.service.plan(ask(speculation="mtp"))

    run(tmp_path, work)


def test_when_a_projector_lies_with_the_model_then_it_is_planned_unless_another_or_none_is_chosen(
    tmp_path: Path,
) -> None:
    own = write_projector(tmp_path / "mmproj-own.gguf", "llava")
    other = write_projector(tmp_path / "mmproj-other.gguf", "gemma3")

    async def work(rig: Rig) -> None:
        rig.models["one"] = msgspec.structs.replace(rig.models["one"], projector=str(own))
        await rig.service.plan(ask(n_ctx=512))
        await rig.service.plan(ask(n_ctx=512, projector=str(other)))
        await rig.service.plan(ask(n_ctx=512, projector="none"))
        assert [request.projector for request in rig.probe.asked[-3:]] == [str(own), str(other), ""]
        with pytest.raises(StorageFault, match="gone"):
            await rig.service.plan(ask(n_ctx=512, projector=str(tmp_path / "gone.gguf")))

    run(tmp_path, work)


@pytest.mark.parametrize(
    "target", [PlanTarget(), PlanTarget("one", "a/b", "c"), PlanTarget(repo="a/b")], ids=["nothing", "both", "no file"]
)
def test_when_nothing_is_meant_then_it_is_a_bad_request(tmp_path: Path, target: PlanTarget) -> None:
    async def work(rig: Rig) -> None:
        with pytest.raises(BadRequest):
            await rig.service.plan(PlanRequest(target))

    run(tmp_path, work)


def test_when_a_file_is_no_model_then_that_is_raised(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.spoil("one")
        with pytest.raises(NotGguf):
            await rig.service.plan(ask())

    run(tmp_path, work)


def test_when_a_repository_is_judged_then_one_header_is_fetched_and_one_row_recommended(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        size = rig.size_of("one")
        rig.page = HubModel(
            HubEntry("a/b", "b", "a"),
            "c0ffee",
            tuple(
                HubFile(f"b-{name}", (f"b-{name}.gguf",), (size * part // 8,), ("",), name, size * part // 8)
                for name, part in (("Q8_0", 8), ("Q4_K_M", 4), ("Q2_K", 2))
            ),
        )
        verdicts = await rig.service.verdicts(VerdictRequest("a/b"))
        assert rig.fetched == ["a/b/b-Q4_K_M@c0ffee"]
        assert verdicts.fetched_bytes == 77
        assert [row.name for row in verdicts.rows] == ["b-Q8_0", "b-Q4_K_M", "b-Q2_K"]
        assert [row.recommended for row in verdicts.rows].count(True) == 1
        assert all(bool(row.reason) == row.recommended for row in verdicts.rows)
        assert verdicts.rule
        needed = [row.plan.needed_bytes for row in verdicts.rows]
        assert needed == sorted(needed, reverse=True)
        assert verdicts.rows[0].plan.model == "a/b/b-Q8_0"
        rig.page = HubModel(HubEntry("a/b", "b", "a"), "c0ffee", ())
        with pytest.raises(BadRequest, match="no GGUF"):
            await rig.service.verdicts(VerdictRequest("a/b"))

    run(tmp_path, work)


def test_when_one_file_of_a_repository_is_broken_then_the_others_are_judged_all_the_same(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        size = rig.size_of("one")
        rig.page = HubModel(
            HubEntry("a/b", "b", "a"),
            "c0ffee",
            tuple(HubFile(name, (f"{name}.gguf",), (size,), ("",), name, size) for name in ("Q8_0", "Q4_K_M", "Q2_K")),
        )
        rig.broken = {"Q4_K_M"}
        rows = {row.name: row for row in (await rig.service.verdicts(VerdictRequest("a/b"))).rows}
        assert rows["Q4_K_M"].plan.verdict == "unsupported"
        assert rows["Q4_K_M"].plan.problem == "Q4_K_M ends inside its own header. Take another."
        assert rows["Q8_0"].plan.verdict == rows["Q2_K"].plan.verdict == "cpu"
        assert [row.recommended for row in rows.values()].count(True) == 1
        assert not rows["Q4_K_M"].recommended
        rig.broken = set(rows)
        with pytest.raises(FileTruncated, match="Q4_K_M ends"):
            await rig.service.verdicts(VerdictRequest("a/b"))

    run(tmp_path, work)


def test_when_models_go_then_what_they_took_comes_free_but_for_what_counts_as_free_already() -> None:
    memory = (DeviceMemory("CUDA0", 100, 10), DeviceMemory("CPU", 1000, 20))
    going = [
        Holding("a", memory, is_taken=True, is_mapped=True),
        Holding("b", memory, is_taken=True, is_mapped=False),
        Holding("c", memory, is_taken=False, is_mapped=True),
    ]
    assert freed_bytes(going) == {"CUDA0": 220, "CPU": 20 + 1020}
    assert freed_bytes([]) == {}


def test_when_models_stay_then_what_does_not_show_yet_is_taken_off() -> None:
    machine = Machine((CARD, CPU), 4, 64_000, 32_000)
    memory = (DeviceMemory("CUDA0", 100, 10), DeviceMemory("CPU", 1000, 20))
    # Loaded: the card shows it, mapped weights do not show in system memory.
    seen = without_staying(machine, [Holding("a", memory, is_taken=True, is_mapped=True)])
    assert (seen.devices[0].free_bytes, seen.ram_free_bytes) == (12_000, 31_000)
    assert without_staying(machine, [Holding("a", memory, is_taken=True, is_mapped=False)]) == machine
    # Being loaded: nothing of it shows.
    seen = without_staying(machine, [Holding("a", memory, is_taken=False, is_mapped=True)])
    assert (seen.devices[0].free_bytes, seen.devices[1].free_bytes, seen.ram_free_bytes) == (11_890, 30_980, 30_980)
    huge = (DeviceMemory("CUDA0", 10**9), DeviceMemory("CPU", 10**9))
    seen = without_staying(machine, [Holding("a", huge, is_taken=False, is_mapped=True)])
    assert (seen.devices[0].free_bytes, seen.ram_free_bytes) == (0, 0)


def test_when_others_stay_loaded_then_the_plan_has_less_to_plan_with(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.holdings = [Holding("two", (DeviceMemory("CPU", 10**8),), is_taken=False, is_mapped=True)]
        alone = await rig.service.plan(PlanRequest(PlanTarget("one"), exact=False))
        beside = await rig.service.plan(PlanRequest(PlanTarget("one"), exact=False, alone=False))
        assert alone.free_bytes - beside.free_bytes == pytest.approx(10**8, rel=0.5)

    run(tmp_path, work)


def test_when_asked_for_a_smaller_file_then_the_plan_is_scaled(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        model = rig.models["one"]
        size = rig.size_of("one")
        whole, half = await rig.service.plan_scaled(model, size), await rig.service.plan_scaled(model, size // 2)
        assert half.needed_bytes < whole.needed_bytes
        shape = read_shape(Path(model.path))
        direct = plan_by_formula(PlanInputs("one", shape, LoadOptions(), await rig.service.machine()))
        assert whole.needed_bytes == pytest.approx(direct.needed_bytes, rel=0.05)

    run(tmp_path, work)
