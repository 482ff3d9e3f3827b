"""The server page: switch, addresses, keys with limits, settings, texts for programs."""

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QWidget
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.server.keys_card import KeyDialog, limit_words, used_words
from app.ui.server.page import ServerPage
from app.ui.server.snippets import KEY_PLACE, Target, programs
from app.ui.server.words import base_url
from runtime.messages.api import ApiChanged, ApiKeyInfo, ApiState, Certificate
from runtime.options import ApiOptions, KeyLimits
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.fake_host import FakeHost
from tests.support.widgets import texts


def press(parent: QWidget, name: str) -> None:
    found = [one for one in parent.findChildren(QAbstractButton) if name in (one.accessibleName(), one.text())]
    assert found, name
    found[0].click()


def test_when_the_api_is_turned_on_then_every_dialect_has_its_address_to_copy(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost, context: AppContext
) -> None:
    fake_host.api = msgspec.structs.replace(fake_host.api, dialects=("openai", "anthropic", "ollama", "llama.cpp"))
    assert "The API is off" in texts(page)
    QTest.mouseClick(page.switch.switch, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: context.link.api is not None and context.link.api.running, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "The API is on" in texts(page), timeout=WAIT_MS)
    root = fake_host.api.addresses[0].removesuffix("/v1")
    assert "OpenAI, Anthropic, Ollama, llama-server" in texts(page.switch)
    press(page.switch, f"Copy {fake_host.api.addresses[0]}")
    assert QGuiApplication.clipboard().text() == fake_host.api.addresses[0]
    page.show_tab("connect")
    for words in ("OpenAI", f"{root}/v1", "Anthropic", "Ollama", "llama-server"):
        assert words in texts(page.dialects).split("\n")
    press(page.dialects, f"Copy {root}/v1")
    assert QGuiApplication.clipboard().text() == f"{root}/v1"
    assert page.connect_card.text.startswith(f"curl {root}/v1/chat/completions")
    assert fake_host.installed[0].id in page.connect_card.text
    page.connect_card.choose("Python")
    assert "from openai import OpenAI" in page.connect_card.text
    press(page.connect_card, "Copy the text")
    assert QGuiApplication.clipboard().text() == page.connect_card.text


def test_when_an_address_is_told_then_each_dialect_gets_the_form_it_wants() -> None:
    for given in ("http://a:1", "http://a:1/", "http://a:1/v1"):
        assert base_url("openai", given) == base_url("responses", given) == "http://a:1/v1"
        assert base_url("anthropic", given) == base_url("ollama", given) == base_url("llama.cpp", given) == "http://a:1"


def test_when_the_local_network_is_allowed_then_a_warning_asks_for_a_key_and_then_for_encryption(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost
) -> None:
    page.show_tab("settings")
    page.options.lan.click()
    qtbot.waitUntil(lambda: fake_host.api.options.host == "0.0.0.0", timeout=WAIT_MS)
    qtbot.waitUntil(page.switch.warning.isVisible, timeout=WAIT_MS)
    assert "make an API key" in page.switch.warning_text.text()
    page.keys.make_key("Laptop")
    qtbot.waitUntil(lambda: "encryption" in page.switch.warning_text.text(), timeout=WAIT_MS)


def test_when_a_key_is_made_then_it_is_shown_once_limited_and_revoked(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost, context: AppContext
) -> None:
    page.show_tab("keys")
    page.keys.make_key("Editor", KeyLimits(requests_per_minute=30))
    qtbot.waitUntil(page.keys.new_key.isVisible, timeout=WAIT_MS)
    assert page.keys.key
    assert page.keys.key in page.keys.new_key_text.text()
    qtbot.waitUntil(lambda: "30 requests a minute" in texts(page.keys), timeout=WAIT_MS)
    press(page.keys.new_key, "Done")
    assert page.keys.key == ""
    page.keys.set_limits("Editor", KeyLimits(max_concurrent=2))
    qtbot.waitUntil(lambda: "never used · 2 at once" in texts(page.keys), timeout=WAIT_MS)
    # Use is not told by events: the page asks.
    (key,) = fake_host.api.keys
    used = msgspec.structs.replace(key, used_s=1.0, n_requests=12, n_tokens=3400, n_tokens_today=400)
    fake_host.api = msgspec.structs.replace(fake_host.api, keys=(used,))
    qtbot.waitUntil(lambda: "12 requests · 3,400 tokens, 400 of them today" in texts(page.keys), timeout=WAIT_MS)
    press(page.keys, "Delete the key Editor")
    qtbot.waitUntil(lambda: not fake_host.api.keys, timeout=WAIT_MS)
    del context


def test_when_the_last_key_of_an_open_api_is_deleted_then_it_is_asked_before(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost, context: AppContext
) -> None:
    page.show_tab("keys")
    page.keys.make_key("Phone")
    qtbot.waitUntil(lambda: "sk-Phone" in texts(page.keys), timeout=WAIT_MS)
    page.keys.make_key("Laptop")
    qtbot.waitUntil(lambda: "sk-Laptop" in texts(page.keys), timeout=WAIT_MS)
    context.link.set_api(ApiOptions(enabled=True, host="0.0.0.0"))
    qtbot.waitUntil(lambda: context.link.api is not None and context.link.api.running, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "Phone" in texts(page.keys), timeout=WAIT_MS)
    press(page.keys, "Delete the key Phone")
    qtbot.waitUntil(lambda: len(fake_host.api.keys) == 1, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "Phone" not in texts(page.keys), timeout=WAIT_MS)
    press(page.keys, "Delete the key Laptop")
    assert page.keys.question.isVisible()
    assert "without it the API goes off" in texts(page.keys.question)
    press(page.keys.question, "Keep it")
    assert not page.keys.question.isVisible()
    assert len(fake_host.api.keys) == 1
    press(page.keys, "Delete the key Laptop")
    press(page.keys.question, "Delete it")
    qtbot.waitUntil(lambda: not fake_host.api.keys, timeout=WAIT_MS)


def test_when_limits_are_asked_for_then_nothing_entered_means_no_limit(page: ServerPage) -> None:
    dialog = KeyDialog("New", "", KeyLimits(tokens_per_day=1000), page)
    assert not dialog._ok.isEnabled()
    dialog.name.setText("a/b")
    assert not dialog._ok.isEnabled()
    dialog.name.setText("Editor 2.0")
    assert dialog._ok.isEnabled()
    assert dialog.limits == KeyLimits(tokens_per_day=1000)
    dialog.fields["tokens_per_day"].setValue(0)
    dialog.fields["max_concurrent"].setValue(3)
    assert dialog.limits == KeyLimits(max_concurrent=3)
    dialog.deleteLater()


def test_when_a_key_was_used_then_the_time_is_told_in_words() -> None:
    def words(ago_s: float) -> str:
        return used_words(ApiKeyInfo("a", 0.0, used_s=1_000_000.0), 1_000_000.0 + ago_s)

    assert [words(5), words(125), words(7_300), words(90_000 * 2)] == [
        "used just now",
        "used 2 min ago",
        "used 2 h ago",
        "used 2 days ago",
    ]
    assert used_words(ApiKeyInfo("a", 0.0), 5.0) == "never used"
    assert limit_words(KeyLimits()) == "no limits"


def test_when_settings_are_changed_then_the_host_is_told(qtbot: QtBot, page: ServerPage, fake_host: FakeHost) -> None:
    page.show_tab("settings")
    options = page.options
    options.port.setValue(4321)
    options.on_port()
    qtbot.waitUntil(lambda: fake_host.api.options.port == 4321, timeout=WAIT_MS)
    options.origins.setText("https://a.example, https://b.example")
    options.origins.editingFinished.emit()
    qtbot.waitUntil(
        lambda: fake_host.api.options.allowed_origins == ("https://a.example", "https://b.example"), timeout=WAIT_MS
    )
    options.log.activated.emit(options.log.findData("metadata"))
    qtbot.waitUntil(lambda: fake_host.api.options.request_log == "metadata", timeout=WAIT_MS)
    options.pictures.click()
    qtbot.waitUntil(lambda: fake_host.api.options.fetch_pictures, timeout=WAIT_MS)
    options.keep.click()
    qtbot.waitUntil(lambda: fake_host.api.options.keep_when_window_closes, timeout=WAIT_MS)


def test_when_encryption_is_chosen_then_own_goes_at_once_and_files_wait_for_both(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost
) -> None:
    page.show_tab("settings")
    options = page.options
    options.tls.activated.emit(options.tls.findData("own"))
    qtbot.waitUntil(lambda: fake_host.api.options.tls == "own", timeout=WAIT_MS)
    fake_host.emit(
        ApiChanged(
            ApiState(
                ApiOptions(enabled=True, tls="own"),
                True,
                ("https://127.0.0.1:1234",),
                certificate=Certificate("AB:CD", 1_800_000_000.0, ("localhost", "127.0.0.1"), "/c.pem", is_own=True),
            )
        )
    )
    qtbot.waitUntil(lambda: "AB:CD" in options.fingerprint.text(), timeout=WAIT_MS)
    assert "For localhost, 127.0.0.1; valid until 2027-01-1" in texts(options)
    assert options._shown_certificate.isVisible()
    options.tls.setCurrentIndex(options.tls.findData("files"))
    options.tls.activated.emit(options.tls.findData("files"))
    assert options.certificate.isVisible()
    assert fake_host.api.options.tls == "own"
    options.key.setText("/k.pem")
    options.certificate.setText("/c.pem")
    options.certificate.editingFinished.emit()
    qtbot.waitUntil(lambda: fake_host.api.options.tls == "files", timeout=WAIT_MS)
    assert fake_host.api.options.certificate_file == "/c.pem"
    assert fake_host.api.options.key_file == "/k.pem"


def test_when_a_text_for_a_program_is_made_then_it_has_address_model_and_key() -> None:
    target = Target("https://127.0.0.1:1", "some-model", "Some Model", 8192, with_key=True)
    plain = Target("https://127.0.0.1:1", "some-model", "Some Model", 8192, with_key=False)
    assert len({one.name for one in programs()}) == len(programs())
    for program in programs():
        text = program.make(target)
        assert "https://127.0.0.1:1" in text, program.name
        assert program.name == "Open WebUI" or "some-model" in text, program.name
        assert KEY_PLACE not in program.make(plain), program.name
        assert program.where
    by_name = {one.name: one.make(target) for one in programs()}
    assert f"ANTHROPIC_BASE_URL=https://127.0.0.1:1\nexport ANTHROPIC_AUTH_TOKEN={KEY_PLACE}" in by_name["Claude Code"]
    zed = msgspec.json.decode(by_name["Zed"])
    provider = zed["language_models"]["openai_compatible"]["Deskside"]
    assert provider["api_url"] == "https://127.0.0.1:1/v1"
    assert provider["available_models"] == [{"name": "some-model", "display_name": "Some Model", "max_tokens": 8192}]
