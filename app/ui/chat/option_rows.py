"""Editors for one option each: a number with a slider, a choice, or lines of text."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QPlainTextEdit,
    QSlider,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.ui.appearance import Appearance
from app.ui.chat.option_specs import OptionSpec
from app.ui.controls.buttons import IconButton
from app.ui.controls.fields import ChoiceField, FloatField, IntField, SliderField
from app.ui.controls.labels import ElidedLabel, label
from app.ui.theme import Size, Space

SLIDER_STEPS = 200

Value = float | int | str | None


class OptionRow(QWidget):
    """Shows and edits one option; a small arrow brings the default back."""

    changed = Signal(str, object)
    """Option name and the new value."""

    def __init__(self, spec: OptionSpec, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.spec = spec
        self._setting = False
        self.setToolTip(spec.description)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Size.FOCUS)
        top = QHBoxLayout()
        top.setSpacing(Space.HAIR)
        title = ElidedLabel(spec.title)
        top.addWidget(title, 1)
        self._reset = IconButton(
            appearance, "regenerate", self.tr("{name}: back to the default").format(name=spec.title), size=Size.DOT + 4
        )
        self._reset.clicked.connect(lambda _checked=False: self._edit(self.spec.default))
        policy = self._reset.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._reset.setSizePolicy(policy)
        top.addWidget(self._reset)
        self._automatic: QCheckBox | None = None
        if spec.optional:
            self._automatic = QCheckBox(self.tr("Auto"))
            self._automatic.setAccessibleName(self.tr("{name}: automatic").format(name=spec.title))
            self._automatic.toggled.connect(self._on_automatic)
            top.addWidget(self._automatic)
        self._combo: QComboBox | None = None
        self._number: QSpinBox | QDoubleSpinBox | None = None
        self._slider: QSlider | None = None
        field = self._make_field()
        field.setAccessibleName(spec.title)
        field.setAccessibleDescription(spec.description)
        field.setFixedWidth(Size.FIELD_SMALL_W if spec.kind != "choice" else Size.FIELD_SMALL_W + Space.XL)
        title.setBuddy(field)
        top.addWidget(field)
        column.addLayout(top)
        if spec.kind != "choice" and not spec.optional:
            self._slider = SliderField()
            self._slider.setRange(0, SLIDER_STEPS)
            self._slider.setAccessibleName(self.tr("{name}, slider").format(name=spec.title))
            self._slider.valueChanged.connect(self._on_slider)
            column.addWidget(self._slider)
        self.set_value(spec.default)

    def _make_field(self) -> QWidget:
        spec = self.spec
        if spec.kind == "choice":
            self._combo = ChoiceField()
            for choice in spec.choices:
                self._combo.addItem(self._choice_text(choice), choice)
            self._combo.currentIndexChanged.connect(lambda _at: self._edit(self._read()))
            return self._combo
        if spec.kind == "int":
            whole = IntField()
            whole.setRange(round(spec.low), round(spec.high))
            whole.setKeyboardTracking(False)
            whole.valueChanged.connect(lambda _value: self._edit(self._read()))
            self._number = whole
            return whole
        real = FloatField()
        real.setDecimals(4 if spec.optional else 2)
        real.setRange(spec.low, spec.high)
        real.setSingleStep(0.05)
        real.setKeyboardTracking(False)
        real.valueChanged.connect(lambda _value: self._edit(self._read()))
        self._number = real
        return real

    def _choice_text(self, choice: str | int) -> str:
        texts = {
            0: self.tr("Off"),
            2: self.tr("2.0"),
            "stop": self.tr("Stop"),
            "drop_oldest": self.tr("Drop oldest"),
        }
        return texts.get(choice, str(choice))

    def _read(self) -> Value:
        if self._combo is not None:
            value: Value = self._combo.currentData()
            return value
        if self._automatic is not None and self._automatic.isChecked():
            return None
        if isinstance(self._number, QSpinBox):
            return self._number.value() * self.spec.scale
        return round(self._number.value(), 4) if self._number is not None else None

    def set_value(self, value: Value, resolved: float | None = None) -> None:
        """Show a value without telling it; `resolved` is what automatic came to, where it is known."""
        self._setting = True
        if self._combo is not None:
            self._combo.setCurrentIndex(max(0, self._combo.findData(value)))
        if self._automatic is not None:
            self._automatic.setChecked(value is None)
        if self._number is not None:
            self._number.setEnabled(value is not None)
            # What automatic comes to is not known: the smallest value would look as if it were that.
            self._number.setSpecialValueText("-" if value is None and resolved is None else "")
            shown = value if value is not None else self.spec.low if resolved is None else resolved
            if isinstance(self._number, QSpinBox):
                self._number.setValue(int(shown) // self.spec.scale if value is not None or resolved else int(shown))
            else:
                self._number.setValue(float(shown))
        if self._slider is not None and isinstance(value, int | float):
            span = self.spec.soft_high - self.spec.soft_low
            self._slider.setValue(round((value / self.spec.scale - self.spec.soft_low) / span * SLIDER_STEPS))
        self._reset.setVisible(value != self.spec.default)
        self._setting = False

    def _edit(self, value: Value) -> None:
        if not self._setting:
            self.set_value(value)
            self.changed.emit(self.spec.name, value)

    def _on_automatic(self, on: bool) -> None:
        if not self._setting:
            self._edit(None if on else (self._number.value() * self.spec.scale if self._number is not None else None))

    def _on_slider(self, step: int) -> None:
        if self._setting:
            return
        value = self.spec.soft_low + (self.spec.soft_high - self.spec.soft_low) * step / SLIDER_STEPS
        self._edit(round(value) * self.spec.scale if self.spec.kind == "int" else round(value, 2))


class LinesRow(QWidget):
    """Text of several lines, told when the field is left."""

    edited = Signal(str)

    def __init__(
        self,
        title: str,
        description: str,
        placeholder: str = "",
        *,
        lines: int = 3,
    ) -> None:
        super().__init__()
        self.setToolTip(description)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.HAIR)
        self.field = QPlainTextEdit()
        self.field.setProperty("kind", "field")
        self.field.setTabChangesFocus(True)
        self.field.setPlaceholderText(placeholder)
        self.field.setAccessibleName(title)
        self.field.setAccessibleDescription(description)
        self.field.setFixedHeight(self.field.fontMetrics().lineSpacing() * lines + 2 * Space.XS)
        self.problem = label("", "bad", wrap=True)
        self.problem.hide()
        if title:
            head = label(title)
            head.setBuddy(self.field)
            column.addWidget(head)
        column.addWidget(self.field)
        column.addWidget(self.problem)
        self._setting = False
        self.field.textChanged.connect(self._on_text)

    def set_text(self, text: str) -> None:
        """Show a text without telling it."""
        if text != self.field.toPlainText() and not self.field.hasFocus():
            self._setting = True
            self.field.setPlainText(text)
            self._setting = False

    def show_problem(self, text: str) -> None:
        """Say what is wrong with the text; empty for nothing."""
        self.problem.setText(text)
        self.problem.setVisible(bool(text))

    def _on_text(self) -> None:
        if not self._setting:
            self.edited.emit(self.field.toPlainText())
