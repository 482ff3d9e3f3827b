"""Commands that are followed by what to do: `deskside models search`, `deskside keys add`."""

import argparse
from collections.abc import Callable

AddShared = Callable[..., None]
"""Adds the options that every command has."""

AddAction = Callable[[str, str], argparse.ArgumentParser]
"""Gets an action's name and a sentence about it, which begins small and has no full stop."""


def add_actions(parser: argparse.ArgumentParser, add_shared: AddShared) -> AddAction:
    """Let actions follow a command; `--json` may stand before and behind them. The answer adds one."""
    parser.add_argument("--json", action="store_true", help="for programs")
    actions = parser.add_subparsers(dest="action", metavar="action", title="actions")

    def action(name: str, sentence: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=sentence, description=f"{sentence[0].upper()}{sentence[1:]}.")
        add_shared(added, at_top=False)
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for programs")
        return added

    return action
