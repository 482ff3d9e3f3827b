"""`deskside models search`, `info` and `pull`: the hub, from the terminal."""

import argparse
from pathlib import Path

import msgspec

from runtime.cli import exit_codes
from runtime.cli.fit import judge, print_json, show_plan, show_verdicts
from runtime.cli.host_child import BorrowedHost
from runtime.cli.link import Link
from runtime.cli.targets import HubName, choose_file, hub_name, installed_of
from runtime.cli.terminal import ProgressBar, Terminal, neutralise, table
from runtime.client.host_client import HostClient
from runtime.errors import BadRequest, HubNotFound, NotEnoughMemory, WorldFault, from_failure
from runtime.messages.api import DownloadsChanged, HostEvent, InstalledModel, Snapshot
from runtime.messages.fit import MemoryPlan, PlanRequest, PlanTarget
from runtime.messages.library import (
    Download,
    DownloadRequest,
    HubEntry,
    HubFile,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
    Verdicts,
)
from runtime.options import LoadOptions
from runtime.paths import DataFolder
from runtime.units import format_bytes, format_count, format_duration

MAX_DESCRIPTION_CHARS = 600


class ModelInfo(msgspec.Struct, frozen=True):
    """What `info --json` prints of an installed model."""

    model: InstalledModel
    plan: MemoryPlan | None


class HubInfo(msgspec.Struct, frozen=True):
    """What `info --json` prints of a repository."""

    page: HubModel
    verdicts: Verdicts


def run(action: str, parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Do one of the three.

    Raises:
        RuntimeFault: the hub cannot be reached, there is no such model, the download failed.
    """
    with BorrowedHost(data) as host, Link(host.file) as link:
        if action == "search":
            return _search(link, parsed, terminal)
        if action == "info":
            return _info(link, parsed, terminal)
        return _pull(link, parsed, terminal)


# --- search -----------------------------------------------------------------------------------------------


def _search(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    if not 1 <= parsed.limit <= 100:  # noqa: PLR2004 - the range of HubSearch.limit
        raise BadRequest(f"--limit {parsed.limit} is out of range: 1 to 100.", param="limit")
    if parsed.picks:
        page = link.call(HostClient.picks)
    else:
        page = link.call(
            lambda client: client.search(
                HubSearch(
                    text=" ".join(parsed.text),
                    sort=parsed.sort,
                    author=parsed.author,
                    kind=parsed.kind,
                    max_params=parsed.max_params,
                    limit=parsed.limit,
                )
            )
        )
    if parsed.json:
        print_json(page, terminal)
    else:
        _show_page(page, terminal)
    return exit_codes.OK


def _show_page(page: HubPage, terminal: Terminal) -> None:
    if page.offline:
        terminal.warn(f"{page.offline} Showing the built-in list.")
    if not page.entries:
        terminal.line("Nothing was found. Try fewer words, or --picks for the built-in list.")
        return
    head = ("NAME", "PARAMETERS", "KIND", "DOWNLOADS", "LICENCE", "")
    first, *lines = table([head, *(_entry_row(entry) for entry in page.entries)], right=frozenset({1, 3}))
    terminal.line(first, "bold")
    for entry, line in zip(page.entries, lines, strict=True):
        terminal.line(line)
        if entry.note:
            terminal.line(f"  {neutralise(entry.note)}", "dim")
    terminal.line()
    terminal.line("deskside models info NAME judges its files; deskside models pull NAME fetches one.", "dim")


def _entry_row(entry: HubEntry) -> tuple[str, ...]:
    marks = [mark for mark, holds in (("installed", entry.is_installed), ("needs access", entry.is_gated)) if holds]
    cells = (
        entry.repo,
        format_count(entry.n_params) if entry.n_params else "-",
        entry.kind or "-",
        format_count(entry.downloads) if entry.downloads else "-",
        entry.licence or "-",
        ", ".join(marks),
    )
    return tuple(" ".join(neutralise(cell).split()) for cell in cells)


# --- info -------------------------------------------------------------------------------------------------


def _info(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    model = installed_of(parsed.name, link.call(HostClient.models))
    if model is not None:
        return _installed_info(link, model, parsed, terminal)
    name = hub_name(parsed.name)
    if name is None:
        raise HubNotFound(
            f"No model called {parsed.name!r} is installed, and it is no repository.",
            hint="`deskside models` lists what is installed; a repository reads ORG/REPO.",
            repo=parsed.name,
        )
    page = link.call(lambda client: client.hub_model(HubModelRequest(name.repo)))
    verdicts = judge(link, page, parsed.load_options)
    if parsed.json:
        print_json(HubInfo(page, verdicts), terminal)
        return exit_codes.OK
    _show_entry(page, terminal)
    show_verdicts(page, verdicts, terminal)
    return exit_codes.OK


def _show_entry(page: HubModel, terminal: Terminal) -> None:
    entry = page.entry
    terminal.line(neutralise(entry.repo), "bold")
    facts = (
        f"{format_count(entry.n_params)} parameters" if entry.n_params else "",
        entry.architecture,
        f"{entry.n_ctx_train:,} tokens of context" if entry.n_ctx_train else "",
        entry.licence,
        f"{format_count(entry.downloads)} downloads" if entry.downloads else "",
    )
    terminal.line(neutralise(", ".join(fact for fact in facts if fact)))
    if page.offline:
        terminal.warn(page.offline)
    if entry.is_gated:
        terminal.warn("Its publisher asks for an account and consent before it can be downloaded.")
    if page.description:
        text = " ".join(page.description.split())
        shown = text if len(text) <= MAX_DESCRIPTION_CHARS else text[:MAX_DESCRIPTION_CHARS].rsplit(" ", 1)[0] + " ..."
        terminal.line(neutralise(shown), "dim")
    terminal.line()


def _installed_info(link: Link, model: InstalledModel, parsed: argparse.Namespace, terminal: Terminal) -> int:
    plan = None
    if not model.problem:
        plan = link.call(lambda client: client.plan(PlanRequest(PlanTarget(model=model.id), parsed.load_options)))
    if parsed.json:
        print_json(ModelInfo(model, plan), terminal)
        return exit_codes.OK
    rows = (
        ("Name", model.name),
        ("Id", model.id),
        ("File", model.path + (f" and {model.n_files - 1} more" if model.n_files > 1 else "")),
        ("Size", format_bytes(model.size_bytes)),
        ("Kind", model.kind + (", reads pictures" if model.is_vision else "")),
        ("Publisher", model.publisher),
        ("Architecture", model.architecture),
        ("Parameters", format_count(model.n_params) if model.n_params else ""),
        (
            "Quantization",
            model.quantization + (f", {model.bits_per_weight:.2f} bits a weight" if model.bits_per_weight else ""),
        ),
        ("Context", f"{model.n_ctx_train:,} tokens" if model.n_ctx_train else ""),
        ("Licence", model.licence),
        ("Belongs to", "" if model.origin in {"deskside", "starter"} else model.origin.replace("_", " ")),
        ("Checked", {"ok": "its bytes are the published ones", "bad": "damaged"}.get(model.verified, "")),
    )
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        if value:
            terminal.line(f"{name.ljust(width)}  {neutralise(value)}")
    if model.problem:
        terminal.line(neutralise(model.problem), "red")
    if plan is not None:
        terminal.line()
        show_plan(plan, terminal)
    return exit_codes.OK


# --- pull -------------------------------------------------------------------------------------------------


def _pull(link: Link, parsed: argparse.Namespace, terminal: Terminal) -> int:
    name = hub_name(parsed.name)
    if name is None:
        raise BadRequest(
            f"{parsed.name!r} is no repository.",
            hint="Write ORG/REPO or ORG/REPO:QUANTIZATION; `deskside models search` finds them.",
            param="name",
        )
    page = link.call(lambda client: client.hub_model(HubModelRequest(name.repo, parsed.revision)))
    if page.offline:
        raise WorldFault(f"{name.repo} cannot be fetched: {page.offline}", hint="Try again when the hub is reachable.")
    file = _wanted_file(link, page, name, parsed.load_options, terminal)
    if file.installed_id:
        terminal.line(f"{file.installed_id} is installed already.")
        return exit_codes.OK
    request = DownloadRequest(name.repo, file.name, parsed.revision, with_projector=not parsed.no_projector)
    return _follow(link, request, file, terminal, as_json=parsed.json)


def _wanted_file(link: Link, page: HubModel, name: HubName, options: LoadOptions, terminal: Terminal) -> HubFile:
    if not page.files:
        raise HubNotFound(
            f"{name.repo} has no GGUF model files.",
            hint="Look for a repository whose name ends in GGUF: deskside models search NAME gguf",
            repo=name.repo,
        )
    if name.choice:
        return choose_file(page.files, name.choice, name.repo)
    verdicts = judge(link, page, options)
    best = next((row for row in verdicts.rows if row.recommended), None)
    if best is None:
        why = verdicts.rows[-1].plan.problem if verdicts.rows else ""
        raise NotEnoughMemory(
            f"No file of {name.repo} would run here. {why}".strip(),
            hint="Name one to fetch it all the same: ORG/REPO:QUANTIZATION.",
        )
    terminal.say(f"{best.name}: {neutralise(best.reason)}")
    return next(file for file in page.files if file.name == best.name)


def _follow(link: Link, request: DownloadRequest, file: HubFile, terminal: Terminal, *, as_json: bool) -> int:
    bar = ProgressBar(terminal)
    begun: list[str] = []

    async def begin(client: HostClient) -> str:
        """Go on with an earlier try, or start."""
        for known in await client.downloads():
            if known.repo == request.repo and known.name == file.name and known.state in {"paused", "failed"}:
                begun.append((await client.resume_download(known.id)).id)
                return begun[0]
        begun.append((await client.download(request)).id)
        return begun[0]

    def step(download_id: str, event: HostEvent) -> Download | None:
        if not isinstance(event, Snapshot | DownloadsChanged):
            return None
        download = next((one for one in event.downloads if one.id == download_id), None)
        if download is None:
            return None
        bar.show(_progress_text(download), download.done_bytes / max(download.size_bytes, 1))
        return download if download.state in {"done", "failed", "paused"} else None

    try:
        download = link.follow(begin, step)
    except KeyboardInterrupt:
        bar.clear()
        if begun:
            link.call(lambda client: client.pause_download(begun[0]))
        terminal.say("Paused. The same command goes on where it was.")
        return exit_codes.INTERRUPTED
    bar.clear()
    if download.state == "failed" and download.failure is not None:
        raise from_failure(download.failure)
    if download.state != "done":
        terminal.say("It was paused from elsewhere. The same command goes on where it was.")
        return exit_codes.FAILURE
    if as_json:
        print_json(download, terminal)
        return exit_codes.OK
    model_id = download.model_id or Path(file.paths[0]).stem
    terminal.line(f"{model_id} is ready ({format_bytes(download.size_bytes)}): deskside chat --model {model_id}")
    return exit_codes.OK


def _progress_text(download: Download) -> str:
    if download.state == "verifying":
        return "Checking"
    if download.state == "queued":
        return "Waiting for other downloads"
    parts = [f"{format_bytes(download.done_bytes)} of {format_bytes(download.size_bytes)}"]
    if download.speed_bps:
        parts.append(f"{format_bytes(download.speed_bps)}/s")
    if download.left_s is not None:
        parts.append(f"{format_duration(download.left_s)} left")
    elif download.stalled_s >= 1:
        parts.append(f"nothing for {format_duration(download.stalled_s)}")
    return ", ".join(parts)
