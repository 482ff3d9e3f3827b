"""Build llama.cpp's own server from the very source archive that the engine was compiled from, to measure against.

Only `python -m tests.bench server` wants it. It is kept in the user's cache under a key of the source, the defines and
the processor, as the engine is; its web page is left out.

Usage: python -m installers.llama_server   (from the checkout, after `make setup`; prints the program's path)
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from installers import bootstrap

DEFINES = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=@loader_path" if sys.platform == "darwin" else "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
"""Shared libraries as in the engine; no web page, which would be fetched; no TLS, which is not measured."""

NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
"""The engine is refused AMX on Linux (runtime/worker/amx.py says why), so its peer is built without it."""

PROGRAM = "llama-server.exe" if os.name == "nt" else "llama-server"


def defines() -> list[str]:
    """All CMake defines: the engine's, then those of this build."""
    cpuinfo = Path("/proc/cpuinfo")
    has_amx = cpuinfo.exists() and "amx_tile" in cpuinfo.read_text(encoding="utf-8")
    flags = [f"-DCMAKE_C_FLAGS={NO_AMX}", f"-DCMAKE_CXX_FLAGS={NO_AMX}"] if has_amx else []
    return [*bootstrap.engine_defines(), *DEFINES, *flags]


def key() -> str:
    """Name of the build in the cache: changes with the source, the defines and the processor."""
    source = bootstrap.lock_block(bootstrap.RUNTIME_LOCK, bootstrap.ENGINE)
    return hashlib.sha256("\n".join([source, *defines(), bootstrap.processor_key()]).encode()).hexdigest()[:20]


def llama_server() -> Path:
    """The program, built now if it is not in the cache; 8 to 15 minutes on two cores.

    Raises:
        bootstrap.SetupError: if it cannot be fetched or compiled.
    """
    store = bootstrap.cache_folder() / "llama-server" / key()
    ready = sorted(store.rglob(PROGRAM))
    if ready:
        return ready[0]
    bootstrap.check_compiler()
    builder = bootstrap.cache_folder() / "builder"
    bootstrap.make_venv(builder)
    bootstrap.pip_install(builder, bootstrap.BUILD_LOCK)
    cmake = bootstrap.venv_program("cmake", builder)
    path = str(cmake.parent) + os.pathsep + os.environ.get("PATH", "")
    work = store.with_name(store.name + f".{os.getpid()}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        bootstrap.say("compiling llama.cpp's own server, once; it is kept in")
        bootstrap.say(str(store))
        source = fetch_source(work, builder, path)
        build = work / "build"
        generator = [] if os.name == "nt" else ["-G", "Ninja"]
        configure = [str(cmake), *generator, "-S", str(source), "-B", str(build), *defines()]
        run(configure, work / "configure.log", path)
        compile_ = [str(cmake), "--build", str(build), "--config", "Release", "--target", "llama-server", "--parallel"]
        bootstrap.watch_compile([*compile_, str(os.cpu_count() or 1)], work / "compile.log", PATH=path)
        (program,) = build.rglob(PROGRAM)
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(program.parent, store, symlinks=True)
        return store / PROGRAM
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fetch_source(work: Path, builder: Path, path: str) -> Path:
    """The folder of llama.cpp's sources, from the archive whose hash is locked.

    Raises:
        bootstrap.SetupError: if it cannot be fetched.
    """
    wanted = work / "engine.lock"
    wanted.write_text(bootstrap.lock_block(bootstrap.RUNTIME_LOCK, bootstrap.ENGINE), encoding="utf-8")
    pip = [str(bootstrap.venv_program("python", builder)), "-m", "pip", "download", "-q", "--no-deps"]
    only_source = ["--no-build-isolation", "--no-binary", bootstrap.ENGINE, "--require-hashes"]
    run([*pip, *only_source, "-r", str(wanted), "-d", str(work)], work / "download.log", path)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    (source,) = work.glob("*/vendor/llama.cpp")
    return source


def run(command: list[str], log: Path, path: str) -> None:
    """Run a command with its output in a log file.

    Raises:
        bootstrap.SetupError: if it fails; shows the end of the log.
    """
    with log.open("w", encoding="utf-8", errors="replace") as output:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            check=False,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise bootstrap.SetupError(f"{command[0]} failed while building {PROGRAM}. Its end:\n{tail}")


def main() -> int:
    """Entry point; returns the exit status."""
    try:
        program = llama_server()
    except bootstrap.SetupError as problem:
        bootstrap.say(str(problem))
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
