from app.suggest import BYTES_PER_PARAMETER, MOST, ROOM, active_params, suggest, suits
from runtime.messages.fit import Machine, MachineSpeed
from runtime.messages.library import HubEntry
from runtime.messages.load import ComputeDevice

GB = 10**9


def entry(name: str, n_params: float, kind: str = "chat") -> HubEntry:
    return HubEntry(
        repo=f"org/{name.replace(' ', '-')}-GGUF", name=name, publisher="org", n_params=int(n_params), kind=kind
    )


def machine(*, gpu_bytes: int = 0, ram_bytes: int = 24 * GB, read_bps: float = 0.0) -> Machine:
    cpu = ComputeDevice("CPU", "cpu", "cpu", ram_bytes, ram_bytes)
    gpus = (ComputeDevice("CUDA0", "gpu", "gpu", gpu_bytes, gpu_bytes),) if gpu_bytes else ()
    speed = MachineSpeed("key", 1.0, (), {"CPU": read_bps}) if read_bps else None
    return Machine((*gpus, cpu), 8, ram_bytes, ram_bytes, speed=speed)


def test_when_a_model_fits_on_the_gpu_then_it_suits_whatever_the_processor_is() -> None:
    one = entry("Big 14B", 14e9)
    needed = int(14e9 * BYTES_PER_PARAMETER * ROOM)
    assert suits(one, machine(gpu_bytes=needed + 1))
    assert not suits(one, machine(gpu_bytes=needed - 1))


def test_when_there_is_no_gpu_then_only_what_memory_can_read_fast_enough_suits() -> None:
    assert not suits(entry("Middle 8B", 8e9), machine(read_bps=20e9))
    assert suits(entry("Middle 8B", 8e9), machine(read_bps=60e9))
    assert suits(entry("Mix 20B A3B", 20e9), machine(ram_bytes=64 * GB, read_bps=20e9))


def test_when_the_parameters_are_unknown_then_nothing_is_claimed() -> None:
    assert not suits(HubEntry(repo="a/b", name="b", publisher="a"), machine(gpu_bytes=80 * GB))


def test_when_a_name_tells_active_parameters_then_they_count() -> None:
    assert active_params(entry("Mix 30B A3B", 30e9)) == 3e9
    assert active_params(entry("Whole 30B", 30e9)) == 30e9


def test_when_many_suit_then_the_largest_of_each_family_come_first_and_a_quick_one_last() -> None:
    entries = (
        *(entry(f"Alpha {n}B", n * 1e9) for n in range(1, 13)),
        entry("Beta 7B", 7e9),
        entry("Gamma 5B", 5e9),
        entry("Tiny 0.2B", 2e8),
        entry("Vectors 1B", 1e9, "embedding"),
    )
    names = [one.name for one in suggest(entries, machine(gpu_bytes=16 * GB))]
    assert names[:3] == ["Alpha 12B", "Beta 7B", "Gamma 5B"]
    assert len(names) == MOST
    assert names[-1] == "Alpha 3B"
    assert "Vectors 1B" not in names


def test_when_only_few_suit_then_all_of_them_are_shown() -> None:
    entries = (entry("Small 1B", 1e9), entry("Huge 400B", 4e11))
    assert [one.name for one in suggest(entries, machine())] == ["Small 1B"]
    assert suggest((entries[1],), machine()) == ()
