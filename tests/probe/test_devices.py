import subprocess
import sys

import msgspec

from runtime.probe.report import EngineReport


def test_when_the_probe_runs_then_one_line_on_standard_output_is_the_report() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.probe.devices"], capture_output=True, timeout=120, check=True
    )
    assert ended.stdout.count(b"\n") == 1
    report = msgspec.json.decode(ended.stdout, type=EngineReport)
    assert report.version
    assert any(not device.is_gpu for device in report.devices)
