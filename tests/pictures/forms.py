"""Forms of answers in the inspector and the transcript, of one size; see `tests.pictures`."""

import sys
import tempfile
from pathlib import Path

import msgspec

from app.answer_form import Form
from app.context import AppContext
from app.ui.chat.inspector import Inspector
from app.ui.controls.fold import Fold
from app.ui.window import MainWindow
from runtime.messages.api import ModelChanged
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, ready_model, words
from tests.fakes.fake_host import FakeHost
from tests.pictures.shoot import Shooter

ANSWER = """{
  "name": "Ada Lovelace",
  "age": 36,
  "known_for": ["the first program", "notes on the Analytical Engine"],
  "alive": false
}"""

WRONG = """{
  "type": "object",
  "properties": {
    "name": { "type": "strng" }
  }
}"""


class FormShooter(Shooter):
    """Takes the states of the form editor."""

    def run(self, host: FakeHost, folder: DataFolder) -> None:
        """Go through them."""
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected and not context.session.is_loading)
        model = ready_model()
        assert model.facts is not None
        facts = msgspec.structs.replace(model.facts, reasoning=True)
        host.emit(ModelChanged(msgspec.structs.replace(model, facts=facts)))
        window.chat._show_inspector(True)
        inspector = window.chat._inspector
        assert isinstance(inspector, Inspector)
        self.choose(inspector, "schema")
        host.replies.append(Reply(words(ANSWER)))
        window.chat.send("Who wrote the first program?")
        self.wait(lambda: bool(context.session.messages()) and not context.session.is_busy)
        self.rest(1.0)
        self.shoot(window, "j-schema")
        inspector.form.field.setPlainText(WRONG)
        self.rest(1.0)
        self.shoot(window, "j-schema-wrong")
        inspector.form.stop()
        self.choose(inspector, "grammar")
        self.rest(0.8)
        for fold in inspector.findChildren(Fold):
            fold.set_open(fold.isAncestorOf(inspector.reasoning) or fold.isAncestorOf(inspector.form))
        self.rest()
        self.shoot(window, "j-grammar")
        window.close()
        self.wait(lambda: context.is_closed)

    def choose(self, inspector: Inspector, form: Form) -> None:
        """Choose a form as a person does."""
        choice = inspector.form.choice
        choice.setCurrentIndex(choice.findData(form))
        choice.activated.emit(choice.currentIndex())
        self.rest(0.6)


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [page ...]."""
    out, size, width, height, *only = sys.argv[1:]
    if (only and not any(one.startswith("j") for one in only)) or int(width) < 1000:
        return 0  # in a narrow window the inspector is hidden
    shooter = FormShooter(Path(out), size, int(width), int(height), only)
    with tempfile.TemporaryDirectory() as data, FakeHost() as host:
        shooter.run(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
