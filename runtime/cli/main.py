"""Entry point of `deskside`: takes the command line apart and hands it to the command's module.

Start-up is short because each command's module is loaded only when it is called.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from runtime.cli import exit_codes
from runtime.cli.arguments import parse
from runtime.cli.terminal import Terminal, prepare_streams
from runtime.errors import RuntimeFault, StorageFault, to_failure
from runtime.paths import ENV_DATA_DIR, DataFolder, resolve_data_folder

_COMMANDS = {
    None: "runtime.cli.window",
    "serve": "runtime.cli.serve",
    "chat": "runtime.cli.chat",
    "models": "runtime.cli.models",
    "fit": "runtime.cli.fit",
    "node": "runtime.cli.node",
    "tools": "runtime.cli.tools",
    "keys": "runtime.cli.keys",
    "hardware": "runtime.cli.hardware",
    "doctor": "runtime.cli.doctor",
}
"""Each has `run(parsed, data, terminal) -> exit code`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Never raises: an error becomes a sentence on standard error."""
    prepare_streams()
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    terminal = Terminal()
    if not parsed.debug:
        # What is logged is for log files; what a person must know is said by the commands themselves.
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        code = _dispatch(parsed, terminal)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us is gone (`| head`); what is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OUTPUT_CLOSED
    except RuntimeFault as fault:
        _show(fault, parsed, terminal)
        return exit_codes.of_error(fault)
    except Exception as error:  # noqa: BLE001 - top of the program
        _show(error, parsed, terminal)
        return exit_codes.FAILURE
    return code


def _dispatch(parsed: argparse.Namespace, terminal: Terminal) -> int:
    data = _data_folder(parsed)
    command: int = import_module(_COMMANDS[parsed.command]).run(parsed, data, terminal)
    return command


def _data_folder(parsed: argparse.Namespace) -> DataFolder:
    try:
        data = resolve_data_folder(parsed.data_dir, os.environ.get(ENV_DATA_DIR))
        is_file = data.root.exists() and not data.root.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, `~` of nobody, a null
        raise StorageFault(
            f"The data folder cannot be used: {error}."[:500], hint="Choose another folder with --data-dir."
        ) from None
    if is_file:
        raise StorageFault(
            f"The data folder {data.root} is a file.",
            hint="Choose a folder with --data-dir.",
            path=str(data.root),
        )
    return data


def _show(error: Exception, parsed: argparse.Namespace, terminal: Terminal) -> None:
    if parsed.debug:
        import traceback

        traceback.print_exception(error)
    failure = to_failure(error)
    hint = failure.hint
    if not isinstance(error, RuntimeFault) and not parsed.debug:
        hint = "Run it again with --debug before the command to see where, and please report it."
    terminal.error(failure.message, hint)


if __name__ == "__main__":
    sys.exit(main())
