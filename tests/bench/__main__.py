"""`make bench`: every measurement of the project, one after the other, each in a process of its own."""

import subprocess
import sys

PARTS = ("tests.bench.engine", "tests.bench.window", "tests.bench.library", "tests.bench.plan", "tests.bench.speed")


def main() -> int:
    """Run all parts; the exit status is 1 if one missed its bound."""
    failed = [
        part for part in PARTS if subprocess.run([sys.executable, "-m", part, *sys.argv[1:]], check=False).returncode
    ]
    for part in failed:
        print(f"{part}: missed a bound or failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
