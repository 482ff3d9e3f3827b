"""Reads the stand-in driver: one JSON line for each line on standard input, until it ends."""

import os
import sys
import time

import msgspec

from runtime.hardware.nvidia import NvidiaReader


def main() -> None:
    reader = NvidiaReader(lambda: {os.getpid()}, first_retry_s=0.05, silent_limit_s=0.6)
    for _ in sys.stdin:
        began = time.monotonic()
        gpus, notes = reader.read(within_s=0.3)
        answer = {"gpus": gpus, "notes": notes, "took_s": time.monotonic() - began}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.flush()
    reader.close(time.monotonic() + 0.5)


main()
