"""Set the program up on a fresh machine and run it, test it or measure it.

Needs only Python 3.11 to 3.13 with pip and venv, and a C/C++ compiler. Everything lands in `.venv` beside this
checkout; llama.cpp is compiled once for this processor and kept in the user's cache folder. Safe to run again:
what is already there is left alone.

Usage: python3 installers/bootstrap.py {setup,run,test,bench,lock} [arguments for run]
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "deskside-setup.json"
RUNTIME_LOCK = ROOT / "requirements.lock"
TEST_LOCK = ROOT / "requirements-test.lock"
BUILD_LOCK = ROOT / "installers" / "build.lock"

ENGINE = "llama-cpp-python"
ENGINE_DEFINES = ("-DGGML_RPC=ON", "-DGGML_NATIVE=ON")
"""RPC lends another process's or machine's memory as a device; native code uses all this processor can do."""
ENV_DEFINES = "DESKSIDE_CMAKE_ARGS"
"""More CMake defines for llama.cpp, such as -DGGML_CUDA=ON."""

OLDEST, NEWEST = (3, 11), (3, 13)


class SetupError(Exception):
    """Setting up cannot go on; the message says what to do."""


def say(text: str) -> None:
    """Tell the person what is going on."""
    print(f"deskside: {text}", flush=True)


def venv_program(name: str, venv: Path = VENV) -> Path:
    """Path of a program inside a virtual environment."""
    return venv / "Scripts" / f"{name}.exe" if os.name == "nt" else venv / "bin" / name


def run(command: list[str | Path], **environment: str) -> None:
    """Run a command to its end.

    Raises:
        SetupError: if it fails.
    """
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=ROOT, env=os.environ | environment, check=False).returncode:
        raise SetupError(f"this command failed: {shlex.join(words)}")


def cache_folder() -> Path:
    """Where the compiled engine is kept between checkouts."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "deskside"


def check_python() -> None:
    """Refuse a Python that the packages do not support.

    Raises:
        SetupError: if this Python is too old or too new.
    """
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetupError(f"Python 3.11, 3.12 or 3.13 is needed, this is {found}. Name one: make PYTHON=python3.12 run")


def pip_install(venv: Path, lock: Path) -> None:
    """Install a lock file with pip, every file checked against its hash."""
    run(
        [venv_program("python", venv), "-m", "pip", "install", "-q", "--require-hashes", "-r", lock],
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )


def make_venv(folder: Path) -> None:
    """Make a virtual environment unless a working one of this Python stands there."""
    python = venv_program("python", folder)
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    probe = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    if python.exists():
        answer = subprocess.run([str(python), "-c", probe], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == wanted:
            return
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder])


def lock_block(lock: Path, package: str) -> str:
    """The lines of one package in a lock file, hashes included.

    Raises:
        SetupError: if the package is not locked.
    """
    found = re.search(rf"(?ms)^{re.escape(package)}==.*?(?=^\S|\Z)", lock.read_text(encoding="utf-8"))
    if found is None:
        raise SetupError(f"{lock.name} does not name {package}; make it anew with: make lock")
    return found.group(0)


def processor_key() -> str:
    """What the compiled code depends on: instruction set, compiler and Python-independent platform."""
    parts = [platform.system(), platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.*)$", cpuinfo.read_text(encoding="utf-8"))
        parts.append(" ".join(sorted(flags.group(1).split())) if flags else "")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("cl") or ""
    if compiler and os.name != "nt":
        words = [*shlex.split(compiler), "-dumpfullversion", "-dumpversion"]
        parts.append(subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip())
    return "\n".join(parts)


def engine_defines() -> list[str]:
    """CMake defines of the engine, the person's own last."""
    return [*ENGINE_DEFINES, *shlex.split(os.environ.get(ENV_DEFINES, ""))]


def engine_key() -> str:
    """Name of the compiled engine in the cache: changes with the source, the defines and the processor."""
    text = "\n".join([lock_block(RUNTIME_LOCK, ENGINE), *engine_defines(), processor_key()])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def check_compiler() -> None:
    """Say how to get a compiler when there is none.

    Raises:
        SetupError: if no C++ compiler is found.
    """
    if os.environ.get("CXX") or any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        return
    if os.name == "nt":
        raise SetupError(
            "a C++ compiler is needed: install the Visual Studio Build Tools (Desktop development with C++)"
        )
    if sys.platform == "darwin":
        raise SetupError("a C++ compiler is needed: xcode-select --install")
    raise SetupError("a C++ compiler is needed, for example: sudo apt-get install build-essential")


def watch_compile(command: list[str], log_path: Path, **environment: str) -> None:
    """Run the compile with its output in a log file and its progress on the terminal.

    Raises:
        SetupError: if it fails; names the log file and shows its end.
    """
    started = time.monotonic()
    told = -1
    with (
        log_path.open("w", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | environment,
        ) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            step = re.search(r"\[(\d+)/(\d+)\]", line)
            if step is None:
                continue
            tenth = 10 * int(step.group(1)) // int(step.group(2))
            if tenth > told:
                told = tenth
                say(f"compiling llama.cpp: {tenth * 10} % after {time.monotonic() - started:.0f} s")
    if process.returncode:
        tail = "\n".join(log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        raise SetupError(f"compiling llama.cpp failed; the whole log is {log_path}. Its end:\n{tail}")


def compiled_engine() -> Path:
    """The engine's wheel for this machine, compiled now if it is not in the cache.

    Raises:
        SetupError: if it cannot be compiled.
    """
    store = cache_folder() / "engine" / engine_key()
    ready = sorted(store.glob("*.whl"))
    if ready:
        return ready[0]
    check_compiler()
    say("compiling llama.cpp for this processor: 4 to 7 minutes on two cores, once; it is kept in")
    say(f"{store}")
    builder = cache_folder() / "builder"
    make_venv(builder)
    pip_install(builder, BUILD_LOCK)
    work = store.with_name(store.name + f".{os.getpid()}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    wanted = work / "engine.lock"
    wanted.write_text(lock_block(RUNTIME_LOCK, ENGINE), encoding="utf-8")
    command = [
        *(str(venv_program("python", builder)), "-m", "pip", "wheel", "-v"),
        *("--no-deps", "--no-cache-dir", "--no-build-isolation", "--no-binary", ENGINE),
        *("--require-hashes", "-r", str(wanted), "-w", str(work)),
    ]
    programs = str(venv_program("python", builder).parent)
    watch_compile(
        command,
        work / "compile.log",
        CMAKE_ARGS=" ".join(engine_defines()),
        PATH=programs + os.pathsep + os.environ.get("PATH", ""),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    shutil.rmtree(store, ignore_errors=True)
    work.rename(store)
    return sorted(store.glob("*.whl"))[0]


def wanted_state(*, tests: bool) -> dict[str, str]:
    """What the stamp must say for the environment to be complete."""

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    return {
        "python": platform.python_version(),
        "root": str(ROOT),
        "runtime": digest(RUNTIME_LOCK),
        "tests": digest(TEST_LOCK) if tests else "",
        "build": digest(BUILD_LOCK),
        "engine": engine_key(),
        "package": digest(ROOT / "pyproject.toml"),
    }


def is_complete(wanted: dict[str, str]) -> bool:
    """Whether the stamp says that all wanted is there (an environment with tests serves a run without)."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all(stamp.get(key) == value for key, value in wanted.items() if value) and isinstance(stamp, dict)


def setup(*, tests: bool) -> None:
    """Bring the virtual environment up to what the lock files say.

    Raises:
        SetupError: if a step fails.
    """
    check_python()
    wanted = wanted_state(tests=tests)
    if is_complete(wanted):
        return
    say(f"setting up {VENV} (once; later starts are quick)")
    make_venv(VENV)
    STAMP.unlink(missing_ok=True)
    uv_lock = VENV / "uv.lock.txt"
    uv_lock.write_text(lock_block(BUILD_LOCK, "uv"), encoding="utf-8")
    pip_install(VENV, uv_lock)
    uv = [str(venv_program("uv")), "--no-config"]
    target = ["--python", str(venv_program("python"))]
    engine = compiled_engine()
    say("installing the packages")
    others = VENV / "packages.lock.txt"
    locked = RUNTIME_LOCK.read_text(encoding="utf-8").replace(lock_block(RUNTIME_LOCK, ENGINE), "")
    others.write_text(locked, encoding="utf-8")
    locks = ["-r", str(others), *(["-r", str(TEST_LOCK)] if tests else [])]
    run([*uv, "pip", "install", "-q", *target, "--no-deps", "--require-hashes", *locks])
    run([*uv, "pip", "install", "-q", *target, "--no-deps", "--reinstall", engine])
    run(
        [*uv, "pip", "install", "-q", *target, "--no-deps", "--build-constraints", BUILD_LOCK, "--editable", ROOT],
    )
    # Bytecode now rather than at the first start and in the middle of an answer.
    packages = packages_folder()
    compiling = [str(venv_program("python")), "-m", "compileall", "-q", "-j", "0"]
    subprocess.run([*compiling, packages, "app", "runtime"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    STAMP.write_text(json.dumps(wanted, indent=1), encoding="utf-8")


def packages_folder() -> str:
    """Where the environment keeps its packages."""
    ask = [str(venv_program("python")), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def check_system_libraries(platform_plugin: str) -> None:
    """Have the libraries Qt needs; as root on a system with a known package manager they are installed.

    Raises:
        SetupError: if some are missing and cannot be installed here; says the exact command.
    """
    if not sys.platform.startswith("linux"):
        return
    ask = [str(venv_program("python")), "-m", "runtime.cli.qt_libraries", platform_plugin]
    answer = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return
    say(answer.stdout.strip() or answer.stderr.strip())
    command = re.search(
        r"(?m)^\s*(?:sudo )?(apt-get install .*|dnf install .*|pacman -S .*|zypper install .*)$", answer.stdout
    )
    if command is None or os.geteuid() != 0:
        raise SetupError("install the libraries named above, then run this again")
    words = shlex.split(command.group(1))
    if words[0] == "apt-get":
        run(["apt-get", "update", "-qq"])
        words.insert(2, "-y")
    run([*words], DEBIAN_FRONTEND="noninteractive")
    if subprocess.run(ask, cwd=ROOT, capture_output=True, check=False).returncode:
        raise SetupError("the libraries named above are still missing after installing them")


def test(arguments: list[str]) -> int:
    """Style, types, import directions and the tests; the first that fails ends it."""
    python = venv_program("python")
    steps: list[tuple[str, list[str | Path]]] = [
        ("style", [venv_program("ruff"), "check", "."]),
        ("format", [venv_program("ruff"), "format", "--check", "-q", "."]),
        ("types", [python, "-m", "mypy"]),
        ("import directions", [venv_program("lint-imports"), "--no-cache"]),
        ("tests", [python, "-m", "pytest", *arguments]),
    ]
    for name, command in steps:
        say(f"checking {name}")
        words = [str(word) for word in command]
        code = subprocess.run(
            words, cwd=ROOT, env=os.environ | {"QT_QPA_PLATFORM": "offscreen"}, check=False
        ).returncode
        if code:
            say(f"{name} failed")
            return code
    return 0


def hand_over(words: list[str]) -> int:
    """Become the command, so that Ctrl-C and signals reach it and nothing else; returns its status on Windows."""
    os.chdir(ROOT)
    if os.name != "nt":
        os.execv(words[0], words)  # noqa: S606 - a list of our own words
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.run(words, check=False).returncode


def lock() -> None:
    """Make the lock files anew from pyproject.toml and build.in, without addresses."""
    uv = venv_program("uv")
    shared: list[str | Path] = ["--universal", "--generate-hashes", "--python-version", "3.11", "--no-emit-index-url"]
    shared += ["--no-header", "-q"]
    run([uv, "pip", "compile", "pyproject.toml", *shared, "-o", RUNTIME_LOCK])
    run([uv, "pip", "compile", "--group", "test", "-c", RUNTIME_LOCK, *shared, "-o", TEST_LOCK])
    run([uv, "--no-config", "pip", "compile", "installers/build.in", *shared, "-o", BUILD_LOCK])


def main(argv: list[str]) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description="Set Deskside up, and run, test or measure it.")
    parser.add_argument("action", choices=["setup", "run", "test", "bench", "lock"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on")
    chosen = parser.parse_args(argv)
    try:
        setup(tests=chosen.action in ("test", "bench", "lock"))
        if chosen.action == "test":
            check_system_libraries("offscreen")
            return test(chosen.arguments)
        if chosen.action == "lock":
            lock()
            return 0
        module = {"run": "runtime.cli.main", "bench": "tests.bench"}.get(chosen.action)
        if module is None:
            say("ready: make run")
            return 0
        return hand_over([str(venv_program("python")), "-m", module, *chosen.arguments])
    except SetupError as problem:
        say(str(problem))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
