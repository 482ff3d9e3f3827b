"""Where things are kept: one data folder, and what stands in it.

Only the composition roots (`runtime.cli`, `app.main`) resolve the folder; everything else is handed a
`DataFolder`.
"""

from dataclasses import dataclass
from pathlib import Path

import platformdirs

ENV_DATA_DIR = "DESKSIDE_DATA_DIR"
"""Environment variable that moves the data folder; `--data-dir` wins over it."""


STATES_NOTE = "model.txt"
"""In each subfolder of `DataFolder.states`: the path of the model it is for."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data folder and the names in it. Nothing is created until `ensure`."""

    root: Path

    @property
    def models(self) -> Path:
        """Model files, `models/<publisher>/<repo>/<file>.gguf` or any deeper layout."""
        return self.root / "models"

    @property
    def logs(self) -> Path:
        """Rotated log files, bounded in number and size by `runtime.host.logs`."""
        return self.root / "logs"

    @property
    def request_log_file(self) -> Path:
        """What programs asked, a JSON object a line, where a person wants it (mode 0600); rotated and bounded."""
        return self.logs / "requests.log"

    @property
    def settings_file(self) -> Path:
        """Settings of the host (TOML, versioned)."""
        return self.root / "settings.toml"

    @property
    def tls(self) -> Path:
        """The certificate that the API shows, and its key (mode 0600), where Deskside makes them itself."""
        return self.root / "tls"

    @property
    def key_use_file(self) -> Path:
        """When and how much API keys were used (JSON, mode 0600); without it their counts begin anew."""
        return self.root / "key-use.json"

    @property
    def window_file(self) -> Path:
        """Settings of the window (TOML, versioned)."""
        return self.root / "window.toml"

    @property
    def conversations_file(self) -> Path:
        """Conversations of the window (SQLite, WAL)."""
        return self.root / "conversations.sqlite3"

    @property
    def catalogue_file(self) -> Path:
        """Catalogue of model files, downloads, loads and speeds (SQLite, WAL)."""
        return self.root / "models.sqlite3"

    @property
    def headers(self) -> Path:
        """Headers of remote files, as sparse files of the full apparent size; bounded by `runtime.library.hub`."""
        return self.root / "cache" / "headers"

    @property
    def states(self) -> Path:
        """Prompts as models have read them (`runtime.worker.state_disk`), a subfolder for each model and its options.

        They hold what was said, as tokens. Bounded by the load option `disk_cache_bytes`; may be deleted at any time.
        """
        return self.root / "cache" / "states"

    @property
    def machine_file(self) -> Path:
        """What the quick speed measurement found (JSON); made anew when the engine or the devices change."""
        return self.root / "machine.json"

    @property
    def run(self) -> Path:
        """What only lives while a host runs: `host.json` and the lock."""
        return self.root / "run"

    @property
    def host_file(self) -> Path:
        """Address, token and pid of the running host (mode 0600)."""
        return self.run / "host.json"

    @property
    def lock_file(self) -> Path:
        """Held by the one host that uses this folder."""
        return self.run / "host.lock"

    def ensure(self) -> None:
        """Create the folders.

        Raises:
            OSError: if one cannot be created.
        """
        for folder in (self.root, self.models, self.logs, self.run):
            folder.mkdir(parents=True, exist_ok=True)


def resolve_data_folder(chosen: str | None, environ_value: str | None) -> DataFolder:
    """`--data-dir` first, then the environment, then the platform's usual place."""
    raw = chosen or environ_value
    root = Path(raw).expanduser() if raw else Path(platformdirs.user_data_dir("Deskside", appauthor=False))
    return DataFolder(root.absolute())
