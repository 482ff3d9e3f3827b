from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.library import records as module
from runtime.library.catalogue import Catalogue
from runtime.library.records import Records
from runtime.messages.fit import LoadRecord
from runtime.messages.load import DeviceMemory


class Run(msgspec.Struct, frozen=True):
    tps: float


class NewRun(msgspec.Struct, frozen=True):
    tps: float
    needed: int


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    opened = Catalogue(tmp_path / "models.sqlite3")
    yield opened
    opened.close()


def record(model: str, at_s: float) -> LoadRecord:
    return LoadRecord(model, at_s, None, (DeviceMemory("CPU", weight_bytes=1000),), generation_tps=12.5)


def test_load_when_saved_then_only_the_last_of_a_model_is_kept(catalogue: Catalogue) -> None:
    records = Records(catalogue)
    records.save_load(record("a", 1.0))
    records.save_load(record("a", 2.0))
    assert records.load("a") == record("a", 2.0)
    assert records.load("b") is None
    assert records.used_s() == {"a": 2.0}
    assert Records(catalogue).load("a") == record("a", 2.0)


def test_loads_of_too_many_models_when_saved_then_the_oldest_go(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LOADS", 3)
    records = Records(catalogue)
    for i in range(6):
        records.save_load(record(f"m{i}", float(i)))
    assert set(records.used_s()) == {"m3", "m4", "m5"}


def test_speeds_when_saved_then_are_bounded_by_key_and_in_all(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SPEEDS_PER_KEY", 3)
    monkeypatch.setattr(module, "MAX_SPEEDS", 5)
    records = Records(catalogue)
    for i in range(5):
        records.add_speed("a", Run(float(i)))
    for i in range(3):
        records.add_speed("b", Run(float(10 + i)))
    assert records.speeds(Run, "a") == (Run(3.0), Run(4.0))
    assert records.speeds(Run) == (Run(3.0), Run(4.0), Run(10.0), Run(11.0), Run(12.0))


def test_values_of_another_version_when_read_then_are_left_out(catalogue: Catalogue) -> None:
    records = Records(catalogue)
    records.add_speed("a", Run(1.0))
    records.add_speed("a", NewRun(2.0, 3))
    assert records.speeds(NewRun) == (NewRun(2.0, 3),)
    records.save_load(record("a", 1.0))
    catalogue.run(lambda connection: connection.execute("UPDATE load SET record = x'93'").fetchall())
    assert records.load("a") is None
