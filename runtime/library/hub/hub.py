"""The hub as the rest of the program asks it: search, pages, files, account."""

from collections.abc import Callable, Sequence

from runtime.library.hub.tokens import TokenStore
from runtime.messages.api import InstalledModel
from runtime.messages.library import HubAccount, HubFile, HubModel, HubModelRequest, HubPage, HubSearch
from runtime.options import ModelsOptions
from runtime.paths import DataFolder


class Hub:
    """Asks the hub (or a mirror of it). Home thread: any (locked); every call blocks on the network.

    `options.offline` and an unreachable hub answer from the built-in catalogue where that is possible, and say so.
    """

    def __init__(
        self,
        folder: DataFolder,
        options: ModelsOptions,
        *,
        tokens: TokenStore | None = None,
        installed: Callable[[], Sequence[InstalledModel]] = tuple,
    ) -> None:
        """Nothing is asked yet.

        Args:
            folder: where a token is kept when the system has no keyring.
            options: `hub_endpoint` and `offline` are read; `configure` changes them.
            tokens: where the access token is kept.
            installed: what is on disk, to mark what is listed.
        """
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        """Base address that is asked, without a slash at the end."""
        raise NotImplementedError

    def configure(self, options: ModelsOptions) -> None:
        """Take over a changed address or offline switch, from the next call on."""
        raise NotImplementedError

    def search(self, request: HubSearch) -> HubPage:
        """One page of GGUF repositories. Offline: matching picks, with `offline` saying why.

        Raises:
            HubRefused, HubFault: if the hub answered, but not with a list.
            BadRequest: if `cursor` is not one of ours.
        """
        raise NotImplementedError

    def picks(self) -> HubPage:
        """The built-in catalogue; asks nothing."""
        raise NotImplementedError

    def model(self, request: HubModelRequest) -> HubModel:
        """A repository with its files. Remembered for some minutes.

        Raises:
            BadRequest: if the repository's name cannot be one.
            HubNotFound, HubRefused, HubOffline, HubFault: as the hub answered.
        """
        raise NotImplementedError

    def find_file(self, repo: str, file: str, revision: str = "main") -> tuple[HubModel, HubFile]:
        """The page and the one quantization called `file` (`HubFile.name` or one of its paths).

        Raises:
            HubNotFound: if the repository has no such file; else as `model`.
        """
        raise NotImplementedError

    def account(self) -> HubAccount:
        """Who is signed in; `problem` says why nobody is, or why that cannot be told. Raises nothing of the hub's."""
        raise NotImplementedError

    def sign_in(self, token: str) -> HubAccount:
        """Check and keep a token; an empty one signs out.

        Raises:
            HubRefused: if the hub does not know it (nothing is kept then).
            HubOffline, HubFault: if it could not be checked.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close connections. Calls that still run end with HubOffline."""
        raise NotImplementedError
