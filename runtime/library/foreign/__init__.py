"""Models that other programs have on this machine, used where they are. Nothing of theirs is ever written.

Each module knows one program: where it keeps its files on each system, and how they are named. A layout that is not
understood lists nothing.
"""

from collections.abc import Mapping

from runtime.library.foreign import gpt4all, hf_cache, jan, lm_studio, ollama
from runtime.library.foreign.program import Program, Surroundings
from runtime.messages.library import Origin

PROGRAMS: Mapping[Origin, Program] = {
    "lm_studio": Program(lm_studio.folders, lm_studio.models),
    "jan": Program(jan.folders, jan.models),
    "gpt4all": Program(gpt4all.folders, gpt4all.models),
    "hf_cache": Program(hf_cache.folders, hf_cache.models),
    "ollama": Program(ollama.folders, ollama.models),
}
"""By origin; where two list the same file, the first one's name is used."""

PROGRAM_NAMES: Mapping[Origin, str] = {
    "lm_studio": "LM Studio",
    "jan": "Jan",
    "gpt4all": "GPT4All",
    "hf_cache": "the Hugging Face cache",
    "ollama": "Ollama",
}

__all__ = ["PROGRAMS", "PROGRAM_NAMES", "Program", "Surroundings"]
