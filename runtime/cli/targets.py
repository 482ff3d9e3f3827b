"""What a person means by a name: an installed model, a file, or a repository of the hub with or without a choice."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from runtime.errors import BadRequest, HubNotFound
from runtime.messages.api import InstalledModel
from runtime.messages.fit import PlanTarget
from runtime.messages.library import HubFile

_REPO_PARTS = 2
_NAMES_IN_HINT = 24


@dataclass(frozen=True, slots=True)
class HubName:
    """`ORG/REPO`, or `ORG/REPO:CHOICE`; the choice is a quantization or a file name, "" when none was made."""

    repo: str
    choice: str = ""


def hub_name(raw: str) -> HubName | None:
    """Understand `ORG/REPO`, `ORG/REPO:Q4_K_M`, `ORG/REPO/file.gguf` and the address of a page; else None."""
    text = raw.strip()
    is_address = "://" in text
    path, colon, choice = (urlsplit(text).path if is_address else text).strip("/").partition(":")
    parts = [part for part in path.split("/") if part]
    if not is_address and len(parts) > _REPO_PARTS and "." in parts[0]:
        parts = parts[1:]  # an address without its scheme
    if len(parts) < _REPO_PARTS or any(part in {".", "..", "~"} for part in parts):
        return None
    rest = parts[_REPO_PARTS:]
    if rest and rest[0] in {"blob", "resolve", "tree"}:  # a link copied from a page: .../blob/main/file.gguf
        rest = rest[_REPO_PARTS:]
    return HubName("/".join(parts[:_REPO_PARTS]), choice if colon else "/".join(rest))


def installed_of(name: str, models: Sequence[InstalledModel]) -> InstalledModel | None:
    """The installed model of that id, name or file name, in any case; None if there is none."""
    wanted = name.casefold()
    for model in models:
        path = Path(model.path)
        if wanted in {model.id.casefold(), model.name.casefold(), path.name.casefold(), path.stem.casefold()}:
            return model
    return None


def choose_file(files: Sequence[HubFile], choice: str, repo: str) -> HubFile:
    """The one file that a choice names.

    Raises:
        HubNotFound: none fits; the hint lists what there is.
        BadRequest: several fit.
    """
    wanted = choice.casefold()
    exact = [file for file in files if wanted in {file.name.casefold(), *(path.casefold() for path in file.paths)}]
    named = exact or [file for file in files if file.quantization.casefold() == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        names = ", ".join(file.name for file in named[:_NAMES_IN_HINT])
        raise BadRequest(f"{repo} has several files {choice}.", hint=f"Name one: {names}.", param="name")
    there = list(dict.fromkeys(file.quantization or file.name for file in files))
    near = difflib.get_close_matches(choice.upper(), there, n=1)
    raise HubNotFound(
        f"{repo} has no file {choice}.",
        hint=f"{f'Did you mean {near[0]}? ' if near else ''}There are: {', '.join(there[:_NAMES_IN_HINT])}.",
        repo=repo,
    )


def plan_target(name: str, models: Sequence[InstalledModel]) -> PlanTarget | HubName:
    """An installed model or a file as a target; a repository as its name, since a file of it must be chosen yet."""
    model = installed_of(name, models)
    if model is not None:
        return PlanTarget(model=model.id)
    path = Path(name).expanduser()
    if not path.exists() and not name.lower().endswith(".gguf"):
        hub = hub_name(name)
        if hub is not None:
            return hub
    return PlanTarget(model=str(path.absolute()) if path.exists() else name)
