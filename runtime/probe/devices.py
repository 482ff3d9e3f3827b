"""`python -m runtime.probe.devices`: which llama.cpp is installed and what it can compute on.

Runs in a process of its own, because a GPU backend that meets a broken driver may end the process.
"""

import contextlib
import os
import re
import sys
from collections.abc import Sequence

import llama_cpp
import msgspec

from runtime.probe.report import DeviceReport, EngineReport
from runtime.worker.devices import compute_devices


def engine_report(nodes: Sequence[str] = ()) -> EngineReport:
    """Ask the engine in this process, and these nodes (`host:port`)."""
    raw_info = llama_cpp.llama_print_system_info()
    info = raw_info.decode("utf-8", "replace") if isinstance(raw_info, bytes) else str(raw_info)
    devices, problems = compute_devices(nodes)
    return EngineReport(
        version=llama_cpp.__version__,
        devices=tuple(
            DeviceReport(
                name=device.name,
                description=device.description,
                is_gpu=device.kind in ("gpu", "igpu"),
                free_bytes=device.free_bytes,
                total_bytes=device.total_bytes,
            )
            for device in devices
        ),
        # The text reads `CPU : SSE3 = 1 | AVX2 = 1 | OPENMP = 1 | ...`; every entry that is 1 is in use.
        features=tuple(re.findall(r"(\w+) = 1\b", info)),
        can_offload=bool(llama_cpp.llama_supports_gpu_offload()),
        compute=devices,
        problems=problems,
    )


def main() -> None:
    """Print the report; what the libraries themselves print goes to standard error."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with answer, contextlib.redirect_stdout(sys.stderr):
        answer.write(msgspec.json.encode(engine_report()) + b"\n")


if __name__ == "__main__":
    main()
