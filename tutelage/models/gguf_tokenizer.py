"""The tokenizer of a GGUF file: tokens and their types, merges or scores, and llama.cpp's name of the pre-tokenizer.

GGUF supports only the two kinds of tokenizers implemented in llama.cpp: byte-level BPE with a named pre-tokenizer, and
SentencePiece's BPE. Others are rejected, since llama.cpp would produce other tokens than in training.

The key tokenizer.ggml.pre names the pre-tokenizer, as defined in llama.cpp's source (src/llama-vocab.cpp), which also
groups equivalent names. transformers supports some of the names and treats all others as GPT-2, which tokenises, for
example, white space before numbers differently than in training.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from gguf import GGUFWriter, TokenType
from tokenizers import Regex, pre_tokenizers

from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import has_template

log = logging.getLogger(__name__)

INSTEAD = "Export it with llama.cpp's convert_hf_to_gguf.py, if that knows it"
"""Advice for a model that is rejected."""

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

GPT2, SMOLLM = "gpt-2", "smollm"
"""Pre-tokenizers that are not a single expression: GPT-2's, and GPT-2's with single digits."""

EXPRESSIONS = {
    "llama-bpe": f"{_ENDINGS}|{_LETTERS}|\\p{{N}}{{1,3}}|{_REST}",
    "qwen2": f"{_ENDINGS}|{_LETTERS}|\\p{{N}}|{_REST}",
}
"""Regular expressions by llama.cpp's names of pre-tokenizers."""

_SAME = {
    GPT2: "phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat modern-bert mellum a.x-4.0 "
    "jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe",
    SMOLLM: "starcoder refact command-r codeshell exaone minerva-7b",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe",
    "qwen2": "stablelm2 hunyuan deepseek-r1-qwen kormo f2llmv2 megrez",
}
SPLITS = {other: name for name, others in _SAME.items() for other in (name, *others.split())}
"""llama.cpp's names, mapped to the equivalent one of the four above."""


def split_name(splitter: Mapping[str, Any]) -> str | None:
    """llama.cpp's name of a byte-level pre-tokenizer from tokenizer.json; None if it has none."""
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
    """Set the pre-tokenizer of a byte-level tokenizer by name. For an unknown name, transformers' choice is kept, with
    a warning if that is GPT-2's."""
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


PROBE = "a"
"""Text for detecting the tokens added around every text."""


def add_tokenizer(writer: GGUFWriter, tokenizer: Any, rows: int) -> None:
    """Write the tokenizer, padded with unused tokens to the `rows` of the embedding.

    Raises TutelageError for a tokenizer that llama.cpp does not support.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    description = json.loads(backend.to_str()) if backend is not None else {}
    model = description.get("model", {})
    if model.get("type") != "BPE":
        raise _refused(f"of the kind {model.get('type') or type(tokenizer).__name__}")
    if model.get("byte_fallback"):
        _add_sentencepiece(writer, description)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(_split_name(description))
        writer.add_token_merges([" ".join(pair) for pair in _merges(model)])
    tokens = _tokens(tokenizer, rows)
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    if model.get("byte_fallback"):
        writer.add_token_scores(_scores(model, [token for token, _ in tokens]))
    _add_special(writer, tokenizer)
    if has_template(tokenizer):
        writer.add_chat_template(tokenizer.chat_template)


def _tokens(tokenizer: Any, rows: int) -> list[tuple[str, int]]:
    """The tokens in order of their ids, each with its type."""
    byte_level = json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("byte_fallback") is not True
    added = tokenizer.added_tokens_decoder
    vocabulary = {number: token for token, number in tokenizer.get_vocab().items()}
    tokens = []
    for number in range(max(rows, max(vocabulary) + 1)):
        token = vocabulary.get(number, f"[PAD{number}]")
        kind = TokenType.NORMAL
        if number not in vocabulary:
            kind = TokenType.UNUSED
        elif number in added:
            kind = TokenType.CONTROL if added[number].special else TokenType.USER_DEFINED
        elif not byte_level and len(token) == 6 and token.startswith("<0x"):
            kind = TokenType.BYTE
        tokens.append((token, int(kind)))
    return tokens


def _merges(model: Mapping[str, Any]) -> list[Sequence[str]]:
    return [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]


def _split_name(fields: Mapping[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer of a byte-level tokenizer."""
    normalizer, splitter = fields.get("normalizer"), fields.get("pre_tokenizer") or {}
    if normalizer and normalizer.get("type") != "NFC":
        raise _refused(f"that normalises text by {normalizer.get('type')}")
    name = split_name(splitter)
    if name is None:
        raise _refused(f"that splits text in a way that llama.cpp has no name for ({json.dumps(splitter)[:200]})")
    return name


def _add_sentencepiece(writer: GGUFWriter, fields: Mapping[str, Any]) -> None:
    """Write the key of SentencePiece's BPE, and whether a space is prepended to texts."""
    splitter, normalizer = fields.get("pre_tokenizer") or {}, fields.get("normalizer") or {}
    parts = normalizer.get("normalizers", [normalizer])
    prepended = any(part.get("type") == "Prepend" for part in parts)
    if splitter.get("type") == "Metaspace":
        prepended = splitter.get("prepend_scheme", "always") != "never"
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_add_space_prefix(prepended)


def _scores(model: Mapping[str, Any], tokens: Sequence[str]) -> list[float]:
    """The score of each token: the earlier its first merge, the higher; tokens without a merge come last."""
    merges = _merges(model)
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _add_special(writer: GGUFWriter, tokenizer: Any) -> None:
    """Write the special tokens, and which of them are added around every text."""
    around = tokenizer(PROBE)["input_ids"]
    inside = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if last is None:
        raise TutelageError("The tokenizer has no end token, without which llama.cpp would not stop: name one.")
    begins, ends = around[:1] == [first], len(around) > 1 and around[-1:] == [last]
    if around != [first] * begins + inside + [last] * ends:
        raise _refused("that puts other tokens around a text than its first and last")
    writer.add_eos_token_id(last)
    for number, add in (
        (first, writer.add_bos_token_id),
        (tokenizer.pad_token_id, writer.add_pad_token_id),
        (tokenizer.unk_token_id, writer.add_unk_token_id),
    ):
        if number is not None:
            add(number)
    writer.add_add_bos_token(begins)
    writer.add_add_eos_token(ends)


def _refused(what: str) -> TutelageError:
    return TutelageError(
        f"A tokenizer {what} cannot be written into a GGUF file: byte-level BPE can that splits as GPT-2, SmolLM, "
        f"Llama 3 or Qwen do, and SentencePiece's BPE. {INSTEAD}."
    )
