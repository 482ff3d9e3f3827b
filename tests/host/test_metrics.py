"""Prometheus text."""

from runtime.host.metrics import MAX_MODEL_LABELS, Metrics
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from runtime.messages.shared import Usage
from tests.host.conftest import RunningHost


def test_when_requests_end_then_they_are_counted_by_route_and_state() -> None:
    metrics = Metrics()
    metrics.request_ended("/v1/completions", "m", "finished", Usage(10, 4, 3))
    metrics.request_ended("/v1/completions", "m", "finished", Usage(10, 4, 3))
    metrics.request_ended("/v1/completions", "m", "failed", Usage())
    text = metrics.text((), 5, None)
    assert 'deskside_requests_total{route="/v1/completions",model="m",state="finished"} 2' in text
    assert 'deskside_requests_total{route="/v1/completions",model="m",state="failed"} 1' in text
    assert 'deskside_tokens_total{model="m",kind="cached"} 8' in text
    assert "deskside_requests_running 5" in text


def test_when_first_tokens_come_then_buckets_add_up() -> None:
    metrics = Metrics()
    for after_s in (0.01, 0.05, 0.3, 1000):
        metrics.first_token("m", after_s)
    text = metrics.text((), 0, None)
    name = "deskside_time_to_first_token_seconds"
    assert f'{name}_bucket{{model="m",le="0.025"}} 1' in text
    assert f'{name}_bucket{{model="m",le="0.05"}} 2' in text
    assert f'{name}_bucket{{model="m",le="0.5"}} 3' in text
    assert f'{name}_bucket{{model="m",le="+Inf"}} 4' in text
    assert f'{name}_count{{model="m"}} 4' in text
    assert f'{name}_sum{{model="m"}} 1000.36' in text


def test_when_models_are_many_then_labels_stay_bounded() -> None:
    metrics = Metrics()
    for number in range(MAX_MODEL_LABELS * 3):
        metrics.request_ended("/v1/completions", f"m{number}", "finished", Usage())
    lines = [line for line in metrics.text((), 0, None).splitlines() if line.startswith("deskside_requests_total")]
    assert len(lines) == MAX_MODEL_LABELS + 1
    assert (
        f'deskside_requests_total{{route="/v1/completions",model="other",state="finished"}} {MAX_MODEL_LABELS * 2}'
        in lines
    )


def test_when_names_are_odd_then_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.request_ended("/v1/completions", 'a"b\\c\nd', "finished", Usage())
    assert 'model="a\\"b\\\\c\\nd"' in metrics.text((), 0, None)


def test_when_devices_tell_nothing_then_they_are_left_out() -> None:
    sample = HardwareSample(1.0, CpuSample(), MemorySample(), (GpuSample(0, "G", "nvidia", temperature_c=61.5),))
    text = Metrics().text((), 0, sample)
    assert 'deskside_gpu_temperature_celsius{gpu="0",name="G"} 61.5' in text
    assert "deskside_gpu_power" not in text


def test_when_asked_over_http_then_engine_and_devices_are_told(host: RunningHost) -> None:
    host.private.get("/admin/hardware")
    answer = host.public.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'deskside_model_ready{model="fake"} 1' in answer.text
    assert 'deskside_decode_share{model="fake"}' in answer.text
    assert 'deskside_draft_tokens_accepted{model="fake"} 0' in answer.text
    assert 'deskside_gpu_power_watts{gpu="0",name="Fake GPU"} 120.5' in answer.text
