"""Fuzzing of every parser: `python -m tests.fuzz [--minutes M] [--seed N] [--only NAME] [--findings FOLDER]`.

Bodies of every dialect (as the official clients send them), GBNF, JSON schemas, patterns, chat templates, streams of
tool calls and thoughts at every cut, event streams, frames, answers of the hub and of tool servers, Markdown, pictures
and sounds (decoded in a process of their own), and every file that a disk or hand can damage: settings, conversations,
the catalogue, prompt states, secrets, certificates, headers of adapters and projectors, other programs' settings.

A finding is an exception that the parser does not promise, an input that takes too long, or an answer that depends on
where a stream was cut; it is written to the findings folder, to become a test. What reads GGUF headers has a fuzzing of
its own: `python -m tests.fuzz.gguf`.
"""

import argparse
import random
import sys
from pathlib import Path

from tests.fuzz.parsers import run_for


def main() -> int:
    """Fuzz and say what was found; the exit status is 1 if something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args()
    run = run_for(60 * given.minutes, given.seed, given.findings, given.only)
    for name, count in run.inputs.items():
        print(f"{name}: {count:,} inputs, {run.accepted[name]:,} accepted")
    for key, text in run.found.items():
        print(f"FOUND {key}: {text}")
    print(f"seed {given.seed}: {sum(run.inputs.values()):,} inputs, {len(run.found)} findings")
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
