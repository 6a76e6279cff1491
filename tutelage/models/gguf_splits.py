"""How byte-level tokenizers split text before their merges, by the names that llama.cpp has for it.

The key tokenizer.ggml.pre of a GGUF file holds the name. What it means is in llama.cpp's source (src/llama-vocab.cpp),
which also groups the names of models that split alike. transformers knows some of the names and splits everything else
as GPT-2 does. Runs of blanks and line ends before a number then become other tokens than the model was trained on.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, pre_tokenizers

log = logging.getLogger(__name__)

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

GPT2, SMOLLM = "gpt-2", "smollm"
"""The splits that are no single expression: GPT-2's own, and single digits before it."""

EXPRESSIONS = {
    "llama-bpe": f"{_ENDINGS}|{_LETTERS}|\\p{{N}}{{1,3}}|{_REST}",
    "qwen2": f"{_ENDINGS}|{_LETTERS}|\\p{{N}}|{_REST}",
}
"""Regular expressions by llama.cpp's names."""

_SAME = {
    GPT2: "phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat modern-bert mellum a.x-4.0 "
    "jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe",
    SMOLLM: "starcoder refact command-r codeshell exaone minerva-7b",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe",
    "qwen2": "stablelm2 hunyuan deepseek-r1-qwen kormo f2llmv2 megrez",
}
SPLITS = {other: name for name, others in _SAME.items() for other in (name, *others.split())}
"""The names that llama.cpp reads, each with the one of the four above that splits alike."""


def split_name(splitter: Mapping[str, Any]) -> str | None:
    """llama.cpp's name of a byte-level pre-tokenizer as tokenizer.json holds it; None where it has none."""
    parts = splitter.get("pretokenizers", [splitter])
    last = parts[-1]
    if last.get("type") == "ByteLevel" and not last.get("add_prefix_space"):
        match [part.get("type") for part in parts]:
            case ["ByteLevel"] if last.get("use_regex", True):
                return GPT2
            case ["Digits", "ByteLevel"] if last.get("use_regex", True) and parts[0]["individual_digits"]:
                return SMOLLM
            case ["Split", "ByteLevel"] if not last.get("use_regex", True):
                names = {expression: name for name, expression in EXPRESSIONS.items()}
                if parts[0]["behavior"] == "Isolated" and not parts[0]["invert"]:
                    return names.get(parts[0]["pattern"].get("Regex", ""))
    return None


def set_split(tokenizer: Any, name: str) -> None:
    """Make a byte-level tokenizer split text as the name says. A name that is not known leaves what transformers
    chose, with a warning where that is GPT-2's split."""
    backend = tokenizer.backend_tokenizer
    if name in SPLITS:
        backend.pre_tokenizer = _splitter(SPLITS[name])
    elif split_name(json.loads(backend.to_str())["pre_tokenizer"] or {}) == GPT2:
        how = f"as {name!r}, which is not known here" if name else "in a way that it does not name"
        log.warning(
            f"The file splits text {how}: GPT-2's way is taken. Numbers and blanks may become other tokens than the "
            "model was trained on. The folder of the same model with its tokenizer.json is safe."
        )


def _splitter(name: str) -> Any:
    """The pre-tokenizer of one of the four names."""
    if name == GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == SMOLLM:
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(EXPRESSIONS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
