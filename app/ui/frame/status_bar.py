"""The status bar: model, context, speed, first token, the machine, and the API switch; always shown.

What does not fit into a narrow window goes in a fixed order, the least telling first.
"""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from app.context import AppContext
from app.model_choice import current_model
from app.speed import HISTORY_S, SpeedView
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton
from app.ui.controls.labels import label, set_tone
from app.ui.controls.meters import Ring, Sparkline
from app.ui.controls.switch import Switch
from app.ui.frame.chips import Chip, chips_of
from app.ui.theme import Size, Space
from runtime.messages.api import ApiState, LoadedModel
from runtime.messages.hardware import HardwareSample
from runtime.options import ApiOptions
from runtime.units import format_duration, format_speed

MAX_CHIPS = 8
"""Machine chips shown at most (two GPUs and the memory fill them)."""


class StatusBar(QWidget):
    """Reads the context's signals; asks for nothing."""

    page_wanted = Signal(str)
    copy_wanted = Signal(str)
    api_wanted = Signal(bool)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._context = context
        self._appearance = appearance
        self.setProperty("role", "bar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedHeight(Size.BAR_H)
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.XS, 0, Space.S, 0)
        row.setSpacing(Space.HAIR)

        self._model = Chip(appearance, "models", self.tr("No model loaded"))
        self._model.clicked.connect(lambda _checked=False: self.page_wanted.emit("models"))
        self._ring = Ring(appearance)
        self._context_label = label(self.tr("no context"), "small")
        self._spark = Sparkline(appearance, HISTORY_S)
        self._speed = label(self.tr("idle"), "small")
        self._first = label("", "small")
        for widget in (self._model, self._ring, self._context_label, self._spark, self._speed, self._first):
            row.addWidget(widget)
            row.addSpacing(Space.XS if widget is not self._ring else 0)
        row.addStretch(1)
        self._chips = [Chip(appearance, "temperature", "") for _ in range(MAX_CHIPS)]
        for chip in self._chips:
            chip.clicked.connect(lambda _checked=False: self.page_wanted.emit("hardware"))
            chip.hide()
            row.addWidget(chip)
        self._shown_chips = 0
        row.addSpacing(Space.XS)
        self._api_label = label(self.tr("API"), "small")
        self._api = Switch(appearance, self.tr("API for other programs"))
        self._api_label.setBuddy(self._api)
        self._api.clicked.connect(lambda checked=False: self._on_api_clicked(checked))
        self._address = QToolButton()
        self._address.setProperty("kind", "chip")
        self._address.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._address.clicked.connect(lambda _checked=False: self.page_wanted.emit("server"))
        self._copy = IconButton(appearance, "copy", self.tr("Copy the API address"), size=Size.ICON - Size.FOCUS)
        self._copy.clicked.connect(lambda _checked=False: self.copy_wanted.emit(self._address.text()))
        for part in (self._api_label, self._api, self._address, self._copy):
            row.addWidget(part)
        self._spark.setToolTip(self.tr("Tokens a second over the last minute"))
        self._speed.setAccessibleName(self.tr("Tokens a second"))
        self._first.setToolTip(self.tr("Time to the first token of the last answer"))
        self._listen()

    def _listen(self) -> None:
        link, session = self._context.link, self._context.session
        link.models_changed.connect(self._show_model)
        link.connected.connect(self._show_all)
        link.disconnected.connect(self._show_all)
        link.hardware_changed.connect(self._show_hardware)
        link.api_changed.connect(self._show_api)
        session.context_used.connect(self._show_context)
        session.time_to_first_token_changed.connect(self._show_first)
        self._context.speed.changed.connect(self._show_speed)
        self._show_all()

    def _show_all(self) -> None:
        link = self._context.link
        self._show_model()
        self._show_api(link.api)
        self._show_hardware(link.hardware)

    # --- what is read off it

    def speed_text(self) -> str:
        """The live speed as shown."""
        return self._speed.text()

    def model_text(self) -> str:
        """The model as shown."""
        return self._model.text()

    # --- updates

    def _show_model(self) -> None:
        if not self._context.link.is_connected:
            self._model.set_text(self.tr("Starting…"))
            self._fit()
            return
        model = current_model(self._context.link)
        self._model.set_text(self._model_text(model))
        self._model.set_tone("red" if model is not None and model.state == "failed" else "")
        failed = model is not None and model.failure is not None
        self._model.setToolTip(model.failure.message if failed and model is not None and model.failure else "")
        if model is None or model.state != "ready":
            self._show_context(0, 0)
        self._fit()

    def _model_text(self, model: LoadedModel | None) -> str:
        if model is None:
            return self.tr("No model loaded")
        if model.state == "ready":
            quantization = model.facts.quantization if model.facts is not None else ""
            return f"{model.name} · {quantization}" if quantization else model.name
        if model.state == "loading":
            return self.tr("Loading {name}, {percent} %").format(name=model.name, percent=round(model.fraction * 100))
        states = {
            "restarting": self.tr("Restarting {name}"),
            "unloading": self.tr("Unloading {name}"),
            "failed": self.tr("{name} failed"),
        }
        return states.get(model.state, "{name}").format(name=model.name)

    def _show_context(self, used: int, limit: int) -> None:
        if limit <= 0:
            self._ring.set_share(None)
            self._context_label.setText(self.tr("no context"))
            self._ring.setToolTip(self.tr("Context used: no model is loaded"))
        else:
            self._ring.set_share(used / limit)
            self._context_label.setText(f"{used:,} / {limit:,}")
            tip = self.tr("Context: {used} of {limit} tokens ({percent} %)").format(
                used=f"{used:,}", limit=f"{limit:,}", percent=round(100 * used / limit)
            )
            self._ring.setToolTip(tip)
            self._context_label.setToolTip(tip)
            self._ring.setAccessibleName(tip)
        self._fit()

    def _show_speed(self, view: SpeedView) -> None:
        self._spark.set_values(view.history_tps)
        self._speed.setText(self.tr("idle") if view.now_tps is None else format_speed(view.now_tps))
        set_tone(self._speed, "small" if view.now_tps is None else "strong")

    def _show_first(self, seconds: float | None) -> None:
        self._first.setText(
            "" if seconds is None else self.tr("first token {time}").format(time=format_duration(seconds))
        )
        self._fit()

    def _show_hardware(self, sample: HardwareSample | None) -> None:
        facts = chips_of(sample)[:MAX_CHIPS] if sample is not None else []
        for chip, fact in zip(self._chips, facts, strict=False):
            chip.show_fact(fact)
        if len(facts) != self._shown_chips:
            self._shown_chips = len(facts)
            self._fit()

    def _show_api(self, state: ApiState | None) -> None:
        on = state is not None and state.running
        self._api.setEnabled(state is not None and self._context.link.is_connected)
        self._api.setChecked(on)
        self._api.set_busy(False)
        address = state.addresses[0] if on and state is not None and state.addresses else ""
        self._address.setText(address)
        self._address.setToolTip(self.tr("Other programs reach the models here"))
        problem = state.problem if state is not None else ""
        self._api.setToolTip(
            problem or (self.tr("The API is on") if on else self.tr("Let other programs use the models"))
        )
        set_tone(self._api_label, "bad" if problem else "small")
        self._fit()

    def _on_api_clicked(self, checked: bool) -> None:
        self._api.set_busy(True)
        self.api_wanted.emit(checked)

    # --- room

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Hide the least telling parts until the rest fits."""
        has_address = bool(self._address.text())
        wanted: dict[QWidget, bool] = {
            self._spark: True,
            self._speed: True,
            self._first: bool(self._first.text()),
            self._context_label: True,
            self._address: has_address,
            self._copy: has_address,
        }
        for at, chip in enumerate(self._chips):
            wanted[chip] = at < self._shown_chips
        room = self.width() - 6 * Space.L
        used = sum(widget.sizeHint().width() + Space.XS for widget, on in wanted.items() if on)
        used += sum(
            part.sizeHint().width() + Space.XS for part in (self._model, self._ring, self._api_label, self._api)
        )
        later = [self._first, *reversed(self._chips[2:]), self._context_label, self._spark, self._address]
        for widget in later:
            if used <= room:
                break
            if wanted[widget]:
                wanted[widget] = False
                used -= widget.sizeHint().width() + Space.XS
        for widget, on in wanted.items():
            widget.setVisible(on)

    def sizeHint(self) -> QSize:
        return QSize(Size.WINDOW_MIN_W, Size.BAR_H)

    def minimumSizeHint(self) -> QSize:
        return QSize(Size.TRANSCRIPT_MIN_W, Size.BAR_H)


def switched(options: ApiOptions, on: bool) -> ApiOptions:
    """The same API options, on or off."""
    import msgspec

    return msgspec.structs.replace(options, enabled=on)
