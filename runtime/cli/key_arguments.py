"""What can be typed after `deskside keys`."""

import argparse

from runtime.cli.model_arguments import AddShared
from runtime.options import KeyLimits, declared_options

KEYS_EPILOG = """\
examples:
  deskside keys                                      the API keys, and when each was last used
  deskside keys add editor                           make one; it is shown this once
  deskside keys add guest --tokens-per-day 50000     one that may take so much
  deskside keys limit guest --requests-per-minute 10 change that; limits not named are lifted
  deskside keys remove guest                         forget it; what runs with it ends

As soon as there is a key, every program needs one."""


def add_keys(parser: argparse.ArgumentParser, add_shared: AddShared) -> None:
    """`deskside keys` and what can follow it."""
    parser.add_argument("--json", action="store_true", help="for programs")
    actions = parser.add_subparsers(dest="action", metavar="action", title="actions")

    def action(name: str, sentence: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=sentence, description=f"{sentence[0].upper()}{sentence[1:]}.")
        add_shared(added, at_top=False)
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for programs")
        return added

    action("list", "the API keys and their use (as without an action)")
    for name, sentence in (("add", "make a key, which is shown this once"), ("limit", "change what a key may take")):
        added = action(name, sentence)
        for option in declared_options(KeyLimits):
            flag = f"--{option.name.replace('_', '-')}"
            added.add_argument(flag, dest=option.name, type=int, metavar="N", help=f"{option.title}: {option.text}")
        added.add_argument("name", help="what to call it" if name == "add" else "which one")
    action("remove", "forget a key, and end what runs with it").add_argument("name", help="which one")
