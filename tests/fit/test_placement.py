import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.fit.placement import Room, pack, pack_even, unit_devices, units_on
from runtime.messages.load import ResolvedLoad

LOAD = ResolvedLoad(
    n_ctx=512, n_parallel=1, n_seq_max=1, n_cells=512, n_batch=512, n_ubatch=512, n_threads=1, n_gpu_layers=0
)


def load(n_gpu_layers: int, devices: tuple[str, ...], split: tuple[float, ...] = ()) -> ResolvedLoad:
    import msgspec

    return msgspec.structs.replace(LOAD, n_gpu_layers=n_gpu_layers, devices=devices, tensor_split=split)


def test_when_there_are_no_devices_then_everything_is_on_the_processor() -> None:
    assert units_on(4, load(99, ())) == {"CPU": 5}


def test_when_some_layers_are_offloaded_then_the_last_ones_with_the_output_are() -> None:
    assert unit_devices(4, load(2, ("A",))) == ("CPU", "CPU", "CPU", "A", "A")


def test_when_all_are_offloaded_then_one_more_than_layers_is() -> None:
    assert units_on(4, load(99, ("A",))) == {"A": 5}


def test_when_split_by_counts_then_each_device_gets_its_count() -> None:
    assert units_on(80, load(81, ("A", "B", "C"), (17, 50, 14))) == {"A": 17, "B": 50, "C": 14}


def test_when_a_share_is_zero_then_the_device_gets_nothing() -> None:
    assert units_on(4, load(5, ("A", "B"), (0.0, 1.0))) == {"B": 5}


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8).filter(any))
def test_when_split_by_any_counts_then_llama_cpp_places_exactly_those(counts: list[int]) -> None:
    names = tuple(f"G{index}" for index in range(len(counts)))
    split = tuple(float(count) for count in counts)
    found = units_on(sum(counts) - 1, load(sum(counts), names, split))
    assert found == {name: count for name, count in zip(names, counts, strict=True) if count}


def test_when_packing_then_devices_are_filled_in_order() -> None:
    assert pack([10] * 5, [Room(35), Room(100)]) == (3, 2)


def test_when_it_cannot_be_packed_then_none() -> None:
    assert pack([10] * 5, [Room(35), Room(15)]) is None


def test_when_the_output_layer_costs_more_then_its_device_must_have_that_too() -> None:
    assert pack([10] * 5, [Room(30), Room(20, output_bytes=5)]) is None
    assert pack([10] * 5, [Room(30), Room(25, output_bytes=5)]) == (3, 2)


def test_when_packing_evenly_then_no_device_is_fuller_than_needed() -> None:
    assert pack_even([10] * 8, [Room(100), Room(100)]) == (4, 4)


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=60),
    st.lists(st.integers(-10, 2000), min_size=1, max_size=5),
    st.booleans(),
)
def test_when_packed_then_all_units_are_placed_and_no_room_is_exceeded(
    units: list[int], rooms: list[int], is_even: bool
) -> None:
    counts = (pack_even if is_even else pack)(units, [Room(room) for room in rooms])
    if counts is None:
        assert sum(units) > sum(max(room, 0) for room in rooms) - len(rooms) * 100
        return
    assert sum(counts) == len(units)
    start = 0
    for count, room in zip(counts, rooms, strict=True):
        assert sum(units[start : start + count]) <= max(room, 0)
        start += count


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_when_shares_fall_on_a_border_then_floats_of_llama_cpp_decide(share: float) -> None:
    found = unit_devices(9, load(10, ("A", "B"), (share, 1 - share)))
    assert found.count("A") + found.count("B") == 10
    assert list(found) == sorted(found)
