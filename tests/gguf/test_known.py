import re
from pathlib import Path

import llama_cpp
import pytest

from runtime.gguf.known import KNOWN_ARCHITECTURES, why_not_run
from tests.support.architectures import CASES


def test_every_name_when_looked_for_in_the_library_then_is_there() -> None:
    folder = Path(llama_cpp.__file__).parent / "lib"
    library = next(path for path in folder.iterdir() if re.fullmatch(r"(lib)?llama\.(so|dylib|dll)", path.name))
    raw = library.read_bytes()
    assert [name for name in sorted(KNOWN_ARCHITECTURES) if name.encode() + b"\0" not in raw] == []


def test_architectures_that_are_tested_when_looked_up_then_are_known() -> None:
    assert {case.architecture for case in CASES} <= KNOWN_ARCHITECTURES


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("llama", ""),
        ("bert", ""),
        ("dream", "all words at once"),
        ("t5", "encoder-decoder"),
        ("clip", "picture or sound"),
        ("eagle3", "helper"),
        ("flux-capacitor", "'flux-capacitor'"),
        ("", "does not tell"),
        ("\x1b[31m", "does not tell"),
    ],
)
def test_architecture_when_asked_whether_it_runs_then_the_reason_is_told(architecture: str, words: str) -> None:
    reason = why_not_run(architecture)
    assert (reason == "") == (words == "")
    assert words in reason
