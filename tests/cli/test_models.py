import argparse
import io
import json
import shutil
from pathlib import Path

import pytest

from runtime.cli import models
from runtime.cli.terminal import Terminal
from runtime.library.starter import find_starter
from runtime.paths import DataFolder


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    data = DataFolder(tmp_path)
    data.ensure()
    return data


def printed(data: DataFolder, *, as_json: bool = False) -> str:
    out = io.StringIO()
    assert models.run(argparse.Namespace(json=as_json), data, Terminal(out, io.StringIO(), {})) == 0
    return out.getvalue()


def test_when_the_starter_is_installed_then_it_is_listed_with_its_figures(data: DataFolder) -> None:
    text = printed(data)
    assert "smollm2-135m-instruct-q4_1 (starter)" in text
    assert "Q4_1" in text
    assert "8,192" in text
    assert str(data.models) in text


def test_when_a_file_is_cut_off_then_it_is_listed_with_what_is_wrong(data: DataFolder) -> None:
    starter = find_starter()
    assert starter is not None
    target = data.models / "someone" / "thing" / "cut.gguf"
    target.parent.mkdir(parents=True)
    with starter.open("rb") as source, target.open("wb") as file:
        shutil.copyfileobj(io.BytesIO(source.read(4_000_000)), file)
    lines = printed(data).splitlines()
    (row,) = (number for number, line in enumerate(lines) if line.startswith("cut"))
    assert lines[row + 1].startswith("  ")
    assert lines[row + 1].strip()


def test_when_json_is_asked_for_then_every_model_is_there(data: DataFolder) -> None:
    (starter,) = json.loads(printed(data, as_json=True))
    assert starter["starter"] is True
    assert Path(starter["path"]).is_file()
