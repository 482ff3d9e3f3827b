"""Who may reach the API and how: port, network, encryption, web pages, log, pictures."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.fields import ChoiceField, IntField
from app.ui.controls.labels import breakable, label
from app.ui.controls.switch import Switch
from app.ui.pages.base import Card, SettingRow
from app.ui.server.words import EVERYWHERE, HERE, is_lan, tr
from app.ui.theme import Size, Space
from runtime import units
from runtime.messages.api import ApiState, Certificate
from runtime.options import ApiOptions

LARGEST_PORT = 65_535


class OptionsCard(Card):
    """Shows `ApiOptions` and asks for changes."""

    changed = Signal(dict)
    """Fields of `ApiOptions` by name."""

    copied = Signal(str)

    def __init__(self, appearance: Appearance, log_folder: Path, parent: QWidget | None = None) -> None:
        super().__init__(tr("Settings"), parent)
        self._appearance = appearance
        self._log_folder = log_folder
        self._options = ApiOptions()
        self._build_network()
        self._build_encryption()
        self._build_pages()
        self._build_rest()

    # --- building

    def _switch(self, title: str, text: str, change: Callable[[bool], dict[str, object]]) -> Switch:
        made = Switch(self._appearance, title)
        made.clicked.connect(lambda checked=False: self.changed.emit(change(checked)))
        self.column.addWidget(SettingRow(title, text, made))
        return made

    def _build_network(self) -> None:
        self.port = IntField()
        self.port.setRange(0, LARGEST_PORT)
        self.port.setKeyboardTracking(False)
        self.port.setFixedWidth(Size.FIELD_SMALL_W + Space.L)
        self.port.editingFinished.connect(self.on_port)
        self.column.addWidget(SettingRow(tr("Port"), tr("0 lets the system choose a free one."), self.port))
        self.lan = self._switch(
            tr("Reachable from the local network"),
            tr("Off: only programs on this computer. On: every device in the same network that has the address."),
            lambda on: {"host": EVERYWHERE if on else HERE},
        )

    def _build_encryption(self) -> None:
        self.tls = ChoiceField()
        for text, value in (
            (tr("Off"), "off"),
            (tr("With a certificate made here"), "own"),
            (tr("With my own certificate"), "files"),
        ):
            self.tls.addItem(text, value)
        self.tls.setFixedWidth(Size.FIELD_W + Space.XL)
        self.tls.activated.connect(self._on_tls)
        self.column.addWidget(
            SettingRow(
                tr("Encryption (HTTPS)"),
                tr("Programs must trust the certificate; one made here is told apart by its fingerprint."),
                self.tls,
            )
        )
        self._files = QWidget()
        column = QVBoxLayout(self._files)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.XS)
        self.certificate = self._file_row(column, tr("Certificate file"), "certificate_file")
        self.key = self._file_row(column, tr("Private key file"), "key_file")
        self.column.addWidget(self._files)
        self._shown_certificate = QFrame()
        self._shown_certificate.setProperty("role", "code-card")
        inside = QHBoxLayout(self._shown_certificate)
        inside.setContentsMargins(Space.M, Space.XS, Space.HAIR, Space.XS)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        self.fingerprint = label("", wrap=True)
        self.fingerprint.setFont(self._appearance.font(code=True))
        self._validity = label("", "small", wrap=True)
        words.addWidget(self._validity)
        words.addWidget(self.fingerprint)
        inside.addLayout(words, 1)
        copy = IconButton(self._appearance, "copy", tr("Copy the fingerprint"))
        copy.clicked.connect(lambda _checked=False: self.copied.emit(self.fingerprint.text().replace("\u200b", "")))
        inside.addWidget(copy)
        self._open_certificate = IconButton(self._appearance, "folder", tr("Show the certificate file"))
        self._open_certificate.clicked.connect(lambda _checked=False: self._show_certificate_file())
        inside.addWidget(self._open_certificate)
        self._certificate_path = ""
        self.column.addWidget(self._shown_certificate)

    def _file_row(self, column: QVBoxLayout, title: str, field: str) -> QLineEdit:
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        name = label(title)
        name.setFixedWidth(Size.LABEL_W)
        row.addWidget(name)
        path = QLineEdit()
        path.setPlaceholderText(tr("PEM file"))
        path.setAccessibleName(title)
        path.editingFinished.connect(lambda: self._on_file(field, path.text()))
        row.addWidget(path, 1)
        choose = push_button(tr("Choose…"), lambda: self._choose_file(title, field))
        choose.setAccessibleName(f"{title}: {tr('Choose…')}")
        row.addWidget(choose)
        column.addLayout(row)
        return path

    def _build_pages(self) -> None:
        self.origins = self._words_row(
            tr("Allowed origins"),
            tr("Web pages that may call the API, apart by spaces. None by default, so that no page you visit can."),
            "https://example.com",
            "allowed_origins",
        )
        self.hosts = self._words_row(
            tr("Allowed hosts"),
            tr("Names this computer is called by in the network, beside its own; apart by spaces."),
            "desk.example.lan",
            "allowed_hosts",
        )

    def _words_row(self, title: str, text: str, example: str, field: str) -> QLineEdit:
        made = QLineEdit()
        made.setPlaceholderText(example)
        made.setFixedWidth(Size.FIELD_W + Space.XL)
        made.editingFinished.connect(lambda: self._on_words(field, made.text()))
        self.column.addWidget(SettingRow(title, text, made))
        return made

    def _build_rest(self) -> None:
        self.log = ChoiceField()
        for text, value in (
            (tr("Off"), "off"),
            (tr("Who, which model, how long"), "metadata"),
            (tr("With what was said"), "text"),
        ):
            self.log.addItem(text, value)
        self.log.setFixedWidth(Size.FIELD_W + Space.XL)
        self.log.activated.connect(lambda at: self.changed.emit({"request_log": self.log.itemData(at)}))
        self.column.addWidget(
            SettingRow(
                tr("Request log"),
                tr("A file on this computer. Texts are only written when you choose so."),
                self.log,
            )
        )
        self._open_log = push_button(tr("Open the log folder"), self._show_logs, kind="quiet")
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self._open_log)
        self.column.addLayout(row)
        self.pictures = self._switch(
            tr("Fetch pictures from the web"),
            tr("Programs may name pictures by their web address, which this computer then fetches. Off, they must "
               "send the picture itself."),
            lambda on: {"fetch_pictures": on},
        )  # fmt: skip
        self.keep = self._switch(
            tr("Stay on when the window is closed"),
            tr("The API and the loaded models stay."),
            lambda on: {"keep_when_window_closes": on},
        )

    # --- showing

    def show_state(self, state: ApiState | None, *, known: bool) -> None:
        """Show the options in force; fields that a person is in stay."""
        self.setEnabled(known)
        self._options = options = state.options if state is not None else ApiOptions()
        if not self.port.hasFocus():
            self.port.setValue(options.port)
        self.lan.setChecked(is_lan(options))
        self.tls.setCurrentIndex(max(0, self.tls.findData(options.tls)))
        self._files.setVisible(options.tls == "files")
        self.log.setCurrentIndex(max(0, self.log.findData(options.request_log)))
        self._open_log.setVisible(options.request_log != "off")
        self.pictures.setChecked(options.fetch_pictures)
        self.keep.setChecked(options.keep_when_window_closes)
        for field, text in (
            (self.origins, " ".join(options.allowed_origins)),
            (self.hosts, " ".join(options.allowed_hosts)),
            (self.certificate, options.certificate_file),
            (self.key, options.key_file),
        ):
            if not field.hasFocus():
                field.setText(text)
        self._show_certificate(state.certificate if state is not None else None)

    def _show_certificate(self, certificate: Certificate | None) -> None:
        self._shown_certificate.setVisible(certificate is not None)
        if certificate is None:
            return
        self._certificate_path = certificate.file
        self._open_certificate.setVisible(bool(certificate.file))
        day = units.local_date(certificate.expires_s).isoformat()
        names = ", ".join(certificate.names)
        self._validity.setText(tr("SHA-256 fingerprint. For {names}; valid until {day}.").format(names=names, day=day))
        self.fingerprint.setText(breakable(certificate.fingerprint))

    # --- what a person does

    def on_port(self) -> None:
        """The port was entered."""
        if self.port.value() != self._options.port:
            self.changed.emit({"port": self.port.value()})

    def _on_tls(self, at: int) -> None:
        wanted = str(self.tls.itemData(at))
        if wanted == "files" and not (self._options.certificate_file and self._options.key_file):
            self._files.setVisible(True)  # it is turned on once both files are named
            return
        self.changed.emit({"tls": wanted})

    def _on_file(self, field: str, path: str) -> None:
        if path.strip() == getattr(self._options, field):
            return
        changes: dict[str, object] = {field: path.strip()}
        both = {"certificate_file": self.certificate.text().strip(), "key_file": self.key.text().strip()}
        if all(both.values()) and self.tls.currentData() == "files":
            changes |= both | {"tls": "files"}
        self.changed.emit(changes)

    def _choose_file(self, title: str, field: str) -> None:
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters([tr("PEM files (*.pem *.crt *.cer *.key)"), tr("All files (*)")])

        def chosen(path: str) -> None:
            (self.certificate if field == "certificate_file" else self.key).setText(path)
            self._on_file(field, path)

        dialog.fileSelected.connect(chosen)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _on_words(self, field: str, text: str) -> None:
        words = tuple(text.replace(",", " ").split())
        if words != getattr(self._options, field):
            self.changed.emit({field: words})

    def _show_logs(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._log_folder)))

    def _show_certificate_file(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(Path(self._certificate_path).parent)))
