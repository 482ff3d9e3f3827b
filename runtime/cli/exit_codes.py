"""Exit codes of `deskside`, in one place; `deskside --help` lists them."""

from runtime.errors import AlreadyRunning, BadRequest, HubNotFound, ModelNotFound, RuntimeFault

OK = 0
FAILURE = 1
USAGE = 2
ALREADY_RUNNING = 3
PORT_IN_USE = 4
INTERRUPTED = 130
OUTPUT_CLOSED = 141

DESCRIPTION = """\
exit codes:
  0    done
  1    it failed (a sentence on standard error says why and what to do)
  2    a wrong option, or a model that is not there
  3    another Deskside already uses this data folder
  4    the port is in use
  130  ended by Ctrl-C
  141  whoever read the output stopped reading"""


def of_error(error: RuntimeFault) -> int:
    """The code an error ends the program with."""
    if isinstance(error, AlreadyRunning):
        return ALREADY_RUNNING
    return USAGE if isinstance(error, BadRequest | ModelNotFound | HubNotFound) else FAILURE
