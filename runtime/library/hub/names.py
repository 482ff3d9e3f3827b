"""Names that come from the hub, checked before they become addresses or paths.

A hub is another program's machine: what it calls a file must never decide where on this disk something is written.
"""

import re
from pathlib import Path, PurePosixPath

from runtime.errors import BadRequest, HubFault

MAX_PATH_CHARS = 512
MAX_PART_CHARS = 200
"""A component of a name; 255 bytes is what file systems allow, and `.partial` comes behind."""
MAX_PART_BYTES = 240

_REPO = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$", re.ASCII)
_REVISION = re.compile(r"^[\w][\w./-]{0,254}$", re.ASCII)
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_DEVICES = re.compile(r"^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?$", re.IGNORECASE)
"""Names Windows keeps for devices, with any ending (learn.microsoft.com, "Naming Files, Paths, and Namespaces")."""


def check_repo(repo: str) -> str:
    """`owner/name` as the hub allows it.

    Raises:
        BadRequest: if it is anything else.
    """
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or not all(map(_is_safe_part, repo.split("/"))):
        raise BadRequest(
            f"{repo[:100]!r} is no name of a repository.",
            hint="Write it as owner/name, as its page on the hub shows it.",
            param="repo",
        )
    return repo


def check_revision(revision: str) -> str:
    """A branch, tag or commit.

    Raises:
        BadRequest: if it cannot be one.
    """
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise BadRequest(f"{revision[:100]!r} is no revision.", hint="Use main, a tag or a commit.", param="revision")
    return revision


def is_safe_path(path: str) -> bool:
    """Whether a file's name on the hub can be a relative path on every system, and stays below its folder."""
    parts = path.split("/")
    return 0 < len(path) <= MAX_PATH_CHARS and all(map(_is_safe_part, parts))


def _is_safe_part(part: str) -> bool:
    return (
        0 < len(part) <= MAX_PART_CHARS
        and len(part.encode("utf-8", "surrogatepass")) <= MAX_PART_BYTES
        and part not in (".", "..")
        and not _FORBIDDEN.search(part)
        and not part.startswith(" ")
        and not part.endswith((" ", "."))
        and not _DEVICES.match(part)
        and part.isprintable()
    )


def local_path(repo: str, path: str) -> PurePosixPath:
    """Where a file arrives below the main folder: `<publisher>/<repository>/<path>`.

    Raises:
        BadRequest: if the repository's name is none.
        HubFault: if the path would be no plain file below that folder.
    """
    check_repo(repo)
    if not is_safe_path(path):
        raise HubFault(
            f"{repo} names a file {path[:100]!r}, which cannot be a file on this machine.",
            hint="Choose another file, or fetch it by hand.",
            repo=repo,
        )
    return PurePosixPath(repo) / path


def below(folder: Path, relative: PurePosixPath) -> Path:
    """The path on this disk."""
    return folder.joinpath(*relative.parts)
