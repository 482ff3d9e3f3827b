"""What can be typed: the commands, their options, and the help of each.

Ranges and sentences of the options come from their one declaration in `runtime.options`.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

import msgspec

from runtime import __version__
from runtime.cli import key_arguments, model_arguments, tool_arguments
from runtime.cli.exit_codes import DESCRIPTION as EXIT_CODES
from runtime.cli.values import (
    NONE,
    Automatic,
    adapter,
    api_key,
    auto_or_float,
    auto_or_int,
    escaped,
    file_or_name,
    file_path,
    given_text,
    option_choices,
    option_help,
    option_sentence,
    port_number,
)
from runtime.options import ApiOptions, GenerateOptions, LoadOptions, SamplingOptions
from runtime.paths import ENV_DATA_DIR

ENV_API_KEY = "DESKSIDE_API_KEY"
"""Environment variable with the API key of `serve`; unlike --api-key it does not show in the list of processes."""

StructT = TypeVar("StructT", bound=msgspec.Struct)

_LOAD_FLAGS: Mapping[str, str] = {
    "--ctx": "n_ctx",
    "--parallel": "n_parallel",
    "--gpu-layers": "n_gpu_layers",
    "--threads": "n_threads",
    "--disk-cache-bytes": "disk_cache_bytes",
}
_LOAD_WORDS: Mapping[str, str] = {
    "--rope-scaling": "rope_scaling",
    "--pooling": "pooling",
    "--speculation": "speculation",
}
_LOAD_FILES: Mapping[str, str] = {"--draft-model": "draft_model", "--projector": "projector"}
_FILE_HELP: Mapping[str, str] = {
    "draft_model": "a small model of the same family that guesses ahead; 'none' is none",
    "projector": "the part that reads pictures or sound (mmproj), not the one beside the model; 'none' leaves it out",
}
_LOAD_NUMBERS: Mapping[str, str] = {"--rope-freq-base": "rope_freq_base", "--rope-freq-scale": "rope_freq_scale"}
_API_WORDS: Mapping[str, str] = {"--tls": "tls", "--request-log": "request_log"}
_API_FILES: Mapping[str, str] = {"--certificate": "certificate_file", "--key-file": "key_file"}
_API_LISTS: Mapping[str, str] = {"--allow-origin": "allowed_origins", "--allow-host": "allowed_hosts"}
_API_METAVARS: Mapping[str, str] = {"allowed_origins": "ORIGIN", "allowed_hosts": "NAME"}
_FIT_FLAGS: Mapping[str, str] = {
    "--ctx": "n_ctx",
    "--slots": "n_parallel",
    "--gpu-layers": "n_gpu_layers",
    "--cpu-moe": "n_cpu_moe",
    "--kv": "type_k",
}
_SAMPLING_FLAGS: Mapping[str, str] = {
    "--temperature": "temperature",
    "--top-k": "top_k",
    "--top-p": "top_p",
    "--min-p": "min_p",
    "--repeat-penalty": "repeat_penalty",
    "--seed": "seed",
}
_GENERATE_FLAGS: Mapping[str, str] = {"--max-tokens": "max_tokens"}

_EPILOG = f"""\
examples:
  deskside                                   open the window
  deskside chat "Why is the sky blue?"       one answer
  git diff | deskside chat "Review this"     ask about what is piped in
  deskside serve --port 8080                 an OpenAI-compatible server at http://127.0.0.1:8080/v1
  deskside models pull REPO                  fetch a model, in the size that suits this machine
  deskside doctor                            what works here, what is missing, what to do

Everything is kept in one data folder; --data-dir or {ENV_DATA_DIR} moves it.

{EXIT_CODES}"""

_SERVE_EPILOG = f"""\
examples:
  deskside serve                                     the starter model at http://127.0.0.1:1234/v1
  deskside serve --model ~/models/some-Q4_K_M.gguf   a file
  deskside serve --host 0.0.0.0 --api-key "$KEY"     other machines too, with a key
  deskside serve --host 0.0.0.0 --tls own            other machines, encrypted, with the keys of `deskside keys`
  deskside serve --ctx 8192 --parallel 4             four conversations of 8,192 tokens each

What is said of the API holds for this run; what is not named is as on the Server page. Options of loading are
remembered for the model, those that are not named stay as they are, and `auto` or `none` takes one back.

{ENV_API_KEY} sets the key without showing it in the list of processes. Ctrl-C ends it."""

_CHAT_EPILOG = """\
examples:
  deskside chat                                      talk; /help lists the commands
  deskside chat "Write a haiku about rain"           one answer, then end
  cat notes.txt | deskside chat "Sum this up"        the piped text follows the prompt
  deskside chat --temperature 0 "2+2=" > answer.txt  only the answer goes into the file

Ctrl-C stops an answer; at the empty prompt it leaves. A host that runs on the same data folder (the window,
`deskside serve`) is used; else one is started for this chat and ended after it."""

_HARDWARE_EPILOG = """\
examples:
  deskside hardware --watch          every second, until Ctrl-C
  deskside hardware --json           one reading for programs; with --watch one a line"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="deskside",
        description="Runs language models on your own machine. Without a command it opens the window.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"deskside {__version__}")
    _add_shared(parser, at_top=True)
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    _add_serve(_command(commands, "serve", "serve models to other programs, without a window", _SERVE_EPILOG))
    _add_chat(_command(commands, "chat", "talk to a model in the terminal", _CHAT_EPILOG))
    model_arguments.add_models(
        _command(commands, "models", "list, find, fetch and manage models", model_arguments.MODELS_EPILOG), _add_shared
    )
    model_arguments.add_fit(
        _command(commands, "fit", "would a model run here, how fast, and why", model_arguments.FIT_EPILOG)
    )
    model_arguments.add_node(
        _command(commands, "node", "lend this machine's memory to another Deskside", model_arguments.NODE_EPILOG)
    )
    key_arguments.add_keys(
        _command(commands, "keys", "API keys of other programs, and what each may take", key_arguments.KEYS_EPILOG),
        _add_shared,
    )
    tool_arguments.add_tools(
        _command(commands, "tools", "tool servers (MCP) that models may use", tool_arguments.TOOLS_EPILOG), _add_shared
    )
    hardware = _command(commands, "hardware", "processor, memory and GPUs, live", _HARDWARE_EPILOG)
    hardware.add_argument("--json", action="store_true", help="for programs")
    hardware.add_argument("--watch", action="store_true", help="again every second")
    doctor = _command(commands, "doctor", "what works here, what is missing and what to do")
    doctor.add_argument("--json", action="store_true", help="for programs")
    return parser


class _Parser(argparse.ArgumentParser):
    """Says where the help is after a wrong option."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n  {self.prog} --help shows what it takes.\n")


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, sentence: str, epilog: str = ""
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=sentence,
        description=f"{sentence[0].upper()}{sentence[1:]}.",
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_shared(parser, at_top=False)
    return parser


def _add_shared(parser: argparse.ArgumentParser, *, at_top: bool) -> None:
    # Both before and after the command; only the top one has defaults, else the inner would undo the outer.
    suppressed = argparse.SUPPRESS
    parser.add_argument(
        "--data-dir",
        type=given_text,
        metavar="DIR",
        default=None if at_top else suppressed,
        help="use this data folder",
    )
    parser.add_argument(
        "--debug", action="store_true", default=False if at_top else suppressed, help="show where an error came from"
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    api = ApiOptions()
    parser.add_argument(
        "--host",
        type=given_text,
        default=api.host,
        metavar="ADDRESS",
        help=f"address to listen on (default {api.host}: this machine)",
    )
    parser.add_argument(
        "--port", type=port_number, default=api.port, metavar="N", help=f"default {api.port}; 0 takes a free one"
    )
    parser.add_argument("--api-key", type=api_key, metavar="KEY", help="ask clients for this key")
    group = parser.add_argument_group("serving")
    for flag, field in _API_WORDS.items():
        choices = option_choices(field, ApiOptions)
        group.add_argument(flag, dest=field, choices=choices, help=option_help(field, ApiOptions))
    for flag, field in _API_FILES.items():
        group.add_argument(flag, dest=field, type=file_path, metavar="FILE", help=option_help(field, ApiOptions))
    for flag, field in _API_LISTS.items():
        group.add_argument(
            flag,
            dest=field,
            action="append",
            type=given_text,
            metavar=_API_METAVARS[field],
            help=f"{option_help(field, ApiOptions)} May be given several times.",
        )
    group.add_argument(
        "--fetch-pictures",
        action=argparse.BooleanOptionalAction,
        help=option_help("fetch_pictures", ApiOptions),
    )
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which model, and how it is loaded."""
    parser.add_argument(
        "--model",
        type=given_text,
        metavar="NAME_OR_PATH",
        help="a name of `deskside models` or a .gguf file; default: the starter model",
    )
    group = parser.add_argument_group("loading")
    for flag, field in _LOAD_FLAGS.items():
        group.add_argument(flag, dest=field, type=auto_or_int, metavar="auto|N", help=option_help(field))
    for flag, field in _LOAD_WORDS.items():
        group.add_argument(flag, dest=field, choices=option_choices(field), help=option_help(field))
    for flag, field in _LOAD_NUMBERS.items():
        group.add_argument(flag, dest=field, type=auto_or_float, metavar="auto|X", help=option_help(field))
    for flag, field in _LOAD_FILES.items():
        group.add_argument(flag, dest=field, type=file_or_name, metavar="NAME_OR_PATH", help=_FILE_HELP[field])
    group.add_argument(
        "--lora",
        dest="lora",
        action="append",
        type=adapter,
        metavar="FILE[:SCALE]",
        help="a LoRA adapter in GGUF form, applied as strongly as SCALE says (1); may be given several times; "
        "'none' is none",
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="*", help="what to ask; without it and without a pipe you talk")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before everything else")
    parser.add_argument(
        "--reasoning",
        choices=("show", "hide"),
        help="what a model thinks before it answers; default: shown dim on a terminal, hidden in a pipe",
    )
    add_model_options(parser)
    group = parser.add_argument_group("sampling")
    for flag, field in _GENERATE_FLAGS.items():
        group.add_argument(
            flag, dest=field, type=int, metavar="N", help=escaped(option_sentence(GenerateOptions, field))
        )
    defaults = SamplingOptions()
    for flag, field in _SAMPLING_FLAGS.items():
        whole = isinstance(getattr(defaults, field), int) or field == "seed"
        group.add_argument(
            flag,
            dest=field,
            type=int if whole else float,
            metavar="N" if whole else "X",
            help=escaped(option_sentence(SamplingOptions, field)),
        )


def load_options(parsed: argparse.Namespace) -> tuple[LoadOptions | None, frozenset[str]]:
    """The load options that were given, and their names; what is not named is as remembered for the model.

    Raises:
        argparse.ArgumentTypeError: if one is out of its range.
    """
    flags = {**_LOAD_FLAGS, **_LOAD_WORDS, **_LOAD_FILES, **_LOAD_NUMBERS, "--lora": "lora"}
    given = _given(parsed, flags)
    if given.get("draft_model") == NONE:
        given["draft_model"] = ""
    if isinstance(adapters := given.get("lora"), list):
        given["lora"] = [one for one in adapters if one]
    return (_checked(LoadOptions, given, flags), frozenset(given)) if given else (None, frozenset())


def api_options(parsed: argparse.Namespace) -> tuple[ApiOptions, frozenset[str]]:
    """What was said of the API beside its address, and the names of it.

    Raises:
        argparse.ArgumentTypeError: files for encryption that say nothing without one another.
    """
    flags = {**_API_WORDS, **_API_FILES, **_API_LISTS, "--fetch-pictures": "fetch_pictures"}
    given = _given(parsed, flags)
    if ("certificate_file" in given) != ("key_file" in given):
        raise argparse.ArgumentTypeError("--certificate and --key-file go together")
    if "certificate_file" in given and given.setdefault("tls", "files") != "files":
        raise argparse.ArgumentTypeError(f"--tls {given['tls']} does not go with --certificate")
    return _checked(ApiOptions, given, flags), frozenset(given)


def fit_options(parsed: argparse.Namespace) -> LoadOptions:
    """What a plan is asked to keep to; `--kv` holds for both halves of the cache.

    Raises:
        argparse.ArgumentTypeError: if one is out of its range.
    """
    given = _given(parsed, _FIT_FLAGS)
    if "type_k" in given:
        given["type_v"] = given["type_k"]
    return _checked(LoadOptions, given, _FIT_FLAGS)


def generate_options(parsed: argparse.Namespace) -> GenerateOptions:
    """What was given of the sampling and generation options, the rest as declared.

    Raises:
        argparse.ArgumentTypeError: if one is out of its range.
    """
    sampling = _checked(SamplingOptions, _given(parsed, _SAMPLING_FLAGS), _SAMPLING_FLAGS)
    base = _checked(GenerateOptions, _given(parsed, _GENERATE_FLAGS), _GENERATE_FLAGS)
    return msgspec.structs.replace(base, sampling=sampling)


def _given(parsed: argparse.Namespace, flags: Mapping[str, str]) -> dict[str, object]:
    values = ((field, getattr(parsed, field)) for field in flags.values())
    return {field: None if value is Automatic.AUTO else value for field, value in values if value is not None}


def _checked(owner: type[StructT], given: Mapping[str, object], flags: Mapping[str, str]) -> StructT:
    for flag, field in flags.items():
        if field not in given:
            continue
        try:
            msgspec.convert({field: given[field]}, owner)
        except msgspec.ValidationError:
            raise argparse.ArgumentTypeError(
                f"{flag} {given[field]} is out of range: {option_sentence(owner, field)}"
            ) from None
    return msgspec.convert(dict(given), owner)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse, and check the numbers; ends the program with a sentence and code 2 when something is wrong."""
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    try:
        if hasattr(parsed, "type_k"):
            parsed.load_options = fit_options(parsed)
        elif parsed.command in {"serve", "chat"}:
            parsed.load_options, parsed.load_only = load_options(parsed)
        if parsed.command == "serve":
            parsed.api_options, parsed.api_only = api_options(parsed)
        if parsed.command == "serve" and os.environ.get(ENV_API_KEY):
            api_key(os.environ[ENV_API_KEY])
        if parsed.command == "chat":
            parsed.generate_options = generate_options(parsed)
    except argparse.ArgumentTypeError as error:
        parser.exit(2, f"deskside {parsed.command}: {error}\n  deskside {parsed.command} --help shows what it takes.\n")
    return parsed
