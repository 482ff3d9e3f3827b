import msgspec
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.speed import SpeedView
from app.ui.controls.meters import FULL
from app.ui.frame.chips import chips_of
from app.ui.window import MainWindow
from runtime.messages.api import HardwareChanged
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import hardware_sample
from tests.fakes.fake_host import FakeHost

GPU = GpuSample(
    0,
    "A card",
    "nvidia",
    memory_total_bytes=8_000_000_000,
    memory_used_bytes=6_000_000_000,
    temperature_c=71.0,
    power_w=180.0,
    power_limit_w=200.0,
    throttle_reasons=(),
)


def test_when_there_is_no_gpu_then_chips_show_processor_and_memory() -> None:
    facts = chips_of(hardware_sample())
    assert [fact.text for fact in facts] == ["CPU 12 %", "48 °C", "8.0 / 24.0 GB"]
    assert not any(fact.warns for fact in facts)


def test_when_the_machine_tells_nothing_then_chips_say_not_available() -> None:
    facts = chips_of(HardwareSample(0.0, CpuSample(), MemorySample()))
    assert "not available" in facts[0].text
    assert facts[1].text == "n/a"
    assert "not available" in facts[1].tip
    assert facts[2].text == "not available"


def test_when_there_is_a_gpu_then_chips_show_its_temperature_memory_and_power() -> None:
    facts = chips_of(msgspec.structs.replace(hardware_sample(), gpus=(GPU,)))
    assert [fact.text for fact in facts] == ["71 °C", "6.0 / 8.0 GB", "180 / 200 W"]


def test_when_the_gpu_is_slowed_down_then_the_chip_warns_and_tells_the_limit() -> None:
    hot = msgspec.structs.replace(GPU, throttled=True, throttle_reasons=("The power limit is reached",))
    facts = chips_of(msgspec.structs.replace(hardware_sample(), gpus=(hot,)))
    assert [fact.warns for fact in facts] == [True, False, True]
    assert "Slowed down: The power limit is reached" in facts[2].tip


def test_when_a_gpu_cannot_be_read_then_its_chip_says_why() -> None:
    lost = msgspec.structs.replace(GPU, problem="The card fell off the bus.")
    (fact,) = chips_of(msgspec.structs.replace(hardware_sample(), gpus=(lost,)))
    assert fact.warns
    assert fact.tip == "A card: The card fell off the bus."


def test_when_the_host_tells_a_throttled_gpu_then_the_chip_on_the_bar_turns_amber(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost
) -> None:
    hot = msgspec.structs.replace(GPU, throttled=True, throttle_reasons=("Too hot",))
    fake_host.emit(HardwareChanged(msgspec.structs.replace(hardware_sample(), gpus=(hot,))))
    chip = live_window.status._chips[0]
    qtbot.waitUntil(lambda: chip.text() == "71 °C", timeout=WAIT_MS)
    assert chip.property("tone") == "amber"
    assert "Too hot" in chip.toolTip()
    fake_host.emit(HardwareChanged(hardware_sample(2.0)))
    qtbot.waitUntil(lambda: chip.text() == "CPU 12 %", timeout=WAIT_MS)
    assert chip.property("tone") == ""


def test_when_something_generates_then_speed_and_sparkline_are_shown_and_go_idle(
    live_window: MainWindow, context: AppContext
) -> None:
    context.speed.changed.emit(SpeedView(42.5, (0.0, 20.0, 42.5)))
    assert live_window.status.speed_text() == "42.5 tok/s"
    assert live_window.status._spark.values == (0.0, 20.0, 42.5)
    context.speed.changed.emit(SpeedView(None, (20.0, 42.5, 0.0)))
    assert live_window.status.speed_text() == "idle"


def test_when_the_context_fills_then_ring_and_text_follow(live_window: MainWindow, context: AppContext) -> None:
    context.session.context_used.emit(3900, 4096)
    status = live_window.status
    assert status._context_label.text() == "3,900 / 4,096"
    assert status._ring._share is not None
    assert status._ring._share > FULL
    context.session.context_used.emit(0, 0)
    assert status._context_label.text() == "no context"


def test_when_the_window_is_narrow_then_the_bar_keeps_model_speed_and_switch(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    context.session.time_to_first_token_changed.emit(0.25)
    live_window.resize(720, 600)
    qtbot.wait(1)
    status = live_window.status
    assert status._model.isVisible()
    assert status._speed.isVisible()
    assert status._api.isVisible()
    assert not status._first.isVisible()
    assert status._api.geometry().right() <= status.width()
