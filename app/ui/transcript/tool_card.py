"""A call of a tool as a card: what would run with what, the question whether it may, how it goes, what came back.

All of it is text of a model and of a stranger's program: shown as plain text.
"""

import time
from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.tool_book import Found
from app.tool_results import pretty
from app.tool_rounds import REFUSED
from app.transcript import MessageView
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.flow import FlowLayout
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.theme import Size, Space, Type
from runtime.units import format_duration

MAX_LINES = 14
"""Lines of arguments or of a result that are seen at once; the rest is scrolled to."""


def tr(text: str) -> str:
    """Translate in this card's context."""
    return QCoreApplication.translate("ToolCard", text)


def tool_names(view: MessageView, found: Found | None) -> tuple[str, str]:
    """Server and tool, for people; of a server that is gone what its name for models tells."""
    if found is not None:
        return found.server.config.name, found.tool.title or found.tool.name
    server, _, tool = view.tool_name.partition("__")
    return (server, tool) if tool else ("", view.tool_name)


def state_words(view: MessageView) -> tuple[str, str]:
    """The state in words, and the tone of its tag."""
    took = f" · {format_duration(view.duration_s)}" if view.duration_s is not None else ""
    match view.state:
        case "queued":
            return tr("Asks for your permission"), "tag-amber"
        case "generating" | "reading":
            since = view.started_s
            elapsed = f" · {format_duration(time.monotonic() - since)}" if since is not None else ""
            return tr("Running") + elapsed, "tag-accent"
        case "done":
            return tr("Done") + took, "tag"
        case "failed":
            return tr("Failed") + took, "tag-amber"
        case "stopped":
            return (tr("Refused by you") if view.text == REFUSED else tr("Stopped") + took), "tag"
        case _:
            return tr("Interrupted"), "tag-amber"


class TextBox(QPlainTextEdit):
    """Text to read and to copy, as high as it needs to be up to `MAX_LINES`."""

    def __init__(self, appearance: Appearance, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("kind", "code")
        self.setReadOnly(True)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(appearance.font(Type.SMALL, code=True))
        self.document().setDocumentMargin(Space.XS)
        self.setAccessibleName(name)
        self._text = ""

    def show_text(self, text: str, width: float) -> None:
        """Show a text in a box of about this width."""
        if text != self._text:
            self._text = text
            self.setPlainText(text)
        metrics = QFontMetricsF(self.font())
        a_line = max(1, int((width - 2 * Space.M) / max(1.0, metrics.horizontalAdvance("m"))))
        lines = 0
        for line in text.split("\n"):
            lines += max(1, -(-len(line) // a_line))
            if lines >= MAX_LINES:
                lines = MAX_LINES
                break
        self.setFixedHeight(round(lines * metrics.lineSpacing()) + 2 * Space.XS + 2 * Size.FOCUS)


class ToolCard(QFrame):
    """`wanted` is told: allow-once, allow-here, allow-always, deny, relayout."""

    def __init__(self, appearance: Appearance, parent: QWidget, wanted: Callable[[str], None]) -> None:
        super().__init__(parent)
        self.setProperty("role", "quiet-card")
        self._wanted = wanted
        self._view: MessageView | None = None
        self._found: Found | None = None
        self._arguments_open: bool | None = None
        self._result_open: bool | None = None
        self._column = column = QVBoxLayout(self)
        column.setContentsMargins(Space.S, Space.XS, Space.S, Space.XS)
        column.setSpacing(Space.HAIR)
        head = QHBoxLayout()
        head.setSpacing(Space.XS)
        icon = IconButton(appearance, "tool", "", self)
        icon.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        icon.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        head.addWidget(icon)
        self._title = ElidedLabel("", "strong", parent=self)
        head.addWidget(self._title, 1)
        self._hint = label("", "tag", parent=self)
        head.addWidget(self._hint, 0, Qt.AlignmentFlag.AlignVCenter)
        self._state = label("", "tag", parent=self)
        head.addWidget(self._state, 0, Qt.AlignmentFlag.AlignVCenter)
        column.addLayout(head)
        self._about = label("", "small", wrap=True, parent=self)
        column.addWidget(self._about)
        self.arguments_fold = self._fold(appearance, tr("Arguments"), self._toggle_arguments)
        column.addWidget(self.arguments_fold, 0, Qt.AlignmentFlag.AlignLeft)
        self.arguments = TextBox(appearance, tr("Arguments"), self)
        column.addWidget(self.arguments)
        self._question = QWidget(self)
        asking = QVBoxLayout(self._question)
        asking.setContentsMargins(0, Space.HAIR, 0, Space.HAIR)
        asking.setSpacing(Space.XS)
        self._ask = label("", "", wrap=True, parent=self._question)
        asking.addWidget(self._ask)
        buttons = FlowLayout(line_gap=Space.XS)
        self.allow_once = push_button(tr("Allow once"), lambda: wanted("allow-once"), kind="primary")
        self.allow_here = push_button(tr("Allow in this chat"), lambda: wanted("allow-here"))
        self.allow_always = push_button(tr("Always allow"), lambda: wanted("allow-always"))
        self.deny = push_button(tr("Deny"), lambda: wanted("deny"))
        for button in (self.allow_once, self.allow_here, self.allow_always, self.deny):
            buttons.addWidget(button)
        asking.addLayout(buttons)
        column.addWidget(self._question)
        self._progress = label("", "small", wrap=True, parent=self)
        column.addWidget(self._progress)
        self.result_fold = self._fold(appearance, tr("Result"), self._toggle_result)
        column.addWidget(self.result_fold, 0, Qt.AlignmentFlag.AlignLeft)
        self.result = TextBox(appearance, tr("Result"), self)
        column.addWidget(self.result)

    def set_foot(self, height: int) -> None:
        """Keep so much room at the foot free, for the pictures that lie there."""
        margins = self._column.contentsMargins()
        bottom = Space.XS + height
        if margins.bottom() != bottom:
            margins.setBottom(bottom)
            self._column.setContentsMargins(margins)

    def _fold(self, appearance: Appearance, text: str, toggle: Callable[[], None]) -> IconButton:
        fold = IconButton(appearance, "chevron-right", text, self, show_text=True, size=Size.ICON - Size.FOCUS)
        fold.setProperty("kind", "fold")
        fold.clicked.connect(lambda _checked=False: toggle())
        return fold

    def show_view(self, view: MessageView, found: Found | None) -> None:
        """Show a call; `found` is its tool as it is now, `None` where it is gone."""
        self._view, self._found = view, found
        server, tool = tool_names(view, found)
        name = f"{server} · {tool}" if server else tool
        self._title.setText(name)
        words, tone = state_words(view)
        self._state.setText(words)
        set_tone(self._state, tone)
        self.setAccessibleName(f"{tr('Tool call')}: {name}. {words}")
        asks = view.state == "queued"
        self._show_hint(found)
        self._about.setText(found.tool.description if found is not None and asks else "")
        self._about.setVisible(bool(self._about.text()))
        self._ask.setText(
            tr("The model wants to run “{tool}” of “{server}” with these arguments.").format(tool=tool, server=server)
        )
        self._question.setVisible(asks)
        for button in (self.allow_once, self.allow_here, self.allow_always, self.deny):
            button.setAccessibleName(f"{button.text()}: {name}")
        self._progress.setText(view.notice)
        self._progress.setVisible(bool(view.notice) and view.state == "generating")
        self._show_texts(view)

    def _show_hint(self, found: Found | None) -> None:
        hint = ""
        if found is not None and found.tool.destructive:
            hint = tr("Says it may destroy data")
        elif found is not None and found.tool.read_only:
            hint = tr("Says it only reads")
        self._hint.setText(hint)
        self._hint.setVisible(bool(hint))
        self._hint.setToolTip(tr("The tool's own words; nobody has checked them."))
        set_tone(self._hint, "tag-amber" if found is not None and found.tool.destructive else "tag")

    def _show_texts(self, view: MessageView) -> None:
        width = float(self.width() if self.width() > Size.TRANSCRIPT_MIN_W / 2 else Size.TRANSCRIPT_MAX_W)
        arguments = pretty(view.call.arguments) if view.call is not None else ""
        opened = view.state == "queued" if self._arguments_open is None else self._arguments_open
        has_arguments = arguments.strip() not in {"", "{}"}
        self._show_fold(self.arguments_fold, tr("Arguments"), opened=opened, there=has_arguments)
        self.arguments.setVisible(opened and has_arguments)
        if opened and has_arguments:
            self.arguments.show_text(arguments, width)
        has_result = bool(view.text)
        opened = view.state == "failed" if self._result_open is None else self._result_open
        self._show_fold(self.result_fold, tr("Result"), opened=opened, there=has_result)
        self.result.setVisible(opened and has_result)
        if opened and has_result:
            self.result.show_text(pretty(view.text), width)

    @staticmethod
    def _show_fold(fold: IconButton, text: str, *, opened: bool, there: bool) -> None:
        fold.setVisible(there)
        fold.set_icon_name("chevron-down" if opened else "chevron-right")
        fold.setAccessibleName(f"{text}, {tr('open') if opened else tr('closed')}")

    def _toggle_arguments(self) -> None:
        self._arguments_open = self.arguments.isHidden()
        self._again()

    def _toggle_result(self) -> None:
        self._result_open = self.result.isHidden()
        self._again()

    def _again(self) -> None:
        if self._view is not None:
            self.show_view(self._view, self._found)
            self._wanted("relayout")
