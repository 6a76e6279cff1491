"""How text is split before byte-level merges, by llama.cpp's names."""

import json
import logging

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tutelage.models.gguf_splits import SPLITS, set_split, split_name

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


@pytest.mark.parametrize(("name", "same"), sorted(SPLITS.items()))
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
