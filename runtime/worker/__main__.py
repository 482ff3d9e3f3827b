"""`python -m runtime.worker --connect 127.0.0.1:PORT`: started by the host, one for each loaded model.

The token that proves who connects comes as the first line of standard input: arguments and environment can be read
by other users of the machine. Standard output and error are the log.
"""

import argparse
import faulthandler
import logging
import os
import signal
import sys


def main() -> None:
    """Set the process up and serve."""
    faulthandler.enable()
    # transformers is here for its parser alone: no word about missing frameworks, and no look at the network.
    os.environ.update(TRANSFORMERS_NO_ADVISORY_WARNINGS="1", HF_HUB_OFFLINE="1")
    # Ctrl-C in a terminal reaches all its processes; the host decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    )
    parser = argparse.ArgumentParser(prog="runtime.worker", description="Runs one model for a Deskside host.")
    parser.add_argument("--connect", required=True, metavar="HOST:PORT", help="where the host listens")
    host, _, port = parser.parse_args().connect.rpartition(":")
    if not host or not port.isdecimal():
        parser.error("--connect takes HOST:PORT")
    token = sys.stdin.readline(1024).strip()

    from runtime.worker.process import WorkerProcess

    WorkerProcess((host, int(port)), token).run()


if __name__ == "__main__":
    main()
