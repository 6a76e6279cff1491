"""How text is split before byte-level merges, by llama.cpp's names."""

import json
import logging
from pathlib import Path

import pytest
import tiny
from gguf import GGUFReader, GGUFWriter, TokenType
from offenders import for_each
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from tutelage.base.errors import TutelageError
from tutelage.models.gguf_tokenizer import EXPRESSIONS, SPLITS, add_tokenizer, set_split, split_name

DIGITS = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)
TEXT = "Two steps:\n\n1. Take 12  eggs.\n\n23. It's done, 3½   times."


def tokenizer(splitter) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose merges join blanks, line ends and letters."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = splitter
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [TEXT, "a  b\n\nc\n\n", "\n\n", "  ", "   "],
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def split_as(name: str, like: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers makes it of a file: the same merges, split as GPT-2 does."""
    inner = Tokenizer.from_str(like.backend_tokenizer.to_str())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = PreTrainedTokenizerFast(tokenizer_object=inner)
    set_split(made, name)
    return made


def test_single_digits_leave_the_blanks_before_them_together() -> None:
    """SmolLM's tokenizer.json splits off every digit, so that the two line ends before "1." are one token."""
    original = tokenizer(DIGITS)
    pieces = [piece for piece, _ in DIGITS.pre_tokenize_str("so:\n\n12  eggs")]
    assert pieces == ["so", ":", "ĊĊ", "1", "2", "Ġ", "Ġeggs"]
    assert split_as("smollm", original)(TEXT).input_ids == original(TEXT).input_ids
    assert split_as("gpt-2", original)(TEXT).input_ids != original(TEXT).input_ids


@for_each(sorted(SPLITS.items()))
def test_a_name_is_read_as_it_is_written(name: str, same: str) -> None:
    made = split_as(name, tokenizer(DIGITS))
    assert split_name(json.loads(made.backend_tokenizer.to_str())["pre_tokenizer"]) == same


@pytest.mark.parametrize(
    ("name", "told"), [("deepseek-llm", "as 'deepseek-llm', which is not known"), ("", "does not name")]
)
def test_an_unknown_name_is_said(name: str, told: str, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        split_as(name, tokenizer(DIGITS))
    assert told in caplog.text


def test_what_transformers_split_by_itself_is_left(caplog) -> None:
    made = tokenizer(pre_tokenizers.Whitespace())
    before = made.backend_tokenizer.to_str()
    set_split(made, "tekken")
    assert made.backend_tokenizer.to_str() == before
    assert not caplog.records


LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)


def keys(tokenizer, file: Path, rows: int = 0) -> dict:
    writer = GGUFWriter(file, "llama")
    add_tokenizer(writer, tokenizer, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    fields = GGUFReader(file).fields.items()
    return {key.removeprefix("tokenizer."): field.contents() for key, field in fields if "." in key}


def split_by(pattern: str):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(splitter, **changes):
    inner = tiny.tokenizer().backend_tokenizer
    inner.pre_tokenizer = splitter
    for name, value in changes.items():
        setattr(inner, name, value)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=tiny.END, bos_token=tiny.START)


def sentencepiece(prefix: bool):
    """BPE over the words of a text, with bytes for what it lacks, as a converted Llama 2 tokenizer has it."""
    pieces = ["▁", "a", "b", "c", "▁a", "ab", "▁ab", "bc"]
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab"), ("▁a", "b"), ("b", "c")]
    inner = Tokenizer(
        models.BPE({t: i for i, t in enumerate(vocabulary)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    prepend = [normalizers.Prepend("▁")] if prefix else []
    inner.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_the_split_of_a_tokenizer_has_the_name_that_llama_cpp_knows_it_by(tmp_path) -> None:
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), LEVEL])
    assert keys(byte_level(LEVEL), tmp_path / "a.gguf")["ggml.pre"] == "gpt-2"
    assert keys(byte_level(digits), tmp_path / "b.gguf")["ggml.pre"] == "smollm"
    qwen = byte_level(split_by(PRETOKENIZE_REGEX), normalizer=normalizers.NFC())
    assert keys(qwen, tmp_path / "c.gguf")["ggml.pre"] == "qwen2"
    assert keys(byte_level(split_by(EXPRESSIONS["llama-bpe"])), tmp_path / "d.gguf")["ggml.pre"] == "llama-bpe"


def test_added_tokens_are_control_tokens_or_words_of_the_user(tmp_path) -> None:
    tokenizer = byte_level(LEVEL)
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    found = keys(tokenizer, tmp_path / "a.gguf", rows=len(tokenizer) + 2)
    tokens, kinds = found["ggml.tokens"], found["ggml.token_type"]
    assert kinds[tokens.index("<think>")] == TokenType.USER_DEFINED
    assert kinds[tokens.index(tiny.END)] == TokenType.CONTROL
    assert kinds[tokens.index(bytes_to_unicode()[ord("a")])] == TokenType.NORMAL
    assert kinds[-2:] == [TokenType.UNUSED] * 2
    assert len(found["ggml.merges"]) == len(set(found["ggml.merges"])) > 0
    assert (found["ggml.bos_token_id"], found["ggml.eos_token_id"]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)


@pytest.mark.parametrize("prefix", [True, False])
def test_scores_of_sentencepiece_follow_the_first_merge_that_makes_a_token(prefix, tmp_path) -> None:
    found = keys(sentencepiece(prefix), tmp_path / "a.gguf")
    score = dict(zip(found["ggml.tokens"], found["ggml.scores"], strict=True))
    assert score["▁a"] > score["ab"] > score["▁ab"] > score["bc"] > score["c"]
    assert found["ggml.model"] == "llama"
    assert found["ggml.add_space_prefix"] is prefix
    assert (found["ggml.add_bos_token"], found["ggml.add_eos_token"]) == (True, False)
    assert found["ggml.token_type"][3] == TokenType.BYTE


def test_a_tokenizer_that_llama_cpp_would_read_otherwise_is_refused(tmp_path) -> None:
    around = processors.TemplateProcessing(single=f"{tiny.START} {tiny.START} $A", special_tokens=[(tiny.START, 2)])
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    endless = byte_level(LEVEL)
    endless.eos_token = None
    for tokenizer, sentence in (
        (byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)), "splits text in a way"),
        (byte_level(split_by(r"\p{L}+")), "splits text in a way that llama.cpp has no name for"),
        (byte_level(LEVEL, normalizer=normalizers.Lowercase()), "normalises text by Lowercase"),
        (byte_level(LEVEL, post_processor=around), "other tokens around a text"),
        (words, "of the kind WordLevel"),
        (endless, "has no end token"),
    ):
        with pytest.raises(TutelageError, match=sentence):
            keys(tokenizer, tmp_path / "a.gguf")
