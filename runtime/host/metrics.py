"""Prometheus text: counters kept here, gauges read from their owners when asked.

Format: the text exposition format 0.0.4. Labels are bounded: routes and states are closed sets, models past
`MAX_MODEL_LABELS` are counted as "other".
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

from runtime.host.model_slot import ModelSlot
from runtime.messages.api import RequestState
from runtime.messages.hardware import HardwareSample
from runtime.messages.shared import Usage

MAX_MODEL_LABELS = 32
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BOUNDS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

Labels = tuple[tuple[str, str], ...]


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_TTFT_BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, value_s: float) -> None:
        self.counts[bisect_left(_TTFT_BOUNDS_S, value_s)] += 1
        self.total_s += value_s


class Metrics:
    """Counts since the host started. Home: the event loop."""

    def __init__(self) -> None:
        self._requests: dict[Labels, int] = defaultdict(int)
        self._tokens: dict[Labels, int] = defaultdict(int)
        self._ttft: dict[str, _Histogram] = defaultdict(_Histogram)
        self._restarts: dict[str, int] = defaultdict(int)
        self._models: set[str] = set()

    def request_ended(self, route: str, model: str, state: RequestState, usage: Usage) -> None:
        """A request ended, one way or another."""
        label = self._label(model)
        self._requests[(("route", route), ("model", label), ("state", state))] += 1
        for kind, count in (
            ("prompt", usage.prompt_tokens),
            ("cached", usage.cached_tokens),
            ("generated", usage.completion_tokens),
        ):
            if count:
                self._tokens[(("model", label), ("kind", kind))] += count

    def first_token(self, model: str, after_s: float) -> None:
        """The first text of a request came so long after it arrived."""
        self._ttft[self._label(model)].add(after_s)

    def worker_restarted(self, model: str) -> None:
        """A dead worker was replaced."""
        self._restarts[self._label(model)] += 1

    def text(self, slots: Iterable[ModelSlot], running: int, hardware: HardwareSample | None) -> str:
        """All of it."""
        lines: list[str] = []
        _family(lines, "deskside_requests_total", "counter", "Requests that ended.", self._requests)
        _family(lines, "deskside_tokens_total", "counter", "Tokens read, reused and generated.", self._tokens)
        restarts: dict[Labels, float] = {(("model", model),): count for model, count in self._restarts.items()}
        _family(lines, "deskside_worker_restarts_total", "counter", "Model processes that were replaced.", restarts)
        _family(lines, "deskside_requests_running", "gauge", "Requests that have not ended.", {(): running})
        self._ttft_lines(lines)
        self._engine_lines(lines, slots)
        if hardware is not None:
            _hardware_lines(lines, hardware)
        return "\n".join(lines) + "\n"

    def _ttft_lines(self, lines: list[str]) -> None:
        name = "deskside_time_to_first_token_seconds"
        if self._ttft:
            lines += [f"# HELP {name} From the arrival of a request to its first text.", f"# TYPE {name} histogram"]
        for model, histogram in self._ttft.items():
            below = 0
            for bound_s, count in zip((*_TTFT_BOUNDS_S, "+Inf"), histogram.counts, strict=True):
                below += count
                lines.append(f"{name}_bucket{_braces((('model', model), ('le', str(bound_s))))} {below}")
            lines.append(f"{name}_sum{_braces((('model', model),))} {histogram.total_s:.6f}")
            lines.append(f"{name}_count{_braces((('model', model),))} {below}")

    def _engine_lines(self, lines: list[str], slots: Iterable[ModelSlot]) -> None:
        families: dict[tuple[str, str], dict[Labels, float]] = defaultdict(dict)
        for slot in slots:
            public = slot.public()
            engine = public.engine
            key: Labels = (("model", self._label(public.id)),)
            for name, text, value in (
                ("deskside_model_ready", "1 while the model takes requests.", float(public.state == "ready")),
                ("deskside_queue_active", "Requests that generate or are read.", engine.active),
                ("deskside_queue_waiting", "Requests that wait.", engine.waiting),
                ("deskside_kv_used_cells", "Cells of the KV cache in use.", engine.kv_used),
                ("deskside_kv_cells", "Cells of the KV cache.", engine.kv_total),
                ("deskside_generation_tokens_per_second", "Now, all requests.", engine.generation_tps),
                ("deskside_draft_tokens", "Tokens guessed ahead since the load.", engine.draft_tokens),
                ("deskside_draft_tokens_accepted", "Guessed tokens that were what came.", engine.draft_accepted),
                ("deskside_decode_share", "Share of busy time inside llama_decode.", engine.decode_share),
                ("deskside_worker_resident_bytes", "Memory of the model's process.", engine.resident_bytes),
            ):
                families[(name, text)][key] = value
        for (name, text), values in families.items():
            _family(lines, name, "gauge", text, values)

    def _label(self, model: str) -> str:
        if model in self._models:
            return model
        if len(self._models) >= MAX_MODEL_LABELS:
            return "other"
        self._models.add(model)
        return model


def _hardware_lines(lines: list[str], sample: HardwareSample) -> None:
    families: dict[tuple[str, str], dict[Labels, float]] = defaultdict(dict)
    for gpu in sample.gpus:
        key: Labels = (("gpu", str(gpu.index)), ("name", gpu.name))
        for name, text, value in (
            ("deskside_gpu_temperature_celsius", "Temperature of the GPU.", gpu.temperature_c),
            ("deskside_gpu_power_watts", "Power the GPU takes.", gpu.power_w),
            ("deskside_gpu_utilisation_percent", "Share of time the GPU works.", gpu.utilisation_percent),
            ("deskside_gpu_memory_used_bytes", "Memory in use on the GPU.", gpu.memory_used_bytes),
            ("deskside_gpu_throttled", "1 while heat or power limits the GPU.", float(gpu.throttled)),
        ):
            if value is not None:
                families[(name, text)][key] = value
    if sample.cpu.temperature_c is not None:
        families[("deskside_cpu_temperature_celsius", "Temperature of the CPU.")][()] = sample.cpu.temperature_c
    if sample.memory.available_bytes is not None:
        families[("deskside_memory_available_bytes", "Free system memory.")][()] = sample.memory.available_bytes
    for (name, text), values in families.items():
        _family(lines, name, "gauge", text, values)


def _family(lines: list[str], name: str, kind: str, text: str, values: Mapping[Labels, float]) -> None:
    if values:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_braces(labels)} {value:.12g}" for labels, value in values.items()]


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
