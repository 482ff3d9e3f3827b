"""The command line that the parts of `make bench` share."""

import argparse
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec


class Report(Protocol):
    """What a part measured; `missed` are the bounds that did not hold, as sentences."""

    @property
    def missed(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Report)


def run_part(name: str, doc: str, quick_help: str, run: Callable[..., R], show: Callable[[R], None]) -> int:
    """Measure with `run(quick=...)` and print; the exit status is 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=doc.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quick", action="store_true", help=quick_help)
    chosen = parser.parse_args()
    return tell(run(quick=chosen.quick), show, as_json=chosen.json)


def tell(report: R, show: Callable[[R], None], *, as_json: bool) -> int:
    """Print a report and the bounds it missed; the exit status is 1 if there are any."""
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        show(report)
        for sentence in report.missed:
            print(f"MISSED: {sentence}")
    return 1 if report.missed else 0
