"""Projectors and other files that stand beside models, and folders as other programs lay them out."""

import hashlib
import json
import os
from pathlib import Path

import gguf
import numpy as np

from runtime.library.foreign import Surroundings
from tests.support.gguf_files import write_tiny_model

PLATFORMS = ("linux", "darwin", "win32")


def put_model(path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_tiny_model(path, **options)  # type: ignore[arg-type]


def put_projector(
    path: Path, *, n_embd: int = 64, file_type: int = 1, vision: bool | None = True, audio: bool | None = None
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_file_type(file_type)
    if vision is not None:
        writer.add_bool("clip.has_vision_encoder", vision)
    if audio is not None:
        writer.add_bool("clip.has_audio_encoder", audio)
    writer.add_tensor("mm.2.weight", np.ones((n_embd, 48), dtype=np.float32))
    writer.add_tensor("v.blk.0.attn_q.weight", np.ones((16, 16), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def put_fused(path: Path) -> Path:
    """Text and pictures in one file, as Ollama's own converter writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), "gemma3")
    writer.add_uint32("gemma3.vision.block_count", 2)
    writer.add_uint32("gemma3.embedding_length", 64)
    writer.add_tensor("token_embd.weight", np.ones((100, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def surroundings(home: Path, platform: str, **environ: str) -> Surroundings:
    """A machine with nothing on it; on Windows the variables that are always there."""
    if platform == "win32":
        environ = {
            "APPDATA": str(home / "AppData" / "Roaming"),
            "LOCALAPPDATA": str(home / "AppData" / "Local"),
            **environ,
        }
    return Surroundings(platform, home, environ, home / "system root")


class OllamaStore:
    """`blobs` and `manifests` as Ollama writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put_blob(self, source: Path) -> str:
        digest = sha256_of(source)
        blob = self.folder / "blobs" / f"sha256-{digest}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(source.read_bytes())
        source.unlink()
        return f"sha256:{digest}"

    def put_manifest(
        self,
        model: str,
        tag: str,
        *layers: tuple[str, str],
        host: str = "registry.ollama.ai",
        namespace: str = "library",
    ) -> Path:
        path = self.folder / "manifests" / host / namespace / model / tag
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:00", "size": 1},
            "layers": [
                {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": 1}
                for kind, digest in layers
            ],
        }
        path.write_text(json.dumps(manifest))
        return path


def put_in_hf_cache(hub: Path, repo: str, commit: str, name: str, source: Path, *, linked: bool = True) -> Path:
    """One file of a snapshot; a link to its blob, or the file itself as on a Windows without links."""
    root = hub / f"models--{repo.replace('/', '--')}"
    target = root / "snapshots" / commit / name
    target.parent.mkdir(parents=True, exist_ok=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    if not linked:
        source.replace(target)
        return target
    blob = root / "blobs" / sha256_of(source)
    blob.parent.mkdir(exist_ok=True)
    source.replace(blob)
    target.symlink_to(os.path.relpath(blob, target.parent))
    return target
