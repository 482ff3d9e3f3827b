"""The cache of the Hugging Face libraries, which llama.cpp and others use too.

`hub/models--<org>--<repo>/snapshots/<commit>/<file>` is a link to `blobs/<hash>`, or the file itself where links are
not allowed (Windows). The blob of a large file is named after its SHA-256. Unfinished blobs end in `.incomplete` and
have no snapshot yet.
"""

import re
from pathlib import Path

from runtime.library.disk import DiskFile, walk
from runtime.library.foreign.program import Listing, Surroundings, each_once, read_settings
from runtime.library.patience import touch

_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPO = "models--"


def folders(around: Surroundings) -> tuple[Path, ...]:
    """Where the cache is."""
    home = around.variable("HF_HOME")
    cache = around.variable("XDG_CACHE_HOME") or around.home / ".cache"
    return each_once(
        around.variable("HF_HUB_CACHE"),
        around.variable("HUGGINGFACE_HUB_CACHE"),
        home / "hub" if home is not None else None,
        cache / "huggingface" / "hub",
    )


def models(folder: Path) -> Listing:
    """The files of each repository's newest snapshot, and those that only older ones have."""
    files: list[DiskFile] = []
    sha256: dict[Path, str] = {}
    seen: set[object] = set()
    try:
        touch(folder)
        repos = sorted(path for path in folder.iterdir() if path.name.startswith(_REPO))
    except FileNotFoundError:
        return Listing()
    except OSError as error:
        return Listing(problem=f"The cache cannot be read: {error.strerror or error}.")
    for repo in repos:
        for snapshot in _snapshots(repo):
            for file in walk(snapshot).files:
                if file.identity in seen:
                    continue
                seen.add(file.identity)
                files.append(file)
                blob = _blob(file)
                if blob:
                    sha256[file.path] = blob
    return Listing(tuple(files), sha256=sha256)


def publisher_of(path: Path) -> str:
    """`models--unsloth--Qwen3-GGUF/snapshots/...` -> `unsloth`; "" outside a repository's folder."""
    for part in reversed(path.parts):
        if part.startswith(_REPO):
            pieces = part.removeprefix(_REPO).split("--")
            return pieces[0] if len(pieces) > 1 else ""
    return ""


def _snapshots(repo: Path) -> list[Path]:
    current = read_settings(repo / "refs" / "main").decode("ascii", "replace").strip()
    try:
        touch(repo)
        found = [path for path in (repo / "snapshots").iterdir() if path.is_dir()]
        return sorted(found, key=lambda path: (path.name != current, -path.stat().st_mtime, path.name))
    except OSError:
        return []


def _blob(file: DiskFile) -> str:
    if not file.is_link:
        return ""
    try:
        name = file.path.readlink().name
    except OSError:
        return ""
    return name if _SHA256.fullmatch(name) else ""
