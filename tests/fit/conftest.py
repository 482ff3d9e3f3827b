from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.gguf.architecture import ModelShape, shape_of
from runtime.gguf.header import read_header
from runtime.gguf.source import FileSource
from tests.support.probe_child import NodeChild, ProbeChild
from tests.support.sparse_models import MODELS


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The stand-in of a model of `sparse_models.MODELS`, written once."""
    folder = tmp_path_factory.mktemp("models")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        return path if path.exists() else MODELS[name]().write(path)

    return find


@pytest.fixture(scope="session")
def shape(model_path: Callable[[str], Path]) -> Callable[[str], ModelShape]:
    """The shape of a model of `sparse_models.MODELS`."""
    known: dict[str, ModelShape] = {}

    def find(name: str) -> ModelShape:
        if name not in known:
            with FileSource(model_path(name)) as source:
                known[name] = shape_of([read_header(source)])
        return known[name]

    return find


@pytest.fixture(scope="session")
def probe() -> Iterator[ProbeChild]:
    with ProbeChild() as child:
        yield child


@pytest.fixture(scope="session")
def node() -> Iterator[NodeChild]:
    with NodeChild() as child:
        yield child
