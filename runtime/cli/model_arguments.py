"""What can be typed after `deskside models`, `deskside fit` and `deskside node`."""

import argparse
from typing import get_args

from runtime.cli.actions import AddShared, add_actions
from runtime.cli.values import auto_or_int, given_text, option_help, parameter_count, port_number
from runtime.options import KvType

MODELS_EPILOG = """\
examples:
  deskside models                                   what is on this machine
  deskside models search coder --max-params 8B      find models on the hub
  deskside models info ORG/REPO                     its files, which of them suit this machine, and why
  deskside models pull ORG/REPO                     fetch the recommended one; ORG/REPO:Q4_K_M chooses
  deskside models import ~/Downloads/some.gguf      bring a file into the library
  deskside models quantize some-f16 Q4_K_M          make a smaller file of it

A download that was interrupted goes on where it was when the same command is given again."""

FIT_EPILOG = """\
examples:
  deskside fit some-model                           an installed model, as automatic settings would load it
  deskside fit some-model --ctx 32768 --kv q8_0     with a longer context and a smaller cache
  deskside fit ORG/REPO                             every file of a repository, before anything is downloaded
  deskside fit ORG/REPO:Q6_K --json                 one of them, for programs"""

NODE_EPILOG = """\
examples:
  deskside node                                     try it: on this machine only
  deskside node --host 192.168.1.20                 for the machines of one network

There is no password and no encryption in llama.cpp's RPC: whoever reaches the address can use the memory and stop
the process. Use it only on a network you trust. On the other machine the address is added under Models, Nodes."""


def add_models(parser: argparse.ArgumentParser, add_shared: AddShared) -> None:
    """`deskside models` and what can follow it."""
    action = add_actions(parser, add_shared)
    action("list", "what is on this machine (as without an action)")
    search = action("search", "find models on the hub")
    search.add_argument("text", nargs="*", help="words of the name; without any, what is popular now")
    search.add_argument("--sort", choices=("trending", "downloads", "likes", "updated"), default="trending")
    search.add_argument("--kind", choices=("any", "chat", "vision", "embedding"), default="any")
    search.add_argument("--author", default="", metavar="NAME", help="only of this publisher")
    search.add_argument("--max-params", type=parameter_count, default=0, metavar="8B", help="no larger models")
    search.add_argument("--limit", type=int, default=30, metavar="N", help="at most so many, 1 to 100 (default 30)")
    search.add_argument("--picks", action="store_true", help="the built-in list, which works offline")

    info = action("info", "all about an installed model or a repository of the hub")
    info.add_argument("name", type=given_text, help="an installed model, or ORG/REPO")
    _add_plan_options(info)

    pull = action("pull", "fetch a model from the hub")
    pull.add_argument(
        "name", type=given_text, metavar="ORG/REPO[:QUANTIZATION]", help="without a quantization: the recommended one"
    )
    pull.add_argument("--revision", default="main", metavar="REV", help="branch, tag or commit (default main)")
    pull.add_argument("--no-projector", action="store_true", help="leave out the part that reads pictures")
    _add_plan_options(pull)

    taken_in = action("import", "bring a file, or all models below a folder, into the library")
    taken_in.add_argument("path", type=given_text, help="a .gguf file or a folder")
    how = taken_in.add_mutually_exclusive_group()
    how.add_argument("--move", action="store_true", help="move instead of copying")
    how.add_argument("--in-place", action="store_true", help="use it where it is")

    verify = action("verify", "check that a model's bytes are the published ones")
    verify.add_argument("name", type=given_text, nargs="+", help="installed models")

    remove = action("remove", "move a model to the trash")
    remove.add_argument("name", type=given_text, help="an installed model")
    remove.add_argument("--yes", action="store_true", help="do not ask")

    quantize = action("quantize", "make a smaller file of an F32, F16 or BF16 model")
    quantize.add_argument("name", type=given_text, help="an installed model")
    quantize.add_argument("quantization", metavar="TYPE", help="such as Q4_K_M, Q6_K, Q8_0")
    quantize.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores")
    quantize.add_argument("--preview", action="store_true", help="only show what it would give")

    folders = action("folders", "where models are looked for")
    folders.add_argument("what", nargs="?", choices=("add", "remove", "move"), help="move: the main folder")
    folders.add_argument("path", nargs="?", help="the folder")


def add_fit(parser: argparse.ArgumentParser) -> None:
    """`deskside fit`."""
    parser.add_argument(
        "name", type=given_text, metavar="MODEL", help="an installed model, a .gguf file, or ORG/REPO[:QUANTIZATION]"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--draft", default="", metavar="MODEL", help="with this draft model beside it")
    _add_plan_options(parser)


def _add_plan_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it must hold")
    for flag, field in (("--ctx", "n_ctx"), ("--slots", "n_parallel")):
        group.add_argument(flag, dest=field, type=int, metavar="N", help=option_help(field))
    for flag, field in (("--gpu-layers", "n_gpu_layers"), ("--cpu-moe", "n_cpu_moe")):
        group.add_argument(flag, dest=field, type=auto_or_int, metavar="auto|N", help=option_help(field))
    group.add_argument(
        "--kv", dest="type_k", choices=get_args(KvType), metavar="TYPE", help="cache type: f16, q8_0, q4_0 and others"
    )


def add_node(parser: argparse.ArgumentParser) -> None:
    """`deskside node`."""
    parser.add_argument(
        "--host", type=given_text, default="127.0.0.1", metavar="ADDRESS", help="default 127.0.0.1: this machine only"
    )
    parser.add_argument(
        "--port", type=port_number, default=50_052, metavar="N", help="default 50052; 0 takes a free one"
    )
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="lend only this device")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: the physical cores")
    parser.add_argument("--cache", default="", metavar="DIR", help="keep weights here, so that a second load is quick")
    parser.add_argument("--every-interface", action="store_true", help="allow 0.0.0.0")
