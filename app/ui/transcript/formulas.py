"""Formulas drawn from TeX: rendered once to SVG in idle time, kept in a bounded cache, tinted when painted.

A formula that is not ready, too long or broken is shown as its source.
"""

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Protocol

from PySide6.QtCore import QByteArray, QObject, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from app.tasks import Lane
from app.ui.transcript.lexers import polite_thread

MAX_FORMULAS = 512
"""Formulas kept; the one not used for longest goes first."""

MAX_TEX_CHARS = 2_000
"""A longer formula is shown as its source."""

MAX_WAITING = 1_024


@dataclass(frozen=True, slots=True)
class Formula:
    """A drawn formula; sizes in device-independent pixels. `svg` is empty if the source cannot be drawn."""

    svg: str
    width: float = 0.0
    ascent: float = 0.0
    descent: float = 0.0

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.ascent + self.descent

    def image(self, colour: str, scale: float) -> QImage:
        """The formula in a colour (`#rrggbb`) at a device pixel ratio."""
        image = QImage(
            max(1, round(self.width * scale)),
            max(1, round(self.height * scale)),
            QImage.Format.Format_ARGB32_Premultiplied,
        )
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.renderer(colour).render(painter, QRectF(image.rect()))
        painter.end()
        image.setDevicePixelRatio(scale)
        return image

    def renderer(self, colour: str) -> QSvgRenderer:
        """A vector renderer in a colour (`#rrggbb`)."""
        return QSvgRenderer(QByteArray(self.svg.replace(_INK, f'fill="{colour}"').encode()))


_INK = 'fill="black"'
"""How the library writes the colour of every part."""

_BROKEN = Formula("")


class _Latex(Protocol):
    def svg(self) -> str: ...


class Formulas(QObject):
    """Asks come while painting is prepared; formulas are drawn one after the other, on the lane if there is one."""

    ready = Signal()
    """Some formulas asked for can be drawn now."""

    def __init__(self, lane: Lane | None, parent: QObject | None = None) -> None:
        """With a lane, importing the library (half a second) and drawing happen there, not on the main thread."""
        super().__init__(parent)
        self._lane = lane
        self._done: OrderedDict[tuple[str, int, bool], Formula] = OrderedDict()
        self._waiting: OrderedDict[tuple[str, int, bool], None] = OrderedDict()
        self._imported = False
        self._importing = False
        self._drawing = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._work)

    def get(self, tex: str, size: int, *, display: bool) -> Formula | None:
        """The formula, `None` while it is not ready; one with an empty `svg` will never be."""
        if len(tex) > MAX_TEX_CHARS or not tex:
            return _BROKEN
        key = (tex, size, display)
        found = self._done.get(key)
        if found is not None:
            self._done.move_to_end(key)
            return found
        self._waiting[key] = None
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        if self._imported:
            self._timer.start()
        elif not self._importing:
            self._importing = True
            if self._lane is None:
                self._on_imported(import_library())
            else:
                self._lane.submit(import_library, self._on_imported, self._on_import_failed)
        return None

    def _on_imported(self, ok: bool) -> None:
        self._imported = ok
        self._timer.start()

    def _on_import_failed(self, error: BaseException) -> None:
        del error
        for key in self._waiting:
            self._done[key] = _BROKEN
        self._waiting.clear()

    def _work(self) -> None:
        if self._drawing or not self._waiting or not self._imported:
            return
        key, _ = self._waiting.popitem(last=False)
        if self._lane is None:
            self._keep(key, draw(*key))
            return
        self._drawing = True
        self._lane.submit(partial(draw, *key), partial(self._keep, key), partial(self._give_up, key))

    def _give_up(self, key: tuple[str, int, bool], error: Exception) -> None:
        del error
        self._keep(key, _BROKEN)

    def _keep(self, key: tuple[str, int, bool], formula: Formula) -> None:
        self._drawing = False
        self._done[key] = formula
        while len(self._done) > MAX_FORMULAS:
            self._done.popitem(last=False)
        if self._waiting:
            self._timer.start()
        if not self._waiting or len(self._waiting) % 8 == 0:
            self.ready.emit()


def import_library() -> bool:
    """Import the drawing library and draw once, so that its fonts are read."""
    with polite_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # how the library finds its font files
        library = import_module("ziamath")
        library.config.svg2 = False  # Qt's SVG draws paths, not symbols
        library.Latex("x", size=1).svg()
    return True


def draw(tex: str, size: int, display: bool) -> Formula:
    """Draw one formula, on whichever thread; a long one takes tens of milliseconds."""
    try:
        with polite_thread():
            latex: _Latex = import_module("ziamath").Latex(tex, size=size, inline=not display)
            svg = latex.svg()
        box = QSvgRenderer(QByteArray(svg.encode())).viewBoxF()
    except Exception:  # noqa: BLE001 - the library raises whatever a broken formula leads to; the source is shown then
        return _BROKEN
    if box.isEmpty():
        return _BROKEN
    return Formula(svg, box.width(), -box.top(), box.bottom())
