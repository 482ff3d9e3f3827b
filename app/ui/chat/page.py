"""The chat page: conversations, transcript with composer, inspector."""

from pathlib import Path
from typing import cast

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QSplitter,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from app.context import AppContext
from app.model_choice import current_model
from app.session import MessageView
from app.store.records import Attachment
from app.tasks import Lane
from app.tool_book import Found
from app.ui.appearance import Appearance
from app.ui.attachments.intake import PICTURE_FILTER, SOUND_FILTER, FileIntake
from app.ui.attachments.pictures import Pictures
from app.ui.attachments.prepare import Prepared
from app.ui.chat.composer import Composer
from app.ui.chat.conversation_list import ConversationList
from app.ui.chat.drop import DropArea
from app.ui.chat.empty import EmptyChat
from app.ui.chat.model_picker import ModelPicker
from app.ui.controls.buttons import IconButton
from app.ui.controls.labels import ElidedLabel
from app.ui.frame.messages import Toasts
from app.ui.theme import Size, Space
from app.ui.tools.menu import ToolsButton
from app.ui.transcript.formulas import Formulas
from app.ui.transcript.lexers import Lexers
from app.ui.transcript.view import TranscriptView

LIST_SPLITTER = "chat"


class ChatPage(QWidget):
    """Wires the widgets of the chat to the session; holds no state of the conversation itself."""

    page_wanted = Signal(str)

    pictures_wanted = Signal(object, str)
    """`tuple[Attachment, ...]` and the hash of the one to show large."""

    vision_models_wanted = Signal()
    """There is no vision model yet: show some to download."""

    def __init__(
        self,
        context: AppContext,
        appearance: Appearance,
        lane: Lane | None,
        pictures: Pictures,
        intake: FileIntake,
        toasts: Toasts,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._context = context
        self._session = context.session
        self._appearance = appearance
        self._pictures = pictures
        self._intake = intake
        self._toasts = toasts
        self._lane = lane
        self._editing_id = ""
        self._inspector: QWidget | None = None
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.setHandleWidth(Size.LINE)
        self._splitter.setChildrenCollapsible(False)
        outer.addWidget(self._splitter)
        self.list = ConversationList(context.conversations, appearance)
        self._splitter.addWidget(self.list)
        self._splitter.addWidget(self._make_centre())
        self._inspector_place = QWidget()
        place = QVBoxLayout(self._inspector_place)
        place.setContentsMargins(0, 0, 0, 0)
        self._splitter.addWidget(self._inspector_place)
        self._inspector_place.hide()
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setSizes([Size.SIDE_W, Size.TRANSCRIPT_MAX_W, Size.INSPECTOR_W])
        self._wants_list = context.settings.values.conversations_open
        self._wants_inspector = context.settings.values.inspector_open
        self._restore_splitter()
        self._connect()
        self._show_tools()
        self._show_all()

    # --- building

    def _make_centre(self) -> QWidget:
        centre = QWidget()
        centre.setProperty("role", "surface")
        centre.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        centre.setMinimumWidth(Size.TRANSCRIPT_MIN_W + Size.SIDE_MIN_W)
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        head = QFrame()
        head.setProperty("role", "head")
        head.setFixedHeight(Size.TOOLBAR_H)
        row = QHBoxLayout(head)
        row.setContentsMargins(Space.XS, 0, Space.XS, 0)
        row.setSpacing(Space.XS)
        self._list_button = IconButton(
            self._appearance, "panel-left", self.tr("Show or hide the chats"), size=Size.ICON_L
        )
        self.picker = ModelPicker(self._context.link, self._appearance)
        self._title = ElidedLabel("", "muted")
        self._title.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._inspector_button = IconButton(
            self._appearance, "panel-right", self.tr("Show or hide the settings of this chat"), size=Size.ICON_L
        )
        row.addWidget(self._list_button)
        row.addWidget(self.picker)
        row.addWidget(self._title, 1)
        row.addWidget(self._inspector_button)
        column.addWidget(head)

        self._stack = QStackedLayout()
        column.addLayout(self._stack, 1)  # before its widgets come: it shows the first one at once
        self.empty = EmptyChat(self._appearance)
        formulas = Formulas(self._lane, self)
        lexers = Lexers(self._lane, self)
        self.transcript = TranscriptView(self._appearance, formulas, lexers, self._pictures)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.transcript)
        self.composer = Composer(self._appearance, self._pictures)
        self.tools_button = ToolsButton(self._context, self._appearance)
        self.composer.controls.addWidget(self.tools_button)
        foot = QHBoxLayout()
        foot.setContentsMargins(Space.L, Space.HAIR, Space.L, Space.M)
        foot.addStretch(1)
        foot.addWidget(self.composer, 1000)
        foot.addStretch(1)
        column.addLayout(foot)
        centre.setAcceptDrops(True)
        centre.installEventFilter(self)
        self._centre = centre
        self._drop_area = DropArea(self._appearance, centre)
        return centre

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._centre and event.type() == QEvent.Type.DragEnter and not self._editing_id:
            self._drop_area.begin(cast("QDragEnterEvent", event))
            return True
        return False

    def _connect(self) -> None:
        session, link = self._session, self._context.link
        session.reset.connect(self._show_all)
        session.message_added.connect(self._on_added)
        session.text_appended.connect(self.transcript.append_text)
        session.message_changed.connect(self._on_changed)
        session.messages_removed.connect(self._on_removed)
        session.busy_changed.connect(self._on_busy)
        session.draft_counted.connect(self.composer.show_count)
        session.title_changed.connect(self._title.setText)
        session.draft_restored.connect(self._on_draft)
        session.removed_undoable.connect(
            lambda text: self._toasts.show("info", text, self.tr("Undo"), session.undo_delete)
        )
        session.opened.connect(self._on_opened)
        link.models_changed.connect(self._show_availability)
        link.installed_changed.connect(self._show_availability)
        link.connected.connect(self._show_availability)
        link.disconnected.connect(self._show_availability)

        self.list.open_wanted.connect(self.open_conversation)
        self.list.new_wanted.connect(self.new_chat)
        self.list.export_wanted.connect(self.export)
        self._context.conversations.undo_offered.connect(self._offer_undo)
        self.empty.chosen.connect(self._on_suggestion)
        self.composer.send_wanted.connect(self.send)
        self.composer.stop_wanted.connect(session.stop)
        self.composer.edit_last_wanted.connect(self.edit_last)
        self.composer.edit_cancelled.connect(self._end_editing)
        self.composer.text_changed.connect(session.draft.set_text)
        self.composer.files_brought.connect(self._take_files)
        self.composer.attach_wanted.connect(self.choose_files)
        self.composer.tray.remove_wanted.connect(session.draft.detach)
        self.composer.tray.open_wanted.connect(self._open_draft_file)
        self.composer.tray.help_wanted.connect(self.choose_vision_model)
        self._drop_area.dropped.connect(self._take_files)
        self._intake.ready.connect(self._on_file)
        self._intake.refused.connect(lambda text: self._toasts.show("warning", text))
        self._intake.waiting_changed.connect(self.composer.tray.show_waiting)
        session.draft.files_changed.connect(self._show_files)
        self.transcript.action.connect(self._on_action)
        self.transcript.file_wanted.connect(self._open_file)
        self.tools_button.settings_wanted.connect(lambda: self.page_wanted.emit("settings"))
        self._context.tools.changed.connect(self._show_tools)
        self.transcript.copied.connect(copy_text)
        self.picker.load_wanted.connect(self.load_model)
        self.picker.unload_wanted.connect(self._context.link.unload_model)
        self.picker.models_page_wanted.connect(lambda: self.page_wanted.emit("models"))
        self._list_button.clicked.connect(lambda _checked=False: self.toggle_list())
        self._inspector_button.clicked.connect(lambda _checked=False: self.toggle_inspector())
        self._splitter.splitterMoved.connect(lambda _pos, _index: self._save_splitter())

    # --- from the session

    def _show_all(self) -> None:
        messages = self._session.messages()
        self.transcript.set_busy(self._session.is_busy)
        self.transcript.set_messages(messages)
        self._show_stack()
        self._title.setText(self._session.title if messages else "")
        self.composer.set_busy(self._session.is_busy)
        self.list.show_open(self._session.conversation_id)
        self._end_editing()
        self._show_availability()

    def _show_stack(self) -> None:
        has = bool(self._session.messages()) or self._session.is_loading
        self._stack.setCurrentWidget(self.transcript if has else self.empty)

    def _on_opened(self, conversation_id: str) -> None:
        self.list.show_open(conversation_id)
        self._title.setText(self._session.title)

    def _message(self, message_id: str) -> MessageView | None:
        return self._session.message(message_id)

    def _on_added(self, message_id: str) -> None:
        view = self._message(message_id)
        if view is not None:
            self._stack.setCurrentWidget(self.transcript)
            self.transcript.add_message(view)

    def _on_changed(self, message_id: str) -> None:
        view = self._message(message_id)
        if view is not None:
            self.transcript.change_message(view)

    def _on_removed(self, ids: tuple[str, ...]) -> None:
        self.transcript.remove_messages(ids)
        self._show_stack()

    def _on_busy(self, busy: bool) -> None:
        self.transcript.set_busy(busy)
        self.composer.set_busy(busy)

    def _show_tools(self) -> None:
        servers = self._context.tools.servers
        self.transcript.set_tools({tool.call_name: Found(one, tool) for one in servers for tool in one.tools})

    def _on_draft(self, text: str) -> None:
        if not self._editing_id:
            self.composer.set_text(text)

    def _show_availability(self) -> None:
        """Say what the chat waits for, and block sending only when nothing could answer."""
        link = self._context.link
        model = current_model(link)
        self.transcript.set_model_names({each.id: each.name for each in link.installed})
        waiting, blocked = "", ""
        if not link.is_connected:
            waiting = self.tr("Starting the engine…")
            blocked = (
                "" if self._context.host.state in ("starting", "running") else self.tr("The engine is not running")
            )
        elif model is None:
            blocked = "" if link.installed else self.tr("No model is installed")
            waiting = self.tr("Choose a model at the top to begin.")
        elif model.state in ("loading", "restarting"):
            waiting = self.tr("Loading {name}, {percent} %").format(
                name=model.name, percent=round(model.fraction * 100)
            )
        elif model.state == "failed":
            why = model.failure.message if model.failure is not None else ""
            waiting = self.tr("{name} could not be loaded. {why}").format(name=model.name, why=why)
        self.transcript.set_waiting_for(waiting)
        self.empty.show_state(waiting or self.tr("Everything you write stays on this computer."))
        self.composer.set_blocked(blocked)

    # --- what a person does

    def send(self, text: str) -> None:
        """Send the text, or the changed question while one is edited."""
        session, editing = self._session, self._editing_id
        done = session.edit_and_resend(editing, text) if editing else session.send(text)
        if done:
            self._editing_id = ""
            self.composer.set_editing(False)
            self.composer.set_text("")

    def new_chat(self) -> None:
        """Open a new, empty conversation."""
        self.page_wanted.emit("chat")
        self._session.open(self._context.conversations.create())
        self.composer.focus()

    def open_conversation(self, conversation_id: str) -> None:
        """Open a conversation."""
        self.page_wanted.emit("chat")
        self._session.open(conversation_id)
        self.composer.focus()

    def edit_last(self) -> None:
        """Edit the last question in the composer."""
        last = next((view for view in reversed(self._session.messages()) if view.role == "user"), None)
        if last is not None and not self._session.is_busy:
            self._begin_editing(last.id)

    def regenerate_last(self) -> None:
        """Answer the last question again."""
        last = next((view for view in reversed(self._session.messages()) if view.role == "assistant"), None)
        if last is not None and not self._session.is_busy:
            self._session.regenerate(last.id)

    def copy_last_answer(self) -> None:
        """Copy the last answer."""
        last = next((view for view in reversed(self._session.messages()) if view.role == "assistant"), None)
        if last is not None:
            copy_text(last.text)
            self._toasts.show("info", self.tr("Copied the last answer"))

    def copy_last_code(self) -> None:
        """Copy the last code block."""
        code = self.transcript.last_code()
        if code:
            copy_text(code)
            self._toasts.show("info", self.tr("Copied the last code block"))

    def load_model(self, model_id: str) -> None:
        """Load a model and remember it for the next start."""
        self._context.load_model(model_id)

    def _begin_editing(self, message_id: str) -> None:
        view = self._message(message_id)
        if view is None:
            return
        self._editing_id = message_id
        self.composer.set_editing(True)
        self.composer.set_text(view.text)
        self.composer.focus()

    def _end_editing(self) -> None:
        if self._editing_id:
            self._editing_id = ""
            self.composer.set_editing(False)
            self.composer.set_text(self._session.draft.text)

    # --- files

    def choose_files(self) -> None:
        """Let the person choose files to attach."""
        dialog = QFileDialog(self, self.tr("Attach pictures or files"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters(
            [
                self.tr("All files (*)"),
                self.tr("Pictures ({kinds})").format(kinds=PICTURE_FILTER),
                self.tr("Sounds ({kinds})").format(kinds=SOUND_FILTER),
            ]
        )
        receiver = self._session.conversation_id
        dialog.filesSelected.connect(lambda names: self._intake.take_paths([Path(name) for name in names], receiver))
        dialog.open()

    def _take_files(self, source: QMimeData) -> None:
        if self._editing_id:
            self._toasts.show("info", self.tr("Finish editing first; then files can be attached to a new question."))
            return
        self._intake.take(source, self._session.conversation_id)

    def _on_file(self, conversation_id: str, prepared: Prepared) -> None:
        self._session.draft.attach(conversation_id, prepared.attachment, prepared.data)

    def _show_files(self) -> None:
        draft = self._session.draft
        obstacle = draft.obstacle
        why, help_text = "", ""
        if obstacle is not None:
            needs_sight = obstacle.details.get("needs") == "image"
            hint = self.tr("Choose another model, or take the picture out.")
            if not needs_sight:
                hint = self.tr("Choose another model, or take the sound out.")
            why = f"{obstacle.message} {hint}"
            help_text = self.tr("Choose a vision model") if needs_sight else self.tr("Choose a model")
        self.composer.tray.show_obstacle(why, help_text)
        self.composer.show_files(draft.files)

    def _open_draft_file(self, sha256: str) -> None:
        self._open_one(self._session.draft.files, sha256)

    def _open_file(self, message_id: str, sha256: str) -> None:
        view = self._message(message_id)
        if view is not None:
            self._open_one(view.attachments, sha256)

    def _open_one(self, files: tuple[Attachment, ...], sha256: str) -> None:
        pictures = tuple(one for one in files if one.kind == "image")
        if any(one.sha256 == sha256 for one in pictures):
            self.pictures_wanted.emit(pictures, sha256)

    def choose_vision_model(self) -> None:
        """Choose among the installed models that see, or show some to download."""
        if not self.picker.open_menu(only_vision=True):
            self.vision_models_wanted.emit()

    def _on_suggestion(self, text: str) -> None:
        self.composer.set_text(text)
        self.send(text)
        self.composer.focus()

    def _on_action(self, message_id: str, action: str) -> None:
        session = self._session
        view = self._message(message_id)
        if view is None:
            return
        match action:
            case "regenerate":
                session.regenerate(message_id)
            case "continue":
                session.continue_answer(message_id)
            case "edit":
                self._begin_editing(message_id)
            case "delete":
                session.delete_message(message_id)
            case "previous":
                session.select_branch(message_id, view.branch_index - 1)
            case "next":
                session.select_branch(message_id, view.branch_index + 1)
            case "new-chat":
                self.new_chat()
            case "choose-vision":
                self.choose_vision_model()
            case "go-on":
                session.go_on(message_id)
            case "allow-once" | "allow-here" | "allow-always":
                session.tools.allow(message_id, action.removeprefix("allow-"))
            case "deny":
                session.tools.deny(message_id)

    def _offer_undo(self, conversation_id: str, text: str) -> None:
        undo = self._context.conversations.undo_delete
        self._toasts.show("info", text, self.tr("Undo"), lambda: undo(conversation_id))

    def export(self, conversation_id: str = "") -> None:
        """Save a conversation (the open one) as a Markdown file."""
        wanted = conversation_id or self._session.conversation_id
        self._context.conversations.export_markdown(wanted, self._save_export)

    def _save_export(self, text: str) -> None:
        dialog = QFileDialog(self, self.tr("Export as Markdown"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(self.tr("Markdown (*.md)"))
        dialog.setDefaultSuffix("md")
        dialog.selectFile("chat.md")
        dialog.fileSelected.connect(lambda path: self._write_export(Path(path), text))
        dialog.open()

    def _write_export(self, path: Path, text: str) -> None:
        if self._lane is None:
            return
        self._lane.submit(
            lambda: path.write_text(text, encoding="utf-8"),
            lambda _written: self._toasts.show("info", self.tr("Saved {name}").format(name=path.name)),
            lambda error: self._toasts.show(
                "error", self.tr("Could not save {path}: {why}").format(path=path, why=error)
            ),
        )

    # --- panels

    def toggle_list(self) -> None:
        """Show or hide the conversations."""
        self._wants_list = self.list.isHidden()
        self._context.settings.update(conversations_open=self._wants_list)
        self.list.setVisible(self._wants_list)

    def toggle_inspector(self) -> None:
        """Show or hide the inspector."""
        self._wants_inspector = self._inspector_place.isHidden()
        self._context.settings.update(inspector_open=self._wants_inspector)
        self._show_inspector(self._wants_inspector)

    def _show_inspector(self, shown: bool) -> None:
        if shown and self._inspector is None:
            from app.ui.chat.inspector import Inspector  # late: few people open it at once

            self._inspector = Inspector(self._session, self._context.presets, self._appearance, self._lane)
            layout = self._inspector_place.layout()
            if layout is not None:
                layout.addWidget(self._inspector)
            self._inspector_place.setMinimumWidth(Size.INSPECTOR_MIN_W)
        self._inspector_place.setVisible(shown)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        was, now = event.oldSize().width(), event.size().width()
        narrow = Size.NARROW_W - Size.RAIL_W
        if (was < narrow) != (now < narrow) or was < 0:
            self._show_inspector(self._wants_inspector and now >= narrow)
        tight = Size.WINDOW_MIN_W
        if (was < tight) != (now < tight) or was < 0:
            self.list.setVisible(self._wants_list and now >= tight)

    def _restore_splitter(self) -> None:
        sizes = self._context.settings.values.splitters.get(LIST_SPLITTER)
        if sizes and len(sizes) == self._splitter.count():
            self._splitter.setSizes(list(sizes))

    def _save_splitter(self) -> None:
        splitters = dict(self._context.settings.values.splitters)
        splitters[LIST_SPLITTER] = tuple(self._splitter.sizes())
        self._context.settings.update(splitters=splitters)


def copy_text(text: str) -> None:
    """Put a text on the clipboard."""
    QGuiApplication.clipboard().setText(text)
