"""What can be read on widgets."""

from PySide6.QtWidgets import QLabel, QWidget


def texts(widget: QWidget) -> str:
    """Every text that can be read on a widget, hidden ones left out."""
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisibleTo(widget))
