"""Ready-made requests to the API, for copying."""

SNIPPETS = ("curl", "Python", "JavaScript")

_CURL = """curl {address}/v1/chat/completions \\
  -H "Content-Type: application/json" \\{key}
  -d '{{
    "model": "{model}",
    "messages": [{{"role": "user", "content": "Hello"}}]
  }}'"""

_PYTHON = """from openai import OpenAI

client = OpenAI(base_url="{address}/v1", api_key="{key}")
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)"""

_JAVASCRIPT = """const response = await fetch("{address}/v1/chat/completions", {{
  method: "POST",
  headers: {{ "Content-Type": "application/json"{key} }},
  body: JSON.stringify({{
    model: "{model}",
    messages: [{{ role: "user", content: "Hello" }}],
  }}),
}});
const answer = await response.json();
console.log(answer.choices[0].message.content);"""

KEY_PLACE = "YOUR_KEY"


def snippet(language: str, address: str, model: str, *, with_key: bool) -> str:
    """A request in a language of `SNIPPETS`; `address` is the base URL, with or without `/v1`."""
    address = address.rstrip("/").removesuffix("/v1")
    if language == "Python":
        return _PYTHON.format(address=address, model=model, key=KEY_PLACE if with_key else "none")
    if language == "JavaScript":
        key = f', "Authorization": "Bearer {KEY_PLACE}"' if with_key else ""
        return _JAVASCRIPT.format(address=address, model=model, key=key)
    key = f'\n  -H "Authorization: Bearer {KEY_PLACE}" \\' if with_key else ""
    return _CURL.format(address=address, model=model, key=key)
