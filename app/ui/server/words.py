"""What the server page says in more than one place."""

from PySide6.QtCore import QCoreApplication

from app.link import HostLink
from runtime.messages.api import ApiState, Dialect, LoadedModel
from runtime.options import ApiOptions

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only by the person's own switch, with a warning beside it
HERE = "127.0.0.1"
LOCAL_HOSTS = (HERE, "localhost", "::1")

V1 = "/v1"
MINUTE_S = 60
HOUR_S = 3600


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("ServerPage", text)


def dialect_name(dialect: Dialect) -> str:
    """A dialect's name for people."""
    return {
        "openai": "OpenAI",
        "responses": "OpenAI",
        "anthropic": "Anthropic",
        "ollama": "Ollama",
        "llama.cpp": "llama-server",
    }[dialect]


def base_url(dialect: Dialect, address: str) -> str:
    """The base URL that programs of a dialect want: those of OpenAI with `/v1`, the others add it themselves."""
    root = address.rstrip("/").removesuffix(V1)
    return root + V1 if dialect in ("openai", "responses") else root


def is_lan(options: ApiOptions) -> bool:
    """Whether other devices can reach the API."""
    return options.host not in LOCAL_HOSTS


def address_of(link: HostLink) -> str:
    """The first address, or the one it would have once it is on."""
    state: ApiState | None = link.api
    if state is not None and state.addresses:
        return state.addresses[0].rstrip("/").removesuffix(V1)
    options = state.options if state is not None else ApiOptions()
    scheme = "http" if options.tls == "off" else "https"
    return f"{scheme}://{HERE}:{options.port}"


def time_left(seconds: float) -> str:
    """As in: "in 42 s", "in 12 min", "in 1 h 05 min"."""
    left_s = max(0, round(seconds))
    if left_s < 2 * MINUTE_S:
        return tr("in {n} s").format(n=left_s)
    if left_s < HOUR_S:
        return tr("in {n} min").format(n=left_s // MINUTE_S)
    return tr("in {h} h {m} min").format(h=left_s // HOUR_S, m=f"{left_s % HOUR_S // MINUTE_S:02}")


def unload_words(model: LoadedModel, now_s: float) -> str:
    """When a model goes for being idle; `now_s` is seconds since 1970."""
    if model.state != "ready":
        return ""
    if model.engine.active or model.engine.waiting:
        return tr("In use")
    if model.unload_at_s is None:
        return tr("Stays loaded")
    return tr("Unloads {when}").format(when=time_left(model.unload_at_s - now_s))
