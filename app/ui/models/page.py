"""Models: three tabs (installed, discover, downloads) and the pages that open over them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.context import AppContext
from app.models_link import ModelsLink
from app.plan_watch import Verdicts
from app.ui.appearance import Appearance
from app.ui.controls.buttons import tab_buttons
from app.ui.controls.labels import label
from app.ui.models.discover import DiscoverView
from app.ui.models.installed import InstalledView
from app.ui.models.sub_page import SubPage
from app.ui.models.transfers import TransfersView
from app.ui.models.words import tr
from app.ui.pages.base import centred
from app.ui.theme import Space
from runtime.messages.api import InstalledModel


class ModelsPage(QWidget):
    """Keeps the tabs; what opens over them is made when it is opened and goes when it is left."""

    chat_wanted = Signal(str)
    load_wanted = Signal(str)
    page_wanted = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._context = context
        self._link = context.link
        self._appearance = appearance
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.verdicts = Verdicts(context.link, ModelsLink(context.link, self), self)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        self._stack = QStackedWidget()
        outer.addWidget(self._stack)
        self._stack.addWidget(self._build_tabs())
        self._covers: list[SubPage] = []
        self._last_focus: list[QWidget | None] = []
        for keys in (QKeySequence(Qt.Key.Key_Escape), QKeySequence(QKeySequence.StandardKey.Back)):
            back = QShortcut(keys, self)
            back.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            back.activated.connect(self.go_back)
        self._link.downloads_changed.connect(self._count_downloads)
        self._link.jobs_changed.connect(self._count_downloads)
        self._link.connected.connect(self._count_downloads)
        self._link.connected.connect(self._watch)
        self._link.installed_changed.connect(self.verdicts.refresh)
        self.show_tab("installed")
        self._count_downloads()

    def _build_tabs(self) -> QWidget:
        holder = QWidget()
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        head = QHBoxLayout()
        head.setContentsMargins(0, Space.L, 0, 0)
        head.setSpacing(Space.HAIR)
        head.addWidget(label(tr("Models"), "title"))
        head.addSpacing(Space.M)
        titles = {"installed": tr("Installed"), "discover": tr("Discover"), "downloads": tr("Downloads")}
        self._buttons = tab_buttons(titles, self.show_tab, QButtonGroup(self))
        for button in self._buttons.values():
            head.addWidget(button)
        head.addStretch(1)
        column.addLayout(centred(head))
        self._tabs = QStackedWidget()
        self.installed = InstalledView(self._context, self._appearance, self.verdicts)
        self.discover = DiscoverView(self._context, self._appearance)
        self.transfers = TransfersView(self._context, self._appearance)
        self._views: dict[str, QWidget] = {
            "installed": self.installed,
            "discover": self.discover,
            "downloads": self.transfers,
        }
        for view in self._views.values():
            self._tabs.addWidget(view)
        self.installed.wanted.connect(self.act)
        self.installed.discover_wanted.connect(partial(self.show_tab, "discover"))
        self.installed.folders_wanted.connect(self.open_folders)
        self.discover.opened.connect(self.open_hub_model)
        self.discover.settings_wanted.connect(partial(self.page_wanted.emit, "settings"))
        self.transfers.discover_wanted.connect(partial(self.show_tab, "discover"))
        self.transfers.chat_wanted.connect(partial(self._act_on, "chat"))
        column.addWidget(self._tabs, 1)
        return holder

    # --- tabs

    @property
    def tab(self) -> str:
        """Name of the tab shown (it may be covered)."""
        return next(name for name, view in self._views.items() if view is self._tabs.currentWidget())

    def show_tab(self, name: str) -> None:
        """Show a tab; what covers it goes."""
        while self._covers:
            self.go_back()
        self._tabs.setCurrentWidget(self._views[name])
        self._watch()
        self._buttons[name].setChecked(True)
        if name == "discover":
            self.discover.begin()

    def _count_downloads(self) -> None:
        n = sum(one.state in ("queued", "running", "verifying") for one in self._link.downloads)
        n += sum(one.state == "running" for one in self._link.jobs)
        button = self._buttons["downloads"]
        button.setText(tr("Downloads ({n})").format(n=n) if n else tr("Downloads"))

    def _watch(self) -> None:
        self.verdicts.set_watched(self.isVisible() and self.tab == "installed")
        self._context.arrivals.set_watched(self.isVisible() and self.tab == "downloads" and not self._covers)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._watch()
        self.installed.refresh_room()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.verdicts.set_watched(False)
        self._context.arrivals.set_watched(False)

    # --- what opens over the tabs

    @property
    def cover(self) -> SubPage | None:
        """The page that covers the tabs, if any."""
        return self._covers[-1] if self._covers else None

    def cover_with(self, page: SubPage) -> None:
        """Show a page over what is shown now."""
        self._last_focus.append(self.focusWidget())
        page.back_wanted.connect(self.go_back)
        self._covers.append(page)
        self._stack.addWidget(page)
        self._stack.setCurrentWidget(page)
        page.area.setFocus(Qt.FocusReason.OtherFocusReason)

    def go_back(self) -> None:
        """Leave the page that covers the tabs."""
        if not self._covers:
            return
        page = self._covers.pop()
        page.leave()
        self._stack.removeWidget(page)
        page.deleteLater()
        self._stack.setCurrentIndex(len(self._covers))
        focus = self._last_focus.pop()
        if focus is not None:
            focus.setFocus(Qt.FocusReason.OtherFocusReason)

    def open_hub_model(self, repo: str) -> None:
        """Show a repository of the hub."""
        from app.ui.models.hub_page import HubPage

        page = HubPage(self._context, self._appearance, repo)
        page.chat_wanted.connect(partial(self._act_on, "chat"))
        page.downloads_wanted.connect(partial(self.show_tab, "downloads"))
        page.settings_wanted.connect(partial(self.page_wanted.emit, "settings"))
        self.cover_with(page)

    def open_plan(self, model: InstalledModel) -> None:
        """Show the load plan of an installed model."""
        from app.ui.models.plan_page import PlanPage

        page = PlanPage(self._context, self._appearance, model)
        page.hardware_wanted.connect(partial(self.page_wanted.emit, "hardware"))
        self.cover_with(page)

    def open_folders(self) -> None:
        """Show where models are kept."""
        from app.ui.models.folders import FoldersPage

        self.cover_with(FoldersPage(self._context, self._appearance))

    def open_quantize(self, model: InstalledModel) -> None:
        """Show what smaller files can be made of a model."""
        from app.ui.models.quantize import QuantizePage

        page = QuantizePage(self._context, self._appearance, model)
        page.started.connect(partial(self.show_tab, "downloads"))
        self.cover_with(page)

    # --- what is done with a model

    def _act_on(self, action: str, model_id: str) -> None:
        self.act(model_id, action)

    def act(self, model_id: str, action: str) -> None:
        """Carry out an action on an installed model."""
        model = next((one for one in self._link.installed if one.id == model_id), None)
        if model is None:
            return
        actions: dict[str, Callable[[InstalledModel], object]] = {
            "chat": self._chat,
            "load": lambda one: self.load_wanted.emit(one.id),
            "beside": lambda one: self._link.load_model(one.id, replace=False),
            "unload": lambda one: self._link.unload_model(one.id),
            "plan": self.open_plan,
            "quantize": self.open_quantize,
            "verify": lambda one: self._context.models.verify(one.id),
            "remove": self._context.removals.remove,
            "folder": lambda one: _open_folder(Path(one.path).parent),
        }
        actions[action](model)

    def _chat(self, model: InstalledModel) -> None:
        loaded = self._link.model(model.id)
        if loaded is not None and loaded.state == "ready":
            self.page_wanted.emit("chat")
        else:
            self.chat_wanted.emit(model.id)


def _open_folder(folder: Path) -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
