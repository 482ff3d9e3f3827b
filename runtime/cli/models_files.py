"""`deskside models import`, `verify`, `remove`, `quantize` and `folders`: the files of the library."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from runtime.cli import exit_codes
from runtime.cli.fit import print_json
from runtime.cli.host_child import BorrowedHost
from runtime.cli.link import Link
from runtime.cli.targets import installed_of
from runtime.cli.terminal import ProgressBar, Terminal, neutralise, table
from runtime.client.host_client import HostClient
from runtime.errors import BadRequest, ModelNotFound, RuntimeFault, from_failure
from runtime.messages.api import HostEvent, InstalledModel, JobChanged, Snapshot
from runtime.messages.library import ImportRequest, Job, LibraryState, QuantizePreview, QuantizeRequest
from runtime.paths import DataFolder
from runtime.units import format_bytes

_OWN = {"deskside", "folder"}


def run(action: str, parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Do one of them.

    Raises:
        RuntimeFault: what could not be done, and why.
    """
    with BorrowedHost(data) as host, Link(host.file) as link:
        if action == "import":
            return _import(link, parsed, terminal)
        if action == "verify":
            return _verify(link, parsed, terminal)
        if action == "remove":
            return _remove(link, parsed, terminal)
        if action == "quantize":
            return _quantize(link, parsed, terminal)
        return _folders(link, parsed, terminal)


def follow_job(
    link: Link, begin: Callable[[HostClient], Coroutine[Any, Any, Job]], terminal: Terminal, *, quiet: bool = False
) -> Job:
    """Begin a job and show how far it is until it ends; Ctrl-C cancels it.

    Raises:
        RuntimeFault: why it failed.
        KeyboardInterrupt: Ctrl-C; the job was cancelled.
    """
    bar = ProgressBar(terminal)
    begun: list[str] = []

    async def begin_and_note(client: HostClient) -> Job:
        beginning = asyncio.ensure_future(begin(client))
        try:
            return await asyncio.shield(beginning)
        finally:  # Ctrl-C meanwhile does not stop the host: only what has an id can be cancelled
            begun.append((await beginning).id)

    def step(started: Job, event: HostEvent) -> Job | None:
        seen = event.jobs if isinstance(event, Snapshot) else (event.job,) if isinstance(event, JobChanged) else ()
        job = next((one for one in seen if one.id == started.id), None)
        if job is None:
            return None
        bar.show(job.stage or job.title, job.fraction)
        return None if job.state == "running" else job

    try:
        job = link.follow(begin_and_note, step)
    except KeyboardInterrupt:
        bar.clear()
        if begun:
            link.call(lambda client: client.cancel_job(begun[0]))
        raise
    bar.clear()
    if job.failure is not None:
        raise from_failure(job.failure)
    if not quiet:
        terminal.line(neutralise(job.result or job.title))
    return job


def _find(link: Link, name: str) -> InstalledModel:
    models = link.call(HostClient.models)
    model = installed_of(name, models)
    if model is None:
        known = ", ".join(one.id for one in models[:8]) or "none yet"
        raise ModelNotFound(f"No model called {name!r} is installed.", hint=f"Installed: {known}.", model=name)
    return model


def _import(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    path = Path(parsed.path).expanduser().absolute()
    if not path.exists():
        raise BadRequest(f"There is no file or folder {parsed.path}.", param="path")
    request = ImportRequest(str(path), "move" if parsed.move else "use_in_place" if parsed.in_place else "copy")
    job = follow_job(link, lambda client: client.import_files(request), terminal, quiet=parsed.json)
    if parsed.json:
        print_json(job, terminal)
    return exit_codes.OK


def _verify(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    code = exit_codes.OK
    for name in parsed.name:
        model = _find(link, name)
        try:
            job = follow_job(link, _verify_of(model), terminal, quiet=parsed.json)
        except RuntimeFault as fault:
            if len(parsed.name) == 1:
                raise
            terminal.error(fault.message, fault.hint)  # the others are checked all the same
            code = exit_codes.FAILURE
            continue
        if parsed.json:
            print_json(job, terminal)
    return code


def _verify_of(model: InstalledModel) -> Callable[[HostClient], Coroutine[Any, Any, Job]]:
    return lambda client: client.verify(model.id)


def _remove(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    model = _find(link, parsed.name)
    if model.origin in _OWN and not parsed.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadRequest(
                f"{model.id} is not removed without a yes.", hint="Add --yes where nobody can be asked.", param="yes"
            )
        terminal.err.write(f"Move {neutralise(model.id)} ({format_bytes(model.size_bytes)}) to the trash? [y/N] ")
        terminal.err.flush()
        if input().strip().casefold() not in {"y", "yes"}:
            terminal.say("Nothing was removed.")
            return exit_codes.OK
    answer = link.call(lambda client: client.remove(model.id))
    if parsed.json:
        print_json(answer, terminal)
        return exit_codes.OK
    freed = format_bytes(answer.freed_bytes)
    if answer.in_trash:
        terminal.line(f"{model.id} is in the trash; {freed} come free when it is emptied.")
    else:
        terminal.line(f"{model.id} was deleted; {freed} came free.")
    return exit_codes.OK


def _quantize(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    if parsed.threads < 0:
        raise BadRequest(f"--threads {parsed.threads} is no number of threads.", param="threads")
    model = _find(link, parsed.name)
    request = QuantizeRequest(model.id, parsed.quantization.upper(), parsed.threads)
    preview = link.call(lambda client: client.quantize_preview(request))
    if parsed.preview:
        if parsed.json:
            print_json(preview, terminal)
        else:
            _show_preview(model, preview, terminal)
        return exit_codes.OK
    if not parsed.json:
        _show_preview(model, preview, terminal)
    job = follow_job(link, lambda client: client.quantize(request), terminal, quiet=parsed.json)
    if parsed.json:
        print_json(job, terminal)
    return exit_codes.FAILURE if job.state == "cancelled" else exit_codes.OK


def _show_preview(model: InstalledModel, preview: QuantizePreview, terminal: Terminal) -> None:
    terminal.line(
        f"{model.id}, {format_bytes(model.size_bytes)}  ->  {preview.quantization}, "
        f"{format_bytes(preview.size_bytes)}, {preview.bits_per_weight:.2f} bits a weight"
    )
    if preview.note:
        terminal.line(neutralise(preview.note))
    if preview.plan is not None:
        terminal.line(neutralise(preview.plan.sentence))
    terminal.line(f"{preview.path} ({format_bytes(preview.free_bytes)} free there)", "dim")


def _folders(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    if parsed.what is None:
        state = link.call(HostClient.library)
    else:
        if not parsed.path:
            raise BadRequest(f"`folders {parsed.what}` needs a folder.", param="path")
        path = str(Path(parsed.path).expanduser().absolute())
        if parsed.what == "move":
            follow_job(link, lambda client: client.move_main_folder(path), terminal, quiet=parsed.json)
            state = link.call(HostClient.library)
        elif parsed.what == "add":
            state = link.call(lambda client: client.add_folder(path))
        else:
            state = link.call(lambda client: client.remove_folder(path))
    if parsed.json:
        print_json(state, terminal)
    else:
        _show_folders(state, terminal)
    return exit_codes.OK


def _show_folders(state: LibraryState, terminal: Terminal) -> None:
    head = ("FOLDER", "OF", "MODELS", "SIZE", "FREE")
    rows = [
        (
            neutralise(folder.path) + (" (main)" if folder.is_main else ""),
            folder.origin.replace("_", " "),
            str(folder.n_models),
            format_bytes(folder.used_bytes),
            format_bytes(folder.free_bytes),
        )
        for folder in state.folders
    ]
    first, *lines = table([head, *rows], right=frozenset({2, 3, 4}))
    terminal.line(first, "bold")
    for folder, line in zip(state.folders, lines, strict=True):
        terminal.line(line)
        if folder.problem:
            terminal.line(f"  {neutralise(folder.problem)}", "red")
