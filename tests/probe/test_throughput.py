import subprocess
import sys

import msgspec
import pytest

from runtime.messages.fit import MachineSpeed
from tests.support.probe_child import NodeChild

pytestmark = pytest.mark.e2e

USUAL = {"Q4_K", "Q6_K", "Q8_0", "Q4_0", "F16", "F32"}


@pytest.fixture(scope="module")
def speed() -> MachineSpeed:
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.probe.throughput", "--budget", "0.2"],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert ended.stdout.count(b"\n") == 1
    return msgspec.json.decode(ended.stdout, type=MachineSpeed)


def test_when_the_processor_is_measured_then_every_usual_format_has_figures(speed: MachineSpeed) -> None:
    found = {entry.tensor_type: entry for entry in speed.throughput if entry.device == "CPU"}
    assert found.keys() >= USUAL
    for name in USUAL:
        # From the slowest board computer to the fastest server.
        assert 1e7 < found[name].read_bps < 5e12
        assert 1e8 < found[name].flops < 1e15


def test_when_the_processor_is_measured_then_the_rest_of_a_layer_and_its_attention_have_figures(
    speed: MachineSpeed,
) -> None:
    assert 1e-7 < speed.layer_s["CPU"] < 0.1
    assert 0 < speed.element_s["CPU"] < 1e-4
    assert speed.memory_bps["CPU"] > 1e7
    assert any(entry.kv_type == "f16" and not entry.flash for entry in speed.attention)
    assert {entry.kv_type for entry in speed.attention if entry.flash} == {"f16", "q8_0", "q4_0"}
    assert speed.n_threads >= 1


def test_when_sizes_grow_then_the_caches_serve_no_more_of_them(speed: MachineSpeed) -> None:
    sizes, shares = zip(*speed.cached_share, strict=True)
    assert list(sizes) == sorted(sizes)
    assert list(shares) == sorted(shares, reverse=True)
    assert all(0 <= share <= 1 for share in shares)


def test_when_it_is_told_how_busy_the_machine_was_then_it_is_a_share(speed: MachineSpeed) -> None:
    assert 0 <= speed.busy <= 1
    assert 0 < speed.took_s < 60


def test_when_a_node_is_measured_then_the_time_it_computes_counts_and_not_the_time_to_tell_it() -> None:
    with NodeChild() as node:
        ended = subprocess.run(
            [sys.executable, "-m", "runtime.probe.throughput", "--budget", "0.1", "--node", node.address],
            capture_output=True,
            timeout=120,
            check=True,
        )
    speed = msgspec.json.decode(ended.stdout, type=MachineSpeed)
    name = f"RPC0[{node.address}]"
    by_device = {entry.device: entry for entry in speed.throughput if entry.tensor_type == "Q8_0"}
    # The node is this very machine.
    assert by_device[name].read_bps < 10 * by_device["CPU"].read_bps
    assert 0 < speed.hop_s[name] < 5
    assert speed.link_bps[name] > 1e5
