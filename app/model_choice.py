"""Which model answers, and what is waited for while none can."""

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.link import HostLink
from runtime.errors import Failure, ModelNotFound, to_failure
from runtime.messages.api import LoadedModel


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of three: a model that is ready, a sentence on what is waited for, or why none will come.

    `n_ctx` is the context length of the ready model, else 0.
    """

    ready: LoadedModel | None = None
    waits_for: str = ""
    failure: Failure | None = None

    @property
    def n_ctx(self) -> int:
        """Context length in tokens; 0 when no model is ready."""
        facts = self.ready.facts if self.ready else None
        return facts.n_ctx if facts else 0


def choose_model(link: HostLink, wanted_id: str, *, is_expected: bool) -> Choice:
    """The wanted model if it is loaded, else the newest that is ready, else what is coming.

    Args:
        link: the mirror of the host.
        wanted_id: the conversation's own choice; empty for any.
        is_expected: a load is about to be asked for.
    """
    if not link.is_connected:
        return Choice(waits_for=QCoreApplication.translate("ModelChoice", "Waiting for the engine to start"))
    chats = [model for model in link.loaded if model.facts is None or model.facts.has_chat_template]
    chats.sort(key=lambda model: model.id == wanted_id)
    newest_first = chats[::-1]
    for model in newest_first:
        if model.state == "ready":
            return Choice(ready=model)
    for model in newest_first:
        if model.state in ("loading", "restarting"):
            text = QCoreApplication.translate("ModelChoice", "Waiting for {model} to load")
            return Choice(waits_for=text.format(model=model.name))
    if is_expected:
        return Choice(waits_for=QCoreApplication.translate("ModelChoice", "Waiting for a model to load"))
    for model in newest_first:
        if model.failure is not None:
            return Choice(failure=model.failure)
    message = QCoreApplication.translate("ModelChoice", "No model is loaded.")
    hint = QCoreApplication.translate("ModelChoice", "Choose a model at the top of the window.")
    return Choice(failure=to_failure(ModelNotFound(message, hint=hint)))


def current_model(link: HostLink) -> LoadedModel | None:
    """The model that answers: a ready one, else the one that is on its way."""
    loaded = link.loaded
    return next((each for each in loaded if each.state == "ready"), loaded[0] if loaded else None)
