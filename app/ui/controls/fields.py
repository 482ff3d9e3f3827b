"""Fields for numbers and choices. They leave the wheel to the page they stand on, so that scrolling changes nothing."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QSlider, QSpinBox, QWidget

from app.ui.theme import Size, Space


class IntField(QSpinBox):
    """A whole number. The style sheet's padding does not reach the text inside, so it is given here."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lineEdit().setTextMargins(Space.HAIR, 0, 0, 0)
        self.setFixedHeight(Size.CONTROL_H)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class FloatField(QDoubleSpinBox):
    """A number with a fraction."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lineEdit().setTextMargins(Space.HAIR, 0, 0, 0)
        self.setFixedHeight(Size.CONTROL_H)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class ChoiceField(QComboBox):
    """One of a few."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class SliderField(QSlider):
    """A horizontal slider."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()
