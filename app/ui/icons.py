"""Icons: our own SVG files, tinted by a colour token and drawn as vectors, so that they are crisp at any scale."""

from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

_ROOTS = (Path(__file__).parents[1] / "assets", Path(__file__).parents[2] / "assets")
"""Where assets stand: inside the installed package, or beside it in a source tree."""

_MAX_RENDERERS = 512


def asset(*parts: str) -> Path:
    """The path of a bundled file; the source tree's one when it is not in the package."""
    for root in _ROOTS:
        found = root.joinpath(*parts)
        if found.exists():
            return found
    return _ROOTS[-1].joinpath(*parts)


@lru_cache(maxsize=128)
def _svg_text(name: str) -> str:
    return asset("icons", f"{name}.svg").read_text(encoding="utf-8")


@lru_cache(maxsize=_MAX_RENDERERS)
def _renderer(name: str, colour: str) -> QSvgRenderer:
    return QSvgRenderer(QByteArray(_svg_text(name).replace("currentColor", colour).encode()))


def paint_icon(painter: QPainter, name: str, colour: str, rect: QRectF) -> None:
    """Draw an icon into a rectangle."""
    _renderer(name, colour).render(painter, rect)


class _TintedEngine(QIconEngine):
    """Draws one icon in a colour for each mode; a checked icon may be another file."""

    def __init__(self, name: str, colour: str, disabled: str, checked: str) -> None:
        super().__init__()
        self._name = name
        self._colour = colour
        self._disabled = disabled
        self._checked = checked

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        colour = self._checked if state == QIcon.State.On else self._colour
        if mode == QIcon.Mode.Disabled:
            colour = self._disabled
        side = min(rect.width(), rect.height())
        box = QRectF(0, 0, side, side)
        box.moveCenter(QRectF(rect).center())
        paint_icon(painter, self._name, colour, box)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self.scaledPixmap(size, mode, state, 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        # Qt hands over the size in device pixels; the ratio is set on the result by QIcon.
        del scale
        if size.isEmpty():  # a button that a layout has squeezed for a moment
            return QPixmap()
        pixmap = QPixmap(size)
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        self.paint(painter, QRect(QPoint(0, 0), size), mode, state)
        painter.end()
        return pixmap

    def clone(self) -> QIconEngine:
        return _TintedEngine(self._name, self._colour, self._disabled, self._checked)


def tinted_icon(name: str, colour: str, *, disabled: str, checked: str | None = None) -> QIcon:
    """A `QIcon` in the given colours (`#rrggbb`)."""
    return QIcon(_TintedEngine(name, colour, disabled, checked or colour))


def plain_icon(name: str) -> QIcon:
    """An icon in its own colours (the program's)."""
    return QIcon(str(asset("icons", f"{name}.svg")))
