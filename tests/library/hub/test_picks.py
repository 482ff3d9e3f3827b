from runtime.gguf.known import KNOWN_ARCHITECTURES
from runtime.library.hub.names import check_repo
from runtime.library.hub.picks import find_picks, load_picks
from runtime.messages.library import HubSearch


def test_catalogue_when_read_then_every_pick_is_whole_and_there_once() -> None:
    picks = load_picks()
    assert len(picks) >= 40
    assert len({pick.repo for pick in picks}) == len(picks)
    for pick in picks:
        check_repo(pick.repo)
        assert pick.note.endswith(".")
        assert len(pick.note) <= 90
        assert pick.kind in ("chat", "vision", "embedding")
        assert 10**8 <= pick.n_params < 10**12
        assert 2048 <= pick.n_ctx_train <= 2**20
        assert pick.n_params_active is None or pick.n_params_active < pick.n_params


def test_catalogue_when_read_then_it_has_small_and_large_models_of_every_kind() -> None:
    picks = load_picks()
    assert picks == tuple(sorted(picks, key=lambda pick: pick.n_params))
    for kind in ("chat", "vision", "embedding"):
        assert any(pick.kind == kind and pick.n_params < 10**9 for pick in picks)
    assert any(pick.n_params > 10**11 for pick in picks)


def test_words_when_searched_in_the_catalogue_then_all_of_them_must_match() -> None:
    assert {entry.repo for entry in find_picks(HubSearch("coder qwen3"))} == {
        "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF"
    }
    assert find_picks(HubSearch("there is no such model")) == ()


def test_filters_when_searched_in_the_catalogue_then_they_hold() -> None:
    found = find_picks(HubSearch(kind="embedding", max_params=400_000_000))
    assert found
    assert all(entry.kind == "embedding" and (entry.n_params or 0) <= 400_000_000 for entry in found)
    assert all(entry.architecture == "gpt-oss" for entry in find_picks(HubSearch(architecture="gpt-oss")))
    assert all(entry.publisher == "ggml-org" for entry in find_picks(HubSearch(author="ggml-org")))


def test_architectures_of_the_catalogue_when_compared_then_the_built_in_engine_knows_them() -> None:
    assert {pick.architecture for pick in load_picks()} <= KNOWN_ARCHITECTURES
