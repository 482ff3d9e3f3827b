"""The log of requests: what is in it, and what never is."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runtime.host import request_log
from runtime.host.request_log import LoggedRequest, RequestLog
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]
decode = msgspec.json.Decoder(LoggedRequest).decode


def lines_of(path: Path) -> list[LoggedRequest]:
    return [decode(line) for line in path.read_bytes().splitlines()]


def logged_host(make_host: MakeHost, mode: str) -> RunningHost:
    host = make_host(api_enabled=False)
    state = host.private.put("/admin/api", json={"enabled": True, "port": 0, "request_log": mode}).json()
    host.public.base_url = state["addresses"][0]
    return host


def ask_all(host: RunningHost) -> str:
    """A whole answer, a failed one, one over its limit; the key they came with."""
    made = host.private.post("/admin/keys", json={"name": "editor", "limits": {"requests_per_minute": 2}}).json()
    headers = {"x-api-key": made["key"]}
    for text, status in (("exactly a SECRET answer", 200), ("too long", 400), ("say 1", 429)):
        body = {"model": "fake", "messages": [{"role": "user", "content": text}]}
        assert host.public.post("/v1/chat/completions", json=body, headers=headers).status_code == status
    with host.private.stream(
        "POST", "/admin/chat", json={"model": "fake", "messages": [{"role": "user", "content": "the person's own"}]}
    ) as answer:
        answer.read()
    return str(made["key"])


def test_when_metadata_is_logged_then_there_is_no_text_and_no_key(make_host: MakeHost) -> None:
    host = logged_host(make_host, "metadata")
    key = ask_all(host)
    host.close()
    path = host.data.request_log_file
    first, failed, refused = lines_of(path)
    assert (first.key, first.route, first.model, first.status) == ("editor", "/v1/chat/completions", "fake", 200)
    assert first.client == "127.0.0.1"
    assert first.prompt_tokens > 0
    assert first.generated_tokens > 0
    assert first.duration_s > 0
    assert first.time.startswith("20")
    assert (failed.status, refused.status) == (400, 429)
    assert "2 requests a minute" in refused.problem
    raw = path.read_text()
    assert "SECRET" not in raw
    assert "person" not in raw
    assert key not in raw
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_when_text_is_logged_then_both_sides_are_there(make_host: MakeHost) -> None:
    host = logged_host(make_host, "text")
    key = ask_all(host)
    host.close()
    first = lines_of(host.data.request_log_file)[0]
    assert first.asked == '[{"role":"user","content":"exactly a SECRET answer"}]'
    assert first.answered == "a SECRET answer"
    assert key not in host.data.request_log_file.read_text()
    assert "person" not in host.data.request_log_file.read_text()


def test_when_the_log_is_off_then_there_is_no_file(make_host: MakeHost) -> None:
    host = logged_host(make_host, "off")
    ask_all(host)
    host.close()
    assert not host.data.request_log_file.exists()


def test_when_it_grows_then_it_is_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_FILE_BYTES", 2_000)
    monkeypatch.setattr(request_log, "OLDER_FILES", 2)
    log = RequestLog(tmp_path / "requests.log", lambda: "metadata")
    for number in range(100):
        log.add(LoggedRequest("now", f"req-{number}", "c", "/v1/x", "m", 200, 0.1))
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["requests.log", "requests.log.1", "requests.log.2"]
    assert all(file.stat().st_size <= 2_000 for file in files)
    assert lines_of(files[0])[-1].request_id == "req-99"


def test_when_the_file_cannot_be_written_then_requests_go_on(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "missing" / "requests.log", lambda: "metadata")
    log.add(LoggedRequest("now", "req", "c", "/v1/x", "m", 200, 0.1))
    log.close()
    assert not (tmp_path / "missing").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_when_the_disk_is_full_then_it_is_said_once_and_the_log_closes(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(Path("/dev/full"), lambda: "metadata")
    for number in range(20):
        log.add(LoggedRequest("now", f"req-{number}", "c", "/v1/x", "m", 200, 0.1))
    log.close()
    (told,) = [record.getMessage() for record in caplog.records if "request log" in record.getMessage()]
    assert "No space left" in told
