"""Downloads against the hub on loopback, in a folder of their own, impatient enough for tests."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from runtime.library.catalogue import Catalogue
from runtime.library.downloads.downloads import Arrival, Downloads, Policy
from runtime.library.downloads.transfer import Patience
from runtime.library.hub.hub import Hub
from runtime.library.hub.tokens import TokenStore
from runtime.library.hub.transport import Timeouts
from runtime.messages.library import Download, DownloadRequest, DownloadState
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.fakes.fake_hub import FakeHub, FakeRepo

REPO = "acme/Tiny-GGUF"
FILE = "Tiny-Q4_K_M.gguf"
QUICK = Policy(patience=Patience(first_wait_s=0.01, longest_wait_s=0.05, give_up_s=10.0), reserve_bytes=0)
LIMIT_S = 15.0


def some_bytes(n_bytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(n_bytes)


def one_file(n_bytes: int = 300_000, *, seed: int = 1) -> FakeHub:
    return FakeHub({REPO: FakeRepo({FILE: some_bytes(n_bytes, seed)})})


class NoKeyring:
    """A system without a keyring."""

    def get_password(self, service_name: str, username: str) -> str | None:
        raise RuntimeError(f"no keyring for {service_name} {username}")

    def set_password(self, service_name: str, username: str, password: str) -> None:
        raise RuntimeError(f"no keyring for {service_name} {username} {len(password)}")

    def delete_password(self, service_name: str, username: str) -> None:
        raise RuntimeError(f"no keyring for {service_name} {username}")


def hub_for(fake: FakeHub, data: DataFolder, *, read_s: float = 5.0, options: ModelsOptions | None = None) -> Hub:
    tokens = TokenStore(data, keyring=NoKeyring(), use_environment=False)
    options = options or ModelsOptions(hub_endpoint=fake.endpoint)
    return Hub(data, options, tokens=tokens, timeouts=Timeouts(connect_s=5.0, read_s=read_s))


def until(
    look: Callable[[], Download], is_so: Callable[[Download], bool], changed: threading.Condition | None = None
) -> Download:
    """Look again and again, until it is so."""
    changed = changed or threading.Condition()
    give_up_s = time.monotonic() + LIMIT_S
    while True:
        found = look()
        if is_so(found):
            return found
        if time.monotonic() > give_up_s:
            raise AssertionError(f"it never came to that: {found}")
        with changed:
            changed.wait(0.01)


class DownloadRig:
    """One program's downloads. `again` is the program started anew on the same folder."""

    def __init__(
        self,
        fake: FakeHub,
        root: Path,
        *,
        policy: Policy = QUICK,
        max_downloads: int = 3,
        read_s: float = 5.0,
        main_folder: Path | None = None,
    ) -> None:
        self.fake = fake
        self.data = DataFolder(root)
        self.models = main_folder or self.data.models
        self.options = ModelsOptions(
            hub_endpoint=fake.endpoint, max_downloads=max_downloads, main_folder=str(main_folder or "")
        )
        self.hub = hub_for(fake, self.data, read_s=read_s, options=self.options)
        self.catalogue = Catalogue(self.data.catalogue_file)
        self.arrivals: list[Arrival] = []
        self.told: list[tuple[Download, ...]] = []
        self._again: Callable[[], DownloadRig] = lambda: DownloadRig(
            fake, root, policy=policy, max_downloads=max_downloads, read_s=read_s, main_folder=main_folder
        )
        self._is_closed = False
        self._changed = threading.Condition()
        self.downloads = Downloads(
            self.data,
            self.catalogue,
            self.hub,
            self.options,
            on_change=self._tell,
            on_arrived=self._arrive,
            policy=policy,
        )

    def __enter__(self) -> Self:
        self.downloads.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.downloads.close()
        self.hub.close()
        self.catalogue.close()

    def again(self) -> "DownloadRig":
        return self._again()

    def _tell(self, downloads: tuple[Download, ...]) -> None:
        with self._changed:
            self.told.append(downloads)
            self._changed.notify_all()

    def _arrive(self, arrival: Arrival) -> str:
        self.arrivals.append(arrival)
        return "tiny"

    # --- asking -------------------------------------------------------------------------------------------

    def add(self, file: str = FILE, *, repo: str = REPO, with_projector: bool = True) -> Download:
        return self.downloads.add(DownloadRequest(repo, file, with_projector=with_projector))

    def now(self, download_id: str) -> Download:
        return next(download for download in self.downloads.all() if download.id == download_id)

    def wait(self, download_id: str, *states: DownloadState) -> Download:
        return self.until(lambda: self.now(download_id), lambda download: download.state in states)

    def until(self, look: Callable[[], Download], is_so: Callable[[Download], bool]) -> Download:
        return until(look, is_so, self._changed)

    def path(self, file: str = FILE, *, repo: str = REPO) -> Path:
        return self.models / repo / file

    def partial(self, file: str = FILE) -> Path:
        path = self.path(file)
        return path.with_name(f"{path.name}.partial")

    def files(self) -> set[str]:
        return {path.relative_to(self.models).as_posix() for path in self.models.rglob("*") if path.is_file()}


def patient(policy: Policy = QUICK, **changes: float) -> Policy:
    return replace(policy, patience=replace(policy.patience, **changes))  # type: ignore[arg-type]
