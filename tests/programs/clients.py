"""Programs of Python against a Deskside server: `python clients.py ADDRESS MODEL`, where they are installed.

Prints a line a check; ends with 1 if any failed. The programs are no part of the development environment.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

QUESTION = "What is the weather in Oslo?"


class Cat(BaseModel):
    """A cat."""

    name: str = Field(max_length=20)
    legs: int = Field(ge=0, le=8)


def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"Snow in {city}, -4 degrees."


def langchain(base_url: str, model: str) -> dict[str, Callable[[], object]]:
    """Checks of langchain-openai, on both of OpenAI's APIs."""
    openai = importlib.import_module("langchain_openai")
    messages = importlib.import_module("langchain_core.messages")
    weather = importlib.import_module("langchain_core.tools").tool(get_weather)
    checks: dict[str, Callable[[], object]] = {}
    for api, is_responses in (("chat", False), ("responses", True)):
        given = {"base_url": base_url, "api_key": "none", "model": model, "max_tokens": 100, "temperature": 0}
        llm = openai.ChatOpenAI(**given, use_responses_api=is_responses)

        def streamed(llm: Any = llm) -> object:
            return "".join(str(chunk.text) for chunk in llm.stream("Name three colours."))

        def structured(llm: Any = llm) -> object:
            return isinstance(llm.with_structured_output(Cat).invoke("Describe a cat."), Cat)

        def by_function(llm: Any = llm) -> object:
            return isinstance(llm.with_structured_output(Cat, method="function_calling").invoke("Describe a cat."), Cat)

        def tool_and_result(llm: Any = llm) -> object:
            history = [messages.HumanMessage(QUESTION)]
            answer = llm.bind_tools([weather], tool_choice="get_weather").invoke(history)
            (call,) = answer.tool_calls
            history += [answer, weather.invoke(call)]
            return llm.bind_tools([weather], tool_choice="none").invoke(history).text

        checks[f"langchain-openai ({api}): streamed text"] = streamed
        checks[f"langchain-openai ({api}): structured"] = structured
        checks[f"langchain-openai ({api}): structured by a function"] = by_function
        checks[f"langchain-openai ({api}): tool and its result"] = tool_and_result
    embeddings = openai.OpenAIEmbeddings(
        base_url=base_url, api_key="none", model=model, dimensions=64, check_embedding_ctx_length=False
    )
    checks["langchain-openai: embeddings"] = lambda: len(embeddings.embed_query("a cat")) == 64
    return checks


def litellm(base_url: str, model: str) -> dict[str, Callable[[], object]]:
    """Checks of litellm."""
    lite = importlib.import_module("litellm")
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 15}},
        "required": ["city"],
        "additionalProperties": False,
    }
    given: dict[str, Any] = {"model": f"openai/{model}", "api_base": base_url, "api_key": "none"}
    asked: dict[str, Any] = {**given, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 80}
    forced: dict[str, Any] = {
        **asked,
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    }

    def is_called(answer: Any) -> object:
        (call,) = answer.choices[0].message.tool_calls
        return isinstance(json.loads(call.function.arguments)["city"], str)

    return {
        "litellm: text": lambda: lite.completion(**asked).choices[0].message.content,
        "litellm: forced tool": lambda: is_called(lite.completion(**forced)),
        "litellm: forced tool, streamed": lambda: is_called(
            lite.stream_chunk_builder(list(lite.completion(**forced, stream=True)))
        ),
        "litellm: responses": lambda: lite.responses(**given, input="Say hi.", max_output_tokens=20).output,
        "litellm: embeddings": lambda: lite.embedding(**given, input=["a cat"]).data,
    }


def llama_index(base_url: str, model: str) -> dict[str, Callable[[], object]]:
    """Checks of llama-index."""
    like = importlib.import_module("llama_index.llms.openai_like").OpenAILike
    tools = importlib.import_module("llama_index.core.tools")
    llm = like(
        model=model,
        api_base=base_url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=80,
        temperature=0,
        context_window=2048,
    )
    weather = tools.FunctionTool.from_defaults(get_weather)

    def forced() -> object:
        answer = llm.chat_with_tools([weather], user_msg=QUESTION, tool_required=True, allow_parallel_tool_calls=False)
        (call,) = llm.get_tool_calls_from_response(answer)
        return call.tool_kwargs["city"]

    return {
        "llama-index: text": lambda: llm.complete("Say hi.").text,
        "llama-index: streamed text": lambda: list(llm.stream_complete("Say hi."))[-1].text,
        "llama-index: forced tool": forced,
        "llama-index: structured": lambda: isinstance(llm.as_structured_llm(Cat).complete("Describe a cat.").raw, Cat),
    }


def main() -> int:
    """Run all checks."""
    address, model = sys.argv[1:]
    failures = 0
    for program in (langchain, litellm, llama_index):
        for name, run in program(f"{address}/v1", model).items():
            try:
                problem = "" if run() else "nothing came"
            except Exception:  # noqa: BLE001 - whatever a program raises is told
                problem = traceback.format_exc(limit=-1)
            failures += bool(problem)
            sys.stdout.write(f"FAILED  {name}: {problem}\n" if problem else f"ok      {name}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
