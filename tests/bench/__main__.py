"""`make bench`: every measurement of the project, one after the other, each in a process of its own.

`python -m tests.bench [PART ...] [--quick] [--json]`; without a part, all of them.
"""

import subprocess
import sys

PARTS = ("engine", "reading", "speculation", "window", "library", "plan", "speed", "server", "soak")


def main() -> int:
    """Run the parts; the exit status is 1 if one missed its bound."""
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")]
    if unknown := [word for word in chosen if word not in PARTS]:
        print(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
        return 2
    failed = [
        part
        for part in chosen or PARTS
        if subprocess.run([sys.executable, "-m", f"tests.bench.{part}", *options], check=False).returncode
    ]
    for part in failed:
        print(f"{part}: missed a bound or failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
