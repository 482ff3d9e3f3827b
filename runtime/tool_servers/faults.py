"""Why a connection to a tool server ended, before it becomes an error of the host."""


class Lost(Exception):
    """The connection cannot be made or has ended.

    Attributes:
        message: a sentence for a person.
        hint: what to do; may be empty.
        is_final: starting again would end the same way.
        needs_sign_in: a person who signs in could change that.
    """

    def __init__(self, message: str, *, hint: str = "", is_final: bool = False, needs_sign_in: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_final = is_final or needs_sign_in
        self.needs_sign_in = needs_sign_in


def first_cause(error: BaseException) -> BaseException:
    """The error inside of groups that task groups make."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        chosen = [inner for inner in error.exceptions if isinstance(_leaf(inner), Lost)]
        error = chosen[0] if chosen else error.exceptions[0]
    return error


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
