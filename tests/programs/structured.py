"""Programs for answers in a form against a Deskside server: `python structured.py ADDRESS MODEL`.

Each has text, a form of the answer and a tool that must be called. Prints a line a check; ends with 1 if any failed.
The programs are no part of the development environment.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

QUESTION = "What is the weather in Oslo?"
CAT = "Describe a cat."
Checks = dict[str, Callable[[], object]]


class Cat(BaseModel):
    """A cat."""

    name: str = Field(max_length=20)
    legs: int = Field(ge=0, le=8)


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: Name of the city.
    """
    return f"Snow in {city}, -4 degrees."


def instructor(address: str, model: str) -> Checks:
    """Checks of instructor."""
    library, openai = importlib.import_module("instructor"), importlib.import_module("openai")
    given: dict[str, Any] = {"model": model, "max_tokens": 100, "temperature": 0, "max_retries": 0}
    asked = [{"role": "user", "content": CAT}]

    def client(mode: Any) -> Any:
        return library.from_openai(openai.OpenAI(base_url=f"{address}/v1", api_key="none"), mode=mode)

    def made(mode: Any) -> object:
        return isinstance(client(mode).create(response_model=Cat, messages=asked, **given), Cat)

    def in_parts() -> object:
        parts = list(client(library.Mode.TOOLS).create_partial(response_model=Cat, messages=asked, **given))
        return parts[-1].name is not None

    return {
        "instructor: by a tool": lambda: made(library.Mode.TOOLS),
        "instructor: by a schema": lambda: made(library.Mode.JSON_SCHEMA),
        "instructor: by a tool, in parts": in_parts,
    }


def smolagents(address: str, model: str) -> Checks:
    """Checks of smolagents."""
    library = importlib.import_module("smolagents")
    llm = library.OpenAIServerModel(model, api_base=f"{address}/v1", api_key="none", max_tokens=80, temperature=0)
    weather = library.tool(get_weather)
    asked = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]

    def called() -> object:
        call, *_others = llm.generate(asked, tools_to_call_from=[weather]).tool_calls
        arguments = call.function.arguments
        return isinstance((json.loads(arguments) if isinstance(arguments, str) else arguments)["city"], str)

    return {
        "smolagents: text": lambda: llm.generate(asked).content,
        "smolagents: streamed text": lambda: "".join(piece.content or "" for piece in llm.generate_stream(asked)),
        "smolagents: forced tool": called,
    }


def langchain(address: str, model: str) -> Checks:
    """Checks of langchain-anthropic and langchain-ollama."""
    weather = importlib.import_module("langchain_core.tools").tool(get_weather)
    messages = importlib.import_module("langchain_core.messages")
    claude = importlib.import_module("langchain_anthropic").ChatAnthropic(
        base_url=address, api_key="none", model=model, max_tokens=100, temperature=0
    )
    ollama = importlib.import_module("langchain_ollama")
    local = ollama.ChatOllama(base_url=address, model=model, num_predict=100, temperature=0)

    def tool_and_result() -> object:
        history = [messages.HumanMessage(QUESTION)]
        answer = claude.bind_tools([weather], tool_choice="get_weather").invoke(history)
        (call,) = answer.tool_calls
        return claude.bind_tools([weather]).invoke([*history, answer, weather.invoke(call)]).content

    def streamed(llm: Any) -> object:
        return "".join(str(chunk.text) for chunk in llm.stream("Name three colours."))

    return {
        "langchain-anthropic: streamed text": lambda: streamed(claude),
        "langchain-anthropic: forced tool and its result": tool_and_result,
        "langchain-anthropic: structured": lambda: isinstance(claude.with_structured_output(Cat).invoke(CAT), Cat),
        "langchain-ollama: streamed text": lambda: streamed(local),
        "langchain-ollama: structured": lambda: isinstance(
            local.with_structured_output(Cat, method="json_schema").invoke(CAT), Cat
        ),
        "langchain-ollama: embeddings": lambda: ollama.OllamaEmbeddings(base_url=address, model=model).embed_query("a"),
    }


def dspy(address: str, model: str) -> Checks:
    """Checks of DSPy, which asks for a schema of its own."""
    library = importlib.import_module("dspy")
    llm = library.LM(f"openai/{model}", api_base=f"{address}/v1", api_key="none", max_tokens=200, temperature=0.1)

    def asked(signature: str, **fields: Any) -> Any:
        with library.context(lm=llm, adapter=library.JSONAdapter()):
            return library.Predict(signature)(**fields)

    return {
        "dspy: text": lambda: llm("Say hi."),
        "dspy: by a schema": lambda: isinstance(
            asked("text -> is_positive: bool", text="I like it.").is_positive, bool
        ),
    }


def main() -> int:
    """Run all checks."""
    address, model = sys.argv[1:]
    failures = 0
    for program in (instructor, smolagents, langchain, dspy):
        for name, run in program(address, model).items():
            try:
                problem = "" if run() else "nothing came"
            except Exception:  # noqa: BLE001 - whatever a program raises is told
                problem = traceback.format_exc(limit=-3)
            failures += bool(problem)
            sys.stdout.write(f"FAILED  {name}: {problem}\n" if problem else f"ok      {name}\n")
            sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
