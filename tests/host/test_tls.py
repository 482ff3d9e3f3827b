"""HTTPS on the public listener: our own certificate, files of a person, and what is said when they are wrong."""

import datetime
import os
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from runtime.errors import BadRequest, WorldFault
from runtime.host import tls
from runtime.host.settings import SettingsFile
from runtime.host.tls import TlsFiles, ensure_own, open_files, own_files
from runtime.options import ApiOptions
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]
NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


def put(running: RunningHost, /, **options: object) -> dict[str, object]:
    state: dict[str, object] = running.private.put("/admin/api", json={"enabled": True, "port": 0, **options}).json()
    return state


def port_of(state: dict[str, object]) -> int:
    addresses = state["addresses"]
    assert isinstance(addresses, list)
    return httpx.URL(addresses[0]).port or 0


def write_files(folder: Path, *, days: int = 10, passphrase: bytes = b"", other_key: bool = False) -> TlsFiles:
    """A certificate of a person's own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=20)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(made_at)
        .not_valid_after(made_at + datetime.timedelta(days=20 + days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    saved = ec.generate_private_key(ec.SECP256R1()) if other_key else key
    files = TlsFiles(folder / "mine.pem", folder / "mine.key")
    files.certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key_path.write_bytes(
        saved.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    return files


def test_when_our_own_is_made_then_it_is_kept_private_and_not_made_again(tmp_path: Path) -> None:
    files = own_files(tmp_path / "tls")
    assert ensure_own(files, NOW)
    first = files.certificate_path.read_bytes()
    assert not ensure_own(files, NOW + datetime.timedelta(days=tls.VALID_DAYS - tls.RENEW_DAYS - 1))
    assert files.certificate_path.read_bytes() == first
    if os.name != "nt":
        assert stat.S_IMODE(files.key_path.stat().st_mode) == 0o600
    _, shown = open_files(files, NOW, is_own=True)
    assert {"localhost", "127.0.0.1"} <= set(shown.names)
    assert len(shown.fingerprint.split(":")) == 32
    assert shown.is_own


def test_when_our_own_would_soon_expire_then_a_new_one_has_the_same_key(tmp_path: Path) -> None:
    files = own_files(tmp_path / "tls")
    ensure_own(files, NOW)
    key = files.key_path.read_bytes()
    _, before = open_files(files, NOW, is_own=True)
    later = NOW + datetime.timedelta(days=tls.VALID_DAYS - tls.RENEW_DAYS + 1)
    assert ensure_own(files, later)
    _, after = open_files(files, later, is_own=True)
    assert after.expires_s > before.expires_s
    assert files.key_path.read_bytes() == key


def test_when_this_machine_gets_a_name_then_the_certificate_has_old_and_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = own_files(tmp_path / "tls")
    monkeypatch.setattr(tls, "own_certificate_names", lambda: ("localhost", "10.0.0.5"))
    ensure_own(files, NOW)
    monkeypatch.setattr(tls, "own_certificate_names", lambda: ("localhost", "192.168.7.7"))
    assert ensure_own(files, NOW)
    assert set(open_files(files, NOW, is_own=True)[1].names) == {"localhost", "10.0.0.5", "192.168.7.7"}
    monkeypatch.setattr(tls, "own_certificate_names", lambda: ("localhost", "10.0.0.5"))
    assert not ensure_own(files, NOW)


def test_when_our_own_is_damaged_then_it_is_made_anew(tmp_path: Path) -> None:
    files = own_files(tmp_path / "tls")
    ensure_own(files, NOW)
    files.key_path.write_bytes(b"gone")
    assert ensure_own(files, NOW)
    open_files(files, NOW, is_own=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda files: files.certificate_path.unlink(), "There is no certificate at"),
        (lambda files: files.key_path.unlink(), "There is no private key at"),
        (lambda files: files.certificate_path.write_text("hello"), "holds no certificate"),
        (lambda files: files.key_path.write_text("hello"), "holds no private key"),
        (lambda files: write_files(files.key_path.parent, passphrase=b"secret"), "has a passphrase"),
        (lambda files: write_files(files.key_path.parent, other_key=True), "is not the key of"),
        (lambda files: write_files(files.key_path.parent, days=-1), "expired on"),
        (lambda files: (files.key_path.unlink(), files.key_path.mkdir()), "is no file"),
        (lambda files: files.key_path.write_bytes(b"x" * 2_000_000), "far too large"),
    ],
)
def test_when_files_are_wrong_then_the_sentence_says_how(
    tmp_path: Path, change: Callable[[TlsFiles], object], sentence: str
) -> None:
    files = write_files(tmp_path)
    change(files)
    with pytest.raises(WorldFault, match=sentence):
        open_files(files, datetime.datetime.now(datetime.UTC), is_own=False)


def test_when_encrypted_then_https_works_with_the_certificate_and_http_from_here(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    state = put(host, tls="own")
    shown = state["certificate"]
    assert isinstance(shown, dict)
    port = port_of(state)
    assert state["addresses"] == [f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}"]
    trusting = ssl.create_default_context(cafile=str(shown["file"]))
    for name in ("127.0.0.1", "localhost"):
        answer = httpx.get(f"https://{name}:{port}/v1/models", verify=trusting)
        assert answer.status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://127.0.0.1:{port}/v1/models")
    assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 200
    body = {"model": "fake", "messages": [{"role": "user", "content": "say 300"}], "stream": True}
    with httpx.stream("POST", f"https://127.0.0.1:{port}/v1/chat/completions", json=body, verify=trusting) as told:
        assert "w299" in told.read().decode()
    der = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))
    assert x509.load_der_x509_certificate(der).fingerprint(hashes.SHA256()).hex(":").upper() == shown["fingerprint"]


def test_when_files_are_missing_then_the_api_stays_off_and_says_why(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(api_enabled=False)
    state = put(host, tls="files", certificate_file=str(tmp_path / "no.pem"), key_file=str(tmp_path / "no.key"))
    assert not state["running"]
    assert "There is no certificate at" in str(state["problem"])
    files = write_files(tmp_path)
    given = {"certificate_file": str(files.certificate_path), "key_file": str(files.key_path)}
    state = put(host, tls="files", **given)
    assert state["running"]
    trusting = ssl.create_default_context(cafile=str(files.certificate_path))
    assert httpx.get(f"https://localhost:{port_of(state)}/health", verify=trusting).status_code == 200
    first = state["certificate"]
    write_files(tmp_path)
    second = put(host, tls="files", **given)
    assert second["addresses"] == state["addresses"], "a renewed certificate moves nothing"
    assert second["certificate"] != first


def test_when_plain_http_comes_from_elsewhere_then_it_is_told_to_use_https(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(api_enabled=False)
    port = port_of(put(host, tls="own"))
    monkeypatch.setattr("runtime.host.tls_door._is_from_here", lambda _transport: False)
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/models")
    assert answer.status_code == 400
    assert "https://" in answer.text


def test_when_a_handshake_is_nonsense_or_never_ends_then_others_are_served(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.host.tls_door.HANDSHAKE_WITHIN_S", 1)
    host = make_host(api_enabled=False)
    port = port_of(put(host, tls="own"))
    with socket.create_connection(("127.0.0.1", port)) as half, socket.create_connection(("127.0.0.1", port)) as mute:
        half.sendall(b"\x16\x03\x01\x02\x00")
        with socket.create_connection(("127.0.0.1", port)) as nonsense:
            nonsense.sendall(b"\x16" + b"\xff" * 600)
            nonsense.settimeout(10)
            while nonsense.recv(100):  # an alert, then the end
                pass
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        for silent in (half, mute):
            silent.settimeout(10)
            assert silent.recv(1) == b""


def test_when_one_run_is_encrypted_then_its_settings_are_not_changed(make_host: MakeHost) -> None:
    given = ApiOptions(tls="own", request_log="metadata", allowed_origins=("https://a.example",))
    only = frozenset({"tls", "request_log", "allowed_origins"})
    host = make_host(api_options=given, api_only=only)
    state = host.private.get("/admin/api").json()
    assert [address.partition(":")[0] for address in state["addresses"]] == ["http", "https"]
    assert host.public.get("/v1/models", headers={"origin": "https://a.example"}).status_code == 200
    host.public.post("/v1/completions", json={"model": "fake", "prompt": "say 1"})
    assert SettingsFile(host.data.settings_file).current.api == ApiOptions()
    host.close()
    assert "/v1/completions" in host.data.request_log_file.read_text()
    with pytest.raises(BadRequest, match="is not a web origin"):
        make_host(api_options=ApiOptions(allowed_origins=("*",)), api_only=frozenset({"allowed_origins"}))
