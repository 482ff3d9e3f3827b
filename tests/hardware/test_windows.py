from runtime.hardware.windows import Adapter, WindowsReader

ARC = Adapter("Intel(R) Arc(TM) B580", r"PCI\VEN_8086&DEV_E20B", 12_000_000_000, "32.0.101")


def test_when_a_card_is_listed_then_name_maker_and_memory_are_told() -> None:
    (gpu,) = WindowsReader(lambda: (ARC,)).read()
    assert (gpu.name, gpu.vendor, gpu.memory_total_bytes, gpu.driver) == (
        "Intel(R) Arc(TM) B580",
        "intel",
        12_000_000_000,
        "32.0.101",
    )


def test_when_a_card_is_nvidias_or_not_hardware_then_it_is_left_out() -> None:
    others = (
        Adapter("NVIDIA GeForce RTX 4090", r"PCI\VEN_10DE&DEV_2684", 24_000_000_000, ""),
        Adapter("Microsoft Basic Render Driver", r"ROOT\BasicRender", None, ""),
        Adapter("", r"PCI\VEN_1002&DEV_744C", None, ""),
    )
    assert WindowsReader(lambda: others).read() == ()


def test_when_read_again_then_the_registry_is_not_asked_again() -> None:
    asked = []

    def adapters() -> tuple[Adapter, ...]:
        asked.append(1)
        return (ARC,)

    reader = WindowsReader(adapters)
    assert reader.read() == reader.read()
    assert len(asked) == 1
