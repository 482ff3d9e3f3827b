"""What can be typed after `deskside tools`."""

import argparse

from runtime.cli.actions import AddShared, add_actions

TOOLS_EPILOG = """\
examples:
  deskside tools                                          the tool servers and their states
  deskside tools add time -- uvx mcp-server-time          a program that is started here
  deskside tools add wiki https://example.org/mcp --header "Authorization: Bearer KEY"
  deskside tools test time                                try it, and list its tools
  deskside tools sign-in wiki                             where the server asks who you are

A tool server runs with your rights: add only ones you trust. In the window a tool asks before it runs."""


def add_tools(parser: argparse.ArgumentParser, add_shared: AddShared) -> None:
    """`deskside tools` and what can follow it."""
    action = add_actions(parser, add_shared)
    action("list", "the tool servers and their states (as without an action)")
    add = action("add", "add a program or an address")
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable it gets; kept secret")
    add.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="sent along; kept secret")
    add.add_argument("--folder", default="", metavar="DIR", help="where it is started")
    add.add_argument("--sse", action="store_true", help="the address speaks the older form")
    add.add_argument("name", help="what to call it")
    add.add_argument("where", nargs="+", help="an address, or a program and its arguments (after --)")
    for name, sentence in (
        ("remove", "forget a tool server and its secrets"),
        ("test", "start one and list its tools"),
        ("sign-in", "sign in to one by browser; prints the address and waits"),
        ("sign-out", "forget the tokens of a sign-in"),
    ):
        action(name, sentence).add_argument("name", help="which one")
