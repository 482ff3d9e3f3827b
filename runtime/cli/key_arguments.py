"""What can be typed after `deskside keys`."""

import argparse

from runtime.cli.actions import AddShared, add_actions
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
    action = add_actions(parser, add_shared)
    action("list", "the API keys and their use (as without an action)")
    for name, sentence in (("add", "make a key, which is shown this once"), ("limit", "change what a key may take")):
        added = action(name, sentence)
        for option in declared_options(KeyLimits):
            flag = f"--{option.name.replace('_', '-')}"
            added.add_argument(flag, dest=option.name, type=int, metavar="N", help=f"{option.title}: {option.text}")
        added.add_argument("name", help="what to call it" if name == "add" else "which one")
    action("remove", "forget a key, and end what runs with it").add_argument("name", help="which one")
