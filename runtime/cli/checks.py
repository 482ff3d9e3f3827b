"""The checks of `deskside doctor`. Each looks at one thing and says what it found and what to do.

`problem` is what keeps Deskside from working, `note` what only limits it.
"""

import base64
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from runtime import __version__
from runtime.hardware import HardwareSampler
from runtime.messages.hardware import HardwareSample, Vendor
from runtime.options import ApiOptions
from runtime.paths import DataFolder
from runtime.probe.report import EngineReport
from runtime.units import format_bytes

State = Literal["ok", "note", "problem"]

_PROBE_TIMEOUT_S = 120.0
_LOW_SPACE_BYTES = 5_000_000_000
"""A usual chat model of 7 to 8 billion parameters, four bits each, needs about this much."""
_LOW_MEMORY_BYTES = 4_000_000_000
_MAX_SAID_CHARACTERS = 400
_MAX_NAMED = 5

_CPU_FEATURES: Mapping[str, str] = {"AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX512": "avx512f"}
"""What llama.cpp calls a feature, and what Linux's /proc/cpuinfo does."""


_GPU_DEFINES: Mapping[Vendor, str] = {
    "nvidia": "-DGGML_CUDA=ON",
    "amd": "-DGGML_VULKAN=ON",
    "intel": "-DGGML_VULKAN=ON",
    "apple": "-DGGML_METAL=ON",
}
"""What llama.cpp is compiled with for a maker's GPUs; `installers/bootstrap.py` reads the variable."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding. `advice` is what to do, empty when there is nothing to do."""

    name: str
    state: State
    found: str
    advice: str = ""


class Report(msgspec.Struct, frozen=True):
    """All findings; `works` is false when one of them is a problem."""

    version: str
    works: bool
    checks: tuple[Check, ...]


def examine(data: DataFolder) -> Report:
    """Run every check; one that fails itself is a problem, not an end."""
    engine, engine_check = ask_engine()
    sampler = HardwareSampler(lambda: ())
    try:
        sample = sampler.sample()
    finally:
        sampler.close()
    checks: tuple[tuple[str, Callable[[], Check | Iterator[Check]]], ...] = (
        ("Python", check_python),
        ("llama.cpp", lambda: engine_check),
        ("Processor", lambda: check_processor(sample, engine)),
        ("Memory", lambda: check_memory(sample)),
        ("GPU", lambda: check_gpus(sample, engine)),
        ("Window", check_window),
        ("Display", check_display),
        ("Data folder", lambda: check_data_folder(data)),
        ("Free space", lambda: check_space(data)),
        ("Log files", lambda: check_logs(data)),
        ("Models", lambda: check_models(data)),
        ("Starter model", check_starter_model),
        ("Host", lambda: check_host(data)),
        ("Port", lambda: check_port(data)),
        ("Keyring", check_keyring),
    )
    found = tuple(one for name, check in checks for one in findings(name, check))
    return Report(__version__, not any(one.state == "problem" for one in found), found)


def findings(name: str, check: Callable[[], Check | Iterator[Check]]) -> Iterator[Check]:
    """What a check found; one that fails itself is a problem, not an end."""
    try:
        result = check()
        yield from (result,) if isinstance(result, Check) else result
    except Exception as error:  # noqa: BLE001 - a check must not end the others; what it met is its finding
        yield Check(name, "problem", f"The check itself failed: {type(error).__name__}: {error}")


# --- the program ------------------------------------------------------------------------------------------


def check_python() -> Check:
    """The interpreter."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.maxsize <= 2**32:
        return Check("Python", "problem", f"{found}, 32-bit", "Install a 64-bit Python: models need more than 4 GB.")
    return Check("Python", "ok", found)


def ask_engine(command: tuple[str, ...] | None = None) -> tuple[EngineReport | None, Check]:
    """Ask llama.cpp in a process of its own, where a crash costs nothing."""
    command = command or (sys.executable, "-m", "runtime.probe.devices")
    name, advice = "llama.cpp", "Set Deskside up again; it compiles llama.cpp for this machine."
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None, Check(name, "problem", f"No answer within {_PROBE_TIMEOUT_S:.0f} s.", advice)
    except OSError as error:
        return None, Check(name, "problem", f"It could not be started: {error}", advice)
    if answer.returncode == 0:
        try:
            report = msgspec.json.decode(answer.stdout, type=EngineReport)
        except msgspec.DecodeError as error:
            return None, Check(name, "problem", f"It answered something else: {error}", advice)
        devices = ", ".join(f"{device.name} ({device.description})" for device in report.devices)
        return report, Check(name, "ok", f"llama-cpp-python {report.version}; devices: {devices or 'none'}")
    said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    last = said[-1][-_MAX_SAID_CHARACTERS:] if said else "it said nothing"
    if answer.returncode == -4:  # noqa: PLR2004 - SIGILL, which has no name on Windows
        return None, Check(name, "problem", "It was compiled for another processor than this one.", advice)
    return None, Check(name, "problem", f"It ended with code {answer.returncode}: {last}", advice)


# --- the machine ------------------------------------------------------------------------------------------


def check_processor(sample: HardwareSample, engine: EngineReport | None, proc_root: Path = Path("/proc")) -> Check:
    """The processor, and whether llama.cpp uses what it can do."""
    cores = f"{sample.cpu.cores_physical or '?'} cores"
    used = ", ".join(feature for feature in (engine.features if engine else ()) if feature in _CPU_FEATURES)
    found = f"{sample.cpu.name or 'unknown'}, {cores}" + (f"; llama.cpp uses {used}" if used else "")
    unused = unused_features(engine, proc_root)
    if unused:
        return Check(
            "Processor",
            "note",
            f"{found}, but not {', '.join(unused)}",
            "Compile llama.cpp on this machine; setting Deskside up anew does that.",
        )
    return Check("Processor", "ok", found)


def unused_features(engine: EngineReport | None, proc_root: Path = Path("/proc")) -> tuple[str, ...]:
    """What the processor has and the engine was not compiled to use."""
    try:
        text = (proc_root / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    flags = next((line.partition(":")[2].split() for line in text.splitlines() if line.startswith("flags")), [])
    if engine is None:
        return ()
    return tuple(name for name, flag in _CPU_FEATURES.items() if flag in flags and name not in engine.features)


def check_memory(sample: HardwareSample) -> Check:
    """System memory."""
    memory = sample.memory
    found = f"{format_bytes(memory.available_bytes)} of {format_bytes(memory.total_bytes)} free"
    if memory.available_bytes is not None and memory.available_bytes < _LOW_MEMORY_BYTES:
        return Check("Memory", "note", found, "Close other programs before loading a larger model.")
    return Check("Memory", "ok", found)


def check_gpus(sample: HardwareSample, engine: EngineReport | None) -> Iterator[Check]:
    """Graphics processors, their drivers, and whether llama.cpp can use them."""
    usable = [device for device in (engine.devices if engine else ()) if device.is_gpu]
    for gpu in sample.gpus:
        driver = f", driver {gpu.driver}" if gpu.driver else ""
        found = f"{gpu.name}, {format_bytes(gpu.memory_total_bytes)}{driver}"
        if gpu.problem:
            yield Check(f"GPU {gpu.index}", "problem", f"{found}: {gpu.problem}", "Restart the machine.")
        elif engine is not None and not usable:
            yield Check(
                f"GPU {gpu.index}",
                "note",
                f"{found}; the installed llama.cpp was built without support for it",
                _build_advice(gpu.vendor),
            )
        else:
            yield Check(f"GPU {gpu.index}", "ok", found)
    if not sample.gpus:
        named = ", ".join(device.description or device.name for device in usable)
        yield Check("GPU", "ok", named or "none found; models run on the processor")
    for note in sample.notes:
        yield Check("Readings", "note", note)


def _build_advice(vendor: Vendor) -> str:
    define = _GPU_DEFINES.get(vendor)
    if define is None:
        return "Models run on the processor."
    return f"Models run on the processor. To use the GPU: DESKSIDE_CMAKE_ARGS={define} make setup"


# --- the window -------------------------------------------------------------------------------------------


def check_window() -> Check:
    """Qt and the system libraries it needs."""
    from runtime.cli.qt_libraries import PLUGINS, missing_libraries
    from runtime.cli.window import platform_plugins

    try:
        version = metadata.version("PySide6-Essentials")
    except metadata.PackageNotFoundError:
        return Check("Window", "note", "PySide6 is not installed.", "Install it, or use the terminal and the API.")
    missing = [missing_libraries(plugin) for plugin in platform_plugins(os.environ) if plugin in PLUGINS]
    first = next((one for one in missing if one is not None), None)
    if first is not None and None not in missing:
        return Check("Window", "note", first.sentence, first.advice)
    return Check("Window", "ok", f"Qt {version} and its system libraries")


def check_display() -> Check:
    """Whether a window could be shown."""
    from runtime.cli.window import has_display

    if has_display(os.environ):
        return Check("Display", "ok", os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY") or "there is one")
    return Check("Display", "note", "none", "Use `deskside chat` here, or `deskside serve` and a window elsewhere.")


# --- what is kept -----------------------------------------------------------------------------------------


def check_data_folder(data: DataFolder) -> Check:
    """Whether the data folder can be written, or could be made."""
    place = nearest_existing(data.root)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "Change its permissions, or choose another folder with --data-dir."
        return Check("Data folder", "problem", f"{data.root}: {error.strerror or error}", advice)
    made = "" if data.root.exists() else " (made at the first start)"
    return Check("Data folder", "ok", f"{data.root}{made}")


def check_space(data: DataFolder) -> Check:
    """Free space for models."""
    free = shutil.disk_usage(nearest_existing(data.root)).free
    if free < _LOW_SPACE_BYTES:
        return Check("Free space", "note", format_bytes(free), "Make room, or choose a folder with --data-dir.")
    return Check("Free space", "ok", format_bytes(free))


def check_models(data: DataFolder) -> Check:
    """What is installed, and what of it is damaged."""
    from runtime.cli.library import saved_library

    with saved_library(data) as library:
        models = library.installed()
    damaged = [model for model in models if model.problem and model.kind in {"chat", "embedding"}]
    found = f"{len(models)} in {data.models}"
    if damaged:
        names = ", ".join(f"{model.id} ({model.problem})" for model in damaged[:_MAX_NAMED])
        return Check("Models", "note", f"{found}; damaged: {names}", "Download those again, or delete them.")
    return Check("Models", "ok", found)


def check_starter_model() -> Check:
    """Whether the starter model is there, and byte for byte what was released."""
    from runtime.library.starter import STARTER_DISTRIBUTION, find_starter

    path = find_starter()
    if path is None:
        advice = "Set Deskside up again, or give a .gguf file with --model."
        return Check("Starter model", "note", "not installed", advice)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    released = _released_sha256(STARTER_DISTRIBUTION, path)
    found = f"{path.name}, {format_bytes(path.stat().st_size)}, SHA-256 {digest.hexdigest()}"
    if released and released != digest.digest():
        return Check("Starter model", "problem", f"{found}, which is not the released file", "Install it again.")
    return Check("Starter model", "ok", found)


def _released_sha256(distribution: str, path: Path) -> bytes:
    """From the distribution's record, which names every file with its hash in unpadded base64."""
    for file in metadata.files(distribution) or ():
        if file.name == path.name and file.hash is not None and file.hash.mode == "sha256":
            return base64.urlsafe_b64decode(f"{file.hash.value}=")
    return b""


def check_logs(data: DataFolder) -> Check:
    """Where the log files are."""
    written = data.logs.is_dir() and any(data.logs.iterdir())
    return Check("Log files", "ok", f"{data.logs}" + ("" if written else " (none yet)"))


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(place for place in (path, *path.parents) if place.exists())


# --- what runs --------------------------------------------------------------------------------------------


def check_host(data: DataFolder) -> Check:
    """The host of this data folder."""
    from runtime.cli.host_file import running_host

    host = running_host(data)
    if host is None:
        return Check("Host", "ok", "not running")
    return Check("Host", "ok", f"process {host.pid}, version {host.version}, at {host.address}")


def check_port(data: DataFolder) -> Check:
    """The usual port of the API."""
    from runtime.cli.host_file import running_host

    api = ApiOptions()
    name = f"Port {api.port}"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a port just closed looks taken
        try:
            listener.bind((api.host, api.port))
        except OSError as error:
            if running_host(data) is not None:
                return Check(name, "ok", "in use, perhaps by the Deskside that runs here")
            advice = f"End the program that uses it, or serve elsewhere: deskside serve --port {api.port + 1}"
            return Check(name, "note", f"in use ({error.strerror or error})", advice)
    return Check(name, "ok", "free")


def check_keyring() -> Check:
    """Where passwords could be kept."""
    import keyring
    from keyring.backends.fail import Keyring as NoKeyring

    backend = keyring.get_keyring()
    if isinstance(backend, NoKeyring):
        return Check("Keyring", "ok", "none on this system; nothing needs one yet")
    return Check("Keyring", "ok", backend.name)
