"""Programs that are no tool servers: `hang` never answers, `noise` prints for ever, `die` ends at once."""

import contextlib
import sys
import time

match sys.argv[1]:
    case "hang":
        time.sleep(600)
    case "die":
        sys.stderr.write("no licence found\n")
        sys.exit(7)
    case "noise":
        with contextlib.suppress(OSError):
            while True:
                sys.stdout.write("noise " * 1000 + "\n")
