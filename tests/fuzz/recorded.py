"""Bodies that the official clients send, recorded from the clients themselves: nothing is sent anywhere."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai

Bodies = dict[str, list[dict[str, Any]]]
"""Decoded bodies by path."""

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z][a-z]+$"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7}, "maxItems": 3},
        "unit": {"enum": ["C", "F", None]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
_FUNCTION = {"name": "weather", "description": "Weather of a city.", "parameters": _SCHEMA}
_TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain, 7 C."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And on this picture?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}},
        ],
    },
]


_ANSWER = {"error": {"message": "recorded", "type": "recorded"}}


class _Recorder:
    """A transport that keeps what is sent and answers with nothing that a client could read."""

    def __init__(self) -> None:
        self.bodies: Bodies = {}

    def answer(self, request: httpx.Request) -> httpx.Response:
        self._keep(request.url.path, request.content)
        return httpx.Response(400, json=_ANSWER)

    def answer2(self, request: httpx2.Request) -> httpx2.Response:
        self._keep(request.url.path, request.content)
        return httpx2.Response(400, json=_ANSWER)

    def _keep(self, path: str, content: bytes) -> None:
        if content:
            self.bodies.setdefault(path, []).append(json.loads(content))


def recorded_bodies() -> Bodies:
    """What the clients of OpenAI, Anthropic and Ollama send for the usual uses of each route."""
    recorder = _Recorder()
    with httpx2.Client(transport=httpx2.MockTransport(recorder.answer2)) as http:
        _openai(openai.OpenAI(api_key="key", base_url="http://host/v1", http_client=http, max_retries=0))
        _anthropic(anthropic.Anthropic(api_key="key", base_url="http://host", http_client=http, max_retries=0))
    with ollama.Client(host="http://host", transport=httpx.MockTransport(recorder.answer)) as llama:
        _ollama(llama)
    return recorder.bodies


def _try(call: Callable[[], Any]) -> None:
    try:
        call()
    except (openai.APIError, anthropic.APIError, ollama.ResponseError):
        return
    raise AssertionError("a client took the recorder's answer for a good one")


def _openai(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": _FUNCTION}]
    turns: Any = _TURNS
    shape: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA, "strict": True}}
    chat = client.chat.completions.create
    _try(lambda: chat(model="m", messages=turns, tools=tools, tool_choice="required", parallel_tool_calls=False))
    _try(
        lambda: chat(
            model="m",
            messages=turns[:2],
            response_format=shape,
            temperature=0.2,
            top_p=0.9,
            n=2,
            stop=["\n", "END"],
            seed=7,
            logprobs=True,
            top_logprobs=2,
            logit_bias={"5": -1},
            max_completion_tokens=9,
            presence_penalty=0.1,
            stream=True,
            stream_options={"include_usage": True},
            reasoning_effort="low",
            extra_body={"top_k": 3, "min_p": 0.1, "dry_multiplier": 0.5, "grammar": 'root ::= "a"'},
        )
    )
    text: Any = [[1, 2, 3], [4]]
    _try(lambda: client.completions.create(model="m", prompt="Once", max_tokens=5, echo=True, logprobs=2, suffix="end"))
    _try(lambda: client.completions.create(model="m", prompt=text, max_tokens=5, n=2, stream=True))
    _try(lambda: client.embeddings.create(model="m", input=["one", "two"], dimensions=8, encoding_format="base64"))
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
    ]
    named: Any = [{"type": "function", **_FUNCTION, "strict": True}]
    format_: Any = {"format": {"type": "json_schema", "name": "city", "schema": _SCHEMA}}
    _try(
        lambda: client.responses.create(
            model="m",
            input=items,
            instructions="Be brief.",
            tools=named,
            tool_choice={"type": "function", "name": "weather"},
            text=format_,
            reasoning={"effort": "low", "summary": "auto"},
            previous_response_id="resp_1",
            max_output_tokens=20,
            include=["reasoning.encrypted_content"],
            stream=True,
        )
    )


def _anthropic(client: anthropic.Anthropic) -> None:
    tools: Any = [{"name": "weather", "description": "Weather.", "input_schema": _SCHEMA}]
    turns: Any = [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Ask.", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Rain."}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
                {"type": "text", "text": "And here?"},
            ],
        },
    ]
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    choice: Any = {"type": "tool", "name": "weather"}
    _try(
        lambda: client.messages.create(
            model="m",
            max_tokens=2000,
            messages=turns,
            system=system,
            tools=tools,
            tool_choice=choice,
            thinking={"type": "enabled", "budget_tokens": 1024},
            stop_sequences=["END"],
            metadata={"user_id": "u"},
            extra_body={"top_k": 5},
            stream=True,
        )
    )
    _try(lambda: client.messages.count_tokens(model="m", messages=turns, system=system, tools=tools))


def _ollama(client: ollama.Client) -> None:
    tools: Any = [{"type": "function", "function": _FUNCTION}]
    turns: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look", "images": [_PNG]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
        {"role": "tool", "tool_name": "weather", "content": "Rain."},
    ]
    options: Any = {"temperature": 0.1, "num_predict": 5, "stop": ["x"], "num_ctx": 2048, "seed": 1}
    _try(lambda: client.chat(model="m", messages=turns, tools=tools, options=options, think=True, keep_alive="5m"))
    _try(lambda: client.chat(model="m", messages=turns[:2], format=_SCHEMA, logprobs=True, top_logprobs=2))
    _try(lambda: client.generate(model="m", prompt="Hi", suffix="end", system="Be.", raw=False, options=options))
    _try(lambda: client.generate(model="m", prompt="Hi", images=[_PNG], format="json", keep_alive=-1))
    _try(lambda: client.embed(model="m", input=["a", "b"], truncate=True, dimensions=4))
    _try(lambda: client.embeddings(model="m", prompt="a"))


def own_bodies() -> Bodies:
    """Bodies of llama-server's own routes, for which there is no client."""
    sampling = {"temperature": 0.3, "top_k": 5, "n_predict": 4, "stop": ["x"], "grammar": 'root ::= "a"'}
    return {
        "/completion": [{"prompt": "Once", **sampling, "json_schema": _SCHEMA}, {"prompt": [1, 2], "stream": True}],
        "/infill": [{"input_prefix": "def f(", "input_suffix": "):", "input_extra": [{"filename": "a", "text": "b"}]}],
        "/rerank": [{"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_text": True}],
    }
