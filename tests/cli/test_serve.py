import io
import json
import shlex
import socket
from pathlib import Path

import pytest

from runtime.cli.serve import ServeScreen, curl_line, port_in_use
from runtime.cli.terminal import Terminal
from runtime.errors import Failure
from runtime.host.config import HostReady
from runtime.messages.api import ApiKeyInfo, ApiState, Certificate, InstalledModel, LoadedModel, ModelChanged, Notice
from runtime.messages.shared import ModelFacts
from runtime.options import ApiOptions

BASE = "http://127.0.0.1:1234"


def test_when_the_line_is_pasted_into_a_shell_then_it_asks_the_model() -> None:
    words = shlex.split(curl_line(BASE, "some-model", platform="linux"))
    assert words[:2] == ["curl", f"{BASE}/v1/chat/completions"]
    assert words[words.index("-H") + 1] == "Content-Type: application/json"
    body = json.loads(words[words.index("-d") + 1])
    assert body == {"model": "some-model", "messages": [{"role": "user", "content": "Hello!"}]}


def test_when_there_is_a_key_then_the_line_carries_it() -> None:
    assert "'Authorization: Bearer se cret'" in curl_line(BASE, "m", key="se cret", platform="linux")
    named = curl_line(BASE, "m", key="$DESKSIDE_API_KEY", platform="linux")
    assert '"Authorization: Bearer $DESKSIDE_API_KEY"' in named  # double quotes, so that the shell fills it in


def test_when_the_system_is_windows_then_the_line_is_for_its_shell() -> None:
    line = curl_line(BASE, "m", key="$DESKSIDE_API_KEY", platform="win32")
    assert "'" not in line
    assert "%DESKSIDE_API_KEY%" in line
    body = line.partition('-d "')[2].removesuffix('"').replace('\\"', '"')
    assert json.loads(body)["model"] == "m"


def test_when_the_model_embeds_then_the_line_asks_for_a_vector() -> None:
    line = curl_line(BASE, "m", kind="embedding", platform="linux")
    assert "/v1/embeddings" in line
    assert '"input"' in line


def test_when_a_port_is_taken_then_that_is_seen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert port_in_use("127.0.0.1", port)
    assert not port_in_use("127.0.0.1", port)
    assert not port_in_use("surely.not.a.host.invalid", 80)


class Screen:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.ended = 0
        monkeypatch.setattr("runtime.cli.serve._end_host", self._end)
        model = InstalledModel("tiny", "Tiny", str(Path("tiny.gguf")), 1)
        terminal = Terminal(self.out, self.err, {})
        self.screen = ServeScreen(terminal, model, host="127.0.0.1", port=1234, key="")

    def _end(self) -> None:
        self.ended += 1


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(monkeypatch)


FACTS = ModelFacts(
    name="Tiny",
    architecture="llama",
    quantization="Q4_1",
    n_params=1,
    size_bytes=1,
    n_layer=1,
    n_vocab=1,
    n_ctx=2048,
    n_ctx_train=2048,
    n_parallel=4,
    has_chat_template=True,
    can_embed=False,
    reasoning=False,
    device_names=("CPU",),
    n_gpu_layers=0,
    kv_bytes=1,
    compute_bytes=1,
    load_s=0.5,
    engine="llama.cpp",
)


def test_when_the_model_is_ready_then_address_and_line_are_told_once(shown: Screen) -> None:
    for _ in range(2):
        shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "ready", facts=FACTS)))
    text = shown.out.getvalue()
    assert text.count("curl ") == 1
    assert "4 conversations of 2,048 tokens" in text
    assert "Ctrl-C" in text


def test_when_the_model_loads_then_progress_goes_to_standard_error(shown: Screen) -> None:
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "loading", fraction=0.5)))
    assert "Loading Tiny 50 %" in shown.err.getvalue()
    assert shown.out.getvalue() == ""


def test_when_the_model_fails_then_the_host_ends_with_its_error(shown: Screen) -> None:
    failure = Failure("NotGguf", "This is no model.", "Choose another.")
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "failed", failure=failure)))
    assert shown.ended == 1
    assert shown.screen.fault is not None
    assert shown.screen.fault.message == "This is no model."


def test_when_a_worker_dies_later_then_the_host_serves_on(shown: Screen) -> None:
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "ready", facts=FACTS)))
    shown.screen.event(Notice("warning", "The model's process ended and is started anew."))
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "failed", failure=Failure("WorkerDied", "Gone."))))
    assert shown.ended == 0
    assert "started anew" in shown.err.getvalue()
    assert "Gone." in shown.err.getvalue()


def test_when_the_api_is_encrypted_then_address_file_and_fingerprint_are_told(shown: Screen) -> None:
    certificate = Certificate("AB:CD", 1.0, ("pc",), "own.pem", is_own=True)
    addresses = (BASE, "https://192.168.0.2:1234")
    api = ApiState(ApiOptions(tls="own"), running=True, addresses=addresses, certificate=certificate)
    shown.screen.ready(HostReady("http://127.0.0.1:9", "1", api))
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "ready", facts=FACTS)))
    text = shown.out.getvalue()
    for words in ("https://192.168.0.2:1234/v1", "own.pem", "AB:CD"):
        assert words in text


def test_when_the_last_key_goes_while_it_serves_then_the_terminal_says_so(shown: Screen) -> None:
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "ready", facts=FACTS)))
    shown.screen.event(Notice("warning", "The last API key was removed: the API is off."))
    assert "The last API key was removed" in shown.err.getvalue()
    assert shown.ended == 0


def test_when_stored_keys_are_asked_for_then_the_line_to_try_has_a_place_for_one(shown: Screen) -> None:
    api = ApiState(ApiOptions(), running=True, addresses=(BASE,), keys=(ApiKeyInfo("editor", 1.0),))
    shown.screen.ready(HostReady("http://127.0.0.1:9", "1", api))
    shown.screen.event(ModelChanged(LoadedModel("tiny", "Tiny", "ready", facts=FACTS)))
    assert "'Authorization: Bearer YOUR_KEY'" in shown.out.getvalue()
