"""A keyring in memory; one that is not there refuses as the real package does."""

from keyring.errors import NoKeyringError, PasswordDeleteError


class FakeKeyring:
    """The three calls that are used, with the package's own errors."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.is_there = is_there
        self.kept: dict[tuple[str, str], str] = {}

    def _check(self) -> None:
        if not self.is_there:
            raise NoKeyringError("no backend")

    def get_password(self, service_name: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self._check()
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        self._check()
        if (service_name, username) not in self.kept:
            raise PasswordDeleteError("not there")
        del self.kept[service_name, username]
