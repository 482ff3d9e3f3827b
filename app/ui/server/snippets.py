"""Ready-made requests, and settings of well-known programs, for copying.

What each program wants is from its own documentation (2026-11): docs.continue.dev (provider openai),
docs.cline.bot/provider-config/openai-compatible, docs.openwebui.com (OpenAI-compatible servers),
docs.anthropic.com/claude-code (LLM gateway, environment variables), aider.chat/docs/llms/openai-compat.html,
zed.dev/docs/ai (openai_compatible), docs.langchain.com (ChatOpenAI with a base_url).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

KEY_PLACE = "YOUR_KEY"
NO_KEY = "not-needed"


@dataclass(frozen=True, slots=True)
class Target:
    """What a snippet is filled with. `address` is without `/v1`; `key` what to send, `KEY_PLACE` or `NO_KEY`."""

    address: str
    model: str
    model_name: str
    n_ctx: int
    with_key: bool

    @property
    def key(self) -> str:
        """The key, or words in its place."""
        return KEY_PLACE if self.with_key else NO_KEY


@dataclass(frozen=True, slots=True)
class Program:
    """One entry: its name, what to do with the text, and the text."""

    name: str
    where: str
    make: Callable[[Target], str]


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("Snippets", text)


def _curl(target: Target) -> str:
    key = f'\n  -H "Authorization: Bearer {KEY_PLACE}" \\' if target.with_key else ""
    body = json.dumps({"model": target.model, "messages": [{"role": "user", "content": "Hello"}]}, indent=2)
    lines = body.replace("\n", "\n  ")
    return (
        f"curl {target.address}/v1/chat/completions \\\n  -H \"Content-Type: application/json\" \\{key}\n  -d '{lines}'"
    )


def _python(target: Target) -> str:
    return f"""from openai import OpenAI

client = OpenAI(base_url="{target.address}/v1", api_key="{target.key}")
answer = client.chat.completions.create(
    model="{target.model}",
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)"""


def _javascript(target: Target) -> str:
    key = f', "Authorization": "Bearer {KEY_PLACE}"' if target.with_key else ""
    return f"""const response = await fetch("{target.address}/v1/chat/completions", {{
  method: "POST",
  headers: {{ "Content-Type": "application/json"{key} }},
  body: JSON.stringify({{
    model: "{target.model}",
    messages: [{{ role: "user", content: "Hello" }}],
  }}),
}});
const answer = await response.json();
console.log(answer.choices[0].message.content);"""


def _langchain(target: Target) -> str:
    return f"""from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="{target.model}",
    base_url="{target.address}/v1",
    api_key="{target.key}",
)
print(model.invoke("Hello").content)"""


def _continue(target: Target) -> str:
    return f"""name: Deskside
version: 0.0.1
schema: v1
models:
  - name: {json.dumps(target.model_name)}
    provider: openai
    model: {target.model}
    apiBase: {target.address}/v1
    apiKey: {target.key}"""


def _cline(target: Target) -> str:
    return f"""API Provider:  OpenAI Compatible
Base URL:      {target.address}/v1
API Key:       {target.key}
Model ID:      {target.model}"""


def _open_webui(target: Target) -> str:
    return f"""URL:      {target.address}/v1
API Key:  {target.key}"""


def _claude_code(target: Target) -> str:
    return f"""export ANTHROPIC_BASE_URL={target.address}
export ANTHROPIC_AUTH_TOKEN={target.key}
export ANTHROPIC_API_KEY=
export ANTHROPIC_DEFAULT_OPUS_MODEL={target.model}
export ANTHROPIC_DEFAULT_SONNET_MODEL={target.model}
export ANTHROPIC_DEFAULT_HAIKU_MODEL={target.model}
claude"""


def _aider(target: Target) -> str:
    return f"""export OPENAI_API_BASE={target.address}/v1
export OPENAI_API_KEY={target.key}
aider --model openai/{target.model}"""


def _zed(target: Target) -> str:
    provider = {
        "api_url": f"{target.address}/v1",
        "available_models": [{"name": target.model, "display_name": target.model_name, "max_tokens": target.n_ctx}],
    }
    return json.dumps({"language_models": {"openai_compatible": {"Deskside": provider}}}, indent=2, ensure_ascii=False)


def _ollama(target: Target) -> str:
    return f"""export OLLAMA_HOST={target.address}
ollama run {target.model}"""


def programs() -> tuple[Program, ...]:
    """All of them; languages first."""
    return (
        Program("curl", tr("In a terminal:"), _curl),
        Program("Python", tr("With the openai package:"), _python),
        Program("JavaScript", tr("In Node.js or a page whose origin is allowed:"), _javascript),
        Program("LangChain", tr("With the langchain-openai package:"), _langchain),
        Program("Continue", tr("In its config.yaml:"), _continue),
        Program("Cline", tr("In its settings, API configuration:"), _cline),
        Program(
            "Open WebUI",
            tr("Admin settings, Connections, OpenAI, Add connection. It finds the models itself:"),
            _open_webui,
        ),
        Program("Claude Code", tr("In the terminal you start it from (large contexts are needed):"), _claude_code),
        Program("aider", tr("In the terminal you start it from:"), _aider),
        Program("Zed", tr("In its settings.json; the key goes into the field its Agent settings show:"), _zed),
        Program("Ollama's command", tr("Its own command line, with the models of this program:"), _ollama),
    )
