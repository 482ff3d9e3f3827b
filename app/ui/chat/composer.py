"""Where a person writes: grows to eight lines, counts tokens, sends, stops, edits an earlier question."""

from PySide6.QtCore import QEvent, QMimeData, QObject, QSize, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QFontMetricsF, QKeyEvent, QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.store.records import Attachment
from app.ui.appearance import Appearance
from app.ui.attachments.intake import has_files
from app.ui.attachments.pictures import Pictures
from app.ui.chat.tray import Tray
from app.ui.controls.buttons import IconButton, TintedButton
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.theme import Size, Space, Type

MAX_LINES = 8
NEARLY_FULL = 0.9


class ComposerEdit(QPlainTextEdit):
    """The text field: Enter sends, Shift+Enter breaks the line, Up in an empty field edits the last question."""

    send_wanted = Signal()
    stop_wanted = Signal()
    edit_last_wanted = Signal()
    files_brought = Signal(QMimeData)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(lambda _size: self.updateGeometry())
        self.textChanged.connect(self._fit)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if enter and not shift:
            self.send_wanted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.stop_wanted.emit()
        elif event.key() == Qt.Key.Key_Up and not self.toPlainText() and not event.modifiers():
            self.edit_last_wanted.emit()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if has_files(source):
            self.files_brought.emit(source)
        elif source.hasText():
            self.insertPlainText(source.text())

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or has_files(source)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if has_files(event.mimeData()):
            event.ignore()  # the page shows what happens with files, and takes them
        else:
            super().dragEnterEvent(event)

    def _line_height(self) -> float:
        return QFontMetricsF(self.font()).lineSpacing()

    def _wanted_height(self) -> int:
        lines = max(1, min(MAX_LINES, round(self.document().size().height())))
        return round(lines * self._line_height()) + 2 * Size.FOCUS

    def _fit(self) -> None:
        full = self.document().size().height() > MAX_LINES
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if full else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)
        height = self._wanted_height()
        if height != self.height():
            self.setFixedHeight(height)

    def resizeEvent(self, event: QEvent) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        self._fit()

    def sizeHint(self) -> QSize:
        return QSize(Size.TRANSCRIPT_MIN_W, self._wanted_height())


class Composer(QFrame):
    """The framed field with its buttons and the token count."""

    send_wanted = Signal(str)
    stop_wanted = Signal()
    edit_last_wanted = Signal()
    edit_cancelled = Signal()
    text_changed = Signal(str)
    files_brought = Signal(QMimeData)
    attach_wanted = Signal()

    def __init__(self, appearance: Appearance, pictures: Pictures, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "composer")
        self.setMaximumWidth(Size.TRANSCRIPT_MAX_W)
        self._busy = False
        self._blocked = ""
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.M, Space.S, Space.XS, Space.XS)
        column.setSpacing(Space.HAIR)
        self._editing = QWidget()
        editing_row = QHBoxLayout(self._editing)
        editing_row.setContentsMargins(0, 0, Space.HAIR, 0)
        editing_row.addWidget(label(self.tr("Editing an earlier question; sending makes a new version"), "small"), 1)
        cancel = IconButton(appearance, "close", self.tr("Stop editing"), size=Size.ICON - Size.FOCUS)
        cancel.clicked.connect(lambda _checked=False: self.edit_cancelled.emit())
        editing_row.addWidget(cancel)
        self._editing.hide()
        column.addWidget(self._editing)
        self.tray = Tray(appearance, pictures, self)
        column.addWidget(self.tray)
        self.field = ComposerEdit()
        self.field.setFont(appearance.font(Type.READ))
        self.field.setPlaceholderText(self.tr("Ask anything"))
        self.field.setAccessibleName(self.tr("Message"))
        column.addWidget(self.field)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        self.attach = IconButton(appearance, "attach", self.tr("Attach pictures or files"))
        self.attach.clicked.connect(lambda _checked=False: self.attach_wanted.emit())
        row.addWidget(self.attach)
        self.controls = QHBoxLayout()
        """For buttons of others, at the left."""
        self.controls.setSpacing(Space.HAIR)
        row.addLayout(self.controls)
        self._usual_hint = self.tr("Enter sends · Shift+Enter for a new line")
        self._hint = ElidedLabel(self._usual_hint, "small")
        row.addWidget(self._hint, 1)
        self._count = label("", "small")
        self._count.setAccessibleName(self.tr("Tokens against the context limit"))
        row.addWidget(self._count)
        self.button = TintedButton(appearance, "send", "", kind="round", ink="on_accent", name=self.tr("Send"))
        self.button.clicked.connect(lambda _checked=False: self._on_button())
        row.addWidget(self.button)
        column.addLayout(row)
        self.field.send_wanted.connect(self._send)
        self.field.stop_wanted.connect(self._on_escape)
        self.field.edit_last_wanted.connect(self.edit_last_wanted)
        self.field.files_brought.connect(self.files_brought)
        self.field.textChanged.connect(self._on_text)
        self.field.installEventFilter(self)
        self._show_button()

    @property
    def text(self) -> str:
        """What is written."""
        return self.field.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace what is written; the cursor goes to the end. Undo brings the old text back."""
        if text == self.text:
            return
        cursor = self.field.textCursor()
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(text)
        self.field.moveCursor(QTextCursor.MoveOperation.End)

    def set_editing(self, editing: bool) -> None:
        """Show that an earlier question is edited."""
        self._editing.setVisible(editing)
        # A question that is edited keeps its files; those of the draft wait.
        self.attach.setEnabled(not editing)
        self.tray.setVisible(not editing and bool(self.tray.files))

    @property
    def is_editing(self) -> bool:
        """Whether an earlier question is edited."""
        return self._editing.isVisibleTo(self)

    def show_files(self, files: tuple[Attachment, ...]) -> None:
        """Show the files that go with the next question."""
        self.tray.show_files(files)
        if self.is_editing:
            self.tray.hide()
        self._show_button()

    def set_busy(self, busy: bool) -> None:
        """While an answer is in the making the button stops it."""
        self._busy = busy
        self._show_button()

    def set_blocked(self, reason: str) -> None:
        """Why nothing can be sent now; empty when it can. Writing is always possible."""
        if reason != self._blocked:
            self._blocked = reason
            self._hint.setText(reason or self._usual_hint)
            self._show_button()

    def show_count(self, used: int, limit: int) -> None:
        """Tokens the conversation would have with this text, and the context limit (0: no model)."""
        if limit <= 0 or not self._has_content:
            self._count.setText("")
            self._count.setToolTip("")
            return
        self._count.setText(self.tr("{used} / {limit} tokens").format(used=f"{used:,}", limit=f"{limit:,}"))
        set_tone(self._count, "bad" if used > limit * NEARLY_FULL else "small")
        too_long = self.tr("This does not fit the context of the model. Take a file out, or shorten the text.")
        self._count.setToolTip(too_long if used > limit else "")
        self._hint.setText(self._blocked or (too_long if used > limit else self._usual_hint))

    @property
    def _has_content(self) -> bool:
        return bool(self.text.strip() or self.tray.files)

    def _on_text(self) -> None:
        if not self._has_content:
            self._count.setText("")
            self._hint.setText(self._blocked or self._usual_hint)
        self.text_changed.emit(self.text)
        self._show_button()

    def _show_button(self) -> None:
        self.button.set_icon_name("stop" if self._busy else "send")
        name = self.tr("Stop") if self._busy else self.tr("Send")
        self.button.setAccessibleName(name)
        self.button.setToolTip(self._blocked or (f"{name} (Esc)" if self._busy else f"{name} (Enter)"))
        can_send = self._has_content and not self._blocked and not self.tray.obstacle
        self.button.setEnabled(self._busy or can_send)

    def _on_button(self) -> None:
        if self._busy:
            self.stop_wanted.emit()
        else:
            self._send()

    def _on_escape(self) -> None:
        if self._busy:
            self.stop_wanted.emit()
        elif self.is_editing:
            self.edit_cancelled.emit()

    def _send(self) -> None:
        if not self._busy and not self._blocked and self._has_content:
            self.send_wanted.emit(self.text)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.setProperty("focused", event.type() == QEvent.Type.FocusIn)
            self.style().unpolish(self)
            self.style().polish(self)
        return False

    def focus(self) -> None:
        """Put the cursor into the field."""
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)
