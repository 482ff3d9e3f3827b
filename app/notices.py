"""What the program says to the person, from anywhere, without knowing a window.

Notices said before a window listens are kept (bounded) and handed over by `take_waiting`.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

Level = Literal["info", "warning", "error"]

MAX_KEPT = 50
"""Most notices kept (waiting, or with an action that may still be taken); the oldest goes first."""


@dataclass(frozen=True, slots=True)
class Note:
    """One notice.

    Attributes:
        id: for `Notices.withdraw` and `Notices.activate`.
        level: how bad it is.
        text: the sentence.
        action_label: text of the one button that helps; empty when there is none.
        lasts: it holds until it is withdrawn, and is shown as long.
    """

    id: int
    level: Level
    text: str
    action_label: str = ""
    lasts: bool = False


class Notices(QObject):
    """Home thread: main."""

    said = Signal(object)
    """`Note`: something was said. Emitted only while a window listens (after `take_waiting`)."""

    withdrawn = Signal(int)
    """Id of a notice that no longer holds (the host answers again); a window takes it down."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._next_id = 1
        self._listening = False
        self._waiting: OrderedDict[int, Note] = OrderedDict()
        self._actions: OrderedDict[int, Callable[[], None]] = OrderedDict()

    def say(
        self,
        level: Level,
        text: str,
        *,
        action_label: str = "",
        on_action: Callable[[], None] | None = None,
        lasts: bool = False,
    ) -> int:
        """Say a sentence; `on_action` runs on the main thread when the person presses the button.

        One that `lasts` is shown until it is withdrawn or the person takes it down.

        Returns:
            The notice's id, for `withdraw`.
        """
        note = Note(self._next_id, level, text, action_label if on_action is not None else "", lasts)
        self._next_id += 1
        if on_action is not None:
            self._actions[note.id] = on_action
            while len(self._actions) > MAX_KEPT:
                self._actions.popitem(last=False)
        if self._listening:
            self.said.emit(note)
        else:
            self._waiting[note.id] = note
            while len(self._waiting) > MAX_KEPT:
                self._waiting.popitem(last=False)
        return note.id

    def withdraw(self, note_id: int) -> None:
        """Take a notice back; unknown ids are ignored."""
        self._actions.pop(note_id, None)
        if self._waiting.pop(note_id, None) is None and self._listening:
            self.withdrawn.emit(note_id)

    def activate(self, note_id: int) -> None:
        """The person pressed the notice's button: run its action, once."""
        action = self._actions.pop(note_id, None)
        if action is not None:
            action()

    def take_waiting(self) -> tuple[Note, ...]:
        """The notices said so far; from now on `said` is emitted instead."""
        self._listening = True
        waiting = tuple(self._waiting.values())
        self._waiting.clear()
        return waiting
