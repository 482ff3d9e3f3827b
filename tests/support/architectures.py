"""A tiny model of each architecture, described by metadata alone, and what llama.cpp makes of it.

`measure` runs in a child process (llama.cpp aborts on metadata it does not like): it lets llama.cpp build the model
from the metadata, write it to a file, and report the caches that a context gets. Nothing here knows the rules that are
under test; it only supplies numbers.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

Value = int | float | bool | str | list[int] | list[float] | list[bool]

N_VOCAB = 96
N_CTX = 1 << 20
N_SEQ = 64
"""Sequences of the context: makes small recurrent states large enough to be read from a line with two decimals."""


@dataclass(frozen=True, slots=True)
class Case:
    """One model: `keys` without the architecture's prefix, on top of `_BASE`.

    llama.cpp cannot write every architecture to a file; those have `is_saved` False, and only caches to compare.
    """

    architecture: str
    keys: Mapping[str, Value] = field(default_factory=dict)
    name: str = ""
    is_saved: bool = True

    @property
    def label(self) -> str:
        return self.name or self.architecture


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as llama.cpp reports it. `k_bytes` and `v_bytes` are R and S of a recurrent one."""

    kind: str
    n_cells: int
    n_layers: int
    k_bytes: float
    v_bytes: float
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What llama.cpp did with a case."""

    n_layer: int
    caches: tuple[Cache, ...]
    weights: Mapping[str, float]


_BASE: Mapping[str, Value] = {
    "vocab_size": N_VOCAB,
    "context_length": 512,
    "embedding_length": 128,
    "features_length": 128,
    "block_count": 4,
    "feed_forward_length": 192,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.group_norm_epsilon": 1e-5,
    "attention.group_norm_groups": 8,
    "attention.relative_buckets_count": 8,
    "attention.sliding_window": 32,
    "attention.clamp_kqv": 1.0,
    "attention.max_alibi_bias": 8.0,
    "attention.q_lora_rank": 64,
    "attention.kv_lora_rank": 64,
    "attention.kv_lora_rank_swa": 64,
    "attention.key_length_mla_swa": 64,
    "attention.value_length_mla_swa": 48,
    "rope.freq_base_swa": 10000.0,
    "attn_res.block_size": 12,
    "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.low_rank": 8,
    "swiglu_clamp_exp": 10.0,
    "attention.indexer.head_count": 4,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 64,
    "attention.indexer.block_size": 4,
    "attention.indexer.local_blocks": 1,
    "attention.indexer.kpool": 4,
    "rope.dimension_count": 32,
    "use_parallel_residual": False,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "embedding_scale": 1.0,
    "leading_dense_block_count": 1,
    "interleave_moe_layer_step": 2,
    "rwkv.time_mix_extra_dim": 32,
    "time_mix_extra_dim": 32,
    "time_decay_extra_dim": 64,
    "wkv.head_size": 32,
    "attention.decay_lora_rank": 32,
    "attention.iclr_lora_rank": 32,
    "attention.value_residual_mix_lora_rank": 32,
    "attention.gate_lora_rank": 32,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 256,
    "ssm.state_size": 64,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
    "kda.head_dim": 32,
    "kda.safe_gate": True,
    "kda.gate_lower_bound": -5.0,
    "shortconv.l_cache": 3,
    "rope.dimension_sections": [8, 4, 4, 0],
    "posnet.embedding_length": 128,
    "posnet.block_count": 4,
    "convnext.embedding_length": 128,
    "convnext.block_count": 4,
    "activation.situ_beta": 4.0,
    "activation.situ_linear_beta": 25.0,
}

_EXPERTS: Mapping[str, Value] = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 64,
    "expert_shared_feed_forward_length": 64,
    "expert_gating_func": 2,
    "expert_weights_scale": 1.0,
    "expert_weights_norm": True,
    "expert_group_scale": 1.0,
    "experts_per_group": 1,
    "expert_latent_length": 64,
}

_MLA: Mapping[str, Value] = {
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.key_length_mla": 64,
    "attention.value_length_mla": 48,
    "rope.dimension_count": 32,
}


_WHOLE_KEYS: Mapping[str, Value] = {
    "xielu.alpha_n": 1.0,
    "xielu.alpha_p": 1.0,
    "xielu.beta": 1.0,
    "xielu.eps": 1e-7,
    "tokenizer.ggml.token_type_count": 2,
}
"""Keys that have no architecture in front."""
_NOT_SAVED = frozenset(
    {"apertus", "bitnet", "gemma3n", "gemma4", "step35", "nanbeige", "t5encoder"}
    | {"bert", "nomic-bert", "modern-bert", "neo-bert", "eurobert", "jina-bert-v2"}
)


_HYPER: Mapping[str, Value] = {
    "hyper_connection.count": 4,
    "hyper_connection.epsilon": 1e-6,
    "hyper_connection.magnitude": 2.0,
    "swiglu_clamp_exp": 10.0,
}


def _case(architecture: str, *parts: Mapping[str, Value], name: str = "", **keys: Value) -> Case:
    merged: dict[str, Value] = {}
    for part in parts:
        merged |= part
    merged |= {key.replace("__", "."): value for key, value in keys.items()}
    return Case(architecture, merged, name, is_saved=architecture not in _NOT_SAVED)


def _words(text: str) -> list[str]:
    return text.split()


_DENSE = _words(
    "llama qwen2 qwen3 gemma gemma2 gemma3 phi2 phi3 stablelm starcoder starcoder2 gpt2 gptneox falcon mpt bloom "
    "baichuan internlm2 orion command-r olmo olmo2 openelm chatglm glm4 exaone exaone4 nemotron granite minicpm "
    "smollm3 cohere2 arcee seed_oss apertus ernie4_5 hunyuan-dense qwen2vl qwen3vl deci codeshell plamo plamo3 xverse "
    "refact jais bitnet qwen mistral3 pangu-embedded maincoder talkie llama-embed"
)
_MOE = _words(
    "qwen2moe qwen3moe qwen3vlmoe gpt-oss dbrx grok phimoe deepseek glm4moe ernie4_5-moe hunyuan-moe bailingmoe "
    "bailingmoe2 arctic afmoe granitemoe minimax-m2 minimax-m3 smallthinker mellum laguna cohere2moe exaone-moe "
    "llama4 hy_v3 grovemoe"
)
_ENCODERS = _words("bert nomic-bert modern-bert neo-bert eurobert gemma-embedding")
_ALTERNATE: list[int] = [2, 0, 2, 0]

CASES: tuple[Case, ...] = (
    *(_case(name) for name in _DENSE),
    *(_case(name, _EXPERTS) for name in _MOE),
    *(_case(name, attention__causal=False) for name in _ENCODERS),
    _case("olmoe", _EXPERTS, attention__head_count_kv=4),
    _case("dots1", _EXPERTS, attention__head_count_kv=4),
    _case("jina-bert-v2", attention__causal=False, attention__head_count_kv=4),
    _case("t5encoder", attention__causal=False, attention__head_count_kv=4),
    _case("gemma3", name="gemma3-without-window", attention__sliding_window=0),
    _case("gemma3", name="gemma3-pattern-of-3", attention__sliding_window_pattern=3, block_count=7),
    _case("gemma3", name="gemma3-listed", attention__sliding_window_pattern=[True, False, False, True]),
    _case("gemma3n", block_count=22, attention__head_count=1, attention__head_count_kv=1),
    _case(
        "gemma4",
        block_count=6,
        attention__sliding_window_pattern=[True, True, True, False, True, False],
        attention__shared_kv_layers=2,
        attention__key_length_swa=16,
        attention__value_length_swa=16,
        rope__dimension_count_swa=16,
        embedding_length_per_layer_input=32,
    ),
    _case("mimo2", _EXPERTS, attention__sliding_window_pattern=[1, 0, 1, 0]),
    _case("step35", _EXPERTS, attention__sliding_window_pattern=[1, 0, 1, 1]),
    _case("granite_swa", attention__sliding_window_pattern=[1, 0, 1, 0]),
    _case(
        "deci",
        name="deci-heads-of-each-layer",
        attention__head_count=[4, 4, 2, 4],
        attention__head_count_kv=[2, 0, 1, 4],
    ),
    _case(
        "openelm",
        name="openelm-heads-of-each-layer",
        attention__head_count=[4, 8, 4, 8],
        attention__head_count_kv=[1, 2, 1, 2],
        attention__key_length=32,
        attention__value_length=32,
    ),
    _case(
        "llama", name="llama-long-heads", attention__key_length=64, attention__value_length=64, rope__dimension_count=64
    ),
    _case("exaone4", name="exaone4-32b", block_count=64),
    _case("llama4", _EXPERTS, name="llama4-without-chunks", attention__sliding_window=0),
    _case("lfm2", name="lfm2-window", attention__head_count_kv=_ALTERNATE),
    _case("lfm2", name="lfm2", attention__head_count_kv=_ALTERNATE, attention__sliding_window=0),
    _case("lfm2moe", _EXPERTS, attention__head_count_kv=_ALTERNATE),
    _case("mamba", attention__head_count=0, attention__head_count_kv=0, ssm__group_count=0),
    _case("mamba2", attention__head_count=0, attention__head_count_kv=0),
    _case("jamba", attention__head_count_kv=_ALTERNATE),
    _case("falcon-h1"),
    _case("granitehybrid", attention__head_count_kv=_ALTERNATE),
    _case("plamo2", attention__head_count_kv=_ALTERNATE, ssm__group_count=0),
    _case("nemotron_h", attention__head_count_kv=[0, 2, 0, 0], feed_forward_length=[0, 0, 192, 0]),
    _case("qwen3next", _EXPERTS),
    _case("qwen35", name="qwen35"),
    _case("qwen35", name="qwen35-listed", attention__recurrent_layers=[0, 1, 1, 0]),
    _case("qwen35moe", _EXPERTS, full_attention_interval=2),
    _case("minimax-01", _EXPERTS, full_attention_interval=2),
    _case("rwkv6", attention__head_count=0, attention__head_count_kv=0),
    _case("rwkv7", attention__head_count=0, attention__head_count_kv=0),
    _case("arwkv7", attention__head_count=0, attention__head_count_kv=0, token_shift_count=1),
    _case("deepseek2", _EXPERTS, _MLA),
    _case("deepseek2", _EXPERTS, name="deepseek2-without-mla", attention__key_length=64, attention__head_count_kv=4),
    _case("mistral4", _EXPERTS, _MLA),
    _case("deepseek32", _EXPERTS, _MLA),
    _case("glm-dsa", _EXPERTS, _MLA),
    _case("glm-dsa", _EXPERTS, _MLA, name="glm-dsa-5.2", context_length=1 << 20, block_count=8),
    _case("hy_v4", _EXPERTS, _MLA, _HYPER, attention__indexer__types=[1, 0, 1, 0]),
    _case("kimi-linear", _EXPERTS, _MLA, attention__head_count_kv=[0, 1, 0, 1]),
    _case("kimi-k3", _EXPERTS, _MLA, attention__head_count_kv=[0, 1, 0, 1]),
    _case(
        "glm5-next",
        _EXPERTS,
        _MLA,
        _HYPER,
        attention__head_count_kv=[0, 1, 0, 1],
        rope__dimension_count=0,
        attention__key_length=64,
    ),
    _case(
        "dots3note",
        _EXPERTS,
        _MLA,
        attention__sliding_window_pattern=[0, 1, 0, 1],
        attention__indexer__types=[1, 0, 1, 0],
    ),
    _case("maple", _EXPERTS, attention__sliding_window_pattern=[0, 1, 0, 1]),
    _case("spark2_5", attention__sliding_window_pattern=[0, 1, 0, 1]),
    _case("muse-glimmer"),
    _case("qwen4exp", _EXPERTS, _HYPER),
    _case("nemotron_h_moe", _EXPERTS, attention__head_count_kv=[0, 2, 0, 0], feed_forward_length=[0, 0, 192, 0]),
    _case("bailingmoe3", _EXPERTS, _MLA, attention__head_count_kv=[0, 1, 0, 1]),
    _case("minicpm3", attention__head_count_kv=4, attention__key_length=64, attention__value_length=32),
    _case("nanbeige", num_loops=2),
)


def write_metadata(case: Case, path: Path) -> Path:
    """A GGUF file of metadata only: llama.cpp finds out which tensors the model has."""
    writer = gguf.GGUFWriter(path, case.architecture)
    for key, value in {**_BASE, **case.keys}.items():
        _add(writer, f"{case.architecture}.{key}", value)
    for key, value in _WHOLE_KEYS.items():
        _add(writer, key, value)
    writer.add_tokenizer_model("none")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def write_with_predictor(saved: Path, target: Path, *, layer: int) -> Path:
    """A model that llama.cpp wrote, with one more layer behind the last that predicts a further token.

    Args:
        saved: the model.
        target: file to write.
        layer: the layer whose attention and feed-forward part the new one copies.
    """
    reader = gguf.GGUFReader(saved)
    architecture = str(reader.fields["general.architecture"].contents())
    n_layer = int(reader.fields[f"{architecture}.block_count"].contents())
    n_embd = int(reader.fields[f"{architecture}.embedding_length"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    changed = {f"{architecture}.block_count": n_layer + 1, f"{architecture}.nextn_predict_layers": 1}
    for name, info in reader.fields.items():
        value = info.contents()
        if not name.startswith(("GGUF.", "general.architecture")) and name not in changed and value not in ([], None):
            if isinstance(value, list) and len(value) == n_layer and "rope" not in name:
                value = [*value, value[-1]]
            writer.add_key_value(name, value, info.types[0], info.types[-1] if len(info.types) > 1 else None)
    for name, number in changed.items():
        writer.add_uint32(name, number)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    for tensor in reader.tensors:
        if tensor.name.startswith(f"blk.{layer}.") and not tensor.name.endswith("scale"):
            writer.add_tensor(tensor.name.replace(f"blk.{layer}.", f"blk.{n_layer}."), tensor.data)
    for name, shape in (("eh_proj", (n_embd, 2 * n_embd)), ("enorm", (n_embd,)), ("hnorm", (n_embd,))):
        writer.add_tensor(f"blk.{n_layer}.nextn.{name}.weight", np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def measure_file(path: Path, timeout_s: float = 60) -> Report | str:
    """What llama.cpp makes of a whole file."""
    return _child([f"={path}"], timeout_s)[0]


def measure(cases: Sequence[Case], metadata: Sequence[Path], timeout_s: float = 60) -> list[Report | str]:
    """Have llama.cpp build each model and write it beside its metadata as `<name>.model.gguf`.

    A model it refuses gives its words. All run in one child; one that aborts is started again behind the one that it
    did not survive.
    """
    found: list[Report | str] = []
    while len(found) < len(metadata):
        rest = zip(cases[len(found) :], metadata[len(found) :], strict=True)
        paths = [f"{'+' if case.is_saved else '-'}{path}" for case, path in rest]
        found += _child(paths, timeout_s)
    return found


def _child(arguments: Sequence[str], timeout_s: float) -> list[Report | str]:
    """At least one answer, in order; the last may say how the child ended."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.llama_child", *arguments],
        capture_output=True,
        timeout=timeout_s,
        check=False,
        text=True,
    )
    found = [_report(line) for line in child.stdout.splitlines()]
    if len(found) < len(arguments):
        found.append(f"ended with {child.returncode}: {child.stderr[-300:]}")
    return found


def _report(line: str) -> Report | str:
    raw = json.loads(line)
    if isinstance(raw, str):
        return raw
    caches = tuple(Cache(**{**cache, "layers": tuple(cache["layers"])}) for cache in raw.pop("caches"))
    return Report(caches=caches, **raw)
