"""Ollama: `manifests/<host>/<namespace>/<model>/<tag>` names layers, `blobs/sha256-<hash>` holds them.

The layer of type `application/vnd.ollama.image.model` is a whole GGUF file, `.projector` its picture part. Several
tags may name one blob; the most telling one is listed. The folder is `OLLAMA_MODELS`, else `~/.ollama/models`, and for
the service on Linux `/usr/share/ollama/.ollama/models` or what its unit says. Unfinished blobs end in `-partial`.
"""

import os
import re
from pathlib import Path

import msgspec

from runtime.library.disk import DiskFile, look_at
from runtime.library.foreign.program import ForeignModel, Listing, Surroundings, each_once, read_settings
from runtime.library.patience import touch
from runtime.unreadable import UNREADABLE

MAX_MANIFESTS = 5000
DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_TYPE = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256[:-](?P<hash>[0-9a-f]{64})")
_UNIT_MODELS = re.compile(r"^\s*Environment=.*?OLLAMA_MODELS=(?P<value>[^\"'\n]+?)\s*[\"']?\s*$", re.MULTILINE)
_UNIT_FOLDERS = ("etc/systemd/system/ollama.service", "etc/systemd/system/ollama.service.d")


class _Layer(msgspec.Struct):
    media_type: str = msgspec.field(default="", name="mediaType")
    digest: str = ""
    size: int = 0


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def folders(around: Surroundings) -> tuple[Path, ...]:
    """Where manifests and blobs are."""
    service: tuple[Path | None, ...] = ()
    if around.platform == "linux":
        service = (*_of_units(around), around.system / "usr/share/ollama/.ollama/models")
    return each_once(around.variable("OLLAMA_MODELS"), around.home / ".ollama" / "models", *service)


def models(folder: Path) -> Listing:
    """One model for each blob of weights."""
    found: dict[object, tuple[tuple[bool, int, str], ForeignModel]] = {}
    try:
        manifests = _manifests(folder / "manifests")
    except FileNotFoundError:
        return Listing()
    except OSError as error:
        return Listing(problem=f"Ollama's models cannot be read: {error.strerror or error}.")
    for path in manifests:
        model = _model(path, folder)
        if model is None:
            continue
        identity, tag = model.files[0].identity, path.name
        rank = (tag == DEFAULT_TAG, -len(model.stem), model.stem)  # a name with a tag says more than one without
        if identity not in found or rank < found[identity][0]:
            found[identity] = (rank, model)
    return Listing(models=tuple(model for _, model in found.values()))


def _of_units(around: Surroundings) -> list[Path | None]:
    texts: list[bytes] = []
    for name in _UNIT_FOLDERS:
        path = around.system / name
        try:
            parts = sorted(path.glob("*.conf")) if path.is_dir() else [path]
        except OSError:
            continue
        texts += [read_settings(part) for part in parts]
    found = [_UNIT_MODELS.search(text.decode("utf-8", "replace")) for text in texts]
    return [around.path(match["value"].strip()) for match in reversed(found) if match is not None]


def _manifests(root: Path) -> list[Path]:
    """Files at depth four: host, namespace, model, tag."""
    touch(root)
    os.scandir(root).close()  # tells apart "not there" and "not readable"
    found = []
    for path in sorted(root.glob("*/*/*/*")):
        touch(path)
        if not any(part.startswith(".") for part in path.relative_to(root).parts) and path.is_file():
            found.append(path)
        if len(found) >= MAX_MANIFESTS:
            break
    return found


def _model(path: Path, folder: Path) -> ForeignModel | None:
    try:
        layers = msgspec.json.decode(read_settings(path), type=_Manifest).layers
    except UNREADABLE:
        return None
    weights = [layer for layer in layers if layer.media_type == _TYPE + "model"]
    first = _blob(weights[0], folder) if weights else None
    if first is None:
        return None
    projectors = [layer for layer in layers if layer.media_type == _TYPE + "projector"]
    projector = _blob(projectors[0], folder) if projectors else None
    host, namespace, name, tag = path.parts[-4:]
    problem = ""
    if len(weights) > 1:
        problem = "Ollama keeps this model in several parts under names that llama.cpp does not know."
    elif any(layer.media_type == _TYPE + "adapter" for layer in layers):
        problem = "This Ollama model is a base with an adapter (LoRA) on top, and cannot be used without Ollama."
    announced = {first.path: weights[0].digest}
    if projector is not None:
        announced[projector.path] = projectors[0].digest
    return ForeignModel(
        stem=name if tag == DEFAULT_TAG else f"{name}-{tag}",
        files=(first,),
        projector=projector,
        publisher="" if (host, namespace) == (DEFAULT_HOST, DEFAULT_NAMESPACE) else namespace,
        sha256={file: match["hash"] for file, digest in announced.items() if (match := _DIGEST.fullmatch(digest))},
        problem=problem,
    )


def _blob(layer: _Layer, folder: Path) -> DiskFile | None:
    match = _DIGEST.fullmatch(layer.digest)
    if match is None:  # also keeps a manifest from naming a path
        return None
    for name in (f"sha256-{match['hash']}", f"sha256:{match['hash']}"):  # the second before version 0.1.30
        file = look_at(folder / "blobs" / name)
        if file is not None:
            return file
    return None
