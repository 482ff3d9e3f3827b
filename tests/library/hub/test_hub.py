import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from runtime.errors import BadRequest, HubFault, HubNotFound, HubOffline, HubRefused
from runtime.library.hub.hub import Hub
from runtime.library.hub.tokens import TokenStore
from runtime.library.hub.transport import Place, Timeouts
from runtime.messages.api import InstalledModel
from runtime.messages.library import HubModelRequest, HubSearch
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.fakes.download_rig import NoKeyring, hub_for
from tests.fakes.fake_hub import TOKEN, FakeHub, FakeRepo, Refusal


def repo(**changes: object) -> FakeRepo:
    files = {"M-Q4_K_M.gguf": b"q" * 4000, "M-Q8_0.gguf": b"p" * 8000, "README.md": b"---\nx: y\n---\n# Hello\n"}
    return replace(FakeRepo(files), **changes)  # type: ignore[arg-type]


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    repos = {
        "acme/Tiny-Chat-GGUF": repo(downloads=30, likes=1),
        "acme/Big-Vision-i1-GGUF": repo(
            downloads=20,
            likes=9,
            pipeline_tag="image-text-to-text",
            gguf={"total": 70_000_000_000, "architecture": "qwen3vl", "context_length": 4096},
        ),
        "other/embed.gguf": repo(
            downloads=10,
            pipeline_tag="sentence-similarity",
            gguf={"total": 30_000_000, "architecture": "bert", "context_length": 512},
        ),
        "other/Odd-GGUF": repo(downloads=5, gguf=None, pipeline_tag=None, tags=[], gated="auto"),
    }
    with FakeHub(repos) as hub:
        yield hub


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


@pytest.fixture
def hub(fake: FakeHub, data: DataFolder) -> Iterator[Hub]:
    hub = hub_for(fake, data)
    yield hub
    hub.close()


def found(hub: Hub, request: HubSearch) -> list[str]:
    return [entry.repo for entry in hub.search(request).entries]


# --- search -------------------------------------------------------------------------------------------------


def test_everything_when_searched_then_entries_tell_what_the_hub_knows(hub: Hub) -> None:
    page = hub.search(HubSearch(sort="downloads"))
    assert page.offline == ""
    assert [entry.name for entry in page.entries] == ["Tiny-Chat", "Big-Vision", "embed", "Odd"]
    first = page.entries[0]
    assert (first.publisher, first.downloads, first.likes) == ("acme", 30, 1)
    assert (first.architecture, first.n_params, first.n_ctx_train) == ("llama", 135_000_000, 8192)
    assert first.licence == "apache-2.0"
    assert first.updated_s == 1754413200.0
    assert [entry.kind for entry in page.entries] == ["chat", "vision", "embedding", "chat"]
    assert [entry.is_gated for entry in page.entries] == [False, False, False, True]
    odd = page.entries[3]
    assert (odd.n_params, odd.architecture, odd.licence) == (None, "", "")


@pytest.mark.parametrize(
    ("request_", "repos"),
    [
        (HubSearch("tiny"), ["acme/Tiny-Chat-GGUF"]),
        (HubSearch(author="other"), ["other/embed.gguf", "other/Odd-GGUF"]),
        (HubSearch(kind="vision"), ["acme/Big-Vision-i1-GGUF"]),
        (HubSearch(kind="embedding"), ["other/embed.gguf"]),
        (HubSearch(architecture="LLAMA"), ["acme/Tiny-Chat-GGUF"]),
        (HubSearch(max_params=10**9), ["acme/Tiny-Chat-GGUF", "other/embed.gguf"]),
        (HubSearch("nothing at all"), []),
    ],
)
def test_filter_when_searched_then_only_what_matches_is_found(hub: Hub, request_: HubSearch, repos: list[str]) -> None:
    assert found(hub, request_) == repos


def test_order_when_searched_then_the_hub_sorts(hub: Hub, fake: FakeHub) -> None:
    assert found(hub, HubSearch(sort="likes"))[0] == "acme/Big-Vision-i1-GGUF"
    for sort, asked in (("trending", "trendingScore"), ("updated", "lastModified"), ("downloads", "downloads")):
        hub.search(HubSearch(sort=sort))  # type: ignore[arg-type]
        assert f"sort={asked}" in fake.asked[-1].path


def test_pages_when_followed_then_every_entry_comes_once(hub: Hub) -> None:
    first = hub.search(HubSearch(limit=3))
    assert len(first.entries) == 3
    second = hub.search(HubSearch(limit=3, cursor=first.cursor))
    assert second.cursor == ""
    repos = [entry.repo for entry in (*first.entries, *second.entries)]
    assert len(repos) == len(set(repos)) == 4


def test_filter_that_leaves_out_most_when_searched_then_further_pages_are_read(hub: Hub, fake: FakeHub) -> None:
    assert found(hub, HubSearch(kind="embedding", limit=1)) == ["other/embed.gguf"]
    assert len(fake.asked) == 3


@pytest.mark.parametrize("cursor", ["a b", "x\n", "<>", "http://elsewhere/?q=1", "ä"])
def test_cursor_that_is_not_ours_when_searched_then_it_is_refused(hub: Hub, cursor: str) -> None:
    with pytest.raises(BadRequest, match="next page"):
        hub.search(HubSearch(cursor=cursor))


# --- offline ------------------------------------------------------------------------------------------------


def test_hub_that_is_away_when_searched_then_the_catalogue_answers_and_says_why(hub: Hub, fake: FakeHub) -> None:
    fake.stop()
    page = hub.search(HubSearch("qwen3 coder"))
    assert [entry.repo for entry in page.entries] == ["unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF"]
    assert "cannot be reached" in page.offline
    fake.start()
    assert hub.search(HubSearch("tiny")).offline == ""


def test_hub_in_trouble_when_searched_then_the_catalogue_answers(hub: Hub, fake: FakeHub) -> None:
    fake.api_refusals.append(Refusal(503))
    assert "503" in hub.search(HubSearch()).offline


def test_too_many_questions_when_searched_then_that_is_said(hub: Hub, fake: FakeHub) -> None:
    fake.api_refusals.append(Refusal(429, {"Retry-After": "60"}))
    with pytest.raises(HubFault, match="too often"):
        hub.search(HubSearch())


def test_offline_when_chosen_then_the_hub_is_not_asked(hub: Hub, fake: FakeHub) -> None:
    hub.configure(ModelsOptions(hub_endpoint=fake.endpoint, offline=True))
    assert "set to stay offline" in hub.search(HubSearch()).offline
    with pytest.raises(HubOffline):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    with pytest.raises(HubOffline), hub.open_file(Place("acme/Tiny-Chat-GGUF", "main", "README.md")):
        pass
    assert fake.asked == []
    hub.configure(ModelsOptions(hub_endpoint=fake.endpoint))
    assert hub.model(HubModelRequest("acme/Tiny-Chat-GGUF")).files


def test_picks_when_asked_for_then_nothing_is_fetched(hub: Hub, fake: FakeHub) -> None:
    assert len(hub.picks().entries) >= 40
    assert fake.asked == []


@pytest.mark.parametrize(
    "endpoint", ["ftp://x", "nonsense", "http://", "https://u:p@x", "http://x?y=1", "http://x:99999"]
)
def test_address_that_is_none_when_set_then_it_is_refused(data: DataFolder, endpoint: str) -> None:
    with pytest.raises(BadRequest, match="no address of a hub"):
        Hub(data, ModelsOptions(hub_endpoint=endpoint))


def test_mirror_when_set_then_it_is_asked_from_then_on(hub: Hub, fake: FakeHub) -> None:
    with FakeHub({"mirror/Only-GGUF": repo()}) as mirror:
        hub.configure(ModelsOptions(hub_endpoint=f"{mirror.endpoint}/"))
        assert hub.endpoint == mirror.endpoint
        assert found(hub, HubSearch()) == ["mirror/Only-GGUF"]
    assert fake.asked == []


def test_page_seen_before_when_the_hub_is_away_then_it_is_shown_and_says_why(hub: Hub, fake: FakeHub) -> None:
    hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    hub.configure(ModelsOptions(hub_endpoint=fake.endpoint, offline=True))
    model = hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    assert len(model.files) == 2
    assert "stay offline" in model.offline
    with pytest.raises(HubOffline, match="stay offline"):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"), fresh=True)
    assert hub.find_file("acme/Tiny-Chat-GGUF", "Q8_0")[1].size_bytes == 8000


def test_page_of_a_pick_when_the_hub_is_away_then_the_catalogue_tells_what_it_knows(hub: Hub, fake: FakeHub) -> None:
    fake.stop()
    model = hub.model(HubModelRequest("ggml-org/gpt-oss-20b-GGUF"))
    assert model.entry.architecture == "gpt-oss"
    assert model.files == ()
    assert "cannot be reached" in model.offline
    with pytest.raises(HubOffline, match="cannot be reached"):
        hub.find_file("ggml-org/gpt-oss-20b-GGUF", "MXFP4")


def test_page_of_another_model_when_the_hub_is_away_then_it_says_so(hub: Hub, fake: FakeHub) -> None:
    fake.stop()
    with pytest.raises(HubOffline, match="cannot be reached"):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))


def test_address_of_a_page_when_searched_then_the_repository_is_found(hub: Hub) -> None:
    assert found(hub, HubSearch("https://hub.test/acme/Tiny-Chat-GGUF/tree/main")) == ["acme/Tiny-Chat-GGUF"]


# --- pages --------------------------------------------------------------------------------------------------


def test_page_when_opened_then_it_has_files_with_sizes_and_hashes(hub: Hub, fake: FakeHub) -> None:
    model = hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    assert model.commit == "a" * 40
    assert model.description == "# Hello"
    assert [(file.quantization, file.size_bytes) for file in model.files] == [("Q8_0", 8000), ("Q4_K_M", 4000)]
    assert model.files[0].sha256 == (fake.repos["acme/Tiny-Chat-GGUF"].sha256("M-Q8_0.gguf"),)


def test_page_when_opened_again_then_it_is_remembered_until_asked_fresh(hub: Hub, fake: FakeHub) -> None:
    hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    n_asked = len(fake.asked)
    hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    assert len(fake.asked) == n_asked
    fake.repos["acme/Tiny-Chat-GGUF"].commit = "b" * 40
    assert hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"), fresh=True).commit == "b" * 40


def test_long_list_when_opened_then_all_of_its_pages_are_read(hub: Hub, fake: FakeHub) -> None:
    fake.page_size = 2
    assert len(hub.model(HubModelRequest("acme/Tiny-Chat-GGUF")).files) == 2


def test_page_without_a_text_when_opened_then_it_has_none(hub: Hub, fake: FakeHub) -> None:
    del fake.repos["acme/Tiny-Chat-GGUF"].files["README.md"]
    assert hub.model(HubModelRequest("acme/Tiny-Chat-GGUF")).description == ""


def test_repository_that_is_not_there_when_opened_then_it_says_so(hub: Hub) -> None:
    with pytest.raises(HubNotFound, match="no repository acme/Nothing"):
        hub.model(HubModelRequest("acme/Nothing"))
    with pytest.raises(HubNotFound, match="no such revision"):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF", "v9"))
    with pytest.raises(BadRequest):
        hub.model(HubModelRequest("../etc/passwd"))


@pytest.mark.parametrize("wanted", ["M-Q4_K_M.gguf", "Q4_K_M", "q4_k_m"])
def test_file_when_looked_for_by_name_or_quantization_then_it_is_found(hub: Hub, wanted: str) -> None:
    assert hub.find_file("acme/Tiny-Chat-GGUF", wanted)[1].quantization == "Q4_K_M"


def test_file_on_this_machine_when_listed_then_it_is_marked(fake: FakeHub, data: DataFolder) -> None:
    sha256 = fake.repos["acme/Tiny-Chat-GGUF"].sha256("M-Q8_0.gguf")
    here = [
        InstalledModel("ours", "M", "/x/acme/Tiny-Chat-GGUF/M-Q4_K_M.gguf", 4000),
        InstalledModel("ollama", "M", f"/home/o/.ollama/models/blobs/sha256-{sha256}", 8000),
        InstalledModel("cache", "E", "/c/models--other--embed.gguf/snapshots/abc/M-Q8_0.gguf", 8000),
    ]
    tokens = TokenStore(data, keyring=NoKeyring(), use_environment=False)
    hub = Hub(data, ModelsOptions(hub_endpoint=fake.endpoint), tokens=tokens, installed=lambda: here)
    model = hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    assert {file.quantization: file.installed_id for file in model.files} == {"Q8_0": "ollama", "Q4_K_M": "ours"}
    assert model.entry.is_installed
    assert {entry.repo: entry.is_installed for entry in hub.search(HubSearch()).entries} == {
        "acme/Tiny-Chat-GGUF": True,
        "acme/Big-Vision-i1-GGUF": False,
        "other/embed.gguf": True,
        "other/Odd-GGUF": False,
    }
    hub.close()


# --- answers that are nonsense ------------------------------------------------------------------------------


def served(body: bytes, data: DataFolder) -> tuple[FakeHub, Hub]:
    fake = FakeHub()
    fake.fixed_answer = body
    fake.start()
    return fake, hub_for(fake, data)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Please sign in to this network</html>", b"{}", b'"text"', b"[" * 5000, b"\xff\xfe", b"null"]
)
def test_answer_that_is_no_list_when_searched_then_it_is_an_error_in_words(data: DataFolder, body: bytes) -> None:
    fake, hub = served(body, data)
    with pytest.raises(HubFault, match="not understood") as caught:
        hub.search(HubSearch())
    assert fake.endpoint in caught.value.message
    with pytest.raises(HubFault):
        hub.model(HubModelRequest("acme/Tiny"))
    hub.close()
    fake.stop()


def test_odd_entries_when_listed_then_they_do_not_hide_the_others(data: DataFolder) -> None:
    entries: Sequence[object] = [
        {"id": 5}, "x", None, {"id": "a/Good-GGUF", "gguf": {"total": 7}}, {"id": "no slash"}, {"id": "../../x"},
        {"id": "a/b", "downloads": "many"},
    ]  # fmt: skip
    fake, hub = served(json.dumps(entries).encode(), data)
    assert found(hub, HubSearch()) == ["a/Good-GGUF"]
    hub.close()
    fake.stop()


def test_answer_without_end_when_searched_then_it_is_cut_off(data: DataFolder) -> None:
    fake, hub = served(b"[" + b" " * (33 * 1024 * 1024), data)
    with pytest.raises(HubFault, match="far too long"):
        hub.search(HubSearch())
    hub.close()
    fake.stop()


def test_silence_when_searched_then_the_catalogue_answers_after_the_timeout(fake: FakeHub, data: DataFolder) -> None:
    tokens = TokenStore(data, keyring=NoKeyring(), use_environment=False)
    options = ModelsOptions(hub_endpoint=fake.endpoint)
    hub = Hub(data, options, tokens=tokens, timeouts=Timeouts(connect_s=1.0, read_s=0.2))
    fake.holds_answers = True
    assert "did not answer in time" in hub.search(HubSearch()).offline
    fake.holds_answers = False
    hub.close()


# --- account ------------------------------------------------------------------------------------------------


def test_nobody_when_asked_who_then_nobody_is_signed_in(hub: Hub, fake: FakeHub) -> None:
    account = hub.account()
    assert not account.signed_in
    assert account.endpoint == fake.endpoint
    assert fake.asked == []


def test_token_that_the_hub_knows_when_signed_in_then_the_name_is_told_and_private_models_open(
    hub: Hub, fake: FakeHub
) -> None:
    fake.repos["acme/Tiny-Chat-GGUF"].private = True
    with pytest.raises(HubNotFound):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    account = hub.sign_in(f" {TOKEN}\n")
    assert (account.signed_in, account.name) == (True, "tester")
    assert "only you can read" in account.problem
    assert hub.model(HubModelRequest("acme/Tiny-Chat-GGUF")).files
    assert not hub.sign_in("").signed_in
    with pytest.raises(HubNotFound):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))


def test_token_that_the_hub_does_not_know_when_signed_in_then_nothing_is_kept(hub: Hub, data: DataFolder) -> None:
    with pytest.raises(HubRefused):
        hub.sign_in("hf_wrong")
    assert not hub.account().signed_in
    assert list(data.root.iterdir()) == []


@pytest.mark.parametrize("token", ["two words", "hf_ü", "hf_\x00"])
def test_token_that_cannot_be_one_when_signed_in_then_it_is_refused(hub: Hub, fake: FakeHub, token: str) -> None:
    with pytest.raises(BadRequest, match="no access token"):
        hub.sign_in(token)
    assert fake.asked == []


def test_token_that_was_revoked_when_asked_who_then_the_problem_is_told(hub: Hub, data: DataFolder) -> None:
    TokenStore(data, keyring=NoKeyring(), use_environment=False).keep(hub.endpoint, "hf_revoked")
    account = hub.account()
    assert not account.signed_in
    assert account.problem


def test_hub_away_when_asked_who_then_the_person_stays_signed_in(hub: Hub, fake: FakeHub) -> None:
    hub.sign_in(TOKEN)
    fake.stop()
    account = hub.account()
    assert account.signed_in
    assert "cannot be reached" in account.problem


def test_closed_when_asked_then_it_ends_at_once(hub: Hub) -> None:
    hub.close()
    with pytest.raises(HubOffline, match="closing"):
        hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))


def test_page_when_crossing_a_border_then_it_is_the_same(hub: Hub) -> None:
    model = hub.model(HubModelRequest("acme/Tiny-Chat-GGUF"))
    assert msgspec.json.decode(msgspec.json.encode(model), type=type(model)) == model


def told_by(environment: dict[str, str], tmp_path: Path) -> str:
    """What a new process with these variables says of its hub."""
    script = f"""
from pathlib import Path
from runtime.library.hub.hub import Hub
from runtime.messages.library import HubSearch
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
hub = Hub(DataFolder(Path({str(tmp_path)!r})), ModelsOptions())
print(hub.endpoint, hub.search(HubSearch("x")).offline)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | environment,
    )
    return ran.stdout


def test_mirror_of_the_environment_when_nothing_else_is_set_then_it_is_asked(fake: FakeHub, tmp_path: Path) -> None:
    assert told_by({"HF_ENDPOINT": fake.endpoint}, tmp_path).strip() == fake.endpoint
    assert len(fake.asked) == 1


def test_offline_by_environment_when_searched_then_the_hub_is_not_asked(fake: FakeHub, tmp_path: Path) -> None:
    told = told_by({"HF_ENDPOINT": fake.endpoint, "HF_HUB_OFFLINE": "1"}, tmp_path)
    assert "stay offline" in told
    assert fake.asked == []
