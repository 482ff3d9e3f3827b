"""The window's own chat route: tools, their calls, pictures."""

import base64
import json
from typing import Any

from tests.host.conftest import RunningHost

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()


def events(host: RunningHost, text: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "fake", "messages": [{"role": "user", "content": text}], **fields}
    answer = host.private.post("/admin/chat", json=body).raise_for_status()
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_when_the_model_calls_tools_then_each_delta_says_of_which_call(host: RunningHost) -> None:
    calls = [event for event in events(host, "call") if event.get("kind") == "tool_call"]
    assert [(call["tool_call"]["name"], call["text"]) for call in calls] == [
        ("weather", '{"city":'),
        ("weather", '"Oslo"}'),
        ("clock", "{}"),
    ]


def test_when_a_shape_is_asked_for_then_the_model_is_asked_so(host: RunningHost) -> None:
    shape = {"tools": [{"name": "weather"}], "tool_choice": "required", "json_schema": "{}"}
    told = "".join(event["text"] for event in events(host, "describe", shape=shape) if event.get("kind") == "content")
    assert json.loads(told)["shape"] == shape


def test_when_the_model_cannot_see_then_a_picture_is_refused(host: RunningHost) -> None:
    part = {"type": "media", "media": {"kind": "image", "data": PNG, "mime": "image/png"}}
    message = {"role": "user", "content": "", "parts": [part]}
    answer = host.private.post("/admin/chat", json={"model": "fake", "messages": [message]})
    assert answer.status_code == 400
    assert "cannot see pictures" in answer.json()["message"]
