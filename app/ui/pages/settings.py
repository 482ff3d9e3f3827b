"""Settings of the program: appearance, the model of the start, the data folder, what happens on closing."""

from PySide6.QtCore import QCoreApplication, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QWidget

from app.context import AppContext
from app.settings import Theme
from app.ui.appearance import Appearance
from app.ui.controls.buttons import TintedButton
from app.ui.controls.labels import ElidedLabel, label
from app.ui.pages.base import Card, Page, SettingRow
from app.ui.pages.settings_models import HubCard, ModelsCard
from app.ui.pages.tool_servers import PermissionsCard, ServersCard
from app.ui.theme import Size, Space


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("SettingsPage", text)


class SettingsPage(Page):
    """Every change counts at once and is saved by itself."""

    theme_wanted = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Settings"), tr("Changes count at once and are saved by themselves."), parent)
        self._context = context
        look = Card(tr("Appearance"))
        self._theme = QComboBox()
        self._theme.setFixedWidth(Size.FIELD_W)
        for text, value in ((tr("As the system"), "system"), (tr("Light"), "light"), (tr("Dark"), "dark")):
            self._theme.addItem(text, value)
        self._theme.activated.connect(lambda at: self.theme_wanted.emit(self._theme.itemData(at)))
        look.column.addWidget(SettingRow(tr("Colours"), tr("Follow the desktop, or always the same."), self._theme))
        self.column.addWidget(look)

        start = Card(tr("Start"))
        self._model = QComboBox()
        self._model.setFixedWidth(Size.FIELD_W)
        self._model.activated.connect(
            lambda at: context.settings.update(last_model=str(self._model.itemData(at) or ""))
        )
        start.column.addWidget(
            SettingRow(
                tr("Model at start"), tr("Loaded after the window opens; the one used last by itself."), self._model
            )
        )
        self._preset = QComboBox()
        self._preset.setFixedWidth(Size.FIELD_W)
        self._preset.activated.connect(lambda at: context.presets.set_default(str(self._preset.itemData(at) or "")))
        start.column.addWidget(
            SettingRow(
                tr("Preset for new chats"), tr("System prompt and sampling every new chat begins with."), self._preset
            )
        )
        self.column.addWidget(start)

        self.models = ModelsCard(context, appearance)
        self.column.addWidget(self.models)
        self.hub = HubCard(context)
        self.column.addWidget(self.hub)

        self.tool_servers = ServersCard(context, appearance)
        self.column.addWidget(self.tool_servers)
        self.permissions = PermissionsCard(context, appearance)
        self.column.addWidget(self.permissions)

        data = Card(tr("Data"))
        row = QWidget()
        inside = QHBoxLayout(row)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(Space.S)
        path = ElidedLabel(str(context.folder.root))
        path.setFont(appearance.font(code=True))
        inside.addWidget(path, 1)
        show = TintedButton(appearance, "folder", tr("Open"))
        show.setAccessibleName(tr("Open the data folder"))
        show.clicked.connect(lambda _checked=False: self._open(str(context.folder.root)))
        inside.addWidget(show)
        data.column.addWidget(
            label(
                tr("Chats and settings are kept here, and nowhere else. Only tools you allow send anything out."),
                "small",
                wrap=True,
            )
        )
        data.column.addWidget(row)
        logs = TintedButton(appearance, "list", tr("Open logs"))
        logs.clicked.connect(lambda _checked=False: self._open(str(context.folder.logs)))
        data.column.addWidget(SettingRow(tr("Logs"), tr("What the engine did; helpful when something fails."), logs))
        self.column.addWidget(data)

        about = Card(tr("About"))
        self._version = label("", "muted", wrap=True)
        about.column.addWidget(self._version)
        self.column.addWidget(about)
        self.column.addStretch(1)

        context.settings.changed.connect(self._show)
        context.presets.changed.connect(self._show)
        context.link.installed_changed.connect(self._show)
        context.link.connected.connect(self._show)
        self._show()

    def _show(self) -> None:
        values = self._context.settings.values
        theme: Theme = values.theme
        self._theme.setCurrentIndex(self._theme.findData(theme))
        self._fill(
            self._model,
            tr("Starter model"),
            [
                (model.name, model.id)
                for model in self._context.link.installed
                if model.kind == "chat" and not model.problem
            ],
            values.last_model,
        )
        presets = [(preset.name, preset.id) for preset in self._context.presets.all]
        self._fill(self._preset, tr("None"), presets, self._context.presets.default.id)
        status = self._context.link.status
        version = status.version if status is not None else tr("the engine is starting")
        self._version.setText(tr("Deskside {version}. Apache-2.0 licence.").format(version=version))

    @staticmethod
    def _fill(box: QComboBox, nothing: str, rows: list[tuple[str, str]], chosen: str) -> None:
        wanted = [(nothing, ""), *rows]
        if [(box.itemText(at), box.itemData(at)) for at in range(box.count())] != wanted:
            box.clear()
            for text, value in wanted:
                box.addItem(text, value)
        box.setCurrentIndex(max(0, box.findData(chosen)))

    @staticmethod
    def _open(folder: str) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(folder))
