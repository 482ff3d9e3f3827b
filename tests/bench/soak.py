"""The short form of the soak: `python -m tests.bench soak`; `python -m tests.soak` is the hour."""

import sys

from tests.bench.command import run_part
from tests.soak.run import SHORT, Report, show, soak


def run(*, quick: bool) -> Report:
    del quick  # it is the short form already
    return soak(SHORT)


def main() -> int:
    return run_part("tests.bench.soak", __doc__, "the same", run, show)


if __name__ == "__main__":
    sys.exit(main())
