"""The real controls of a turn: fold of the reasoning, progress, error card, actions and figures."""

from PySide6.QtCore import QCoreApplication, QObject, QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QSizePolicy, QVBoxLayout, QWidget

from app.transcript import BUSY_STATES, AnswerStats, MessageView
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.attachments.tile import FileTile
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.theme import Size, Space
from app.ui.transcript.tool_card import ToolCard
from runtime.errors import Failure
from runtime.units import format_duration, format_speed


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("Turn", text)


_REASONS = {
    "stop": "end of answer",
    "length": "length limit reached",
    "cancelled": "stopped by you",
    "tool_calls": "tool call",
}


def stats_text(stats: AnswerStats | None, model_name: str = "") -> str:
    """The line of figures under an answer; what is not known is left out."""
    if stats is None:
        return model_name
    parts: list[str] = []
    if stats.form:
        parts.append(tr("Grammar") if stats.form == "grammar" else tr("JSON"))
    if stats.generation_tps:
        parts.append(format_speed(stats.generation_tps))
    if stats.n_tokens:
        parts.append(tr("{n} tokens").format(n=f"{stats.n_tokens:,}") if stats.n_tokens != 1 else tr("1 token"))
    if stats.time_to_first_token_s is not None:
        parts.append(tr("{time} to first token").format(time=format_duration(stats.time_to_first_token_s)))
    if stats.reason is not None:
        parts.append(tr(_REASONS[stats.reason]))
    if model_name or stats.model:
        parts.append(model_name or stats.model)
    return "  ·  ".join(parts)


def stats_tooltip(stats: AnswerStats | None) -> str:
    """All figures of an answer, one a line."""
    if stats is None:
        return ""
    rows = []
    if stats.prompt_tokens is not None:
        cached = stats.cached_tokens or 0
        rows.append(
            tr("Prompt: {n} tokens, {c} of them from the cache").format(n=f"{stats.prompt_tokens:,}", c=f"{cached:,}")
        )
    if stats.prompt_tps:
        rows.append(tr("Prompt speed: {speed}").format(speed=format_speed(stats.prompt_tps)))
    if stats.queue_s:
        rows.append(tr("Waited in the queue: {time}").format(time=format_duration(stats.queue_s)))
    if stats.total_s:
        rows.append(tr("Generating took {time}").format(time=format_duration(stats.total_s)))
    return "\n".join(rows)


class Footer(QWidget):
    """Actions and figures under a turn."""

    def __init__(self, appearance: Appearance, is_user: bool, parent: QWidget, wanted: "TurnParts") -> None:
        super().__init__(parent)
        self._is_user = is_user
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Size.FOCUS)
        self._buttons: list[IconButton] = []

        def button(icon: str, text: str, action: str) -> IconButton:
            made = IconButton(appearance, icon, text, self)
            made.clicked.connect(lambda _checked=False: wanted.wants(action))
            self._buttons.append(made)
            return made

        self._previous = button("chevron-left", tr("Previous version"), "previous")
        self._branch = label("", "small", parent=self)
        self._next = button("chevron-right", tr("Next version"), "next")
        self._copy = button("copy", tr("Copy"), "copy")
        if is_user:
            row.addStretch(1)
            self._edit = button("edit", tr("Edit and send again"), "edit")
            self._regenerate = button("regenerate", tr("Answer again"), "regenerate")
        else:
            self._regenerate = button("regenerate", tr("Answer again"), "regenerate")
            self._continue = button("continue", tr("Continue this answer"), "continue")
        self._delete = button("trash", tr("Delete from here on"), "delete")
        order: list[QWidget] = [self._copy]
        order += [self._edit, self._regenerate] if is_user else [self._regenerate, self._continue]
        order += [self._delete, self._previous, self._branch, self._next]
        for widget in order:
            row.addWidget(widget)
        self._stats = ElidedLabel("", "small", parent=self)
        self._stats.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._stats.setContentsMargins(Space.XS, 0, 0, 0)
        if is_user:
            self._stats.hide()
        else:
            row.addWidget(self._stats, 1)

    def show_view(self, view: MessageView, model_name: str, *, busy: bool) -> None:
        """Show a message's figures and what can be done with it."""
        many = view.branch_count > 1
        for widget in (self._previous, self._branch, self._next):
            widget.setVisible(many)
        if many:
            self._branch.setText(f"{view.branch_index + 1}/{view.branch_count}")
            self._branch.setAccessibleName(
                tr("Version {n} of {count}").format(n=view.branch_index + 1, count=view.branch_count)
            )
            self._previous.setEnabled(view.branch_index > 0 and not busy)
            self._next.setEnabled(view.branch_index < view.branch_count - 1 and not busy)
        self._regenerate.setEnabled(not busy)
        self._delete.setEnabled(not busy)
        if self._is_user:
            self._edit.setEnabled(not busy)
        else:
            self._continue.setVisible(view.can_continue and not busy)
            self._stats.setText(stats_text(view.stats, model_name))
            tip = stats_tooltip(view.stats)
            self._stats.setStatusTip(tip)
            self._copy.setStatusTip(tip)

    def set_lit(self, lit: bool) -> None:
        """Whether the actions are drawn (pointer over the turn), or wait for the focus."""
        for button in self._buttons:
            button.set_quiet(not lit)

    def flash_copied(self, on: bool) -> None:
        """Show that the text was copied."""
        self._copy.set_icon_name("check" if on else "copy")


class StatusLine(QWidget):
    """What an answer without text is doing: waiting, loading, reading."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.S)
        self._label = label("", "muted", parent=self)
        self._bar = QProgressBar(self)
        self._bar.setTextVisible(False)
        self._bar.setMaximumWidth(Size.FIELD_W)
        self._bar.setAccessibleName(tr("Progress of this answer"))
        row.addWidget(self._label)
        row.addWidget(self._bar)
        row.addStretch(1)

    def show_view(self, view: MessageView, waiting_for: str) -> None:
        """Show the state of a message; `waiting_for` says what a queued one waits for."""
        if view.state == "queued":
            place = view.queue_position
            text = waiting_for or (
                tr("Waiting for a turn, place {n}").format(n=place) if place else tr("Waiting for a turn")
            )
            self._bar.setRange(0, 0)
        elif view.state == "reading" and view.progress is not None:
            text = tr("Reading the conversation, {percent} %").format(percent=round(view.progress * 100))
            self._bar.setRange(0, 100)
            self._bar.setValue(round(view.progress * 100))
        else:
            text = tr("Reading the conversation") if view.state == "reading" else tr("Writing")
            self._bar.setRange(0, 0)
        self._label.setText(text)


class ErrorCard(QFrame):
    """What happened, why, and the one button that helps."""

    def __init__(self, parent: QWidget, wanted: "TurnParts") -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        row.setSpacing(Space.M)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        self._what = label("", "strong", wrap=True, parent=self)
        self._why = label("", "", wrap=True, parent=self)
        words.addWidget(self._what)
        words.addWidget(self._why)
        row.addLayout(words, 1)
        self._action = ""
        self._button = push_button(tr("Try again"), lambda: wanted.wants(self._action), parent=self)
        row.addWidget(self._button, 0, Qt.AlignmentFlag.AlignVCenter)

    def show_view(self, view: MessageView, *, busy: bool) -> None:
        """Show the failure of a message."""
        error = view.error
        if error is not None:
            self._set("error", error.message, error.hint)
            self._action, text = self._help(error)
            self._button.setText(text)
        elif view.state == "interrupted":
            self._set("warning", tr("Deskside ended while this answer was made."), tr("What came before is kept."))
            self._action = "continue" if view.can_continue else "regenerate"
            self._button.setText(tr("Continue") if view.can_continue else tr("Answer again"))
        self._button.setEnabled(not busy)

    @staticmethod
    def _help(error: Failure) -> tuple[str, str]:
        """The action that helps, and its button's text."""
        if error.kind == "ContextExceeded":
            return "new-chat", tr("New chat")
        if error.details.get("needs") == "image":
            return "choose-vision", tr("Choose a vision model")
        return "regenerate", tr("Try again")

    def _set(self, role: str, what: str, why: str) -> None:
        if self.property("role") != role:
            self.setProperty("role", role)
            self.style().unpolish(self)
            self.style().polish(self)
        self._what.setText(what)
        self._why.setText(why)
        self._why.setVisible(bool(why))
        self.setAccessibleName(f"{what} {why}")


class TurnParts(QObject):
    """The controls of one turn; made when the turn comes near the view, dropped when it is far away."""

    wanted = Signal(str, str)
    """Message id and action."""

    file_wanted = Signal(str, str)
    """Message id and hash of the attachment to open."""

    def __init__(self, appearance: Appearance, view: MessageView, pictures: Pictures, viewport: QWidget) -> None:
        super().__init__(viewport)
        self._id = view.id
        is_user = view.role == "user"
        box = picture_box(len(view.attachments))
        self.files = [FileTile(appearance, pictures, one, box, viewport) for one in view.attachments]
        for tile in self.files:
            tile.clicked.connect(lambda _checked=False, tile=tile: self._open_file(tile))
        self.fold = IconButton(appearance, "thought", tr("Show reasoning"), viewport, show_text=True)
        self.fold.setProperty("kind", "fold")
        self.fold.clicked.connect(lambda _checked=False: self.wants("fold"))
        self.notice = label("", "small", wrap=True, parent=viewport)
        self.status = StatusLine(viewport)
        self.error = ErrorCard(viewport, self)
        self.footer = Footer(appearance, is_user, viewport, self)
        self.tool = ToolCard(appearance, viewport, self.wants) if view.role == "tool" else None
        self.go_on = push_button(tr("Go on"), lambda: self.wants("go-on"), parent=viewport)
        self.wants_go_on = False
        """Whether the calls of an answer, or the answer to results of tools, wait for the person."""
        for widget in self.widgets():
            widget.hide()

    def widgets(self) -> tuple[QWidget, ...]:
        """From top to bottom."""
        made = (*self.files, self.fold, self.notice, self.status, self.error, self.go_on, self.footer)
        return made if self.tool is None else (self.tool, *made)

    def show_go_on(self, view: MessageView, *, busy: bool) -> None:
        """Offer to go on where calls or results of tools are the last thing said."""
        self.wants_go_on = view.is_last and not busy and (view.role == "tool" or bool(view.tool_calls))
        self.go_on.setVisible(self.wants_go_on)

    def _open_file(self, tile: FileTile) -> None:
        self.file_wanted.emit(self._id, tile.attachment.sha256)

    def wants(self, action: str) -> None:
        """A control was used."""
        self.wanted.emit(self._id, action)

    def drop(self) -> None:
        """Delete the controls."""
        for widget in self.widgets():
            widget.hide()
            widget.deleteLater()
        self.deleteLater()

    def show_fold(self, view: MessageView, *, opened: bool, elapsed_s: float | None) -> None:
        """The text of the fold: thinking now, or for how long it thought."""
        if view.reasoning_s is not None and view.reasoning_s < 1:
            text = tr("Thought for a moment")
        elif view.reasoning_s is not None:
            text = tr("Thought for {time}").format(time=format_duration(view.reasoning_s))
        elif view.state in BUSY_STATES and not view.text:
            text = tr("Thinking")
            if elapsed_s is not None:
                text = tr("Thinking for {time}").format(time=format_duration(elapsed_s))
        else:
            text = tr("Reasoning")
        self.fold.set_icon_name("chevron-down" if opened else "chevron-right")
        self.fold.setText(text)
        self.fold.setAccessibleName(f"{text}. {tr('Hide reasoning') if opened else tr('Show reasoning')}")

    def flash_copied(self) -> None:
        """Show for a moment that the text was copied."""
        self.footer.flash_copied(True)


def picture_box(count: int) -> QSize:
    """Largest size of a picture of a turn with so many attachments: alone it may be large."""
    if count == 1:
        return QSize(Size.PICTURE_W, Size.PICTURE_H)
    return QSize(Size.PICTURE_SMALL_W, Size.PICTURE_SMALL_H)
