"""Planned memory against what real loads then took: `python -m tests.bench.plan [--json] [--quick]`.

Models: the starter model, and models of every kind of memory with weights that llama.cpp wrote itself. Each is planned
by the dry-run process from its header and then loaded as a worker loads it, on the processor alone, with a part of its
layers on a second device, with all of them there, with tokens guessed ahead, and as a draft model; the second device is
a node on the loopback address, which llama.cpp treats as a GPU. Three contexts, two cache types. Every part of every
device is compared: weights, KV cache and recurrent state, compute buffers, logits, projector.

Then each file is planned once more as one that is not here: served by a hub on the loopback address, of which only the
headers are fetched.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runtime.fit.defaults import CPU_ONLY, Placement, can_roll_back, experts_in_ram, resolve, resolve_draft
from runtime.gguf.architecture import ModelShape
from runtime.gguf.parts import read_shape
from runtime.library.hub.headers import HeaderCache
from runtime.library.hub.hub import Hub
from runtime.library.starter import find_starter
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory
from runtime.messages.quantize import QuantizeAnswer, QuantizeDone, QuantizeOrder
from runtime.options import KvType, LoadOptions, ModelsOptions
from runtime.paths import DataFolder
from runtime.probe.report import DryRun
from runtime.units import format_bytes
from tests.bench.command import run_part
from tests.fakes.fake_hub import FakeHub, FakeRepo
from tests.support.architectures import Case, measure, write_metadata
from tests.support.load_child import LoadChild
from tests.support.probe_child import NodeChild, ProbeChild
from tests.support.projector_model import write_projector

MOST_ERROR = 0.01
MOST_FETCHED = 0.10
CONTEXTS = (1024, 4096, 16_384)
KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0")
PARTS = ("weight_bytes", "context_bytes", "compute_bytes", "output_bytes", "projector_bytes")
FREE_BYTES = 16 * 10**9
"""What the plans may take; the contexts are given, so it only decides about flash attention."""
N_EMBD = 512

_BASE = {
    "embedding_length": N_EMBD,
    "vocab_size": 8192,
    "block_count": 6,
    "feed_forward_length": 1536,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "context_length": 32_768,
}
_EXPERTS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 512}
CASES = (
    Case("llama", {**_BASE, "attention.head_count_kv": 8, "rope.dimension_count": 64}, "dense"),
    Case("llama", {**_BASE, "rope.dimension_count": 64}, "grouped-query"),
    Case("qwen3moe", {**_BASE, **_EXPERTS, "rope.dimension_count": 64}, "experts"),
    Case("gemma3", {**_BASE, "attention.sliding_window": 512, "rope.dimension_count": 64}, "sliding window"),
    Case(
        "mamba",
        {
            **_BASE,
            "attention.head_count": 0,
            "attention.head_count_kv": 0,
            "ssm.group_count": 0,
            "ssm.inner_size": 2 * N_EMBD,
        },
        "recurrent",
    ),
    Case("falcon-h1", {**_BASE, "rope.dimension_count": 64}, "hybrid"),
)
WITH_PROJECTOR = "sliding window"


class Subject(msgspec.Struct, frozen=True):
    """A model to plan."""

    name: str
    path: str
    projector: str = ""


class Row(msgspec.Struct, frozen=True):
    """One plan and the load that followed it. `error` is the worst of all parts of all devices."""

    model: str
    devices: str
    kv: str
    n_ctx: int
    planned_bytes: dict[str, int]
    actual_bytes: dict[str, int]
    error: float
    part: str
    same_layers: bool


class Remote(msgspec.Struct, frozen=True):
    """A plan from fetched headers against the one from the file."""

    model: str
    size_bytes: int
    fetched_bytes: int
    fetched_share: float
    is_same: bool


class Report(msgspec.Struct, frozen=True):
    """All rows, and what was missed."""

    rows: tuple[Row, ...]
    remote: tuple[Remote, ...]
    missed: tuple[str, ...]


def make_subjects(folder: Path) -> list[Subject]:
    """Write the models."""
    metadata = [write_metadata(case, folder / f"{case.label.replace(' ', '-')}.gguf") for case in CASES]
    for case, found in zip(CASES, measure(CASES, metadata), strict=True):
        if isinstance(found, str):
            raise SystemExit(f"llama.cpp did not make the model '{case.label}': {found}")
    starter = find_starter()
    if starter is None:
        raise SystemExit("the starter model is not installed")
    subjects = [Subject("starter", str(starter))]
    subjects += [
        Subject(case.label, str(path.with_suffix(".model.gguf"))) for case, path in zip(CASES, metadata, strict=True)
    ]
    seeing = next(subject for subject in subjects if subject.name == WITH_PROJECTOR)
    subjects.append(Subject("its Q4_K_M", str(quantize(Path(seeing.path), folder / "quantized.gguf"))))
    projector = write_projector(folder / "mmproj-F16.gguf", n_embd_text=N_EMBD)
    return [*subjects, Subject("with projector", seeing.path, str(projector))]


def quantize(source: Path, target: Path) -> Path:
    """llama.cpp keeps such weights in another order in system memory, and a tied output layer a second time."""
    order = QuantizeOrder(str(source), "Q4_K_M", str(target))
    with subprocess.Popen(
        [sys.executable, "-m", "runtime.worker.quantize"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(order) + b"\n")
        child.stdin.flush()
        last = child.stdout.read().splitlines()[-1]
    if not isinstance(msgspec.json.decode(last, type=QuantizeAnswer), QuantizeDone):
        raise SystemExit(f"the model was not quantized: {last.decode()}")
    return target


def placements(shape: ModelShape, device: str, node: str) -> Iterator[tuple[str, Placement]]:
    yield "CPU", CPU_ONLY
    half = shape.n_layer // 2
    experts = (experts_in_ram(range(shape.n_layer - half, shape.n_layer)),) if shape.n_expert else ()
    yield f"CPU + {half} on node", Placement(half, (device,), nodes=(node,), overrides=experts)
    yield "all on node", Placement(shape.n_layer + 1, (device,), nodes=(node,))


def compare(planned: Measured, actual: Measured) -> tuple[float, str]:
    """The worst relative error, and whose it is."""
    worst, where = 0.0, ""
    by_name = {part.device: part for part in actual.memory}
    for name in {part.device for part in planned.memory} | set(by_name):
        plan = next((part for part in planned.memory if part.device == name), DeviceMemory(name))
        real = by_name.get(name, DeviceMemory(name))
        for field in PARTS:
            one, other = getattr(plan, field), getattr(real, field)
            error = abs(one - other) / max(one, other) if one != other else 0.0
            if error > worst:
                worst, where = error, f"{name} {field.removesuffix('_bytes')}"
    return worst, where


def totals(measured: Measured) -> dict[str, int]:
    return {part.device: part.total_bytes for part in measured.memory}


def measure_rows(subjects: list[Subject], contexts: tuple[int, ...]) -> list[Row]:
    rows: list[Row] = []
    with NodeChild() as node, ProbeChild() as probe:
        device = next(found.name for found in probe.devices((node.address,)).compute if found.node)
        for subject in subjects:
            shape = read_shape(Path(subject.path))
            with LoadChild() as loads:
                for (label, kv), requests in asked(subject, shape, contexts, device, node.address).items():
                    plans = [probe.dry_run(one) for one in requests]
                    actuals = [loads.load(one) for one in requests]
                    for n_ctx, plan, actual in zip(contexts, plans, actuals, strict=True):
                        error, part = compare(plan, actual)
                        rows.append(
                            Row(
                                model=subject.name,
                                devices=label,
                                kv=kv,
                                n_ctx=n_ctx,
                                planned_bytes=totals(plan),
                                actual_bytes=totals(actual),
                                error=error,
                                part=part,
                                same_layers=plan.n_layer_on == actual.n_layer_on,
                            )
                        )
    return rows


def asked(
    subject: Subject, shape: ModelShape, contexts: tuple[int, ...], device: str, node: str
) -> dict[tuple[str, KvType], list[DryRun]]:
    """What is planned and loaded of one model: for each place and cache type, a request a context."""
    found: dict[tuple[str, KvType], list[DryRun]] = {}
    for label, placement in placements(shape, device, node):
        for kv in KV_TYPES:
            found[label, kv] = [request(subject, shape, n_ctx, kv, placement) for n_ctx in contexts]
    if can_roll_back(shape, 0) and not subject.projector:
        for n_ctx in contexts:
            for label, one in with_drafts(subject, shape, n_ctx):
                found.setdefault((label, "f16"), []).append(one)
    return found


def request(subject: Subject, shape: ModelShape, n_ctx: int, kv: KvType, placement: Placement) -> DryRun:
    options = LoadOptions(n_ctx=n_ctx, type_k=kv, type_v=kv)
    resolved = resolve(shape, options, n_cores=2, free_bytes=FREE_BYTES, placement=placement)
    return DryRun(subject.path, resolved, subject.projector)


def with_drafts(subject: Subject, shape: ModelShape, n_ctx: int) -> Iterator[tuple[str, DryRun]]:
    """The model where tokens are guessed ahead, which takes more rows of logits, and as the draft model of itself."""
    options = LoadOptions(n_ctx=n_ctx, speculation="lookup")
    resolved = resolve(shape, options, n_cores=2, free_bytes=FREE_BYTES)
    yield "CPU, guesses", DryRun(subject.path, resolved)
    yield "CPU, as a draft", DryRun(subject.path, resolve_draft(shape, options, resolved, n_cores=2))


def measure_remote(subjects: list[Subject], folder: Path) -> list[Remote]:
    repos: dict[str, FakeRepo] = {}
    for subject in subjects:
        files = {Path(path).name: Path(path).read_bytes() for path in (subject.path, subject.projector) if path}
        # No weights are fetched, so nothing is checked against their hashes.
        repos[f"bench/{_repo(subject)}"] = FakeRepo(files=files, told_sha256=dict.fromkeys(files, "0" * 64))
    found: list[Remote] = []
    with FakeHub(repos) as hub_server, ProbeChild() as probe:
        data = DataFolder(folder / "data")
        hub = Hub(data, ModelsOptions(hub_endpoint=hub_server.endpoint))
        headers = HeaderCache(data.headers, hub)
        for subject in subjects:
            remote = headers.fetch(f"bench/{_repo(subject)}", Path(subject.path).name)
            shape = read_shape(Path(subject.path))
            size_bytes = sum(Path(path).stat().st_size for path in (subject.path, subject.projector) if path)
            here = probe.dry_run(request(subject, shape, 4096, "f16", CPU_ONLY))
            there = probe.dry_run(
                DryRun(
                    str(remote.paths[0]),
                    request(subject, read_shape(remote.paths[0]), 4096, "f16", CPU_ONLY).resolved,
                    str(remote.projector) if remote.projector and subject.projector else "",
                )
            )
            found.append(
                Remote(
                    model=subject.name,
                    size_bytes=size_bytes,
                    fetched_bytes=remote.fetched_bytes,
                    fetched_share=remote.fetched_bytes / size_bytes,
                    is_same=here == there,
                )
            )
    return found


def _repo(subject: Subject) -> str:
    return subject.name.replace(" ", "-")


def judge(rows: list[Row], remote: list[Remote]) -> tuple[str, ...]:
    missed: list[str] = []
    for row in rows:
        where = f"{row.model}, {row.devices}, {row.kv}, {row.n_ctx:,} tokens"
        if row.error > MOST_ERROR:
            missed.append(f"plan off by {row.error:.2%} in {row.part} ({where})")
        if not row.same_layers:
            missed.append(f"layers elsewhere than planned ({where})")
    for entry in remote:
        if entry.fetched_share >= MOST_FETCHED:
            missed.append(f"{entry.fetched_share:.1%} of the file fetched for a plan ({entry.model})")
        if not entry.is_same:
            missed.append(f"the plan of the remote file is another ({entry.model})")
    return tuple(missed)


def run(*, quick: bool) -> Report:
    with tempfile.TemporaryDirectory(prefix="deskside-bench-") as name:
        folder = Path(name)
        subjects = make_subjects(folder)
        rows = measure_rows(subjects, CONTEXTS[:1] if quick else CONTEXTS)
        remote = measure_remote(subjects, folder)
    return Report(tuple(rows), tuple(remote), judge(rows, remote))


def show(report: Report) -> None:
    print("memory planned by dry run against the load that followed (worst part of any device, all contexts together):")
    print(f"{'model':16}{'devices':18}{'KV':6}{'largest context':>16}{'planned':>20}{'actual':>20}{'worst':>9}")
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in report.rows:
        groups.setdefault((row.model, row.devices, row.kv), []).append(row)
    for (model, devices, kv), rows in groups.items():
        largest = max(rows, key=lambda row: row.n_ctx)
        worst = max(row.error for row in rows)
        planned, actual = (
            " + ".join(format_bytes(size) for size in sizes.values())
            for sizes in (largest.planned_bytes, largest.actual_bytes)
        )
        print(f"{model:16}{devices:18}{kv:6}{largest.n_ctx:>16,}{planned:>20}{actual:>20}{worst:>9.3%}")
    print(f"{len(report.rows)} loads, worst error {max(row.error for row in report.rows):.4%} (bound {MOST_ERROR:.0%})")
    print("plans of files that are only on a hub:")
    for entry in report.remote:
        print(
            f"{entry.model:16}{format_bytes(entry.fetched_bytes):>10} of {format_bytes(entry.size_bytes):>8} fetched"
            f" ({entry.fetched_share:.1%}), plan {'the same' if entry.is_same else 'DIFFERENT'}"
        )


def main() -> int:
    return run_part("tests.bench.plan", __doc__, "one context only", run, show)


if __name__ == "__main__":
    sys.exit(main())
