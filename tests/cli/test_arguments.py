from pathlib import Path

import pytest

from runtime.cli.arguments import ENV_API_KEY, build_parser, parse
from runtime.cli.values import option_sentence
from runtime.options import ApiOptions, LoadOptions


def refused(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_when_nothing_is_given_then_there_is_no_command_and_nothing_is_chosen() -> None:
    parsed = parse([])
    assert parsed.command is None
    assert parsed.data_dir is None
    assert not parsed.debug


def test_when_the_data_folder_is_given_before_the_command_then_it_is_kept() -> None:
    assert parse(["--data-dir", "d", "models"]).data_dir == "d"
    assert parse(["models", "--data-dir", "d"]).data_dir == "d"
    assert parse(["--debug", "doctor"]).debug


@pytest.mark.parametrize("option", ["--model", "--api-key", "--host", "--data-dir"])
def test_when_a_value_is_empty_then_it_is_refused_not_taken_for_the_default(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused("serve", option, "") == 2
    assert "empty" in capsys.readouterr().err


@pytest.mark.parametrize("key", [" ", "key ", "schl\u00fcssel", "a\nb"])
def test_when_no_client_could_send_the_key_then_it_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused("serve", "--api-key", key) == 2
    monkeypatch.setenv(ENV_API_KEY, key)
    assert refused("serve") == 2
    assert "key" in capsys.readouterr().err


def test_when_serve_is_given_options_then_they_are_typed() -> None:
    parsed = parse(["serve", "--port", "0", "--ctx", "8192", "--parallel", "4", "--gpu-layers", "12"])
    assert parsed.port == 0
    assert parsed.host == "127.0.0.1"
    assert parsed.load_options == LoadOptions(n_ctx=8192, n_parallel=4, n_gpu_layers=12)


def test_when_no_load_option_is_given_then_the_remembered_ones_hold() -> None:
    assert parse(["serve"]).load_options is None
    assert parse(["serve"]).load_only == frozenset()


@pytest.mark.parametrize(
    ("words", "options", "names"),
    [
        (["--ctx", "4096"], LoadOptions(n_ctx=4096), {"n_ctx"}),
        (["--gpu-layers", "auto", "--ctx", "auto"], LoadOptions(), {"n_gpu_layers", "n_ctx"}),
        (["--rope-freq-base", "auto"], LoadOptions(), {"rope_freq_base"}),
        (["--draft-model", "none", "--lora", "none"], LoadOptions(), {"draft_model", "lora"}),
    ],
)
@pytest.mark.parametrize("command", ["serve", "chat"])
def test_when_load_options_are_given_then_only_those_are_named(
    command: str, words: list[str], options: LoadOptions, names: set[str]
) -> None:
    parsed = parse([command, *words])
    assert (parsed.load_options, parsed.load_only) == (options, names)


def test_when_serve_is_told_how_to_serve_then_only_that_is_named(tmp_path: Path) -> None:
    assert parse(["serve"]).api_only == frozenset()
    parsed = parse(
        ["serve", "--tls", "own", "--request-log", "metadata", "--allow-origin", "https://a.example",
         "--allow-origin", "https://b.example", "--allow-host", "pc.lan", "--no-fetch-pictures"]
    )  # fmt: skip
    assert parsed.api_options == ApiOptions(
        tls="own",
        request_log="metadata",
        allowed_origins=("https://a.example", "https://b.example"),
        allowed_hosts=("pc.lan",),
    )
    assert parsed.api_only == {"tls", "request_log", "allowed_origins", "allowed_hosts", "fetch_pictures"}
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    parsed = parse(["serve", "--certificate", str(tmp_path / "cert.pem"), "--key-file", str(tmp_path / "key.pem")])
    assert parsed.api_options.tls == "files"
    assert parsed.api_only == {"tls", "certificate_file", "key_file"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tls", "maybe"], "maybe"),
        (["--certificate", "nowhere.pem"], "there is no file 'nowhere.pem'"),
        (["--certificate", __file__], "--certificate and --key-file go together"),
        (["--tls", "off", "--certificate", __file__, "--key-file", __file__], "does not go with --certificate"),
    ],
)
def test_when_serve_cannot_serve_so_then_a_sentence_says_why(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused("serve", *words) == 2
    assert said in capsys.readouterr().err


def test_when_serve_is_told_who_guesses_and_what_is_stored_then_the_load_options_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eyes.gguf").touch()
    monkeypatch.chdir(tmp_path)
    words = ["serve", "--speculation", "lookup", "--draft-model", "small", "--projector", "eyes.gguf"]

    options = parse([*words, "--disk-cache-bytes", "0"]).load_options

    eyes = str(tmp_path / "eyes.gguf")
    assert options == LoadOptions(speculation="lookup", draft_model="small", projector=eyes, disk_cache_bytes=0)


def test_when_the_models_own_heads_are_to_guess_then_the_load_options_say_so() -> None:
    assert parse(["serve", "--speculation", "mtp"]).load_options == LoadOptions(speculation="mtp")


def test_when_chat_is_given_sampling_then_the_rest_keeps_its_defaults() -> None:
    options = parse(["chat", "why", "--temperature", "0", "--max-tokens", "9"]).generate_options
    assert options.max_tokens == 9
    assert options.sampling.temperature == 0
    assert options.sampling.top_k == 40


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--port", "65536"),
        ("serve", "--port", "-1"),
        ("serve", "--port", "http"),
        ("serve", "--ctx", "12"),
        ("serve", "--ctx", "many"),
        ("serve", "--parallel", "0"),
        ("serve", "--gpu-layers", "all"),
        ("serve", "--gpu-layers", "-1"),
        ("chat", "--temperature", "11"),
        ("chat", "--temperature", "nan"),
        ("chat", "--top-p", "1.5"),
        ("chat", "--seed", "-3"),
        ("chat", "--reasoning", "maybe"),
        ("fly",),
        ("models", "--nonsense"),
    ],
)
def test_when_a_value_is_wrong_then_the_code_is_2_and_a_sentence_says_why(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(*words) == 2
    said = capsys.readouterr().err
    assert words[-1] in said
    assert "--help" in said
    assert "Traceback" not in said


def test_when_a_number_is_out_of_range_then_the_flag_and_its_range_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    refused("serve", "--ctx", "12")
    assert "--ctx 12 is out of range" in capsys.readouterr().err
    assert "At least 256" in option_sentence(LoadOptions, "n_ctx")


@pytest.mark.parametrize("words", [(), ("serve",), ("chat",), ("models",), ("hardware",), ("doctor",)])
def test_when_help_is_asked_for_then_it_can_be_formatted(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([*words, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--data-dir" in said
    if words in {(), ("serve",), ("chat",)}:
        assert "examples:" in said


def test_when_fit_is_given_a_cache_type_then_it_holds_for_both_halves() -> None:
    options = parse(["fit", "m", "--ctx", "4096", "--kv", "q8_0", "--slots", "2", "--cpu-moe", "auto"]).load_options
    assert options == LoadOptions(n_ctx=4096, n_parallel=2, type_k="q8_0", type_v="q8_0")


@pytest.mark.parametrize("words", [("fit", "m"), ("models", "info", "m"), ("models", "pull", "o/r")])
def test_when_a_plan_is_given_no_options_then_all_is_automatic(words: tuple[str, ...]) -> None:
    assert parse(words).load_options == LoadOptions()


def test_when_a_planned_context_is_out_of_range_then_the_range_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused("fit", "m", "--ctx", "5") == 2
    assert "256" in capsys.readouterr().err


def test_when_models_has_no_action_then_it_lists() -> None:
    assert parse(["models"]).action is None
    assert parse(["models", "--json"]).json
    assert parse(["models", "verify", "a", "b", "--json"]).name == ["a", "b"]


def test_when_an_import_is_to_be_moved_and_used_in_place_then_it_is_refused() -> None:
    assert refused("models", "import", "x", "--move", "--in-place") == 2
