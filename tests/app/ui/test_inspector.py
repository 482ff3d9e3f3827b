from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.chat.inspector import Inspector
from app.ui.chat.option_rows import OptionRow
from app.ui.chat.option_specs import option_specs
from app.ui.models.plan_controls import OWN_CONTROLS, PlanControls
from app.ui.window import MainWindow
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions, declared_options
from tests.app.ui.conftest import WAIT_MS

TEXT_FIELDS = {"dry_sequence_breakers", "logit_bias", "grammar"}


def inspector_of(qtbot: QtBot, window: MainWindow, context: AppContext) -> Inspector:
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    window.resize(1400, 900)
    window.chat.toggle_inspector()
    one = window.chat._inspector
    assert isinstance(one, Inspector)
    return one


def test_when_options_are_read_then_each_sampling_option_has_a_range_title_and_sentence() -> None:
    specs = {spec.name: spec for spec in option_specs(SamplingOptions)}
    assert set(specs) == set(SamplingOptions.__struct_fields__) - TEXT_FIELDS
    assert all(spec.title and spec.description for spec in specs.values())
    assert (specs["temperature"].low, specs["temperature"].high) == (0, 10)
    assert (specs["temperature"].soft_low, specs["temperature"].soft_high) == (0, 2)
    assert specs["mirostat"].choices == (0, 2)
    assert specs["seed"].optional
    assert specs["seed"].kind == "int"
    assert {spec.name for spec in option_specs(GenerateOptions)} == {"max_tokens", "n", "context_policy"}


def test_when_a_number_is_changed_then_the_conversation_has_it(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    row = inspector._rows["temperature"]
    assert isinstance(row._number, QDoubleSpinBox)
    row._number.setValue(0.25)
    qtbot.waitUntil(lambda: context.session.setup.options.sampling.temperature == 0.25, timeout=WAIT_MS)
    assert row._slider is not None
    assert row._slider.value() == 25
    qtbot.waitUntil(inspector._custom.isVisible, timeout=WAIT_MS)
    row._reset.click()
    qtbot.waitUntil(lambda: context.session.setup.options.sampling.temperature == 0.8, timeout=WAIT_MS)


def test_when_automatic_is_taken_off_then_a_number_counts(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    row = inspector._rows["max_tokens"]
    assert row._automatic is not None
    assert row._automatic.isChecked()
    row._automatic.click()
    assert row._number is not None
    row._number.setValue(77)
    qtbot.waitUntil(lambda: context.session.setup.options.max_tokens == 77, timeout=WAIT_MS)
    row._automatic.click()
    qtbot.waitUntil(lambda: context.session.setup.options.max_tokens is None, timeout=WAIT_MS)


def test_when_the_system_prompt_is_written_then_the_conversation_has_it(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    QTest.keyClicks(inspector._prompt.field, "Be short.")
    qtbot.waitUntil(lambda: context.session.setup.system_prompt == "Be short.", timeout=WAIT_MS)


def test_when_logit_bias_is_written_then_it_is_checked(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    inspector._bias.field.setPlainText("12: 1.5\nnonsense")
    assert "nonsense" in inspector._bias.problem.text()
    inspector._bias.field.setPlainText("12: 500")
    assert "-100" in inspector._bias.problem.text()
    inspector._bias.field.setPlainText("12: 1.5")
    assert inspector._bias.problem.text() == ""
    qtbot.waitUntil(lambda: context.session.setup.options.sampling.logit_bias == {12: 1.5}, timeout=WAIT_MS)


def test_when_stop_strings_are_written_then_each_line_is_one(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    inspector._stops.field.setPlainText("###\n\\n\\nUser:")
    qtbot.waitUntil(lambda: context.session.setup.options.stop == ("###", "\n\nUser:"), timeout=WAIT_MS)


def test_when_a_preset_is_saved_then_it_can_be_chosen_in_a_new_chat(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    inspector = inspector_of(qtbot, live_window, context)
    QTest.keyClicks(inspector._prompt.field, "Answer in verse.")
    qtbot.waitUntil(lambda: context.session.setup.system_prompt == "Answer in verse.", timeout=WAIT_MS)
    inspector._save_named("Poet")
    qtbot.waitUntil(lambda: inspector._preset.findText("Poet") > 0, timeout=WAIT_MS)
    live_window.chat.new_chat()
    qtbot.waitUntil(
        lambda: not context.session.is_loading and context.session.setup.system_prompt == "", timeout=WAIT_MS
    )
    at = inspector._preset.findText("Poet")
    inspector._preset.setCurrentIndex(at)
    inspector._preset.activated.emit(at)
    qtbot.waitUntil(lambda: context.session.setup.system_prompt == "Answer in verse.", timeout=WAIT_MS)


def test_when_an_option_is_in_bytes_then_it_is_shown_in_mib(qtbot: QtBot, appearance: Appearance) -> None:
    (spec,) = (one for one in option_specs(LoadOptions) if one.name == "host_cache_bytes")
    row = OptionRow(spec, appearance)
    qtbot.addWidget(row)
    row.set_value(512 * 2**20)
    assert isinstance(row._number, QSpinBox)
    assert row._number.value() == 512
    told: list[object] = []
    row.changed.connect(lambda _name, value: told.append(value))
    row._number.setValue(1024)
    assert told == [1024 * 2**20]


def test_when_options_of_loading_are_declared_then_each_has_a_control(qtbot: QtBot, appearance: Appearance) -> None:
    controls = PlanControls(appearance, 8192, full=True)
    qtbot.addWidget(controls)
    shown = {*controls._rows, *OWN_CONTROLS, "use_mmap"}
    assert {one.name for one in declared_options(LoadOptions)} <= shown
    controls._rows["rope_freq_scale"]._automatic.setChecked(False)  # type: ignore[union-attr]
    assert controls.options.rope_freq_scale is not None
    assert controls.options.rope_freq_scale > 0


def test_when_what_automatic_comes_to_is_not_known_then_no_number_is_shown(
    qtbot: QtBot, appearance: Appearance
) -> None:
    row = OptionRow(next(spec for spec in option_specs(SamplingOptions) if spec.name == "seed"), appearance)
    qtbot.addWidget(row)
    assert row._number is not None
    assert row._number.text() == "-"
    row.set_value(None, 7)
    assert row._number.text() == "7"
    row.set_value(0)
    assert row._number.text() == "0"
