"""Child process of the fuzzing: decodes and encodes pictures and sounds as a worker does, with tiny projectors.

A process of its own, since a decoder written in C that goes wrong ends it, which is what is looked for. On standard
input come a letter (`p`: picture, `s`: sound), the length as 4 bytes, the file; on standard output goes a line of JSON:
"" if it was read, else the class of the error and its words.
"""

import json
import os
import struct
import sys
import tempfile
from pathlib import Path

from runtime.errors import RuntimeFault
from runtime.messages.shared import MediaPart
from runtime.options import LoadOptions
from runtime.worker.load import LOG, load_model
from runtime.worker.media import MediaReader
from runtime.worker.media_cache import MediaCache
from tests.fakes.tiny_vision import Kind, write_seeing_model

_HEAD = struct.Struct("<cI")


def _reader(folder: Path, kind: Kind) -> MediaReader:
    model, projector = write_seeing_model(folder, kind)
    options = LoadOptions(n_ctx=512, n_threads=1)
    loaded = load_model(model, options, lambda _stage, _fraction: None, projector=projector)
    assert loaded.projector is not None
    return MediaReader(loaded.projector, n_vocab=loaded.vocab.n_tokens, n_ubatch=512, cache=MediaCache(0), log=LOG)


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        readers = {b"p": _reader(Path(folder), "qwen2vl"), b"s": _reader(Path(folder), "ultravox")}
    answers.write('"ready"\n')
    answers.flush()
    while len(head := sys.stdin.buffer.read(_HEAD.size)) == _HEAD.size:
        kind, size = _HEAD.unpack(head)
        data = sys.stdin.buffer.read(size)
        try:
            medium = readers[kind].read(MediaPart("audio" if kind == b"s" else "image", data, ""))
            readers[kind].encode(medium)
            answer = ""
        except RuntimeFault as error:
            answer = f"{type(error).__name__}: {error.message}"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
