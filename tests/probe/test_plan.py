"""Dry runs against real loads, and what bad files do to the process that makes them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.errors import (
    BadRequest,
    FileTruncated,
    ModelLoadFailed,
    NotGguf,
    UnknownArchitecture,
)
from runtime.fit.context_memory import context_bytes
from runtime.fit.defaults import CPU_ONLY, Placement, experts_in_ram, resolve
from runtime.fit.formula import estimate
from runtime.gguf.heads import with_heads
from runtime.gguf.parts import read_headers, read_shape
from runtime.gguf.sparse import write_sparse
from runtime.messages.fit import Measured
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions
from runtime.probe.report import DryRun
from tests.fakes.engine_rig import starter_path
from tests.fakes.tiny_gguf import write_mamba, write_transformer, write_unknown
from tests.fakes.tiny_heads import write_with_heads
from tests.support.architectures import CASES, measure, write_metadata
from tests.support.load_child import LoadChild
from tests.support.probe_child import NodeChild, ProbeChild
from tests.support.projector_model import write_projector
from tests.support.random_model import Shape, write_random_model
from tests.support.sparse_models import MODELS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def probe() -> Iterator[ProbeChild]:
    with ProbeChild() as child:
        yield child


@pytest.fixture(scope="module")
def loads() -> Iterator[LoadChild]:
    with LoadChild() as child:
        yield child


@pytest.fixture(scope="module")
def node() -> Iterator[NodeChild]:
    with NodeChild() as child:
        yield child


def resolved(path: Path, placement: Placement = CPU_ONLY, **options: object) -> ResolvedLoad:
    chosen = LoadOptions(**{"n_ctx": 1024, **options})  # type: ignore[arg-type]
    return resolve(read_shape(path), chosen, n_cores=2, free_bytes=8 * 10**9, placement=placement)


def by_device(measured: Measured) -> dict[str, tuple[int, ...]]:
    return {
        part.device: (part.weight_bytes, part.context_bytes, part.compute_bytes, part.output_bytes)
        for part in measured.memory
    }


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_when_a_load_is_tried_first_then_it_takes_what_was_said(probe: ProbeChild, loads: LoadChild, kv: str) -> None:
    request = DryRun(str(starter_path()), resolved(starter_path(), type_k=kv, type_v=kv))
    planned, actual = probe.dry_run(request), loads.load(request)
    assert by_device(planned) == by_device(actual)
    assert planned.n_layer_on == actual.n_layer_on == {"CPU": 31}
    assert all(size > 0 for size in by_device(planned)["CPU"])


def test_when_a_node_takes_part_then_each_device_takes_what_was_said(
    probe: ProbeChild, loads: LoadChild, node: NodeChild
) -> None:
    report = probe.devices((node.address,))
    assert report.problems == {}
    lent = report.compute[0]
    assert (lent.kind, lent.node, lent.name) == ("node", node.address, f"RPC0[{node.address}]")
    assert report.compute[-1].name == "CPU"
    placement = Placement(10, (lent.name,), nodes=(node.address,))
    request = DryRun(str(starter_path()), resolved(starter_path(), placement))
    planned = probe.dry_run(request)
    # The probe lets go of the node by itself, or the load would wait for ever.
    actual = loads.load(request)
    assert by_device(planned) == by_device(actual)
    assert planned.n_layer_on == actual.n_layer_on == {"CPU": 21, lent.name: 10}
    assert set(by_device(planned)) == {"CPU", lent.name}


def test_when_experts_stay_in_ram_then_so_it_was_said(
    probe: ProbeChild, loads: LoadChild, node: NodeChild, tmp_path: Path
) -> None:
    path = write_random_model(
        tmp_path / "moe.gguf",
        Shape(n_embd=256, n_layer=4, n_ff=256, n_head=4, n_head_kv=2, n_vocab=1000, n_expert=8, n_expert_used=2),
    )
    lent = f"RPC0[{node.address}]"
    whole = Placement(5, (lent,), nodes=(node.address,))
    partial = Placement(5, (lent,), nodes=(node.address,), overrides=(experts_in_ram((0, 1)),), n_cpu_moe=2)
    request = DryRun(str(path), resolved(path, partial))
    planned, actual = probe.dry_run(request), loads.load(request)
    assert by_device(planned) == by_device(actual)
    moved = by_device(probe.dry_run(DryRun(str(path), resolved(path, whole))))[lent][0] - by_device(planned)[lent][0]
    assert moved == sum(layer.expert_bytes for layer in read_shape(path).layers[:2])


def test_when_a_model_has_a_projector_then_it_is_counted_too(
    probe: ProbeChild, loads: LoadChild, tmp_path: Path
) -> None:
    path = write_transformer(tmp_path / "text.gguf", architecture="gemma3", sliding_window=32)
    projector = write_projector(tmp_path / "mmproj.gguf", n_embd_text=64)
    request = DryRun(str(path), resolved(path), str(projector))
    planned, actual = (found.memory[0].projector_bytes for found in (probe.dry_run(request), loads.load(request)))
    assert planned > projector.stat().st_size
    assert planned == pytest.approx(actual, rel=0.01)
    assert probe.dry_run(DryRun(str(path), resolved(path))).memory[0].projector_bytes == 0


def test_when_only_the_header_is_here_then_the_answer_is_the_same(probe: ProbeChild, tmp_path: Path) -> None:
    (header,) = read_headers(starter_path())
    with starter_path().open("rb") as file:
        head = file.read(header.data_offset)
    sparse = tmp_path / "header only.gguf"
    write_sparse(head, starter_path().stat().st_size, sparse)
    asked = resolved(starter_path())
    assert probe.dry_run(DryRun(str(sparse), asked)) == probe.dry_run(DryRun(str(starter_path()), asked))


def test_when_only_the_context_differs_then_the_model_is_kept_and_the_answer_is_quick(probe: ProbeChild) -> None:
    import time

    path = starter_path()
    probe.dry_run(DryRun(str(path), resolved(path)))
    took_s: list[float] = []
    sizes: list[int] = []
    for n_ctx in (2048, 3072, 4096, 6144, 8192):
        request = DryRun(str(path), resolved(path, n_ctx=n_ctx))
        started_s = time.perf_counter()
        sizes.append(probe.dry_run(request).memory[0].context_bytes)
        took_s.append(time.perf_counter() - started_s)
    assert sizes == sorted(set(sizes))
    # A model opened anew takes ten times as long as a context.
    started_s = time.perf_counter()
    probe.dry_run(DryRun(str(path), resolved(path), revision="another"))
    assert min(took_s) < (time.perf_counter() - started_s) / 3


@pytest.mark.parametrize("name", ["llama-8b", "qwen3-30b-a3b", "gemma3-27b", "mamba-2.8b"])
def test_when_a_large_model_is_asked_about_then_sizes_by_the_log_are_those_of_the_breakdown(
    probe: ProbeChild, tmp_path: Path, name: str
) -> None:
    path = MODELS[name]().write(tmp_path / "large.gguf")
    request = DryRun(str(path), resolved(path, n_ctx=8192))
    with ProbeChild("--by-log") as by_log:
        told, printed = probe.dry_run(request).memory, by_log.dry_run(request).memory
    assert told[0].weight_bytes > 10**9
    for field in ("weight_bytes", "context_bytes", "compute_bytes", "output_bytes"):
        assert getattr(printed[0], field) == pytest.approx(getattr(told[0], field), rel=0.01), field


def test_when_a_model_is_split_then_all_its_parts_count(probe: ProbeChild, tmp_path: Path) -> None:
    import gguf

    whole = write_transformer(tmp_path / "whole.gguf")
    reader = gguf.GGUFReader(whole)
    tensors = list(reader.tensors)
    parts = (tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :])
    for number, part in enumerate(parts):
        writer = gguf.GGUFWriter(tmp_path / f"split-{number + 1:05d}-of-00002.gguf", "llama")
        for field_name, info in reader.fields.items():
            if number == 0 and not field_name.startswith(("GGUF.", "general.architecture")):
                writer.add_key_value(
                    field_name, info.contents(), info.types[0], info.types[-1] if len(info.types) > 1 else None
                )
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor in part:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    first = tmp_path / "split-00001-of-00002.gguf"
    asked = resolved(whole)
    assert resolved(first) == asked
    assert by_device(probe.dry_run(DryRun(str(first), asked))) == by_device(probe.dry_run(DryRun(str(whole), asked)))
    (tmp_path / "split-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelLoadFailed):
        probe.dry_run(DryRun(str(first), asked, revision="without the second"))


def test_when_memory_is_recurrent_then_its_state_is_the_context(probe: ProbeChild, tmp_path: Path) -> None:
    path = write_mamba(tmp_path / "mamba.gguf")
    asked = resolved(path)
    state = sum(layer.state_bytes for layer in read_shape(path).layers)
    assert probe.dry_run(DryRun(str(path), asked)).memory[0].context_bytes == state * asked.n_seq_max


@pytest.mark.parametrize("architecture", ["glm4moe", "deepseek2", "qwen35"])
def test_when_a_model_guesses_with_heads_of_its_own_then_their_context_is_counted_too(
    probe: ProbeChild, loads: LoadChild, tmp_path: Path, architecture: str
) -> None:
    path = write_with_heads(tmp_path / "heads.gguf", architecture, n_trunk=4)
    plain, shape = resolved(path), with_heads(read_shape(path))
    asked = resolve(shape, LoadOptions(n_ctx=1024, speculation="mtp"), n_cores=2, free_bytes=8 * 10**9)
    without, planned = probe.dry_run(DryRun(str(path), plain)), probe.dry_run(DryRun(str(path), asked))
    assert by_device(planned) == by_device(loads.load(DryRun(str(path), asked)))
    (less,), (more,) = without.memory, planned.memory
    assert more.weight_bytes - less.weight_bytes == shape.heads[0].weight_bytes
    assert more.context_bytes == context_bytes(
        shape,
        n_cells=asked.n_cells,
        n_seq_max=asked.n_seq_max,
        n_ubatch=asked.n_ubatch,
        type_k=asked.type_k,
        type_v=asked.type_v,
        n_rs_seq=asked.n_rs_seq,
    )
    assert more.compute_bytes > less.compute_bytes
    (guessed,) = estimate(shape, asked).memory
    assert guessed.weight_bytes == more.weight_bytes
    assert guessed.context_bytes == more.context_bytes
    assert guessed.output_bytes == pytest.approx(more.output_bytes, abs=64 * 1024)  # the log rounds


def test_when_one_sequence_alone_needs_the_larger_buffer_then_that_is_what_was_said(
    probe: ProbeChild, loads: LoadChild, tmp_path: Path
) -> None:
    case = next(case for case in CASES if case.architecture == "minimax-01")
    metadata = write_metadata(case, tmp_path / "made.gguf")
    (made,) = measure([case], [metadata])
    assert not isinstance(made, str), made
    path = metadata.with_suffix(".model.gguf")
    for n_parallel in (1, 4):
        request = DryRun(str(path), resolved(path, n_parallel=n_parallel))
        assert by_device(probe.dry_run(request)) == by_device(loads.load(request))


def test_when_a_file_is_bad_then_the_error_is_that_of_the_load_and_the_next_answer_comes(
    probe: ProbeChild, tmp_path: Path
) -> None:
    good = write_transformer(tmp_path / "good.gguf")
    asked = resolved(good)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(good.read_bytes()[:-20_000])
    page = tmp_path / "page.gguf"
    page.write_text("<html>404</html>")
    for path, kind in (
        (cut, FileTruncated),
        (page, NotGguf),
        (write_unknown(tmp_path / "new.gguf"), UnknownArchitecture),
        (tmp_path / "none.gguf", ModelLoadFailed),
    ):
        with pytest.raises(kind, match=re.escape(path.name)):
            probe.dry_run(DryRun(str(path), asked))
    with pytest.raises(ModelLoadFailed, match="projector"):
        probe.dry_run(DryRun(str(good), asked, str(good)))
    with pytest.raises(ModelLoadFailed, match="CUDA3"):
        probe.dry_run(DryRun(str(good), resolved(good, Placement(2, ("CUDA3",)))))
    with pytest.raises(BadRequest, match="flash attention"):
        probe.dry_run(DryRun(str(good), msgspec.structs.replace(asked, type_v="q8_0", flash_attn="off")))
    assert probe.dry_run(DryRun(str(good), asked)).memory


def test_when_a_file_is_changed_in_place_then_the_model_is_opened_anew(probe: ProbeChild, tmp_path: Path) -> None:
    path = write_transformer(tmp_path / "a.gguf")
    asked = resolved(path)
    before = probe.dry_run(DryRun(str(path), asked)).memory[0].weight_bytes
    shutil.copy(write_transformer(tmp_path / "b.gguf", architecture="gemma3", sliding_window=32), path)
    assert probe.dry_run(DryRun(str(path), asked)).memory[0].weight_bytes != before


def test_when_a_node_is_not_there_then_it_is_a_problem_and_no_crash(probe: ProbeChild) -> None:
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    report = probe.devices((address,))
    assert address in report.problems[address]
    assert [device.name for device in report.compute] == ["CPU"]
    placement = Placement(3, (f"RPC0[{address}]",), nodes=(address,))
    with pytest.raises(ModelLoadFailed, match=re.escape(address)):
        probe.dry_run(DryRun(str(starter_path()), resolved(starter_path(), placement)))


def test_when_standard_input_ends_then_the_process_ends_and_printed_nothing_else() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.probe.plan"], input=b"", capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, b"")
