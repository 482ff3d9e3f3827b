"""TOML as people and programs leave it: read with a bound on its nesting.

Without one, what can just be read can no longer be copied or written.
"""

import tomllib
from typing import Any

MAX_DEPTH = 40
"""Tables and lists inside one another; settings of ours have five."""


def read_toml(text: str) -> dict[str, Any]:
    """The table a text stands for.

    Raises:
        ValueError: it is no TOML, or nested too deeply.
    """
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    waiting: list[tuple[Any, int]] = [(found, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]
    return found
