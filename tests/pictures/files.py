"""Pictures and files in the chat, of one size; see `tests.pictures`."""

import sys
import tempfile
from pathlib import Path

import msgspec
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QLinearGradient, QPainter

from app.context import AppContext
from app.ui.window import MainWindow
from runtime.messages.api import InstalledChanged, LoadedModel, ModelChanged
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, installed_model, ready_model, words
from tests.fakes.fake_host import FakeHost
from tests.pictures.shoot import Shooter

ANSWER = (
    "The picture shows **evening over hills**: a low sun at the right, three ridges that get darker towards the "
    "viewer, and a clear sky that goes from blue to orange.\n\nThe notes you attached mention the same place; the "
    "second picture was taken later, when the sun was gone."
)


def landscape(width: int, height: int, hour: float) -> QImage:
    """Hills under an evening sky; `hour` 0..1 is how late it is."""
    image = QImage(width, height, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    sky = QLinearGradient(0, 0, 0, height)
    sky.setColorAt(0, QColor.fromHsvF(0.6, 0.6, 0.95 - hour * 0.6))
    sky.setColorAt(0.7, QColor.fromHsvF(0.08, 0.6, 1.0 - hour * 0.4))
    painter.fillRect(image.rect(), sky)
    painter.setPen(Qt.PenStyle.NoPen)
    if hour < 0.5:
        painter.setBrush(QColor("#fff1c9"))
        painter.drawEllipse(QRectF(width * 0.7, height * 0.45, height * 0.12, height * 0.12))
    for ridge in range(3):
        painter.setBrush(QColor.fromHsvF(0.62, 0.35, 0.5 - ridge * 0.14 - hour * 0.1))
        top = height * (0.6 + ridge * 0.12)
        points = [QPointF(0, height)]
        steps = 24
        points += [
            QPointF(width * at / steps, top + height * 0.06 * (((at * (7 + ridge)) % 11) / 11 - 0.5))
            for at in range(steps + 1)
        ]
        points.append(QPointF(width, height))
        painter.drawPolygon(points)
    painter.end()
    return image


def seeing() -> LoadedModel:
    """The model behind the pictures, able to see."""
    model = ready_model(name="Qwen2.5 VL 3B Instruct")
    assert model.facts is not None
    return msgspec.structs.replace(model, facts=msgspec.structs.replace(model.facts, can_see=True))


class FilesShooter(Shooter):
    """Takes the states of files in the chat."""

    def run(self, host: FakeHost, folder: DataFolder) -> None:
        """Go through them."""
        there = folder.root / "mine"
        there.mkdir()
        landscape(1600, 1000, 0.1).save(str(there / "hills.jpg"))
        landscape(900, 1400, 0.8).save(str(there / "later.png"))
        (there / "notes-of-the-walk.md").write_text(
            "# The walk\n\nUp the hill, down the hill.\n" * 40, encoding="utf-8"
        )
        paths = [there / "hills.jpg", there / "later.png", there / "notes-of-the-walk.md"]
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected and not context.session.is_loading)
        self.attach(context, window, paths[:1])
        window.chat.composer.set_text("What is in this picture?")
        self.rest(0.6)
        self.shoot(window, "a-files-cannot-see")
        host.emit(InstalledChanged((installed_model(name="Qwen2.5 VL 3B Instruct"),)))
        host.emit(ModelChanged(seeing()))
        self.wait(lambda: context.session.draft.obstacle is None)
        self.attach(context, window, paths[1:])
        self.rest(0.8)
        self.shoot(window, "a-files-composer")
        window.chat._drop_area.setGeometry(window.chat._centre.rect())
        window.chat._drop_area.show()
        window.chat._drop_area.raise_()
        self.rest()
        self.shoot(window, "a-files-drag")
        window.chat._drop_area.hide()
        host.replies.append(Reply(words(ANSWER)))
        window.chat.send(window.chat.composer.text)
        self.wait(lambda: bool(context.session.messages()) and not context.session.is_busy)
        self.rest(0.8)
        self.shoot(window, "a-files-sent")
        self.attach(context, window, paths[:1])
        host.replies.append(Reply(words("It is the same place, seen from the same spot.")))
        window.chat.send("And this one alone?")
        self.wait(lambda: len(context.session.messages()) > 2 and not context.session.is_busy)
        self.rest(0.8)
        self.shoot(window, "a-files-alone")
        files = context.session.messages()[0].attachments
        window.viewer.open(files[:2], files[0].sha256)
        self.rest(0.8)
        self.shoot(window, "a-files-large")
        window.viewer.close_viewer()
        window.close()
        self.wait(lambda: context.is_closed)

    def attach(self, context: AppContext, window: MainWindow, paths: list[Path]) -> None:
        """Attach files as a drop does."""
        before = len(context.session.draft.files)
        window.chat._intake.take_paths(paths, context.session.conversation_id)
        self.wait(lambda: len(context.session.draft.files) == before + len(paths))


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [page ...]."""
    out, size, width, height, *only = sys.argv[1:]
    shooter = FilesShooter(Path(out), size, int(width), int(height), only)
    if only and not any(one.startswith("a") for one in only):
        return 0
    with tempfile.TemporaryDirectory() as data, FakeHost() as host:
        shooter.run(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
