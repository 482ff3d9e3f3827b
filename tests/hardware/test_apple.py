import plistlib

import pytest

from runtime.hardware.apple import AppleReader


def test_when_ioreg_tells_the_load_then_it_is_read() -> None:
    answer = plistlib.dumps([{"gpu-core-count": 10, "PerformanceStatistics": {"Device Utilization %": 47}}])
    (gpu,) = AppleReader("Apple M3", lambda: answer).read()
    assert gpu.name == "Apple M3 GPU, 10 cores"
    assert gpu.utilisation_percent == 47
    assert gpu.unified_memory
    assert gpu.temperature_c is None


def test_when_the_statistics_are_missing_then_the_gpu_is_still_listed() -> None:
    (gpu,) = AppleReader("", lambda: plistlib.dumps([{"IOClass": "AGXAcceleratorG14G"}])).read()
    assert gpu.name == "Apple GPU"
    assert gpu.utilisation_percent is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not a plist",
        plistlib.dumps({"a": 1}),
        plistlib.dumps(["text"]),
        b"<?xml version='1.0'?><plist><di",
    ],
)
def test_when_ioreg_answers_something_else_then_there_is_no_gpu(answer: bytes) -> None:
    assert AppleReader("Apple M3", lambda: answer).read() == ()
