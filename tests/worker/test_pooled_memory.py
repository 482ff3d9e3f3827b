"""The second context of a model that also writes: what it takes is known before it is made, or it is not made."""

from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from runtime.options import LoadOptions
from runtime.scheduler.types import Ended
from runtime.worker import breakdown
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.pooling import PooledContext
from tests.fakes.engine_rig import running, starter_path
from tests.fakes.tiny_gguf import write_transformer

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = write_transformer(tmp_path_factory.mktemp("pooled") / "m.gguf")
    loaded = load_model(path, LoadOptions(n_threads=1, n_ctx=2048), lambda _stage, _fraction: None)
    yield loaded
    loaded.close()


@pytest.mark.parametrize("n_tokens", [100, 2000])
@pytest.mark.parametrize("is_starter", [False, True])
def test_when_made_then_it_takes_no_more_than_was_asked_for(model: LlamaModel, is_starter: bool, n_tokens: int) -> None:
    if is_starter:
        model = load_model(starter_path(), LoadOptions(n_threads=1, n_ctx=2048), lambda _stage, _fraction: None)
    context = PooledContext(model)
    context.make_room(n_tokens)
    uses = breakdown.read_breakdown(context._context)
    assert uses is not None
    taken = sum(use.context_bytes + use.compute_bytes for use in uses)
    needed = sum(context.needed_bytes(context.n_cells).values())
    assert taken <= needed <= 3 * taken + 64 * 2**20
    context.close()
    if is_starter:
        model.close()


def test_when_memory_does_not_suffice_then_the_request_says_what_it_needs_and_others_go_on(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(model) as rig:
        assert rig.ask([260, 261, 262], max_tokens=3)[1].usage.completion_tokens == 3
        with monkeypatch.context() as patch:
            little = SimpleNamespace(available=100_000, total=psutil.virtual_memory().total)
            patch.setattr("runtime.worker.devices.psutil.virtual_memory", lambda: little)
            refused = rig.read([260, 261])
            rig.wait_until(lambda: bool(rig.ends[refused]))
        (end,) = rig.ends[refused]
        assert isinstance(end, Ended)
        assert "are free" in end.failure.message
        assert rig.ask([260, 261, 262], max_tokens=3)[1].usage.completion_tokens == 3
        assert len(rig.vectors([260, 261])) == 1
