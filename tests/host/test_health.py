"""/health in every state."""

from types import SimpleNamespace
from typing import cast

import pytest

from runtime.host.api.health import Health, health_of
from runtime.host.model_slot import ModelSlot


def slot(state: str, percent: int = 0, *, is_stuck: bool = False) -> ModelSlot:
    return cast("ModelSlot", SimpleNamespace(state=state, percent=percent, is_stuck=is_stuck))


@pytest.mark.parametrize(
    ("slots", "status", "percent"),
    [
        ((), "idle", None),
        ((slot("ready"),), "ok", None),
        ((slot("loading", 37),), "loading", 37),
        ((slot("restarting", 5),), "restarting", 5),
        ((slot("failed"),), "failed", None),
        ((slot("unloading"),), "idle", None),
        ((slot("ready", is_stuck=True),), "stuck", None),
        ((slot("failed"), slot("ready"), slot("loading")), "ok", None),
        ((slot("failed"), slot("loading", 9)), "loading", 9),
    ],
)
def test_when_models_are_so_then_health_is(slots: tuple[ModelSlot, ...], status: str, percent: int | None) -> None:
    health: Health = health_of(slots)
    assert (health.status, health.percent) == (status, percent)
