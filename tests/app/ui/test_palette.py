from app.ui.frame.palette import fuzzy_score


def test_when_letters_are_not_in_order_then_there_is_no_match() -> None:
    assert fuzzy_score("xyz", "Hardware") is None
    assert fuzzy_score("ah", "ha") is None


def test_when_words_begin_with_the_letters_then_they_win() -> None:
    new, renew = fuzzy_score("nc", "New chat"), fuzzy_score("nc", "Renew once")
    assert new is not None
    assert renew is not None
    assert new > renew


def test_when_letters_stand_together_then_they_win() -> None:
    run, spread = fuzzy_score("model", "Choose a model"), fuzzy_score("model", "Move older deleted")
    assert run is not None
    assert spread is None or run > spread


def test_when_nothing_is_wanted_then_everything_matches() -> None:
    assert fuzzy_score("", "Anything") == 0
