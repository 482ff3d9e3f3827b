"""`deskside models`: what is installed; its other actions are handed to the modules that do them."""

import argparse

import msgspec

from runtime.cli import exit_codes
from runtime.cli.library import saved_library
from runtime.cli.terminal import Terminal, neutralise, table
from runtime.messages.api import InstalledModel
from runtime.paths import DataFolder
from runtime.units import format_bytes, format_count

_HEAD = ("NAME", "KIND", "PARAMETERS", "QUANTIZATION", "CONTEXT", "SIZE")
_RIGHT = frozenset({2, 4, 5})
_UNKNOWN = "-"


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Do the action, or print the models.

    Raises:
        RuntimeFault: what the action could not do.
    """
    action = getattr(parsed, "action", None) or "list"
    if action in {"search", "info", "pull"}:
        from runtime.cli import models_hub

        return models_hub.run(action, parsed, data, terminal)
    if action != "list":
        from runtime.cli import models_files

        return models_files.run(action, parsed, data, terminal)
    return _list(parsed, data, terminal)


def _list(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    with saved_library(data) as library:
        models = library.installed()
    if parsed.json:
        terminal.line(msgspec.json.format(msgspec.json.encode(models)).decode())
        return exit_codes.OK
    if not models:
        terminal.line(f"No models yet. `deskside models search` finds some; or put .gguf files into {data.models}")
        return exit_codes.OK
    head, *lines = table([_HEAD, *(_row(model) for model in models)], right=_RIGHT)
    terminal.line(head, "bold")
    for model, line in zip(models, lines, strict=True):
        terminal.line(line, *(("dim",) if model.problem else ()))
        if model.problem:
            terminal.line(f"  {neutralise(model.problem)}", "red")
    terminal.line()
    terminal.line(f"Model files are looked for in {data.models}", "dim")
    return exit_codes.OK


def _row(model: InstalledModel) -> tuple[str, ...]:
    cells = (
        model.id + (" (starter)" if model.starter else ""),
        model.kind,
        format_count(model.n_params) if model.n_params else _UNKNOWN,
        model.quantization or _UNKNOWN,
        f"{model.n_ctx_train:,}" if model.n_ctx_train else _UNKNOWN,
        format_bytes(model.size_bytes),
    )
    return tuple(" ".join(neutralise(cell).split()) for cell in cells)
