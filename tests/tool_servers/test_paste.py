"""The settings of other programs, as people paste them."""

import pytest

from runtime.errors import BadRequest
from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.paste import checked, read_pasted


def test_when_the_usual_form_is_pasted_then_each_server_is_understood() -> None:
    text = """
    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server-files", "."], "env": {"N": 1, "DEBUG": true},
                  "cwd": "/srv"},
        "git hub/x!": {"type": "streamable-http", "url": "https://example.org/mcp",
                       "headers": {"Authorization": "B x"}},
        "old": {"url": "http://127.0.0.1:8000/sse", "disabled": true, "autoApprove": ["x"]}
    }}"""
    files, hub, old = read_pasted(text)
    assert files == ToolServerConfig(
        "files", command="npx", args=("-y", "server-files", "."), env={"N": "1", "DEBUG": "true"}, folder="/srv"
    )
    assert (hub.name, hub.transport, hub.headers) == ("git hub-x", "http", {"Authorization": "B x"})
    assert (old.transport, old.enabled) == ("sse", False)


@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {"a": {"command": "x"}}}',
        '{"mcp": {"servers": {"a": {"command": "x"}}}}',
        '{"a": {"command": "x"}}',
        '"a": {"command": "x"},',
    ],
)
def test_when_another_form_is_pasted_then_it_is_understood_too(text: str) -> None:
    assert read_pasted(text) == (ToolServerConfig("a", command="x"),)


def test_when_one_server_without_a_name_is_pasted_then_it_gets_one() -> None:
    assert read_pasted('{"command": "x"}')[0].name == "server"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "No server"),
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "No server"),
        ('{"mcpServers": {"a": {}}}', "no address"),
        ('{"mcpServers": {"a": {"type": "stdio"}}}', "no command"),
        ('{"mcpServers": {"a": {"type": "pigeon", "url": "http://x"}}}', 'uses "pigeon"'),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', 'server "a"'),
        ('{"mcpServers": {"a": {"command": "x", "env": {"K": "${input:key}"}}}}', 'value named "key"'),
        ('{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}', "no address"),
        ('{"mcpServers": {"a": {"url": "http://x/ y"}}}', "no address"),
        ("{" * 5000, "no JSON"),
    ],
)
def test_when_the_text_is_wrong_then_the_sentence_says_where(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words.replace("(", "\\(")):
        read_pasted(text)


def test_when_a_header_or_variable_cannot_be_sent_then_it_is_named() -> None:
    with pytest.raises(BadRequest, match="X-Bad"):
        checked(ToolServerConfig("a", "http", url="http://x", headers={"X-Bad": "a\nb"}))
    with pytest.raises(BadRequest, match="variable"):
        checked(ToolServerConfig("a", command="x", env={"A=B": "c"}))
