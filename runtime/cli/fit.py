"""`deskside fit`: whether a model would run here, where its parts go, how fast it would be, and why."""

import argparse
from collections import Counter

import msgspec

from runtime.cli import exit_codes
from runtime.cli.host_child import BorrowedHost
from runtime.cli.link import Link
from runtime.cli.targets import HubName, choose_file, plan_target
from runtime.cli.terminal import Style, Terminal, neutralise, table
from runtime.client.host_client import HostClient
from runtime.messages.fit import DeviceBudget, MemoryPlan, PlanRequest, PlanTarget, SpeedRange, VerdictKind
from runtime.messages.library import HubFile, HubModel, HubModelRequest, VerdictRequest, Verdicts
from runtime.options import LoadOptions
from runtime.paths import DataFolder
from runtime.units import format_bytes, format_speed

_STYLES: dict[VerdictKind, Style] = {
    "gpu": "green",
    "partial": "yellow",
    "cpu": "cyan",
    "too_large": "red",
    "unsupported": "red",
}
_METHODS = {
    "dry_run": "Sizes are llama.cpp's own, from a load without allocation.",
    "formula": "Sizes are estimates: llama.cpp could not be asked.",
}
_BASES = {
    "measured": "measured here before",
    "calibrated": "corrected by what was measured here",
    "formula": "from the speed of this machine's memory and processors",
    "guess": "a guess: this machine was not measured yet",
}
_PARTS = ("weight_bytes", "context_bytes", "compute_bytes", "output_bytes", "projector_bytes", "draft_bytes")
_PART_HEADS = ("WEIGHTS", "CONTEXT", "COMPUTE", "OUTPUT", "PICTURES", "DRAFT")


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Plan and print.

    Raises:
        RuntimeFault: there is no such model, or its header cannot be read.
    """
    with BorrowedHost(data) as host, Link(host.file) as link:
        target = plan_target(parsed.name, link.call(HostClient.models))
        if isinstance(target, HubName):
            page = link.call(lambda client: client.hub_model(HubModelRequest(target.repo)))
            if not target.choice:
                return _all_files(link, page, parsed, terminal)
            file = choose_file(page.files, target.choice, target.repo)
            target = PlanTarget(repo=target.repo, file=file.paths[0], revision=page.commit or "main")
        plan = link.call(lambda client: client.plan(PlanRequest(target, parsed.load_options, parsed.draft)))
    if parsed.json:
        print_json(plan, terminal)
    else:
        show_plan(plan, terminal)
    return exit_codes.FAILURE if plan.verdict in {"too_large", "unsupported"} else exit_codes.OK


def _all_files(link: Link, page: HubModel, parsed: argparse.Namespace, terminal: Terminal) -> int:
    verdicts = judge(link, page, parsed.load_options)
    if parsed.json:
        print_json(verdicts, terminal)
    else:
        show_verdicts(page, verdicts, terminal)
    return exit_codes.OK


def judge(link: Link, page: HubModel, options: LoadOptions) -> Verdicts:
    """Judge every file of a repository."""
    request = VerdictRequest(page.entry.repo, page.commit or "main", options)
    return link.call(lambda client: client.verdicts(request))


def print_json(value: object, terminal: Terminal) -> None:
    """A value for programs."""
    terminal.line(msgspec.json.format(msgspec.json.encode(value)).decode())


def speed_text(speed: SpeedRange | None) -> str:
    """`about 42 tok/s (38 to 46)`, or that nothing can be said."""
    if speed is None:
        return "speed unknown"
    low, high = format_speed(speed.generation_low_tps), format_speed(speed.generation_high_tps)
    return f"about {format_speed(speed.generation_tps)} ({low.removesuffix(' tok/s')} to {high.removesuffix(' tok/s')})"


def show_plan(plan: MemoryPlan, terminal: Terminal) -> None:
    """Verdict, reason, a table of the devices, speed."""
    resolved = plan.resolved
    cache = resolved.type_k if resolved.type_k == resolved.type_v else f"{resolved.type_k}/{resolved.type_v}"
    terminal.line(neutralise(plan.model), "bold")
    terminal.line(neutralise(plan.sentence), "bold", _STYLES[plan.verdict])
    if plan.reason:
        terminal.line(neutralise(plan.reason))
    if plan.problem:
        terminal.line(neutralise(plan.problem), "red")
    terminal.line()
    many = f"{resolved.n_parallel} conversations" if resolved.n_parallel > 1 else "one conversation"
    terminal.line(f"{many} of up to {resolved.n_ctx:,} tokens, {resolved.n_cells:,} shared, cache {cache}")
    if plan.budgets:
        terminal.line()
        _show_budgets(plan.budgets, terminal)
        terminal.line()
    if plan.speed is not None:
        speed = plan.speed
        terminal.line(
            f"Writes {speed_text(speed)} at {speed.depth:,} tokens of conversation, "
            f"reads about {format_speed(speed.prompt_tps)}; {_BASES[speed.basis]}."
        )
    terminal.line(_METHODS[plan.method], "dim")


def _show_budgets(budgets: tuple[DeviceBudget, ...], terminal: Terminal) -> None:
    used = [
        (part, head)
        for part, head in zip(_PARTS, _PART_HEADS, strict=True)
        if any(getattr(budget.memory, part) for budget in budgets)
    ]
    head = ("DEVICE", "LAYERS", *(title for _, title in used), "IN ALL", "OTHERS", "KEPT FREE", "LEFT")
    rows = [
        (
            neutralise(budget.device.name),
            str(budget.n_layers),
            *(format_bytes(getattr(budget.memory, part)) for part, _ in used),
            format_bytes(budget.memory.total_bytes),
            format_bytes(budget.others_bytes),
            format_bytes(budget.margin_bytes),
            format_bytes(budget.free_bytes),
        )
        for budget in budgets
    ]
    first, *lines = table([head, *rows], right=frozenset(range(1, len(head))))
    terminal.line(first, "bold")
    for line in lines:
        terminal.line(line)


def show_verdicts(page: HubModel, verdicts: Verdicts, terminal: Terminal) -> None:
    """One line a file, the recommended one with a star and its reason."""
    by_name: dict[str, HubFile] = {file.name: file for file in page.files}
    how_often = Counter(file.quantization for file in page.files)
    head = ("", "QUANTIZATION", "SIZE", "BITS", "QUALITY", "HERE", "SPEED")
    rows = []
    for row in verdicts.rows:
        file = by_name.get(row.name)
        rows.append(
            (
                "*" if row.recommended else "",
                neutralise(
                    file.quantization if file and how_often[file.quantization] == 1 and file.quantization else row.name
                ),
                format_bytes(file.size_bytes if file else None),
                f"{file.bits_per_weight:.1f}" if file and file.bits_per_weight else "-",
                file.quality.replace("_", " ") if file else "-",
                neutralise(row.plan.sentence),
                speed_text(row.plan.speed) if row.plan.verdict not in {"too_large", "unsupported"} else "-",
            )
        )
    if not rows:
        terminal.line("This repository has no GGUF model files.")
        return
    first, *lines = table([head, *rows], right=frozenset({2, 3}))
    terminal.line(first, "bold")
    for row, line in zip(verdicts.rows, lines, strict=True):
        styles: tuple[Style, ...] = ("bold",) if row.recommended else ()
        terminal.line(line, *styles, *((_STYLES[row.plan.verdict],) if row.plan.verdict == "too_large" else ()))
    best = next((row for row in verdicts.rows if row.recommended), None)
    terminal.line()
    if best is not None:
        terminal.line(f"* {neutralise(best.reason)}")
    if verdicts.rule:
        terminal.line(neutralise(verdicts.rule), "dim")
