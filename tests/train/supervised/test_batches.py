"""A conversation is the same to every command: system message and earlier turns are the prompt, the last answer is
trained on."""

import tracemalloc
from itertools import permutations

import pytest
import tiny
import torch
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tutelage.base.errors import TutelageError
from tutelage.core.rows import collate
from tutelage.data.records import Demonstration, Message, Messages, Preference, Prompt, UnpairedAnswer
from tutelage.data.tokenizer import may_coincide
from tutelage.rollout.generator import encode_prompts
from tutelage.train.supervised import batches
from tutelage.train.supervised.batches import EncodedWhenRead, encode_demonstrations, encode_preferences
from tutelage.train.supervised.unpaired_job import encode_unpaired

WORDS = Tokenizer(models.WordLevel({"?": 0, "a": 1}, unk_token="?"))
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK: Messages = (
    Message("system", "Be brief."),
    Message("user", "Hi"),
    Message("assistant", "Hello there"),
    Message("user", "Why is it dark?"),
)


@pytest.mark.parametrize("template", [None, CHATML])
def test_every_command_reads_the_whole_conversation_and_learns_the_last_answer(tiny_model, template):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    tokenizer.chat_template = template
    (sft,), _ = encode_demonstrations([Demonstration(TALK, "Night.")], tokenizer, 4096)
    (pair,), _ = encode_preferences([Preference(TALK, "Night.", "Switch.")], tokenizer, 4096)
    (asked,) = encode_prompts([Prompt("p", TALK)], tokenizer)
    assert tuple(asked.tokens) == sft.prompt == pair.chosen.prompt == pair.rejected.prompt
    assert sft.response == pair.chosen.response != pair.rejected.response
    text = tokenizer.decode(sft.prompt)
    places = [text.index(turn.content) for turn in TALK]
    assert places == sorted(places)
    batch = collate([sft, pair.rejected], 0, torch.device("cpu"))
    for row, response in zip(range(2), (sft.response, pair.rejected.response), strict=True):
        learnt = batch.response[row][batch.mask[row]].tolist()
        assert tuple(learnt) == response
        assert "Hello there" not in tokenizer.decode(learnt)


def test_a_demonstration_keeps_its_weight(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    records = [Demonstration(TALK, "Night.", 0.5), Demonstration(TALK, "Why?"), Demonstration((), "Text", 2.0)]
    rows, _ = encode_demonstrations(records, tokenizer, 4096)
    assert [row.weight for row in rows] == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("template", [None, CHATML])
def test_rows_encoded_when_they_are_read_are_those_encoded_beforehand(tiny_model, template, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    tokenizer.chat_template = template
    texts = ["Night.", "It is <b>late</b>.", "é" * 30, "word " * 40, "It was night. " * 9]
    records = [Demonstration(turns, text, 1.5) for text in texts for turns in (TALK, TALK[1:], TALK[3:], ())]
    whole, counts = encode_demonstrations(records, tokenizer, 48)
    assert counts.prompts
    assert counts.responses
    monkeypatch.setattr(batches, "MOST_IN_MEMORY", 3)
    rows, cuts = encode_demonstrations(records, tokenizer, 48)
    assert not isinstance(rows, list)
    assert (list(rows), cuts) == (whole, counts)
    assert rows[3:5] == whole[3:5]


@pytest.mark.parametrize("template", [None, CHATML])
def test_pairs_and_labels_encoded_when_they_are_read_are_those_encoded_beforehand(tiny_model, template, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    tokenizer.chat_template = template
    sides = ["Night.", "word " * 40 + "a", "word " * 40 + "b", "It is <b>late</b>.", "caf\u00e9", "cafe\u0301"]
    pairs = [Preference(TALK[3:], a, b, 0.9) for a, b in permutations(sides, 2)]
    answers = [UnpairedAnswer(TALK, text, len(text) > 9) for text in sides]
    for encode, records in ((encode_preferences, pairs), (encode_unpaired, answers)):
        whole, counts = encode(records, tokenizer, 48)
        assert counts.responses
        with monkeypatch.context() as changed:
            changed.setattr(batches, "MOST_IN_MEMORY", 3)
            rows, cuts = encode(records, tokenizer, 48)
        assert isinstance(rows, EncodedWhenRead)
        assert (list(rows), rows[2:4], cuts) == (whole, whole[2:4], counts)
    assert any("equal once cut" in reason for reason in encode_preferences(pairs, tokenizer, 48)[1].dropped)


def test_token_ids_of_many_records_are_not_kept(tiny_model, monkeypatch):
    """A record is a reference of 8 bytes in a list, whatever its tokens."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    monkeypatch.setattr(batches, "MOST_IN_MEMORY", 3)
    records = [Preference(TALK[3:], f"Night {n}. " * 20, f"Day {n}. " * 20) for n in range(1000)]
    encode_preferences(records, tokenizer, 1024)  # what is cached at first use
    tracemalloc.start()
    try:
        pairs, _ = encode_preferences(records, tokenizer, 1024)
        assert tracemalloc.get_traced_memory()[0] < 100 * len(pairs), "token ids of a pair take some 2,000 bytes"
    finally:
        tracemalloc.stop()


def test_texts_with_the_same_tokens_are_known():
    byte_level, words = tiny.tokenizer(), PreTrainedTokenizerFast(tokenizer_object=WORDS, unk_token="?")
    assert not may_coincide(["rain", "snow"], byte_level)
    assert not may_coincide(["rain"], words)
    assert may_coincide(["rain", "snow"], words), "both are unknown words"
    assert may_coincide(["caf\u00e9", "cafe\u0301"], byte_level)


def test_only_rows_that_may_be_cut_are_encoded_beforehand(tiny_model, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    monkeypatch.setattr(batches, "MOST_IN_MEMORY", 3)
    encoded = []
    encode = batches.encode
    monkeypatch.setattr(batches, "encode", lambda *args: encoded.append(args[1]) or encode(*args))
    records = [Demonstration(TALK[3:], text) for text in ("Night.", "Day.", "Late.", "So " * 400, "<b>Now</b>", "Yes.")]
    encode_demonstrations(records, tokenizer, 1024)
    assert encoded == ["Night.", "So " * 400, "<b>Now</b>"]


@pytest.mark.parametrize(
    "change", ["m.content | replace('Late', 'Soon')", "raise_exception('no') if 'Late' in m.content else m.content"]
)
def test_a_row_that_a_template_changes_is_refused_before_training(tiny_model, monkeypatch, change):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    tokenizer.chat_template = CHATML.replace("m.content", change)
    monkeypatch.setattr(batches, "MOST_IN_MEMORY", 3)
    texts = ("Night.", "Day.", "Late.", "Yes.")
    for records in (
        [Demonstration(TALK, text) for text in texts],
        [Demonstration((*TALK[:3], Message("user", text)), "So.") for text in texts],
    ):
        with pytest.raises(TutelageError, match=r"Late|no"):
            encode_demonstrations(records, tokenizer, 1024)


def test_a_batch_of_data_that_a_template_was_applied_to_is_refused(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("llama"))
    records = [Demonstration((), f"Q {n} {tokenizer.eos_token}") for n in range(3)]
    with pytest.raises(TutelageError, match="3 of 3 rows"):
        encode_demonstrations(records, tokenizer, 64)
    assert encode_demonstrations([*records, *[Demonstration((), "Rain.")] * 3], tokenizer, 64)[1].describe(64)
