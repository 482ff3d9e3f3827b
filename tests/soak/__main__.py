"""The server under load for an hour: `python -m tests.soak [--short] [--minutes M] [--threads N] [--json]`.

32 clients in every dialect, streaming and not, with tools, schemas and nonsense, some of which leave in the midst; the
worker is killed every five minutes (in the short form of 150 s, every 50 s). Every request must end in an answer, a
refusal with a time to come back, or an error that says what happened; memory and open files must stay level; in the end
nothing may be left running, and requests that need the whole cache must be answered.
"""

import argparse
import sys

from msgspec.structs import replace

from tests.bench.command import tell
from tests.soak.run import LONG, SHORT, show, soak


def main() -> int:
    """Run, print; the exit status is 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="150 s instead of an hour")
    parser.add_argument("--minutes", type=float, help="another length of the long form")
    parser.add_argument("--threads", type=int, help="threads of the engine; as the host finds best otherwise")
    parser.add_argument("--seed", type=int, default=1, help="draws other requests")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    length = SHORT if given.short else LONG
    if given.minutes:
        length = replace(length, run_s=60 * given.minutes)
    report = soak(length, seed=given.seed, n_threads=given.threads)
    return tell(report, show, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
