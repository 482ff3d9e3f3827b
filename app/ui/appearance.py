"""The appearance in use: follows the system's light or dark, or is forced, and can change while the window is open."""

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication

from app.ui.icons import tinted_icon
from app.ui.style import build_palette, build_stylesheet
from app.ui.theme import ThemeChoice, Tokens, Type, tokens_for

_LINUX_FACES = ("Inter", "Noto Sans", "Cantarell", "Ubuntu", "Open Sans", "Liberation Sans")
_CODE_FACES = ("JetBrains Mono", "SF Mono", "Menlo", "Cascadia Code", "Consolas", "Noto Sans Mono", "DejaVu Sans Mono")
_BARE_FACES = ("DejaVu Sans", "Sans Serif", "Sans", "")
"""Answers of a system that has no interface font of its own choosing."""


class Appearance(QObject):
    """Colours, fonts and icons for every widget. Painted widgets listen to `changed`."""

    changed = Signal()

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._choice: ThemeChoice = "system"
        self._system_dark = self._ask_system()
        self._tokens = tokens_for(self._system_dark)
        self._face = self._pick_face()
        self._code_face = self._pick_code_face()
        app.setStyle("Fusion")
        app.setFont(self.font())
        self._apply()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_changed)

    @property
    def tokens(self) -> Tokens:
        """The colour tokens in use."""
        return self._tokens

    @property
    def choice(self) -> ThemeChoice:
        """What the person chose; `system` follows the desktop."""
        return self._choice

    def choose(self, choice: ThemeChoice) -> None:
        """Follow the system, or force light or dark, at once."""
        self._choice = choice
        scheme = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}.get(choice, Qt.ColorScheme.Unknown)
        QGuiApplication.styleHints().setColorScheme(scheme)  # title bars and native dialogs follow too
        self._refresh()

    @property
    def pixel_ratio(self) -> float:
        """The highest device pixel ratio of the screens."""
        return self._app.devicePixelRatio()

    def color(self, name: str) -> QColor:
        """A token as `QColor`."""
        return QColor(getattr(self._tokens, name))

    def font(self, size: int = Type.BODY, *, bold: bool = False, code: bool = False) -> QFont:
        """A font of the type scale."""
        font = QFont(self._code_face if code else self._face)
        font.setPixelSize(size)
        if bold:
            font.setWeight(QFont.Weight.DemiBold)
        if code:
            font.setStyleHint(QFont.StyleHint.Monospace)
            font.setFixedPitch(True)
        return font

    def icon(self, name: str, colour: str = "text_muted", checked: str | None = None) -> QIcon:
        """An icon tinted by a token."""
        return tinted_icon(
            name,
            getattr(self._tokens, colour),
            disabled=self._tokens.text_disabled,
            checked=getattr(self._tokens, checked) if checked else None,
        )

    def _ask_system(self) -> bool:
        return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark

    def _on_system_changed(self) -> None:
        if self._choice == "system":
            self._refresh()

    def _refresh(self) -> None:
        dark = self._choice == "dark" or (self._choice == "system" and self._ask_system())
        wanted = tokens_for(dark)
        if wanted is self._tokens:
            return
        self._tokens = wanted
        self._apply()
        self.changed.emit()

    def _apply(self) -> None:
        # Replacing a style sheet polishes each widget several times; taking the old one off first does it once. With
        # every page open (950 widgets) 0.2 s instead of 1.1 s, and nothing is drawn in between (Qt 6.11, 2026-11-30).
        self._app.setStyleSheet("")
        self._app.setPalette(build_palette(self._tokens))
        self._app.setStyleSheet(build_stylesheet(self._tokens))

    @staticmethod
    def _pick_face() -> str:
        face = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family()
        if face not in _BARE_FACES:
            return face
        families = set(QFontDatabase.families())
        return next((name for name in _LINUX_FACES if name in families), face)

    @staticmethod
    def _pick_code_face() -> str:
        families = set(QFontDatabase.families())
        fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
        return next((name for name in _CODE_FACES if name in families), fixed)
