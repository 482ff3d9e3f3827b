"""Models of a pretended hub: repositories, their files, and the staff's picks."""

import msgspec

from runtime.messages.library import HubEntry, HubFile

QUANTS: tuple[tuple[str, float, str, str], ...] = (
    ("BF16", 16.0, "best", "The original. Twice the size of Q8_0 without a difference you could notice."),
    ("Q8_0", 8.5, "best", "Practically the same as the original."),
    ("Q6_K", 6.6, "very_good", "Differences can be measured, hardly noticed."),
    ("Q5_K_M", 5.7, "very_good", "Very close to the original."),
    ("Q4_K_M", 4.9, "good", "The usual choice: a quarter of the size, small losses."),
    ("IQ4_XS", 4.3, "good", "A little smaller than Q4_K_M, slower on processors."),
    ("Q3_K_M", 3.9, "fair", "Losses can be noticed, most in small models."),
    ("Q2_K", 3.2, "poor", "Only when nothing larger fits: answers get worse."),
)


def hub_file(repo: str, quantization: str, n_params: int, *, projector: str = "") -> HubFile:
    """One quantization of a pretended repository."""
    bits, quality, note = next((row[1], row[2], row[3]) for row in QUANTS if row[0] == quantization)
    name = f"{repo.rsplit('/', maxsplit=1)[-1].removesuffix('-GGUF')}-{quantization}.gguf"
    size = int(n_params * bits / 8)
    return HubFile(
        name=name,
        paths=(name,),
        sizes_bytes=(size,),
        sha256=("ab" * 32,),
        quantization=quantization,
        size_bytes=size,
        bits_per_weight=bits,
        quality=quality,  # type: ignore[arg-type]
        note=note,
        projector=projector,
    )


def hub_entry(repo: str, n_params: int, **fields: object) -> HubEntry:
    """A repository in a list."""
    publisher, name = repo.split("/")
    entry = HubEntry(
        repo=repo,
        name=name.removesuffix("-GGUF").replace("-", " "),
        publisher=publisher,
        downloads=1_234_567,
        likes=842,
        updated_s=1_780_000_000.0,
        n_params=n_params,
        architecture="qwen3",
        n_ctx_train=40_960,
        licence="apache-2.0",
        size_bytes=int(n_params * 4.9 / 8),
    )
    return msgspec.structs.replace(entry, **fields)


def some_picks() -> tuple[HubEntry, ...]:
    """A pretended catalogue."""
    return (
        hub_entry("Qwen/Qwen3-8B-GGUF", 8_190_735_360, note="Strong all-rounder that can think before it answers."),
        hub_entry("Qwen/Qwen3-0.6B-GGUF", 596_049_920, note="Tiny and quick; for old machines and simple tasks."),
        hub_entry(
            "google/gemma-3-12b-it-qat-q4_0-gguf",
            11_766_034_176,
            note="Reads pictures, writes many languages well.",
            architecture="gemma3",
            kind="vision",
            is_gated=True,
            licence="gemma",
            n_ctx_train=131_072,
        ),
        hub_entry(
            "ggml-org/gpt-oss-120b-GGUF",
            116_829_156_672,
            note="Very large; for machines with a lot of memory.",
            architecture="gpt-oss",
            n_ctx_train=131_072,
        ),
        hub_entry(
            "nomic-ai/nomic-embed-text-v1.5-GGUF",
            136_731_648,
            note="Turns texts into numbers for search programs.",
            architecture="nomic-bert",
            kind="embedding",
            n_ctx_train=2048,
        ),
        hub_entry("Qwen/Qwen3-30B-A3B-GGUF", 30_500_000_000, note="Fast for its size."),
        hub_entry("Qwen/Qwen3-14B-GGUF", 14_800_000_000, note="Larger and slower, more knowledge."),
        hub_entry("microsoft/phi-4-GGUF", 14_700_000_000, note="Good at reasoning in English.", architecture="phi3"),
        hub_entry("meta-llama/Llama-3.2-3B-GGUF", 3_212_749_888, note="Small and quick.", architecture="llama"),
    )
