"""Imports what the first answer will need, for a lane to do while nothing else goes on."""

import gc
from importlib import import_module

from app.ui.transcript.formulas import import_library
from app.ui.transcript.lexers import find_lexer, polite_thread


def warm_up() -> None:
    """Import the Markdown parser, a lexer and the formula library (three quarters of a second of work)."""
    with polite_thread():
        import_module("app.ui.markdown.parse").mend("")
    find_lexer("python")
    import_library()
    # What stands now stays for good: without this, each full collection walks all of it, 50 to 80 ms at a time.
    gc.freeze()
