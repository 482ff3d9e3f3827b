"""Runs the quick measurement of speeds (`python -m runtime.probe.throughput`) in a process of its own."""

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from runtime.errors import Busy, WorldFault
from runtime.host.json_child import json_child
from runtime.messages.fit import MachineSpeed
from runtime.probe.report import EngineReport

COMMAND = (sys.executable, "-m", "runtime.probe.throughput")
TIMEOUT_S = 180.0
"""Three seconds a device are usual; a busy machine takes much longer, and a slow network too."""


class SpeedMeasure:
    """Home: the event loop."""

    def __init__(self, command: Sequence[str] = COMMAND, timeout_s: float = TIMEOUT_S) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s

    async def __call__(self, report: EngineReport) -> MachineSpeed:
        """Measure the devices of this report, nodes among them. Cancelled, the process ends at once.

        Raises:
            Busy: other programs left no time to measure anything.
            WorldFault: the process gave no answer.
        """
        nodes = dict.fromkeys(device.node for device in report.compute if device.node)
        told = [part for node in nodes for part in ("--node", node)]
        try:
            async with asyncio.timeout(self._timeout_s), json_child((*self._command, *told), grace_s=0.0) as child:
                async for line in child.lines():
                    return _checked(msgspec.json.decode(line, type=MachineSpeed))
                outcome = await child.ended()
                raise WorldFault(
                    f"The speed of this machine could not be measured: the process {outcome.sentence}.",
                    reason=child.last_words(),
                )
        except TimeoutError:
            raise WorldFault(
                f"The speed of this machine could not be measured within {self._timeout_s:.0f} s.",
                hint="Try again when it is less busy.",
            ) from None
        except msgspec.DecodeError as error:
            raise WorldFault(f"The measurement of speeds gave an answer that cannot be read ({error}).") from error


def _checked(speed: MachineSpeed) -> MachineSpeed:
    if speed.throughput:
        return speed
    raise Busy(
        "Other programs keep this machine too busy to measure its speed.",
        hint="Try again when it is less busy.",
        retry_after_s=60,
        waiting=0,
    )
