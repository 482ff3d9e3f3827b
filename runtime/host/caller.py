"""Who makes a request: for limits, for fair turns, and for the table and the log."""

from dataclasses import dataclass

from starlette.requests import Request

KEY_IN_SCOPE = "deskside.key"
"""Where the gate puts the name of the key that a request came with."""

LISTENER_IN_SCOPE = "deskside.listener"
"""Where the public listener puts its number."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One side of the other end.

    Attributes:
        address: the peer's address; "window" for the person's own requests.
        key: name of the API key it came with; "" without one.
        is_person: the window or the terminal asks, not another program.
        listener: number of the public listener that it came by; 0 for the private one.
    """

    address: str
    key: str = ""
    is_person: bool = False
    listener: int = 0

    @property
    def client(self) -> str:
        """What counts as one client when turns are shared out: programs with one key are one."""
        return f"key {self.key}" if self.key else self.address


WINDOW = Caller("window", is_person=True)
"""The person, at the window or the terminal."""


def caller_of(request: Request) -> Caller:
    """The other program that sent a request."""
    address = request.client.host if request.client is not None else ""
    return Caller(address, request.scope.get(KEY_IN_SCOPE, ""), listener=request.scope.get(LISTENER_IN_SCOPE, 0))
