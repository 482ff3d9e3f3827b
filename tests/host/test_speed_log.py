"""What answers taught: only trusted ones, not too often, and kept."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.errors import StorageFault
from runtime.gguf.architecture import ModelShape
from runtime.gguf.parts import read_shape
from runtime.host.model_slot import ModelSlot
from runtime.host.speed_log import MIN_GENERATED_TOKENS, MIN_PROMPT_TOKENS, PERIOD_S, Answer, SpeedLog, trusted
from runtime.library.catalogue import Catalogue
from runtime.library.records import Records
from runtime.messages.api import InstalledModel
from runtime.messages.fit import LoadRecord, SpeedSample
from runtime.messages.load import DeviceMemory
from runtime.messages.shared import ModelFacts, Timings, Usage
from tests.fakes.tiny_gguf import write_transformer
from tests.host.test_room import make_slot

GOOD = Answer(Usage(prompt_tokens=600, completion_tokens=100), Timings(generation_tps=50.0, prompt_tps=500.0))


def loaded_slot(name: str) -> ModelSlot:
    slot = make_slot(name, 100)
    slot.facts = ModelFacts(
        name=name,
        architecture="llama",
        quantization="F32",
        n_params=1,
        size_bytes=100,
        n_layer=2,
        n_vocab=1,
        n_ctx=8192,
        n_ctx_train=8192,
        n_parallel=1,
        has_chat_template=True,
        can_embed=False,
        reasoning=False,
        device_names=("CPU",),
        n_gpu_layers=0,
        kv_bytes=1,
        compute_bytes=1,
        load_s=1.0,
        engine="x",
        memory=(DeviceMemory("CPU", 50),),
        n_layer_on={"CPU": 3},
    )
    return slot


class Rig:
    def __init__(self, tmp_path: Path, records: Records | None = None) -> None:
        self.path = write_transformer(tmp_path / "model.gguf")
        self.records = records or Records(Catalogue(None))
        self.at = 0.0
        self.log = SpeedLog(self.records, self.shape_of, lambda: None, lambda: self.at)

    async def shape_of(self, _model: InstalledModel) -> ModelShape:
        return read_shape(self.path)


def run(tmp_path: Path, work: Callable[[Rig], Coroutine[Any, Any, None]], records: Records | None = None) -> None:
    asyncio.run(work(Rig(tmp_path, records)))


def test_when_loaded_and_answered_then_record_and_sample_are_kept(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        slot = loaded_slot("m")
        rig.log.loaded(slot)
        await rig.log.close()
        record = await rig.log.record("m")
        assert record is not None
        assert (record.plan, record.actual, record.generation_tps) == (slot.plan, (DeviceMemory("CPU", 50),), 0.0)
        rig.log.answered(slot, GOOD)
        await rig.log.close()
        (sample,) = await rig.log.samples()
        assert (sample.model, sample.devices, sample.depth) == ("m", ("CPU",), 650)
        assert (sample.generation_tps, sample.prompt_tps) == (50.0, 500.0)
        assert sample.formula_generation_tps > 0
        assert rig.records.speeds(SpeedSample, "m") == (sample,)
        record = await rig.log.record("m")
        assert record is not None
        assert (record.generation_tps, record.prompt_tps) == (50.0, 500.0)

    run(tmp_path, work)


def test_when_answers_come_quickly_then_one_in_a_while_is_kept(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        slot, other = loaded_slot("m"), loaded_slot("n")
        for _ in range(5):
            rig.log.answered(slot, GOOD)
        rig.log.answered(other, GOOD)
        await rig.log.close()
        assert [sample.model for sample in await rig.log.samples()] == ["m", "n"]
        rig.at = PERIOD_S + 1
        rig.log.answered(slot, GOOD)
        await rig.log.close()
        assert len(await rig.log.samples()) == 3

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("usage", "generation", "prompt"),
    [
        (Usage(MIN_PROMPT_TOKENS, 0, MIN_GENERATED_TOKENS), 50.0, 500.0),
        (Usage(MIN_PROMPT_TOKENS, 1, MIN_GENERATED_TOKENS), 50.0, 0.0),
        (Usage(MIN_PROMPT_TOKENS, 0, MIN_GENERATED_TOKENS - 1), 0.0, 500.0),
        (Usage(5, 0, 5), 0.0, 0.0),
    ],
)
def test_when_few_tokens_stand_behind_a_speed_then_it_is_not_trusted(
    usage: Usage, generation: float, prompt: float
) -> None:
    timings = trusted(Answer(usage, GOOD.timings))
    assert (timings.generation_tps, timings.prompt_tps) == (generation, prompt)


def test_when_guesses_made_an_answer_faster_then_its_speed_teaches_nothing() -> None:
    usage = Usage(MIN_PROMPT_TOKENS, 0, MIN_GENERATED_TOKENS)
    timings = trusted(Answer(usage, replace(GOOD.timings, draft_tokens=4, draft_accepted=3)))
    assert (timings.generation_tps, timings.prompt_tps) == (0.0, GOOD.timings.prompt_tps)


def test_when_nothing_can_be_learnt_then_nothing_is_kept(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        slot = loaded_slot("m")
        rig.log.answered(slot, Answer(Usage(5, 0, 5), GOOD.timings))
        slot.plan = None
        rig.log.answered(slot, GOOD)
        await rig.log.close()
        assert await rig.log.samples() == ()

    run(tmp_path, work)


def test_when_the_catalogue_fails_then_the_host_goes_on(tmp_path: Path) -> None:
    class Broken(Records):
        def save_load(self, record: LoadRecord) -> None:
            raise StorageFault(f"The disk is full: {record.model}.", path="/x")

        def speeds(self, kind: type, key: str | None = None) -> tuple[Any, ...]:
            raise StorageFault(f"The disk is full: {kind}, {key}.", path="/x")

    async def work(rig: Rig) -> None:
        slot = loaded_slot("m")
        rig.log.loaded(slot)
        rig.log.answered(slot, GOOD)
        await rig.log.close()
        assert len(await rig.log.samples()) == 1  # for this run

    run(tmp_path, work, Broken(Catalogue(None)))
