"""How long a look at a library of 5,000 model files takes: the first one, one where nothing changed, after a start.

The peer is the least that any program must do to notice a change: walk the folders and ask for size and time of each
file. Run alone: `python -m tests.bench.library [--files N]`.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runtime.library.catalogue import Catalogue
from runtime.library.folder import Library
from runtime.library.foreign import Surroundings
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.support.gguf_files import write_tiny_model

N_FILES = 5000
MAX_RATIO = 5.0
"""A look at unchanged files may take so many times the peer's time."""
N_LOOKS = 7


def main() -> int:
    """Print the table; the exit status is 1 if the bound was missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=N_FILES)
    n_files = parser.parse_known_args()[0].files
    with tempfile.TemporaryDirectory() as raw:
        root = Path(raw)
        data = DataFolder(root / "data")
        data.ensure()
        content = write_tiny_model(root / "model.gguf").read_bytes()
        for i in range(n_files):
            path = data.models / f"publisher{i % 50}" / f"repo{i // 10}" / f"Model-{i}-Q4_K_M.gguf"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        def opened() -> tuple[Library, Catalogue]:
            catalogue = Catalogue(data.catalogue_file)
            around = Surroundings("linux", root / "home", {}, root / "system")
            return Library(data, ModelsOptions(), catalogue, starter_path=root / "none", around=around), catalogue

        library, catalogue = opened()
        first_s = _timed(lambda: _expect(library, n_files))
        peer_s = statistics.median(_timed(lambda: _peer(data.models)) for _ in range(N_LOOKS))
        unchanged_s = statistics.median(_timed(lambda: _expect(library, n_files)) for _ in range(N_LOOKS))
        next(data.models.rglob("*.gguf")).unlink()
        changed_s = _timed(lambda: _expect(library, n_files - 1))
        catalogue.close()
        again, catalogue = opened()
        start_s = _timed(lambda: _expect(again, n_files - 1))
        catalogue.close()
    ratio = unchanged_s / peer_s
    print(f"Library of {n_files:,} files")
    for name, seconds in (
        ("first look, every header read", first_s),
        ("nothing changed", unchanged_s),
        ("one file gone", changed_s),
        ("first look after a start", start_s),
        ("peer: walk and stat", peer_s),
    ):
        print(f"  {name:32} {seconds * 1000:8.0f} ms")
    print(f"  nothing changed / peer           {ratio:8.1f}    (bound {MAX_RATIO:.1f})")
    return 0 if ratio <= MAX_RATIO else 1


def _timed(work: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def _expect(library: Library, n_files: int) -> None:
    found = len(library.installed())
    if found != n_files:
        raise SystemExit(f"{found} models were listed, not {n_files}")


def _peer(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118 - the least that can be done


if __name__ == "__main__":
    sys.exit(main())
