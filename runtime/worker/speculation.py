"""Speculative decoding of a loaded model: who guesses, made of what it was loaded with."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from runtime.errors import StorageFault
from runtime.fit import defaults
from runtime.fit.figures import combined
from runtime.gguf.parts import read_shape
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions
from runtime.scheduler.speculation import Drafter, Speculation
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.speculation_draft import DraftModelDrafter, check_vocabularies
from runtime.worker.speculation_heads import HeadsDrafter
from runtime.worker.speculation_lookup import LookupDrafter

_log = logging.getLogger(__name__)


def load_draft(
    model: LlamaModel,
    path: Path,
    resolved: ResolvedLoad | None,
    on_progress: Callable[[str, float], None],
) -> None:
    """Load a draft model beside a model, which then owns it and tells of it in its facts.

    Args:
        model: the model, just loaded.
        path: file of the draft model.
        resolved: its plan; without one it goes where the whole model went, else on the processor.
        on_progress: as for `load_model`.

    Raises:
        RuntimeFault: as `load_model`, or its tokens are not the model's.
    """
    if model.resolved.speculation != "draft":
        return
    try:
        planned = resolved or _resolved(model, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageFault(f"The draft model {path.name} cannot be read: {reason}.", path=str(path)) from error
    draft = load_model(
        path,
        LoadOptions(speculation="off"),
        lambda stage, fraction: on_progress(stage.replace("the model", "the draft model"), fraction),
        planned,
    )
    try:
        check_vocabularies(model, draft, path.name)
    except BaseException:
        draft.close()
        raise
    model.draft = draft
    model.facts = replace(
        model.facts,
        memory=combined(model.facts.memory, draft.facts.memory),
        resolved=model.facts.resolved | {"draft_model": draft.facts.name},
    )


def _resolved(model: LlamaModel, path: Path) -> ResolvedLoad:
    shape, own = read_shape(path), model.resolved
    placement = defaults.CPU_ONLY
    if own.devices and own.n_gpu_layers:
        placement = defaults.Placement(n_gpu_layers=shape.n_layer + 1, devices=own.devices[:1])
    return defaults.resolve_draft(shape, model.options, own, n_cores=own.n_threads, placement=placement)


class TimedDrafter(Drafter, Protocol):
    """A drafter that computes."""

    def take_decode_s(self) -> float:
        """Seconds inside llama.cpp since it was last asked."""
        ...


@dataclass(frozen=True, slots=True)
class Speculating:
    """What a model was loaded with to guess.

    Attributes:
        speculation: decides about drafts; None makes none.
        computing: the draft model or the heads at work, if there is one.
        heads: the model's own heads, which follow what its memory holds.
    """

    speculation: Speculation | None = None
    computing: TimedDrafter | None = None
    heads: HeadsDrafter | None = None


def make_speculation(model: LlamaModel) -> Speculating:
    """Who decides about drafts for this model, if anyone does, and who makes them."""
    resolved = model.resolved
    if model.options.speculation in ("lookup", "draft") and resolved.speculation == "off":
        _log.info("nothing is drafted for %s: its memory cannot take back a wrong guess", model.facts.name)
    if resolved.speculation == "off" or not model.can_roll_back:
        return Speculating()
    computing: TimedDrafter | None = None
    heads = None
    p_min = model.options.draft_p_min
    if resolved.speculation == "draft":
        if model.draft is None:
            return Speculating()
        computing = DraftModelDrafter(model.draft, n_vocab=model.vocab.n_tokens, p_min=p_min)
    elif resolved.speculation == "mtp":
        computing = heads = HeadsDrafter(model, p_min=p_min)
    drafter = LookupDrafter() if computing is None else computing
    speculation = Speculation(
        drafter, n_draft_max=resolved.n_draft_max, n_vocab=model.vocab.n_tokens, eog_ids=model.vocab.eog_ids
    )
    return Speculating(speculation, computing, heads)
