"""Where the hub's access token is kept."""

from runtime.paths import DataFolder


class TokenStore:
    """One token for each hub address, in the system's keyring. Home thread: any."""

    def __init__(self, folder: DataFolder) -> None:
        raise NotImplementedError
