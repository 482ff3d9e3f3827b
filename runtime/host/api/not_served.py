"""Addresses that clients of a dialect know and that are not served here: what to say instead of a bare 404.

The lists are those of the official packages `openai`, `anthropic` and `ollama`; tests call every method of theirs.
"""

import re

from runtime.errors import BadRequest, NoSuchRoute, RuntimeFault

_Said = tuple[str, str]
"""What is not there, and what to do."""

_STORED_CHATS: _Said = (
    "Chat completions are not kept, so none can be listed, read, changed or deleted.",
    "Use /v1/responses, whose answers are kept for a while.",
)
_SENT_WITH: _Said = ("Files are not kept here.", "Send pictures, sounds and text inside the message.")
_BATCHES: _Said = (
    "Batches are not kept here.",
    "Send the requests themselves, as many at once as you like; they wait for their turn.",
)
_CONVERSATIONS: _Said = (
    "Conversations are not kept here.",
    "Go on with `previous_response_id` of /v1/responses, or send the messages.",
)
_HOSTED: _Said = ("Agents, assistants and their runs are not kept here.", "Run the loop of tool calls in your program.")
_SPEECH: _Said = (
    "Speech is neither made nor written down here.",
    "A model that hears takes sounds as `input_audio` of a chat message.",
)
_PICTURES: _Said = ("Pictures and videos are not made here.", "Use a program made for that.")
_LIVE: _Said = (
    "Live sessions are not served.",
    "Send requests to /v1/responses or /v1/chat/completions; both can stream.",
)
_TRAINING: _Said = ("Models are not trained or evaluated here.", "A LoRA adapter can be loaded with a model.")
_SEARCH: _Said = (
    "Vector stores are not kept here.",
    "Make vectors with /v1/embeddings, rank with /v1/rerank, and keep them in your program.",
)
_PAID: _Said = ("This belongs to a paid service and has no meaning here.", "Leave the call out.")

_PREFIXES: tuple[tuple[str, _Said], ...] = (
    ("/v1/chat/completions", _STORED_CHATS),
    ("/v1/messages/batches", _BATCHES),
    ("/v1/batches", _BATCHES),
    ("/v1/files", _SENT_WITH),
    ("/v1/uploads", _SENT_WITH),
    ("/v1/containers", _SENT_WITH),
    ("/v1/skills", _HOSTED),
    ("/v1/conversations", _CONVERSATIONS),
    ("/v1/threads", _CONVERSATIONS),
    ("/v1/chatkit", _CONVERSATIONS),
    ("/v1/assistants", _HOSTED),
    ("/v1/agents", _HOSTED),
    ("/v1/sessions", _HOSTED),
    ("/v1/audio", _SPEECH),
    ("/v1/images", _PICTURES),
    ("/v1/videos", _PICTURES),
    ("/v1/realtime", _LIVE),
    ("/v1/live", _LIVE),
    ("/v1/fine_tuning", _TRAINING),
    ("/v1/evals", _TRAINING),
    ("/v1/vector_stores", _SEARCH),
    ("/v1/moderations", ("Texts are not moderated here.", "Ask a model made for it, by /v1/chat/completions.")),
    ("/v1/organization", _PAID),
    ("/v1/organizations", _PAID),
    ("/v1/projects", _PAID),
    ("/v1/safety", _PAID),
    ("/v1/user_profiles", _PAID),
    ("/v1/complete", ("Anthropic's old text completions are not served.", "Use /v1/messages.")),
    ("/v1/systemone", ("System One models do not run here.", "Ask a chat model, with a `format` for its answer.")),
)
_METHODS: tuple[tuple[str, re.Pattern[str], _Said], ...] = (
    (
        "GET",
        re.compile(r"/v1/responses"),
        (
            "Responses are not listed, and not served over a WebSocket.",
            "GET /v1/responses/{id} reads one; POST /v1/responses with `stream` sends events.",
        ),
    ),
    (
        "DELETE",
        re.compile(r"/v1/models/.+"),
        ("Models are not deleted at this address.", "Remove it in Deskside, or by Ollama's DELETE /api/delete."),
    ),
    ("GET", re.compile(r"/v1/chat/completions"), _STORED_CHATS),
)


def not_there(path: str) -> NoSuchRoute:
    """The refusal of an address that no route has."""
    for prefix, (what, instead) in _PREFIXES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return NoSuchRoute(f"{what} There is nothing at {path}.", hint=instead)
    return NoSuchRoute(
        f"There is nothing at {path}.", hint="The OpenAI routes begin with /v1; /health tells the state."
    )


def not_so(method: str, path: str, allowed: str) -> RuntimeFault:
    """The refusal of a method that an address does not have."""
    for name, pattern, (what, instead) in _METHODS:
        if name == method and pattern.fullmatch(path):
            return BadRequest(what, hint=instead)
    return BadRequest(f"{method} is not allowed at {path}.", hint=f"Allowed: {allowed}.")


def speaks_ollama(path: str) -> bool:
    """Whether callers of an address read errors as Ollama's do."""
    return path.startswith("/api/") or path == "/v1/systemone"
