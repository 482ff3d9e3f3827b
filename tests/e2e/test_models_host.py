"""Models through a real host: plans, downloads from a hub on loopback, jobs on files, a node as the second device."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runtime.client import HostClient
from runtime.errors import BadRequest, Busy, HubNotFound, ModelNotFound, NotAllowed, NotEnoughMemory
from runtime.fit.history import LEAST_FACTOR
from runtime.library.starter import find_starter
from runtime.messages.api import (
    ChatDelta,
    ChatFinished,
    ChatRequest,
    HostEvent,
    InstalledModel,
    JobChanged,
    LoadedModel,
    LoadRequest,
)
from runtime.messages.fit import MemoryPlan, PlanRequest, PlanTarget
from runtime.messages.library import (
    DownloadRequest,
    HubModelRequest,
    HubSearch,
    ImportRequest,
    Job,
    QuantizeRequest,
    VerdictRequest,
)
from runtime.messages.load import DeviceMemory
from runtime.messages.shared import Message
from runtime.options import GenerateOptions, LoadOptions, ModelsOptions, SamplingOptions
from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest
from tests.fakes.fake_hub import FakeHub, FakeRepo
from tests.support.probe_child import NodeChild
from tests.support.random_model import Shape, write_random_model

pytestmark = pytest.mark.e2e

TIMEOUT_S = 120.0
REPO = "someone/SmolLM2-GGUF"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PARTS = ("weight_bytes", "context_bytes", "compute_bytes", "output_bytes")

GREEDY = SamplingOptions(temperature=0.0)

T = TypeVar("T")


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    """A hub with the starter model."""
    starter = find_starter()
    assert starter is not None
    with FakeHub({REPO: FakeRepo({FILE: starter.read_bytes(), "README.md": b"# A model"})}) as fake:
        yield fake


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[HostUnderTest]:
    """One host for this module, with the hub above and an empty home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_DATA_HOME", str(home / "share"))
        patch.delenv("HF_TOKEN", raising=False)
        running = HostUnderTest(DataFolder(tmp_path_factory.mktemp("models host") / "data"))
    try:
        answer = running.private.put("/admin/models/options", json={"hub_endpoint": hub.endpoint})
        assert answer.status_code == 200, answer.text
        yield running
    finally:
        running.close()


def run(host: HostUnderTest, work: Callable[[HostClient], Coroutine[Any, Any, T]]) -> T:
    async def with_client() -> T:
        async with HostClient.from_data_folder(host.data) as client, asyncio.timeout(TIMEOUT_S):
            return await work(client)

    return asyncio.run(with_client())


async def until(client: HostClient, look: Callable[[], Coroutine[Any, Any, T | None]]) -> T:
    """Ask at once and after each event (there is one a second)."""
    async with client.events() as events:
        async for _event in events:
            if (found := await look()) is not None:
                return found
    raise AssertionError("the host ended")


async def ended(client: HostClient, job: Job) -> Job:
    async def look() -> Job | None:
        return next((one for one in await client.jobs() if one.id == job.id and one.state != "running"), None)

    return await until(client, look)


async def done(client: HostClient, job: Job) -> Job:
    job = await ended(client, job)
    assert job.state == "done", job
    return job


async def starter_of(client: HostClient) -> InstalledModel:
    return next(model for model in await client.models() if model.starter)


async def installed(client: HostClient, name: str) -> InstalledModel | None:
    return next((model for model in await client.models() if name in model.path), None)


async def say(client: HostClient, model_id: str, text: str, max_tokens: int) -> tuple[str, ChatFinished]:
    request = ChatRequest(model_id, (Message("user", text),), GenerateOptions(max_tokens=max_tokens, sampling=GREEDY))
    async with client.chat(request) as events:
        seen = [event async for event in events]
    assert isinstance(seen[-1], ChatFinished), seen[-1]
    return "".join(event.text for event in seen if isinstance(event, ChatDelta)), seen[-1]


def copy_of(model: InstalledModel, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(Path(model.path).read_bytes())


def damage(model: InstalledModel) -> None:
    with Path(model.path).open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"other bytes")


def is_there(model: InstalledModel) -> bool:
    return Path(model.path).exists()


async def unload_all(client: HostClient) -> None:
    for model in (await client.status()).models:
        await client.unload(model.id)


def planned(plan: MemoryPlan) -> tuple[DeviceMemory, ...]:
    return tuple(budget.memory for budget in plan.budgets)


def assert_close(plan: MemoryPlan, actual: tuple[DeviceMemory, ...], tolerance: float = 0.01) -> None:
    by_name = {memory.device: memory for memory in actual}
    assert by_name
    for memory in planned(plan):
        found = by_name[memory.device]
        for part in PARTS:
            expected, seen = getattr(memory, part), getattr(found, part)
            assert abs(expected - seen) <= max(tolerance * max(expected, seen), 1), (memory.device, part, plan, actual)


# --- plans and loads --------------------------------------------------------------------------------------


def test_when_loaded_by_plan_then_it_takes_what_was_planned_and_that_is_kept(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        await unload_all(client)
        model = await starter_of(client)
        options = LoadOptions(n_ctx=2048, type_k="q8_0", type_v="q8_0", flash_attn="on")
        plan = await client.plan(PlanRequest(PlanTarget(model.id), options))
        assert plan.method == "dry_run"
        assert (plan.verdict, plan.resolved.n_ctx, plan.resolved.type_k) == ("cpu", 2048, "q8_0")
        assert plan.speed is not None
        assert plan.speed.generation_low_tps < plan.speed.generation_tps < plan.speed.generation_high_tps
        loaded = await client.load_and_wait(LoadRequest(model.id, options))
        assert loaded.plan is not None
        assert loaded.plan.resolved == plan.resolved
        assert_close(plan, loaded.actual)

        async def record_with_speed() -> bool | None:
            found = await client.load_record(model.id)
            return True if found is not None and found.generation_tps > 0 else None

        await say(client, model.id, "Tell me a long story about a dog and a cat.", 48)
        await until(client, record_with_speed)
        record = await client.load_record(model.id)
        assert record is not None
        assert record.plan == loaded.plan
        assert record.actual == loaded.actual
        again = await client.plan(PlanRequest(PlanTarget(model.id), options))
        assert again.speed is not None
        if record.generation_tps > LEAST_FACTOR * plan.speed.formula_generation_tps:  # else the machine was too busy
            assert again.speed.basis == "measured"
        assert (await client.model_settings(model.id)) == options

    run(host, work)


def test_when_sliders_ask_by_formula_then_the_answer_is_near_the_exact_one(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        model = await starter_of(client)
        for options in (LoadOptions(n_ctx=4096), LoadOptions(n_ctx=1024, n_parallel=16, type_k="q8_0")):
            exact = await client.plan(PlanRequest(PlanTarget(model.id), options))
            near = await client.plan(PlanRequest(PlanTarget(model.id), options, exact=False))
            assert (exact.method, near.method) == ("dry_run", "formula")
            assert near.needed_bytes == pytest.approx(exact.needed_bytes, rel=0.1)
            assert near.verdict == exact.verdict

    run(host, work)


def test_when_it_cannot_fit_then_nothing_is_unloaded_for_it_and_the_reason_is_told(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        model = await starter_of(client)
        await client.load_and_wait(LoadRequest(model.id, LoadOptions(n_ctx=512)))
        copy_of(model, host.data.models / "copies" / "starter-copy.gguf")
        with pytest.raises(NotEnoughMemory) as raised:
            await client.load_and_wait(LoadRequest("starter-copy", LoadOptions(n_ctx=8_000_000, n_parallel=1)))
        assert "free" in raised.value.message
        states = {one.id: one.state for one in (await client.status()).models}
        assert states[model.id] == "ready"
        settings = await client.model_settings("starter-copy")
        assert settings == LoadOptions()  # options that do not work are not remembered

    run(host, work)


def test_when_memory_allows_then_several_stay_and_the_most_unused_goes_first(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        await unload_all(client)
        first = await starter_of(client)
        small = LoadOptions(n_ctx=512, n_parallel=1)
        await client.set_model_settings(first.id, small)
        await client.set_model_settings("starter-copy", small)
        await say(client, first.id, "Hello.", 4)
        await say(client, "starter-copy", "Hello.", 4)
        assert {one.id: one.state for one in (await client.status()).models} == {
            first.id: "ready",
            "starter-copy": "ready",
        }
        await say(client, first.id, "Again.", 4)
        options = await client.models_options()
        copy_of(first, host.data.models / "copies" / "third-copy.gguf")
        await client.set_model_settings("third-copy", small)
        await client.set_models_options(ModelsOptions(hub_endpoint=options.hub_endpoint, max_loaded=2))
        await say(client, "third-copy", "Hello.", 4)
        assert {one.id for one in (await client.status()).models} == {first.id, "third-copy"}
        await client.set_models_options(options)
        await unload_all(client)

    run(host, work)


def test_when_a_node_lends_its_device_then_layers_go_there_as_planned(host: HostUnderTest) -> None:
    async def work(client: HostClient, address: str) -> None:
        await unload_all(client)
        with pytest.raises(BadRequest):
            await client.add_node("nonsense")
        (node,) = await client.add_node(address)
        assert (node.address, node.state) == (address, "reachable")
        assert node.total_bytes > 0
        model = await starter_of(client)
        machine = await client.machine()
        assert [device.kind for device in machine.devices] == ["node", "cpu"]
        options = LoadOptions(n_ctx=1024, n_gpu_layers=12)
        plan = await client.plan(PlanRequest(PlanTarget(model.id), options))
        assert (plan.verdict, plan.n_layer_gpu) == ("partial", 12), plan
        loaded = await client.load_and_wait(LoadRequest(model.id, options))
        assert loaded.facts is not None
        assert len(loaded.actual) == 2
        assert_close(plan, loaded.actual)
        text, _finished = await say(client, model.id, "What is the capital of France?", 24)
        assert len(text.split()) > 3
        # A node serves several: it can be asked, and planned with, while it serves this model.
        assert [one.state for one in await client.nodes()] == ["reachable"]
        again = await client.plan(PlanRequest(PlanTarget(model.id), options))
        assert (again.verdict, again.method) == ("partial", "dry_run")
        await client.unload(model.id)
        assert await client.remove_node(address) == ()

    with NodeChild() as node:
        run(host, lambda client: work(client, node.address))


def test_when_a_node_is_not_there_then_it_is_listed_as_such_and_plans_go_on(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        with NodeChild() as node:
            address = node.address
        (seen,) = await client.add_node(address)
        assert seen.state == "unreachable"
        assert "deskside node" in seen.problem
        plan = await client.plan(PlanRequest(PlanTarget((await starter_of(client)).id)))
        assert plan.verdict == "cpu"
        await client.remove_node(address)

    run(host, work)


def test_when_the_machine_is_measured_then_predictions_stand_on_it_and_it_is_kept(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        try:
            machine = await client.measure_machine()
        except Busy:
            pytest.skip("other programs keep this machine too busy to measure it")
        assert machine.speed is not None
        assert {entry.device for entry in machine.speed.throughput} == {"CPU"}
        assert host.data.machine_file.is_file()
        plan = await client.plan(PlanRequest(PlanTarget((await starter_of(client)).id), exact=False))
        assert plan.speed is not None
        assert plan.speed.basis != "guess"

    run(host, work)


# --- the hub ----------------------------------------------------------------------------------------------


def test_when_judged_before_downloading_then_the_plan_equals_that_of_the_file_on_disk(
    host: HostUnderTest, hub: FakeHub
) -> None:
    async def work(client: HostClient) -> None:
        page = await client.search(HubSearch("smollm2"))
        assert [entry.repo for entry in page.entries] == [REPO]
        model = await client.hub_model(HubModelRequest(REPO))
        (file,) = model.files
        assert (file.quantization, file.size_bytes) == ("Q4_1", len(hub.repos[REPO].files[FILE]))
        sent_before = hub.sent_bytes
        verdicts = await client.verdicts(VerdictRequest(REPO))
        (row,) = verdicts.rows
        assert row.recommended
        assert row.reason
        assert verdicts.rule
        options = LoadOptions(n_ctx=2048)
        remote = await client.plan(PlanRequest(PlanTarget(repo=REPO, file=file.name), options))
        assert remote.method == "dry_run"
        assert hub.sent_bytes - sent_before < 0.1 * file.size_bytes
        local = await client.plan(PlanRequest(PlanTarget((await starter_of(client)).id), options))
        assert planned(remote) == planned(local)
        assert remote.resolved == local.resolved
        with pytest.raises(HubNotFound):
            await client.plan(PlanRequest(PlanTarget(repo=REPO, file="nothing.gguf")))
        assert (await client.picks()).entries

    run(host, work)


def test_when_downloaded_then_it_is_listed_checked_loaded_and_removed(host: HostUnderTest, hub: FakeHub) -> None:
    async def work(client: HostClient) -> None:
        hub.cut_then_wait(10_000_000)
        begun = await client.download(DownloadRequest(REPO, FILE))

        async def has_bytes() -> bool | None:
            (one,) = await client.downloads()
            return True if one.done_bytes >= 9_000_000 else None

        await until(client, has_bytes)
        assert (await client.pause_download(begun.id)).state == "paused"
        assert await installed(client, "someone") is None
        hub.gate.set()
        await client.resume_download(begun.id)

        async def arrived() -> InstalledModel | None:
            (one,) = await client.downloads()
            assert one.state != "failed", one.failure
            return await installed(client, "someone") if one.state == "done" else None

        model = await until(client, arrived)
        (one,) = await client.downloads()
        assert one.model_id == model.id
        assert model.verified == "ok"
        await client.clear_download(one.id)
        assert await client.downloads() == ()
        job = await done(client, await client.verify(model.id))
        assert job.fraction == 1.0
        await client.load_and_wait(LoadRequest(model.id, LoadOptions(n_ctx=512)))
        text, _finished = await say(client, model.id, "What is the capital of France?", 24)
        original = await starter_of(client)
        await client.load_and_wait(LoadRequest(original.id, LoadOptions(n_ctx=512), replace=False))
        assert (await say(client, original.id, "What is the capital of France?", 24))[0] == text
        answer = await client.remove(model.id)  # unloads it first
        assert answer.freed_bytes == model.size_bytes
        assert not is_there(model)
        assert model.id not in {other.id for other in (await client.status()).models}
        with pytest.raises(ModelNotFound):
            await client.verify(model.id)

    run(host, work)


def test_when_a_file_on_disk_was_changed_then_verifying_fails_and_says_which(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        await client.download(DownloadRequest(REPO, FILE))

        async def arrived() -> InstalledModel | None:
            return await installed(client, "someone") if (await client.downloads())[0].state == "done" else None

        model = await until(client, arrived)
        damage(model)
        job = await ended(client, await client.verify(model.id))
        assert job.state == "failed"
        assert job.failure is not None
        assert job.failure.kind == "HashMismatch"
        changed = await installed(client, "someone")
        assert changed is not None
        assert changed.verified == "bad"
        await client.remove(model.id)

    run(host, work)


# --- work on files ----------------------------------------------------------------------------------------


def test_when_quantized_then_the_preview_was_right_and_the_result_loads(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        source = host.data.models / "local" / "noise" / "noise-F16.gguf"
        source.parent.mkdir(parents=True, exist_ok=True)
        write_random_model(source, Shape(256, 4, 512, 4, 2, n_vocab=4000), name="noise")
        request = QuantizeRequest("noise-f16", "Q8_0")
        preview = await client.quantize_preview(request)
        assert preview.path == str(source.with_name("noise-Q8_0.gguf"))
        assert preview.plan is not None
        assert preview.free_bytes > preview.size_bytes
        with pytest.raises(BadRequest):
            await client.quantize(QuantizeRequest("noise-f16", "Q99"))
        with pytest.raises(BadRequest):
            await client.quantize(QuantizeRequest((await starter_of(client)).id, "Q8_0"))
        job = await done(client, await client.quantize(request))
        assert "noise-Q8_0.gguf" in job.result
        made = await installed(client, "noise-Q8_0")
        assert made is not None
        assert made.quantization == "Q8_0"
        assert abs(made.size_bytes - preview.size_bytes) <= 0.001 * made.size_bytes
        await client.load_and_wait(LoadRequest(made.id, LoadOptions(n_ctx=512)))
        await unload_all(client)

    run(host, work)


def test_when_quantizing_is_cancelled_then_nothing_is_left(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        source = host.data.models / "local" / "large" / "large-F16.gguf"
        source.parent.mkdir(parents=True, exist_ok=True)
        write_random_model(source, Shape(1024, 12, 4096, 8, 8), name="large")
        job = await client.quantize(QuantizeRequest("large-f16", "Q6_K"))

        async with client.events() as events:
            async for event in events:
                if _is_converting(event, job.id):
                    break
        await client.cancel_job(job.id)
        assert (await ended(client, job)).state == "cancelled"
        assert [path.name for path in source.parent.iterdir()] == [source.name]
        await client.remove("large-f16")

    run(host, work)


def _is_converting(event: HostEvent, job_id: str) -> bool:
    return isinstance(event, JobChanged) and event.job.id == job_id and event.job.stage == "Converting"


def test_when_files_are_imported_then_they_are_listed_and_other_programs_files_stay(
    host: HostUnderTest, tmp_path: Path
) -> None:
    async def work(client: HostClient) -> None:
        source = write_random_model(tmp_path / "ein Modell ü.gguf", Shape(64, 2, 128, 4, 2, n_vocab=500))
        job = await done(client, await client.import_files(ImportRequest(str(source))))
        assert job.result
        copied = await installed(client, "ein Modell ü")
        assert copied is not None
        assert Path(copied.path).is_relative_to(host.data.models)
        assert source.is_file()
        with pytest.raises(BadRequest):
            await client.import_files(ImportRequest(str(tmp_path / "nothing.gguf")))
        folder = tmp_path / "more models"
        folder.mkdir()
        write_random_model(folder / "elsewhere.gguf", Shape(64, 2, 128, 4, 2, n_vocab=500), seed=2)
        state = await client.add_folder(str(folder))
        assert str(folder) in {one.path for one in state.folders}
        assert await installed(client, "elsewhere") is not None
        state = await client.remove_folder(str(folder))
        assert str(folder) not in {one.path for one in state.folders}
        assert await installed(client, "elsewhere") is None
        with pytest.raises(NotAllowed):
            await client.remove((await starter_of(client)).id)

    run(host, work)


def test_when_the_main_folder_moves_then_all_models_are_there_and_work(host: HostUnderTest, tmp_path: Path) -> None:
    async def work(client: HostClient) -> None:
        before = {model.id for model in await client.models()}
        target = tmp_path / "new place"
        await done(client, await client.move_main_folder(str(target)))
        assert (await client.models_options()).main_folder == str(target)
        after = await client.models()
        assert {model.id for model in after} == before
        moved = await installed(client, "starter-copy")
        assert moved is not None
        assert Path(moved.path).is_relative_to(target)
        await client.load_and_wait(LoadRequest(moved.id, LoadOptions(n_ctx=512)))
        await unload_all(client)
        await done(client, await client.move_main_folder(str(host.data.models)))

    run(host, work)


def test_when_asked_to_write_settings_then_another_start_reads_them(host: HostUnderTest) -> None:
    async def work(client: HostClient) -> None:
        options = await client.models_options()
        changed = ModelsOptions(hub_endpoint=options.hub_endpoint, max_loaded=3, idle_unload_s=600)
        assert await client.set_models_options(changed) == changed
        model = await starter_of(client)
        await client.load_and_wait(LoadRequest(model.id, LoadOptions(n_ctx=512)))
        (loaded,) = (await client.status()).models
        assert _idle_left_s(loaded) == pytest.approx(600, abs=30)
        await unload_all(client)
        await client.set_models_options(options)

    run(host, work)


def _idle_left_s(loaded: LoadedModel) -> float:
    assert loaded.unload_at_s is not None
    return loaded.unload_at_s - time.time()  # noqa: TID251 - what the host tells is wall clock
