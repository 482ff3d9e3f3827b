"""`python -m runtime.host`: a host without a terminal, as the window starts it."""

import argparse
import sys

from runtime.errors import AlreadyRunning, RuntimeFault
from runtime.host.config import HostConfig
from runtime.host.main import run_host
from runtime.paths import resolve_data_folder

EXIT_FAILED = 1
EXIT_ALREADY_RUNNING = 3


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, and say in one line why it could not."""
    parser = argparse.ArgumentParser(prog="python -m runtime.host", description=__doc__)
    parser.add_argument("--data-dir", required=True, help="the data folder")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    parser.add_argument("--model", help="load this model at once (id or path)")
    parser.add_argument("--load-last", action="store_true", help="load the model that was loaded last")
    given = parser.parse_args(arguments)
    config = HostConfig(
        data=resolve_data_folder(given.data_dir, None),
        with_parent=given.with_parent,
        model=given.model,
        load_last=given.load_last,
    )
    try:
        return run_host(config)
    except AlreadyRunning as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_ALREADY_RUNNING
    except RuntimeFault as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
