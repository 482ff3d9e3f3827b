"""Reading what a person types: line editing and a history that outlives the program, where readline is there.

On Windows the console itself edits lines and keeps the history of the session.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

MAX_HISTORY_LINES = 1000
"""Lines kept in the history file; the oldest go first."""


class PromptLine:
    """Asks for lines. Keeps the history in `history_path`, readable by this account only."""

    def __init__(self, history_path: Path, ask: Callable[[str], str] = input) -> None:
        self._history_path = history_path
        self._ask = ask
        self._is_open = False
        self._open_history()

    def read(self, prompt: str, more_prompt: str) -> str:
        """One message; a line that ends with a backslash goes on in the next.

        Raises:
            EOFError: the person closed the input.
            KeyboardInterrupt: Ctrl-C.
        """
        lines = [self._ask(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(self._ask(more_prompt))
        return "\n".join(lines).strip()

    def close(self) -> None:
        """Write the history; a folder that cannot be written costs only the history."""
        if not self._is_open:
            return
        self._is_open = False
        if sys.platform != "win32":
            import readline

            with contextlib.suppress(OSError):
                self._history_path.parent.mkdir(parents=True, exist_ok=True)
                self._history_path.touch(mode=0o600)
                readline.write_history_file(self._history_path)

    def _open_history(self) -> None:
        if sys.platform != "win32":
            try:
                import readline
            except ImportError:  # a Python built without it
                return
            self._is_open = True
            readline.set_history_length(MAX_HISTORY_LINES)
            with contextlib.suppress(OSError):
                readline.read_history_file(self._history_path)
