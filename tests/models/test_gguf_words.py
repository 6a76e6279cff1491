"""Tokenizers in GGUF files: how text is split, SentencePiece's scores, added tokens, and what is refused."""

from pathlib import Path

import pytest
import tiny
from gguf import GGUFReader, GGUFWriter, TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from tutelage.base.errors import TutelageError
from tutelage.models.gguf_splits import EXPRESSIONS
from tutelage.models.gguf_words import add_tokenizer

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
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def test_the_split_of_a_tokenizer_has_the_name_that_llama_cpp_knows_it_by(tmp_path) -> None:
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), LEVEL])
    assert keys(byte_level(LEVEL), tmp_path / "a.gguf")["ggml.pre"] == "gpt-2"
    assert keys(byte_level(digits), tmp_path / "b.gguf")["ggml.pre"] == "smollm"
    qwen = byte_level(split_by(PRETOKENIZE_REGEX), normalizer=normalizers.NFC())
    assert keys(qwen, tmp_path / "c.gguf")["ggml.pre"] == "qwen2"
    assert (
        keys(byte_level(split_by(EXPRESSIONS["llama-bpe"])), tmp_path / "d.gguf")["ggml.pre"] == "llama-bpe"
    )


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
    assert (found["ggml.bos_token_id"], found["ggml.eos_token_id"]) == (
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )


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
    around = processors.TemplateProcessing(
        single=f"{tiny.START} {tiny.START} $A", special_tokens=[(tiny.START, 2)]
    )
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
