"""What the clients of the soak ask: every dialect, streaming and not, with tools, schemas and nonsense now and then."""

import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec

Ends = Literal["json", "text", "chat", "messages", "responses", "ollama", "completion"]
"""How a whole answer ends: one JSON value, plain text, or the last event of a stream in that dialect."""

_WORDS = (
    *("river", "stone", "morning", "garden", "letter", "window", "mountain", "winter", "market", "teacher", "silver"),
    *("journey", "forest", "engine", "harbour", "village", "captain", "shadow", "music", "paper", "bridge", "summer"),
)
_CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


class Ask(msgspec.Struct, frozen=True):
    """One request. `statuses` are those that it deserves when nothing is wrong with the server."""

    name: str
    path: str
    body: bytes
    ends: Ends = "json"
    statuses: tuple[int, ...] = (200,)
    method: str = "POST"


class Asker:
    """Draws requests; the same seed draws the same ones."""

    def __init__(self, model: str, seed: int) -> None:
        self._model = model
        self.draw = random.Random(seed)
        self._kept: list[str] = []
        self._kinds: tuple[tuple[float, Callable[[], Ask]], ...] = (
            (5, self._chat),
            (2, self._text),
            (1, self._embeddings),
            (3, self._responses),
            (3, self._messages),
            (0.5, self._count),
            (2, self._ollama_chat),
            (1, self._ollama_generate),
            (0.5, self._ollama_embed),
            (1, self._completion),
            (0.5, self._tokens),
            (0.3, self._look),
            (1, self._nonsense),
        )

    def keep(self, response_id: str) -> None:
        """Remember an answer of Responses to go on with."""
        self._kept = [*self._kept[-7:], response_id]

    def next(self) -> Ask:
        """The next request."""
        weights = [weight for weight, _ in self._kinds]
        return self.draw.choices([make for _, make in self._kinds], weights)[0]()

    def long_prompt(self, n_words: int) -> Ask:
        """A chat whose prompt takes most of a context; for the end, when the cache is full."""
        body = {"model": self._model, "messages": self._turn(n_words), "max_tokens": 8, "stream": True}
        return _ask("fresh", "/v1/chat/completions", body, "chat")

    # --- pieces -------------------------------------------------------------------------------------------

    def _say(self, n_words: int | None = None) -> str:
        count = n_words or self.draw.choice((3, 10, 40, 120))
        return " ".join(self.draw.choice(_WORDS) for _ in range(count))

    def _turn(self, n_words: int | None = None) -> list[dict[str, Any]]:
        return [{"role": "user", "content": f"Tell of: {self._say(n_words)}"}]

    def _chance(self, share: float) -> bool:
        return self.draw.random() < share

    def _most(self) -> int:
        return self.draw.choice((1, 8, 24, 64))

    # --- OpenAI -------------------------------------------------------------------------------------------

    def _chat(self) -> Ask:
        is_streamed = self._chance(0.7)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self._turn(),
            "max_tokens": self._most(),
            "stream": is_streamed,
        }
        name = "chat"
        if self._chance(0.15):
            name = "chat, tools"
            tool = {"type": "function", "function": {"name": "weather", "parameters": _CITY}}
            body |= {"tools": [tool], "tool_choice": self.draw.choice(("auto", "required", "none"))}
        elif self._chance(0.15):
            name = "chat, schema"
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY}}
        elif self._chance(0.15):
            name = "chat, choices"
            body["n"] = self.draw.choice((2, 4))
        elif self._chance(0.15):
            name = "chat, logprobs"
            body |= {"logprobs": True, "top_logprobs": 3}
        elif self._chance(0.15):
            name = "chat, seed"
            body |= {"seed": 7, "stop": ["\n\n"], "temperature": 0}
        return _ask(name, "/v1/chat/completions", body, "chat" if is_streamed else "json")

    def _text(self) -> Ask:
        is_streamed = self._chance(0.5)
        prompts: Any = self._say() if self._chance(0.7) else [self._say(), self._say(), self._say()]
        body = {"model": self._model, "prompt": prompts, "max_tokens": self._most(), "stream": is_streamed}
        return _ask("text", "/v1/completions", body, "chat" if is_streamed else "json")

    def _embeddings(self) -> Ask:
        inputs = [self._say() for _ in range(self.draw.choice((1, 3, 12)))]
        return _ask("embeddings", "/v1/embeddings", {"model": self._model, "input": inputs})

    def _responses(self) -> Ask:
        is_streamed = self._chance(0.6)
        body: dict[str, Any] = {
            "model": self._model,
            "input": self._say(),
            "max_output_tokens": self._most(),
            "stream": is_streamed,
            "store": self._chance(0.5),
        }
        if self._kept and self._chance(0.4):
            body["previous_response_id"] = self.draw.choice(self._kept)
        # Kept answers may be forgotten, and a conversation grows past its context: both are 400.
        ends: Ends = "responses" if is_streamed else "json"
        return _ask("responses", "/v1/responses", body, ends, (200, 400))

    # --- Anthropic ----------------------------------------------------------------------------------------

    def _messages(self) -> Ask:
        is_streamed = self._chance(0.6)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self._turn(),
            "max_tokens": self._most(),
            "stream": is_streamed,
        }
        if self._chance(0.2):
            body["tools"] = [{"name": "weather", "input_schema": _CITY}]
            body["tool_choice"] = {"type": self.draw.choice(("auto", "any"))}
        return _ask("messages", "/v1/messages", body, "messages" if is_streamed else "json")

    def _count(self) -> Ask:
        return _ask("count", "/v1/messages/count_tokens", {"model": self._model, "messages": self._turn()})

    # --- Ollama -------------------------------------------------------------------------------------------

    def _ollama_chat(self) -> Ask:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self._turn(),
            "options": {"num_predict": self._most()},
        }
        if self._chance(0.3):
            return _ask("ollama chat", "/api/chat", body | {"stream": False})
        if self._chance(0.2):
            body["format"] = _CITY
        return _ask("ollama chat", "/api/chat", body, "ollama")

    def _ollama_generate(self) -> Ask:
        body = {"model": self._model, "prompt": self._say(), "options": {"num_predict": self._most()}}
        return _ask("ollama generate", "/api/generate", body, "ollama")

    def _ollama_embed(self) -> Ask:
        return _ask("ollama embed", "/api/embed", {"model": self._model, "input": [self._say(), self._say()]})

    # --- llama-server's own -------------------------------------------------------------------------------

    def _completion(self) -> Ask:
        is_streamed = self._chance(0.5)
        body = {"prompt": self._say(), "n_predict": self._most(), "stream": is_streamed}
        return _ask("completion", "/completion", body, "completion" if is_streamed else "json")

    def _tokens(self) -> Ask:
        if self._chance(0.5):
            return _ask("tokenize", "/tokenize", {"content": self._say()})
        return _ask("template", "/apply-template", {"messages": self._turn()})

    def _look(self) -> Ask:
        path = self.draw.choice(("/v1/models", "/props", "/slots", "/api/tags", "/api/ps", "/metrics"))
        return Ask(path, path, b"", "json" if path != "/metrics" else "text", method="GET")

    def _nonsense(self) -> Ask:
        chat = "/v1/chat/completions"
        asks = (
            Ask("broken JSON", chat, b'{"model": "x", "messages": [', statuses=(400,)),
            Ask("broken UTF-8", "/v1/messages", b'{"model": "\xff\xfe"}', statuses=(400,)),
            Ask("deep JSON", "/api/chat", b"[" * 50_000, statuses=(400,)),
            _ask("no such model", chat, {"model": "no-such", "messages": self._turn()}, statuses=(404,)),
            _ask("no messages", chat, {"model": self._model, "messages": []}, statuses=(400,)),
            _ask("too long", chat, {"model": self._model, "messages": self._turn(5_000)}, statuses=(400,)),
            _ask("wrong type", "/v1/responses", {"model": self._model, "input": 7}, statuses=(400,)),
            _ask("no schema", "/api/chat", {"model": self._model, "messages": 3}, statuses=(400,)),
            Ask("nowhere", "/v1/nowhere", b"{}", statuses=(404,)),
        )
        return self.draw.choice(asks)


def _ask(name: str, path: str, body: dict[str, Any], ends: Ends = "json", statuses: tuple[int, ...] = (200,)) -> Ask:
    return Ask(name, path, msgspec.json.encode(body), ends, statuses)
