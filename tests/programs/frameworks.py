"""Frameworks for agents against a Deskside server: `python frameworks.py ADDRESS MODEL`, where they are installed.

Each has text, a form of the answer and a tool that must be called. Prints a line a check; ends with 1 if any failed.
The programs are no part of the development environment.
"""

import asyncio
import importlib
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, Field

QUESTION = "What is the weather in Oslo?"
CAT = "Describe a cat."
Checks = dict[str, Callable[[], object]]


class Cat(BaseModel):
    """A cat."""

    name: str = Field(max_length=20)
    legs: int = Field(ge=0, le=8)


def get_weather(city: Annotated[str, Field(max_length=15)]) -> str:
    """Weather of a city.

    Args:
        city: Name of the city.
    """
    return f"Snow in {city}, -4 degrees."


def pydantic_ai(address: str, model: str) -> Checks:
    """Checks of pydantic-ai, in three dialects."""
    library = importlib.import_module("pydantic_ai")
    openai = importlib.import_module("pydantic_ai.models.openai")
    anthropic = importlib.import_module("pydantic_ai.models.anthropic")
    by_openai = importlib.import_module("pydantic_ai.providers.openai").OpenAIProvider
    by_anthropic = importlib.import_module("pydantic_ai.providers.anthropic").AnthropicProvider
    settings = {"max_tokens": 120, "temperature": 0.0}
    models = {
        "chat": openai.OpenAIChatModel(model, provider=by_openai(base_url=f"{address}/v1", api_key="none")),
        "responses": openai.OpenAIResponsesModel(model, provider=by_openai(base_url=f"{address}/v1", api_key="none")),
        "anthropic": anthropic.AnthropicModel(model, provider=by_anthropic(base_url=address, api_key="none")),
    }

    def run(chosen: Any) -> object:
        return asyncio.run(streamed(chosen))

    async def streamed(chosen: Any) -> str:
        async with library.Agent(chosen, model_settings=settings).run_stream("Name three colours.") as answer:
            return "".join([piece async for piece in answer.stream_text(delta=True)])

    def formed(chosen: Any, output: Any = Cat) -> object:
        return isinstance(library.Agent(chosen, output_type=output, model_settings=settings).run_sync(CAT).output, Cat)

    checks: Checks = {}
    for kind, chosen in models.items():
        checks[f"pydantic-ai ({kind}): streamed text"] = partial(run, chosen)
        checks[f"pydantic-ai ({kind}): by a tool"] = partial(formed, chosen)
        if kind != "anthropic":  # it asks only models whose names it knows for a schema
            checks[f"pydantic-ai ({kind}): by a schema"] = partial(formed, chosen, library.NativeOutput(Cat))
    return checks


def openai_agents(address: str, model: str) -> Checks:
    """Checks of openai-agents, on both of OpenAI's APIs."""
    library = importlib.import_module("agents")
    openai = importlib.import_module("openai")
    library.set_tracing_disabled(True)
    tool = library.function_tool(get_weather)
    forced = library.ModelSettings(tool_choice="required", parallel_tool_calls=False, max_tokens=120, temperature=0)
    free = library.ModelSettings(max_tokens=120, temperature=0)

    def called(chosen: Any) -> object:
        agent = library.Agent(
            "a", model=chosen, tools=[tool], model_settings=forced, tool_use_behavior="stop_on_first_tool"
        )
        return str(library.Runner.run_sync(agent, QUESTION).final_output).startswith("Snow in ")

    def formed(chosen: Any) -> object:
        agent = library.Agent("a", model=chosen, output_type=Cat, model_settings=free)
        return isinstance(library.Runner.run_sync(agent, CAT).final_output, Cat)

    def run(chosen: Any) -> object:
        return asyncio.run(streamed(chosen))

    async def streamed(chosen: Any) -> object:
        answer = library.Runner.run_streamed(
            library.Agent("a", model=chosen, model_settings=free), "Name three colours."
        )
        kinds = [event.type async for event in answer.stream_events()]
        return "raw_response_event" in kinds and answer.final_output

    checks: Checks = {}
    for kind, make in (("chat", library.OpenAIChatCompletionsModel), ("responses", library.OpenAIResponsesModel)):
        # A client of its own for each check: a connection belongs to the loop that opened it.
        clients = [openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") for _ in range(3)]
        first, second, third = (make(model=model, openai_client=client) for client in clients)
        checks[f"openai-agents ({kind}): forced tool and its result"] = partial(called, first)
        checks[f"openai-agents ({kind}): by a schema"] = partial(formed, second)
        checks[f"openai-agents ({kind}): streamed text"] = partial(run, third)
    return checks


def main() -> int:
    """Run all checks."""
    address, model = sys.argv[1:]
    failures = 0
    for program in (pydantic_ai, openai_agents):
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
