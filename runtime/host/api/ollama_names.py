"""Names of models as Ollama's clients write them: `name`, `name:tag`, `hf.co/owner/repo:quantization`."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from runtime.errors import BadRequest, HubNotFound
from runtime.library.names import model_id
from runtime.messages.api import InstalledModel
from runtime.messages.library import HubFile

MAX_NAME_CHARS = 256
LATEST = ":latest"

_HUB = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<repo>[^/:\s]+/[^/:\s]+)(?::(?P<tag>[\w.-]+))?$")
_PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")
"""What is fetched where the name says no quantization, the first one there is: Ollama's own default leads."""


def meant_by(name: str, installed: Iterable[InstalledModel], aliases: Mapping[str, str]) -> str:
    """The id a name stands for; a name that nothing stands behind is given back as it is."""
    models = tuple(installed)
    for given in (name, name.removesuffix(LATEST)):
        if given in aliases:
            return aliases[given]
        for model in models:
            if given.casefold() == model.id.casefold():
                return model.id
    hub = _HUB.match(name)
    if hub is not None:
        found = _of_repo(hub["repo"], hub["tag"], models)
        return found.id if found is not None else name
    as_id = model_id(name.removesuffix(LATEST).replace(":", "-"))
    fitting = [model.id for model in models if as_id and (model.id == as_id or model.id.startswith(f"{as_id}-"))]
    exact = [found for found in fitting if found == as_id]
    return (exact or fitting)[0] if exact or len(fitting) == 1 else name.removesuffix(LATEST)


def hub_name(name: str) -> tuple[str, str]:
    """Repository and quantization ("" where the name says none) of a name that can be fetched.

    Raises:
        BadRequest: the name is one of Ollama's own registry.
    """
    found = _HUB.match(name.strip())
    if found is None:
        raise BadRequest(
            f"{name[:200]!r} is no repository of the hub, and from Ollama's own registry Deskside does not fetch.",
            hint="Name a repository of the hub with GGUF files: hf.co/owner/repo:Q4_K_M.",
            param="model",
        )
    tag = found["tag"] or ""
    return found["repo"], "" if tag == "latest" else tag


def choose_file(files: Iterable[HubFile], repo: str, tag: str) -> HubFile:
    """The file of a repository that a name asks for.

    Raises:
        HubNotFound: there is none, or none of that quantization.
    """
    models = [file for file in files if not file.is_projector]
    if tag:
        wanted = tag.casefold().removesuffix(".gguf")
        for file in models:
            stem = Path(file.paths[0]).stem.casefold()
            if wanted in (file.quantization.casefold(), stem, file.name.casefold().removesuffix(".gguf")):
                return file
    else:
        for quantization in _PREFERRED:
            for file in models:
                if file.quantization.upper() == quantization:
                    return file
        if models:
            return min(models, key=lambda file: file.size_bytes)
    known = ", ".join(sorted({file.quantization for file in models})) or "none"
    raise HubNotFound(
        f"{repo} has no file {tag or 'in GGUF format'}.", hint=f"Quantizations there: {known}.", repo=repo
    )


def digest_of(model: InstalledModel) -> str:
    """A stable name of the file's state, in the form of a digest; not a hash of its bytes, which would take minutes."""
    state = f"{model.id}\0{model.path}\0{model.size_bytes}\0{model.created_s}"
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def _of_repo(repo: str, tag: str | None, models: Iterable[InstalledModel]) -> InstalledModel | None:
    owner, name = (part.casefold() for part in repo.split("/"))
    found = [model for model in models if [part.casefold() for part in Path(model.path).parts][-3:-1] == [owner, name]]
    if tag and tag != "latest":
        wanted = tag.casefold()
        found = [
            model for model in found if wanted in (model.quantization.casefold(), Path(model.path).stem.casefold())
        ]
        return found[0] if found else None
    for quantization in _PREFERRED:
        for model in found:
            if model.quantization.upper() == quantization:
                return model
    return found[0] if found else None
