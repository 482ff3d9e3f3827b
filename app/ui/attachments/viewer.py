"""A picture over the whole window, as large as it fits."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.media import Media
from app.store.records import Attachment
from app.tasks import Lane
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.attachments.prepare import decode
from app.ui.attachments.tile import spoken_name
from app.ui.controls.buttons import IconButton
from app.ui.controls.labels import ElidedLabel
from app.ui.theme import Size, Space

DIM = 225
"""How much the window behind is darkened, of 255."""


class PictureViewer(QWidget):
    """Covers `over`; Escape or a click beside the picture closes it, the arrow keys show its neighbours."""

    said = Signal(str, str)
    """Level and sentence."""

    def __init__(self, appearance: Appearance, pictures: Pictures, media: Media, lane: Lane, over: QWidget) -> None:
        super().__init__(over)
        self._appearance = appearance
        self._pictures = pictures
        self._media = media
        self._lane = lane
        self._over = over
        self._all: tuple[Attachment, ...] = ()
        self._at = 0
        self._back: QWidget | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Picture"))
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.M, Space.S, Space.M, Space.S)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        self._name = ElidedLabel()
        row.addWidget(self._name, 1)
        self._buttons: list[IconButton] = []
        for icon, text, act in (
            ("chevron-left", self.tr("Previous picture"), partial(self._step, -1)),
            ("chevron-right", self.tr("Next picture"), partial(self._step, 1)),
            ("copy", self.tr("Copy the picture"), self._copy),
            ("download", self.tr("Save the picture…"), self._ask_where),
            ("close", self.tr("Close"), self.close_viewer),
        ):
            button = IconButton(appearance, icon, text, size=Size.ICON_L, ink="on_accent")
            button.clicked.connect(lambda _checked=False, act=act: act())
            row.addWidget(button)
            self._buttons.append(button)
        column.addLayout(row)
        column.addStretch(1)
        self._name.setStyleSheet(f"color: {appearance.tokens.on_accent};")
        over.installEventFilter(self)
        pictures.ready.connect(lambda _sha256: self.update())
        self.hide()

    @property
    def shown(self) -> Attachment | None:
        """The picture shown."""
        return self._all[self._at] if self._all and not self.isHidden() else None

    def open(self, pictures: tuple[Attachment, ...], sha256: str) -> None:
        """Show the picture of this hash; the others are its neighbours."""
        self._all = pictures
        self._at = next((at for at, one in enumerate(pictures) if one.sha256 == sha256), 0)
        self._back = self._over.focusWidget()
        self.setGeometry(self._over.rect())
        for button in self._buttons[:2]:
            button.setVisible(len(pictures) > 1)
        self._show()
        self.show()
        self.raise_()
        self.setFocus(Qt.FocusReason.PopupFocusReason)

    def close_viewer(self) -> None:
        """Go back to what was there."""
        self.hide()
        if self._back is not None:
            self._back.setFocus(Qt.FocusReason.OtherFocusReason)
            self._back = None

    def _show(self) -> None:
        one = self._all[self._at]
        place = f"   {self._at + 1} / {len(self._all)}" if len(self._all) > 1 else ""
        size = f"{one.width_px} x {one.height_px}" if one.width_px else ""
        self._name.setText("   ".join(fact for fact in (one.name, size) if fact) + place)
        self.setAccessibleName(spoken_name(one))
        self.update()

    def _step(self, step: int) -> None:
        if self._all:
            self._at = (self._at + step) % len(self._all)
            self._show()

    def _room(self) -> QRectF:
        top = Space.S + Size.CONTROL_H + Space.XS
        return QRectF(self.rect()).adjusted(Space.L, top, -Space.L, -Space.L)

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        ground = QColor(self._appearance.tokens.shadow)
        ground.setAlpha(DIM)
        painter.fillRect(self.rect(), ground)
        one = self.shown
        if one is None:
            return
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        room = self._room()
        ratio = self.devicePixelRatioF()
        natural = QSize(one.width_px or 1, one.height_px or 1)
        fitting = natural.scaled((room.size() * ratio).toSize(), Qt.AspectRatioMode.KeepAspectRatio)
        wanted = fitting.boundedTo(natural)
        pixmap = self._pictures.get(one.sha256, wanted)
        # Until it is decoded large, nothing is drawn: on most machines that is shorter than a blink.
        if pixmap is None:
            painter.setPen(self._appearance.color("on_accent"))
            lost = self._pictures.is_lost(one.sha256)
            painter.drawText(room, Qt.AlignmentFlag.AlignCenter, self.tr("The picture was lost") if lost else "…")
            return
        size = pixmap.size() / ratio
        # A small picture is shown at twice its size at most, so that an icon stays an icon.
        size = size.scaled(room.size().toSize(), Qt.AspectRatioMode.KeepAspectRatio).boundedTo(natural * 2)
        target = QRectF(0, 0, size.width(), size.height())
        target.moveCenter(room.center())
        painter.drawPixmap(target, pixmap, QRectF(pixmap.rect()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() == Qt.Key.Key_Escape:
            self.close_viewer()
        elif event.key() in keys:
            self._step(keys[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        del event
        self.close_viewer()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._over and event.type() == QEvent.Type.Resize:
            self.setGeometry(self._over.rect())
        return False

    # --- copy and save

    def _copy(self) -> None:
        one = self.shown
        if one is None:
            return

        def copy(data: Mapping[str, bytes]) -> None:
            raw = data.get(one.sha256)
            if raw is not None:
                self._lane.submit(partial(decode, raw), self._copied)

        self._media.fetch((one.sha256,), copy)

    def _copied(self, image: QImage) -> None:
        QGuiApplication.clipboard().setImage(image)
        self.said.emit("info", self.tr("Copied the picture"))

    def _ask_where(self) -> None:
        one = self.shown
        if one is None:
            return
        ending = "jpg" if one.mime == "image/jpeg" else "png"
        stem = Path(one.name).stem if one.name else self.tr("picture")
        dialog = QFileDialog(self.window(), self.tr("Save the picture"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ending)
        dialog.selectFile(f"{stem}.{ending}")
        dialog.fileSelected.connect(lambda path: self._media.fetch((one.sha256,), partial(self._save, one, Path(path))))
        dialog.open()

    def _save(self, one: Attachment, path: Path, data: Mapping[str, bytes]) -> None:
        raw = data.get(one.sha256)
        if raw is None:
            self.said.emit("error", self.tr("The picture was lost"))
            return
        self._lane.submit(
            lambda: path.write_bytes(raw),
            lambda _written: self.said.emit("info", self.tr("Saved {name}").format(name=path.name)),
            lambda error: self.said.emit("error", self.tr("Could not save {path}: {why}").format(path=path, why=error)),
        )
