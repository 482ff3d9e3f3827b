"""Small GGUF files for tests, and variations of the starter model's file."""

import struct
from pathlib import Path

import gguf
import numpy as np

from runtime.gguf.header import read_header
from runtime.gguf.source import FileSource

STRING, ARRAY = 8, 9


def pack_string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pack_entry(key: str, type_id: int, value: bytes) -> bytes:
    return pack_string(key) + struct.pack("<I", type_id) + value


def pack_header(entries: list[bytes], tensors: list[bytes] | None = None, *, version: int = 3) -> bytes:
    """A header of ready-made entries, padded to the data part."""
    tensors = tensors or []
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32)


def write_tiny_model(
    path: Path,
    *,
    architecture: str = "llama",
    name: str = "Tiny Test",
    template: str | None = "{% for m in messages %}{{ m.content }}{% endfor %}",
    general_type: str = "model",
    file_type: int = 15,
    split: tuple[int, int] | None = None,
    pooling_type: int | None = None,
) -> Path:
    """A whole file with a few numbers in it; its header is real, its weights are not a working model."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type(general_type)
    writer.add_name(name)
    writer.add_organization("Testers")
    writer.add_license("mit")
    writer.add_file_type(file_type)
    writer.add_context_length(2048)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{i}" for i in range(2000)])
    writer.add_token_types([3 if i < 2 else 4 if i == 2 else 1 for i in range(2000)])
    if template is not None:
        writer.add_chat_template(template)
    if split is not None:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
    if pooling_type is not None:
        writer.add_uint32(f"{architecture}.pooling_type", pooling_type)
    writer.add_tensor("token_embd.weight", np.ones((100, 64), dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_with_template(source: Path, target: Path, template: str | None) -> Path:
    """Copy a model with another chat template, or with none."""
    with FileSource(source) as file:
        header = read_header(file)
    raw = source.read_bytes()
    key = pack_string("tokenizer.chat_template")
    start = raw.index(key)
    (length,) = struct.unpack_from("<Q", raw, start + len(key) + 4)
    end = start + len(key) + 12 + length
    n_kv = len(header.metadata)
    if template is None:
        entry, n_kv = b"", n_kv - 1
    else:
        entry = pack_entry("tokenizer.chat_template", STRING, pack_string(template))
    head = raw[:16] + struct.pack("<Q", n_kv) + raw[24:start] + entry
    # What follows the entry up to the tensors' padding: entries and tensor list, whose end has to be found anew.
    rest = raw[end : header.data_offset]
    unpadded = _without_padding(raw, header.data_offset, len(header.tensors), header.tensors[-1].name)
    rest = rest[: len(rest) - (header.data_offset - unpadded)]
    body = head + rest
    target.write_bytes(body + b"\0" * (-len(body) % header.alignment) + raw[header.data_offset :])
    return target


def _without_padding(raw: bytes, data_offset: int, n_tensors: int, last_name: str) -> int:
    assert n_tensors
    at = raw.rindex(pack_string(last_name), 0, data_offset) + len(pack_string(last_name))
    (n_dims,) = struct.unpack_from("<I", raw, at)
    return int(at + 4 + 8 * n_dims + 4 + 8)


def write_with_architecture(source: Path, target: Path, architecture: str) -> Path:
    """Copy a model under another architecture name of the same length."""
    raw = source.read_bytes()
    entry = pack_entry("general.architecture", STRING, pack_string("llama"))
    assert len(architecture) == len("llama")
    target.write_bytes(raw.replace(entry, pack_entry("general.architecture", STRING, pack_string(architecture)), 1))
    return target
