"""One attachment as a button: a thumbnail, or icon, name and size; opens it large."""

from PySide6.QtCore import QCoreApplication, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.store.records import Attachment
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.icons import paint_icon
from app.ui.theme import Size, Space, Type
from runtime.units import format_bytes

ICONS = {"image": "picture", "audio": "sound", "text": "file"}


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("FileTile", text)


def spoken_name(one: Attachment) -> str:
    """What a screen reader says of an attachment."""
    kinds = {"image": tr("Picture"), "audio": tr("Sound"), "text": tr("Text file")}
    facts = [kinds[one.kind], one.name]
    if one.width_px:
        facts.append(tr("{width} by {height} pixels").format(width=one.width_px, height=one.height_px))
    return ", ".join(fact for fact in facts if fact)


class FileTile(QAbstractButton):
    """Paints the attachment; `clicked` asks to open it. Its size is known before the picture is decoded."""

    def __init__(
        self, appearance: Appearance, pictures: Pictures, attachment: Attachment, box: QSize, parent: QWidget | None
    ) -> None:
        """`box` is the largest size of a picture, in device-independent pixels."""
        super().__init__(parent)
        self.attachment = attachment
        self._appearance = appearance
        self._pictures = pictures
        self.setAccessibleName(spoken_name(attachment))
        self.setToolTip(self._tip())
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if attachment.kind == "image":
            self.setCursor(Qt.CursorShape.PointingHandCursor)
            self.setAccessibleDescription(tr("Opens large"))
        self.setFixedSize(picture_size(attachment, box) if attachment.kind == "image" else self._chip_size())
        pictures.ready.connect(self._on_ready)
        appearance.changed.connect(self.update)

    def _tip(self) -> str:
        one = self.attachment
        size = format_bytes(one.size_bytes)
        if one.width_px:
            return " · ".join(fact for fact in (one.name, f"{one.width_px} x {one.height_px}", size) if fact)
        return " · ".join(fact for fact in (one.name, size) if fact)

    def _chip_size(self) -> QSize:
        metrics = QFontMetrics(self._appearance.font())
        width = min(metrics.horizontalAdvance(self.attachment.name), Size.FIELD_W)
        least = QFontMetrics(self._appearance.font(Type.SMALL)).horizontalAdvance("000.0 MiB")
        return QSize(Space.S + Size.ICON_L + Space.XS + max(width, least) + Space.S + Size.FOCUS, Size.ROW_TALL_H)

    def _on_ready(self, sha256: str) -> None:
        if sha256 == self.attachment.sha256:
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        half = Size.LINE / 2
        box = QRectF(self.rect()).adjusted(half, half, -half, -half)
        shape = QPainterPath()
        shape.addRoundedRect(box, Size.RADIUS, Size.RADIUS)
        painter.fillPath(shape, self._appearance.color("panel"))
        if self.attachment.kind == "image":
            self._paint_picture(painter, shape)
        else:
            self._paint_chip(painter)
        focused = self.hasFocus()
        painter.setBrush(Qt.BrushStyle.NoBrush)
        width = Size.FOCUS if focused else Size.LINE
        painter.setPen(QPen(self._appearance.color("accent" if focused else "line_strong"), width))
        painter.drawPath(shape)

    def _paint_picture(self, painter: QPainter, shape: QPainterPath) -> None:
        ratio = self.devicePixelRatioF()
        wanted = QSize(round(self.width() * ratio), round(self.height() * ratio))
        # Thin pictures are cut to their box: ask for what fills it.
        natural = QSize(self.attachment.width_px or wanted.width(), self.attachment.height_px or wanted.height())
        filling = natural.scaled(wanted, Qt.AspectRatioMode.KeepAspectRatioByExpanding)
        pixmap = self._pictures.get(self.attachment.sha256, filling)
        if pixmap is None:
            lost = self._pictures.is_lost(self.attachment.sha256)
            side = min(Size.ICON_L, self.width() // 2, self.height() // 2)
            spot = QRectF(0, 0, side, side)
            spot.moveCenter(QRectF(self.rect()).center())
            paint_icon(painter, "warning" if lost else "picture", self._appearance.tokens.text_muted, spot)
            if lost:
                self.setAccessibleDescription(tr("The picture was lost"))
                self.setToolTip(tr("The picture was lost"))
            return
        painter.save()
        painter.setClipPath(shape)
        size = pixmap.size().scaled(self.size(), Qt.AspectRatioMode.KeepAspectRatioByExpanding)
        target = QRectF(0, 0, size.width(), size.height())
        target.moveCenter(QRectF(self.rect()).center())
        painter.drawPixmap(target, pixmap, QRectF(pixmap.rect()))
        painter.restore()

    def _paint_chip(self, painter: QPainter) -> None:
        spot = QRectF(Space.S, 0, Size.ICON_L, Size.ICON_L)
        spot.moveTop((self.height() - spot.height()) / 2)
        paint_icon(painter, ICONS[self.attachment.kind], self._appearance.tokens.text_muted, spot)
        words = QRectF(spot.right() + Space.XS, Space.XS, self.width(), self.height() - 2 * Space.XS)
        words.setRight(self.width() - Space.S)
        font = self._appearance.font()
        painter.setFont(font)
        painter.setPen(self._appearance.color("text"))
        name = QFontMetrics(font).elidedText(
            self.attachment.name, Qt.TextElideMode.ElideMiddle, round(words.width()) + Size.FOCUS
        )
        painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, name)
        painter.setFont(self._appearance.font(Type.SMALL))
        painter.setPen(self._appearance.color("text_muted"))
        size = format_bytes(self.attachment.size_bytes)
        painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, size)


def picture_size(one: Attachment, box: QSize) -> QSize:
    """How large a picture is drawn: whole within the box, never enlarged, and never too thin to hit."""
    natural = QSize(one.width_px or box.width(), one.height_px or box.height())
    size = natural
    if natural.width() > box.width() or natural.height() > box.height():
        size = natural.scaled(box, Qt.AspectRatioMode.KeepAspectRatio)
    return size.expandedTo(QSize(Size.CONTROL_H, Size.CONTROL_H)).boundedTo(box)
