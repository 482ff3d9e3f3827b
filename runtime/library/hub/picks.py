"""The built-in catalogue: good models of every size, known without a connection."""

from functools import cache
from pathlib import Path

import msgspec

from runtime.errors import StorageFault
from runtime.messages.library import HubEntry, HubSearch


class Pick(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One entry of `assets/catalogue/models.json`.

    `n_params` is the size its publisher names, `n_params_active` what a mixture of experts uses for a token; `note` is
    ours: what it is good for.
    """

    repo: str
    name: str
    note: str
    n_params: int
    architecture: str
    n_ctx_train: int
    licence: str
    kind: str = "chat"
    n_params_active: int | None = None
    is_gated: bool = False


@cache
def load_picks() -> tuple[Pick, ...]:
    """All picks, smallest first.

    Raises:
        StorageFault: if the program's files are damaged or missing.
    """
    base = Path(__file__).resolve().parents[3]
    # In the source tree the assets stand beside the packages, in an installed program inside `app`.
    folder = next((path for path in (base / "assets", base / "app" / "assets") if path.is_dir()), base / "assets")
    path = folder / "catalogue" / "models.json"
    try:
        picks = msgspec.json.decode(path.read_bytes(), type=tuple[Pick, ...])
    except (OSError, msgspec.DecodeError) as error:
        raise StorageFault(f"The built-in catalogue cannot be read: {error}", path=str(path)) from error
    return tuple(sorted(picks, key=lambda pick: pick.n_params))


def entry_of(pick: Pick) -> HubEntry:
    """A pick as a row of a list."""
    return HubEntry(
        repo=pick.repo,
        name=pick.name,
        publisher=pick.repo.split("/")[0],
        n_params=pick.n_params,
        architecture=pick.architecture,
        n_ctx_train=pick.n_ctx_train,
        kind=pick.kind,
        licence=pick.licence,
        is_gated=pick.is_gated,
        note=pick.note,
    )


def find_picks(request: HubSearch) -> tuple[HubEntry, ...]:
    """Picks that match a search, for when the hub cannot be asked."""
    words = request.text.lower().replace("-", " ").replace("/", " ").split()
    return tuple(
        entry
        for entry in map(entry_of, load_picks())
        if matches(entry, request) and all(word in _searched(entry) for word in words)
    )


def matches(entry: HubEntry, request: HubSearch) -> bool:
    """Whether an entry passes the filters that the hub itself does not know. What is not known passes no filter."""
    if request.author and entry.publisher.lower() != request.author.lower():
        return False
    if request.architecture and entry.architecture.lower() != request.architecture.lower():
        return False
    if request.kind not in ("any", entry.kind):
        return False
    return not request.max_params or (entry.n_params is not None and entry.n_params <= request.max_params)


def _searched(entry: HubEntry) -> str:
    text = f"{entry.repo} {entry.name} {entry.architecture} {entry.kind} {entry.note}"
    return text.lower().replace("-", " ").replace("/", " ")
