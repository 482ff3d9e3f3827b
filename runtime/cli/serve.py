"""`deskside serve`: the host in the foreground, with the public API on."""

import argparse
import errno
import json
import os
import shlex
import signal
import socket
import sys

from runtime.cli import exit_codes
from runtime.cli.arguments import ENV_API_KEY
from runtime.cli.library import saved_library
from runtime.cli.terminal import ProgressBar, Terminal, neutralise
from runtime.errors import Failure, ModelNotFound, RuntimeFault, from_failure
from runtime.host.access import is_loopback
from runtime.host.config import HostConfig, HostReady
from runtime.library.folder import Library
from runtime.messages.api import ApiState, HostEvent, InstalledModel, LoadedModel, ModelChanged, Notice
from runtime.paths import DataFolder
from runtime.units import format_duration

_KEY_PLACE = "YOUR_KEY"
"""Stands for a key in the line to try, where only its hash is known."""


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Serve until Ctrl-C.

    Raises:
        RuntimeFault: the model is not there or cannot be loaded, or the data folder is in use.
    """
    from runtime.host.main import run_host  # late: the HTTP server takes a while to import

    with saved_library(data) as library:
        model = choose_model(library, parsed.model)
    screen = ServeScreen(terminal, model, host=parsed.host, port=parsed.port, key=_key_of(parsed))
    config = HostConfig(
        data=data,
        api_enabled=True,
        api_host=parsed.host,
        api_port=parsed.port,
        api_options=parsed.api_options,
        api_only=parsed.api_only,
        api_key=parsed.api_key or os.environ.get(ENV_API_KEY) or None,
        model=model.path,
        load_options=parsed.load_options,
        load_only=parsed.load_only,
        log_to_stderr=parsed.debug,
        on_ready=screen.ready,
        on_event=screen.event,
    )
    code = run_host(config)
    screen.ended()
    if screen.fault is not None:
        raise screen.fault
    return screen.code or code


def choose_model(library: Library, wanted: str | None) -> InstalledModel:
    """The model of that name or path, else the starter model, else the first that can chat.

    Raises:
        ModelNotFound: there is none.
        ModelLoadFailed: its file is damaged.
    """
    if wanted:
        return library.resolve(wanted)
    usable = [model for model in library.installed() if not model.problem and model.kind in {"chat", "embedding"}]
    best = next((model for model in usable if model.starter or model.kind == "chat"), None)
    if best is None:
        raise ModelNotFound(
            "There is no model on this machine, and the starter model is not installed.",
            hint="Give a .gguf file with --model, or put one into the models folder (deskside doctor shows where).",
        )
    return best


def _key_of(parsed: argparse.Namespace) -> str:
    """How the curl line may name the key: the variable it came from, or itself."""
    if parsed.api_key:
        return str(parsed.api_key)
    return f"${ENV_API_KEY}" if os.environ.get(ENV_API_KEY) else ""


class ServeScreen:
    """What the terminal shows while the host runs. Home thread: the host's; its methods do not block."""

    def __init__(self, terminal: Terminal, model: InstalledModel, *, host: str, port: int, key: str) -> None:
        self._terminal = terminal
        self._model = model
        self._bind = (host, port)
        self._key = key
        self._bar = ProgressBar(terminal)
        self._base = ""
        self._api: ApiState | None = None
        self._announced = False
        self.fault: RuntimeFault | None = None
        self.code = exit_codes.OK

    def ready(self, ready: HostReady) -> None:
        """Both listeners are settled; without the public one there is no point in going on."""
        if ready.api.running and ready.api.addresses:
            self._base = ready.api.addresses[0]
            self._api = ready.api
            if ready.api.keys and not self._key:
                self._key = _KEY_PLACE
            return
        host, port = self._bind
        self.code, hint = exit_codes.FAILURE, ""
        if port_in_use(host, port):
            self.code = exit_codes.PORT_IN_USE
            hint = f"For example: deskside serve --port {port + 1}"
        elif not self._key and not ready.api.keys and not is_loopback(host):
            hint = f"With a key: deskside serve --host {host} --api-key KEY"
        self._terminal.error(ready.api.problem or "The API could not be turned on.", hint)
        _end_host()

    def event(self, event: HostEvent) -> None:
        """Show what matters to a person."""
        if self.code or self.fault is not None:
            return
        if isinstance(event, ModelChanged):
            self._model_changed(event.model)
        elif isinstance(event, Notice) and event.level != "info":
            self._bar.clear()
            self._terminal.warn(event.text)
            if not self._announced and event.level == "error":
                self._give_up(Failure("WorldFault", "The model could not be loaded."))

    def ended(self) -> None:
        """The host has ended."""
        self._bar.clear()
        if self._announced:
            self._terminal.say("Stopped.")

    def _model_changed(self, model: LoadedModel) -> None:
        name = neutralise(model.name)
        if model.state in {"loading", "restarting"}:
            self._bar.show(f"Loading {name}", model.fraction)
        elif model.state == "ready":
            self._bar.clear()
            if not self._announced:
                self._announced = True
                self._announce(model)
        elif model.state == "failed" and model.failure is not None:
            self._bar.clear()
            if self._announced:
                self._terminal.error(model.failure.message, model.failure.hint)
            else:
                self._give_up(model.failure)

    def _give_up(self, failure: Failure) -> None:
        self.fault = from_failure(failure)
        _end_host()

    def _announce(self, model: LoadedModel) -> None:
        terminal, facts = self._terminal, model.facts
        told = ""
        if facts is not None:
            many = f"{facts.n_parallel} conversations" if facts.n_parallel > 1 else "one conversation"
            told = f" ({many} of {facts.n_ctx:,} tokens, loaded in {format_duration(facts.load_s)})"
        terminal.line(f"{terminal.paint(neutralise(model.id), 'bold')} is ready{told}.")
        terminal.line(f"OpenAI-compatible API at {terminal.paint(f'{self._base}/v1', 'bold', 'cyan')}. Try it:")
        terminal.line()
        terminal.line(curl_line(self._base, model.id, kind=self._model.kind, key=self._key))
        terminal.line()
        self._announce_encryption()
        terminal.line("Ctrl-C stops it.", "dim")
        terminal.out.flush()

    def _announce_encryption(self) -> None:
        certificate = self._api.certificate if self._api is not None else None
        if self._api is None or certificate is None:
            return
        for address in self._api.addresses:
            if address.startswith("https:"):
                self._terminal.line(f"Encrypted: {self._terminal.paint(f'{address}/v1', 'bold', 'cyan')}")
        if certificate.is_own:
            self._terminal.line(f"Programs must be told to trust {certificate.file}")
        self._terminal.line(f"SHA-256 of the certificate: {certificate.fingerprint}", "dim")
        self._terminal.line()


def curl_line(base: str, model_id: str, *, kind: str = "chat", key: str = "", platform: str = sys.platform) -> str:
    """A command that asks the API something; it works when pasted into the system's usual shell."""
    body: dict[str, object] = {"model": model_id}
    if kind == "embedding":
        route, body["input"] = "embeddings", "Hello!"
    else:
        route, body["messages"] = "chat/completions", [{"role": "user", "content": "Hello!"}]
    text = json.dumps(body)
    headers = ["Content-Type: application/json"]
    if key:
        headers.append(f"Authorization: Bearer {key}")
    if platform == "win32":
        # cmd.exe knows only double quotes, and takes a backslash before an inner one.
        escaped = text.replace('"', '\\"')
        named = " ".join(f'-H "{header}"' for header in headers).replace(f"${ENV_API_KEY}", f"%{ENV_API_KEY}%")
        return f'curl {base}/v1/{route} {named} -d "{escaped}"'
    quoted = [f'"{header}"' if header.endswith(f"${ENV_API_KEY}") else shlex.quote(header) for header in headers]
    return f"curl {base}/v1/{route} {' '.join(f'-H {header}' for header in quoted)} -d {shlex.quote(text)}"


def port_in_use(host: str, port: int) -> bool:
    """Whether another program listens there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            listener.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _end_host() -> None:
    """End it as Ctrl-C does; the host listens for that signal in this thread."""
    signal.raise_signal(signal.SIGINT)
