"""The main window: frame, pages made when first shown, menus, palette, toasts, banner."""

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QByteArray, QSize, QTimer, Signal
from PySide6.QtGui import QAction, QCloseEvent, QKeySequence, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.context import AppContext
from app.notices import Note
from app.settings import Theme
from app.tasks import Lane
from app.ui.appearance import Appearance
from app.ui.attachments.intake import FileIntake
from app.ui.attachments.pictures import Pictures
from app.ui.attachments.tool_pictures import ToolPictures
from app.ui.attachments.viewer import PictureViewer
from app.ui.chat.page import ChatPage, copy_text
from app.ui.frame.messages import Banner, Toasts
from app.ui.frame.palette import CommandPalette, Entry
from app.ui.frame.rail import PageEntry, Rail
from app.ui.frame.status_bar import StatusBar
from app.ui.icons import plain_icon
from app.ui.theme import Size
from app.ui.transcript.warm import warm_up
from runtime.options import ApiOptions

if TYPE_CHECKING:
    from app.ui.models.page import ModelsPage

WARM_UP_MS = 1_000
"""After the first paint, what the first answer needs is imported on a lane, when the start itself is over."""

MAX_PALETTE_CHATS = 40
"""Conversations offered in the palette."""


class MainWindow(QMainWindow):
    """Shows an `AppContext`. `first_paint` comes once, when the window is on the screen."""

    first_paint = Signal()
    close_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__()
        self._context = context
        self._appearance = appearance
        self._lane = Lane("window", self)
        self._picture_lane = Lane("pictures", self)
        self._painted = False
        self._entries: list[tuple[QAction, str]] = []
        self.setWindowTitle("Deskside")
        self.setWindowIcon(plain_icon("deskside"))
        self.setMinimumSize(Size.WINDOW_MIN_W, Size.WINDOW_MIN_H)
        self.page_entries = (
            PageEntry("chat", self.tr("Chat"), "chat"),
            PageEntry("models", self.tr("Models"), "models"),
            PageEntry("server", self.tr("Server"), "server"),
            PageEntry("benchmark", self.tr("Benchmark"), "benchmark"),
            PageEntry("hardware", self.tr("Hardware"), "hardware"),
            PageEntry("settings", self.tr("Settings"), "settings", at_end=True),
        )
        self._build_frame()
        self.toasts = Toasts(appearance, self)
        self._pages: dict[str, QWidget] = {}
        pictures = Pictures(context.media, self._picture_lane, self)
        intake = FileIntake(self._picture_lane, self)
        context.session.tools.set_picture_maker(ToolPictures(self._picture_lane))
        self.chat = ChatPage(context, appearance, self._lane, pictures, intake, self.toasts)
        self.toasts.keep_clear_of(self.chat.composer)
        self.chat.page_wanted.connect(self.show_page)
        self.chat.vision_models_wanted.connect(self._discover_vision)
        self.viewer = PictureViewer(appearance, pictures, context.media, self._picture_lane, self)
        self.viewer.said.connect(self.toasts.show)
        self.chat.pictures_wanted.connect(self.viewer.open)
        self._add_page("chat", self.chat)
        self.palette_box = CommandPalette(appearance, self)
        self._build_menus()
        self._connect()
        self._restore()

    # --- building

    def _build_frame(self) -> None:
        frame = QWidget()
        frame.setProperty("role", "frame")
        column = QVBoxLayout(frame)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        row = QHBoxLayout()
        row.setSpacing(0)
        self._rail = Rail(self._appearance, self.page_entries)
        self._rail.chosen.connect(self.show_page)
        row.addWidget(self._rail)
        centre = QVBoxLayout()
        centre.setSpacing(0)
        self.banner = Banner()
        self._stack = QStackedWidget()
        self._stack.setProperty("role", "surface")
        centre.addWidget(self.banner)
        centre.addWidget(self._stack, 1)
        row.addLayout(centre, 1)
        column.addLayout(row, 1)
        self.status = StatusBar(self._context, self._appearance)
        self.status.page_wanted.connect(self.show_page)
        self.status.copy_wanted.connect(self._copy_address)
        self.status.api_wanted.connect(self.set_api)
        column.addWidget(self.status)
        self.setCentralWidget(frame)

    def _add_page(self, name: str, page: QWidget) -> None:
        self._pages[name] = page
        self._stack.addWidget(page)

    def _make_page(self, name: str) -> QWidget:
        """Pages beside the chat are imported and made when they are first shown."""
        context, appearance = self._context, self._appearance
        if name == "models":
            from app.ui.models.page import ModelsPage

            models = ModelsPage(context, appearance)
            models.chat_wanted.connect(self._chat_with)
            models.load_wanted.connect(self.chat.load_model)
            models.page_wanted.connect(self.show_page)
            return models
        if name == "server":
            from app.ui.server.page import ServerPage

            server = ServerPage(context, appearance)
            server.copied.connect(self._copy)
            return server
        if name == "hardware":
            from app.ui.pages.hardware import HardwarePage

            return HardwarePage(context, appearance)
        if name == "benchmark":
            from app.ui.pages.benchmark import BenchmarkPage

            bench = BenchmarkPage(context, appearance)
            bench.copied.connect(self._copy)
            return bench
        from app.ui.pages.settings import SettingsPage

        settings = SettingsPage(context, appearance)
        settings.theme_wanted.connect(self.choose_theme)
        return settings

    def _action(
        self, menu: QMenu, text: str, run: Callable[[], object], shortcut: object = None, icon: str = "command"
    ) -> QAction:
        action = QAction(text, self)
        if shortcut is not None:
            action.setShortcut(QKeySequence(shortcut))  # type: ignore[call-overload]
        action.triggered.connect(lambda _checked=False: run())
        menu.addAction(action)
        self._entries.append((action, icon))
        return action

    def _build_menus(self) -> None:
        bar = self.menuBar()
        standard = QKeySequence.StandardKey
        chat = self.chat
        file = bar.addMenu(self.tr("&File"))
        self._action(file, self.tr("New chat"), chat.new_chat, standard.New, "new-chat")
        self._action(file, self.tr("Export chat as Markdown…"), chat.export, "Ctrl+E", "export")
        file.addSeparator()
        leave = self._action(file, self.tr("Quit"), self.close, standard.Quit, "close")
        leave.setMenuRole(QAction.MenuRole.QuitRole)

        edit = bar.addMenu(self.tr("&Edit"))
        self._action(edit, self.tr("Search all chats"), self._search, standard.Find, "search")
        self._action(edit, self.tr("Rename chat"), chat.list.rename_open, None, "edit")
        self._action(edit, self.tr("Copy last answer"), chat.copy_last_answer, "Ctrl+Shift+C", "copy")
        self._action(edit, self.tr("Copy last code block"), chat.copy_last_code, "Ctrl+Shift+K", "code")

        talk = bar.addMenu(self.tr("&Chat"))
        self._action(talk, self.tr("Attach pictures or files…"), chat.choose_files, "Ctrl+Shift+A", "attach")
        self._action(talk, self.tr("Stop the answer"), self._context.session.stop, "Ctrl+.", "stop")
        self._action(talk, self.tr("Answer again"), chat.regenerate_last, "Ctrl+R", "regenerate")
        self._action(talk, self.tr("Edit last question"), chat.edit_last, "Ctrl+Up", "edit")
        self._action(talk, self.tr("Jump to latest"), chat.transcript.jump_to_end, "Ctrl+End", "arrow-down")
        talk.addSeparator()
        self._action(talk, self.tr("Choose a model…"), chat.picker.open_menu, "Ctrl+M", "models")

        view = bar.addMenu(self.tr("&View"))
        for number, page in enumerate(self.page_entries, 1):
            self._action(view, page.title, partial(self.show_page, page.name), f"Ctrl+{number}", page.icon)
        view.addSeparator()
        self._action(view, self.tr("Show or hide chats"), chat.toggle_list, "Ctrl+B", "panel-left")
        self._action(view, self.tr("Show or hide chat settings"), chat.toggle_inspector, "Ctrl+I", "panel-right")
        view.addSeparator()
        themes: tuple[tuple[str, Theme, str], ...] = (
            (self.tr("Appearance: as the system"), "system", "settings"),
            (self.tr("Appearance: light"), "light", "sun"),
            (self.tr("Appearance: dark"), "dark", "moon"),
        )
        for title, theme, icon in themes:
            self._action(view, title, partial(self.choose_theme, theme), None, icon)
        self._action(view, self.tr("Full screen"), self._full_screen, standard.FullScreen, "panel-right")
        view.addSeparator()
        self._action(view, self.tr("Command palette…"), self.open_palette, "Ctrl+K", "command")

        models = bar.addMenu(self.tr("&Models"))
        self._action(models, self.tr("Installed models"), partial(self.show_models, "installed"), None, "models")
        self._action(models, self.tr("Discover models"), partial(self.show_models, "discover"), "Ctrl+D", "search")
        self._action(models, self.tr("Downloads"), partial(self.show_models, "downloads"), "Ctrl+J", "download")
        models.addSeparator()
        self._action(models, self.tr("Import a model file…"), self._import_model, None, "plus")
        self._action(models, self.tr("Where models are kept…"), self._show_folders, None, "disk")

        tools = bar.addMenu(self.tr("&Server"))
        self._action(tools, self.tr("Turn the API on or off"), self._toggle_api, None, "server")
        self._action(tools, self.tr("Copy the API address"), self._copy_api_address, None, "copy")

    def _connect(self) -> None:
        context = self._context
        for note in context.notices.take_waiting():
            self._say(note)
        context.notices.said.connect(self._say)
        context.notices.withdrawn.connect(self.toasts.withdraw)
        context.host.died.connect(self._on_died)
        context.host.failed.connect(self._on_host_failed)
        context.link.connected.connect(self.banner.hide)
        context.link.disconnected.connect(self._on_disconnected)
        context.arrivals.chat_wanted.connect(self._chat_with)
        context.arrivals.shown_wanted.connect(partial(self.show_models, "downloads"))
        context.session.title_changed.connect(self._show_title)
        context.session.opened.connect(lambda _id: self._show_title(context.session.title))

    def _restore(self) -> None:
        values = self._context.settings.values
        self._appearance.choose(values.theme)
        self.resize(Size.WINDOW_W, Size.WINDOW_H)
        if values.geometry:
            self.restoreGeometry(QByteArray(base64.b64decode(values.geometry)))
        self.show_page(values.page if any(values.page == page.name for page in self.page_entries) else "chat")

    # --- pages

    @property
    def page(self) -> str:
        """Name of the page shown."""
        return next((name for name, page in self._pages.items() if page is self._stack.currentWidget()), "")

    def show_page(self, name: str) -> None:
        """Show a page."""
        if name not in self._pages:
            self._add_page(name, self._make_page(name))
        self._stack.setCurrentWidget(self._pages[name])
        self._rail.show_page(name)
        if name != self._context.settings.values.page:
            self._context.settings.update(page=name)
        if name == "chat":
            self.chat.composer.focus()

    def page_widget(self, name: str) -> QWidget:
        """The widget of a page, made if need be."""
        if name not in self._pages:
            self._add_page(name, self._make_page(name))
        return self._pages[name]

    def show_models(self, tab: str) -> "ModelsPage":
        """Show a tab of the models page."""
        from app.ui.models.page import ModelsPage

        self.show_page("models")
        page = self.page_widget("models")
        assert isinstance(page, ModelsPage)  # noqa: S101 - made here under this name
        page.show_tab(tab)
        return page

    def _discover_vision(self) -> None:
        self.show_models("discover").discover.show_kind("vision")

    def _import_model(self) -> None:
        self.show_models("installed").installed.choose_import()

    def _show_folders(self) -> None:
        self.show_models("installed").open_folders()

    def _chat_with(self, model_id: str) -> None:
        self.chat.load_model(model_id)
        self.show_page("chat")

    def _search(self) -> None:
        self.show_page("chat")
        if self.chat.list.isHidden():
            self.chat.toggle_list()
        self.chat.list.focus_search()

    def _full_screen(self) -> None:
        (self.showNormal if self.isFullScreen() else self.showFullScreen)()

    def choose_theme(self, theme: Theme) -> None:
        """Follow the system, or force light or dark, at once."""
        self._appearance.choose(theme)
        self._context.settings.update(theme=theme)

    # --- API switch

    def set_api(self, on: bool) -> None:
        """Turn the public API on or off."""
        state = self._context.link.api
        options = state.options if state is not None else ApiOptions()
        self._context.link.set_api(msgspec.structs.replace(options, enabled=on))

    def _toggle_api(self) -> None:
        state = self._context.link.api
        self.set_api(not (state is not None and state.running))

    def _copy_api_address(self) -> None:
        state = self._context.link.api
        if state is not None and state.addresses:
            self._copy_address(state.addresses[0])
        else:
            self.toasts.show("info", self.tr("The API is off."), self.tr("Turn on"), lambda: self.set_api(True))

    def _copy_address(self, address: str) -> None:
        self._copy(address)

    def _copy(self, text: str) -> None:
        copy_text(text)
        first = text.split("\n", 1)[0]
        shown = first if len(first) == len(text) and len(first) < Size.RAIL_W else self.tr("the text")
        self.toasts.show("info", self.tr("Copied {text}").format(text=shown))

    # --- what is said

    def _say(self, note: Note) -> None:
        activate = self._context.notices.activate
        action = (lambda: activate(note.id)) if note.action_label else None
        self.toasts.show(note.level, note.text, note.action_label, action, note.id, lasts=note.lasts)

    def _on_died(self, text: str) -> None:
        self.toasts.withdraw_text(text)  # the banner says it for as long as it lasts
        self.banner.say(text)

    def _on_host_failed(self, text: str) -> None:
        self.toasts.withdraw_text(text)
        self.banner.say(text, self.tr("Start again"), self._context.host.retry)

    def _on_disconnected(self, text: str) -> None:
        if self._context.host.state == "running" and not self.banner.text:
            self.banner.say(text)

    def _show_title(self, title: str) -> None:
        self.setWindowTitle(f"{title} - Deskside" if title and self._context.session.messages() else "Deskside")

    # --- palette

    def open_palette(self) -> None:
        """Open the command palette."""
        entries = [
            Entry(
                action.text(), action.trigger, action.shortcut().toString(QKeySequence.SequenceFormat.NativeText), icon
            )
            for action, icon in self._entries
            if action.isEnabled()
        ]
        link = self._context.link
        for model in link.installed:
            if model.kind == "chat" and not model.problem:
                title = self.tr("Load {name}").format(name=model.name)
                entries.append(Entry(title, partial(self.chat.load_model, model.id), model.quantization, "models"))
        for row in self._context.conversations.rows[:MAX_PALETTE_CHATS]:
            title = self.tr("Open chat: {title}").format(title=row.title)
            entries.append(Entry(title, partial(self.chat.open_conversation, row.id), row.group_title, "chat"))
        self.palette_box.open(entries)

    # --- window events

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            self._painted = True
            self.chat.composer.focus()
            QTimer.singleShot(0, self, self.first_paint.emit)
            QTimer.singleShot(WARM_UP_MS, self, lambda: self._lane.submit(warm_up))

    def closeEvent(self, event: QCloseEvent) -> None:
        geometry = base64.b64encode(self.saveGeometry().data()).decode()
        self._context.settings.update(geometry=geometry, page=self.page or "chat")
        self._lane.close()
        self._picture_lane.close()
        self.close_wanted.emit()
        super().closeEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(Size.WINDOW_W, Size.WINDOW_H)

    def minimumSizeHint(self) -> QSize:
        return QSize(Size.WINDOW_MIN_W, Size.WINDOW_MIN_H)
