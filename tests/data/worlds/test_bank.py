"""The nearest sentence is the one that was said, however it was introduced, and less near the more it is changed."""

import pytest

from tutelage.data.worlds.bank import bank, nearest, split_sentences, words
from tutelage.data.worlds.phrases import OPENERS


def nearness(text: str, topic: str) -> float:
    match = nearest(text, topic)
    return match.nearness if match else 0.0


def test_every_sentence_is_found_as_itself() -> None:
    for sentence in bank():
        match = nearest(sentence.text, sentence.topic)
        assert match is not None
        assert match.nearness == 1.0
        assert (match.sentence.kind, match.sentence.topic) == (sentence.kind, sentence.topic), sentence.text


@pytest.mark.parametrize("opener", OPENERS)
def test_an_opener_changes_nothing(opener: str) -> None:
    match = nearest(f"{opener} gravity pulls you down toward the ground.", "gravity")
    assert match is not None
    assert (match.nearness, match.sentence.kind) == (1.0, "fact")


def test_nearness_is_dice_of_word_pairs() -> None:
    # "Bones hold your body up": 6 pairs with both ends. Without "up": 5 pairs, of which < bones, bones hold,
    # hold your and your body are common: 2 * 4 / (6 + 5).
    assert nearness("Bones hold your body.", "bones") == pytest.approx(8 / 11)


def test_splicing_two_sentences_is_far_from_both() -> None:
    assert nearness("Gravity pulls you down inside green leaves of very hot gas.", "gravity") < 0.6


@pytest.mark.parametrize("topic", ["atoms", "cells", "gravity"])
def test_equal_sentences_are_decided_for_the_topic_asked_about(topic: str) -> None:
    # A mistake about atoms and about cells in the same words, and a filler that fits every topic.
    match = nearest("They are as big as apples.", topic)
    assert match is not None
    assert match.nearness == 1.0
    assert match.sentence.topic == (topic if topic != "gravity" else "cells")
    filler = nearest("It is hard to say where to start.", topic)
    assert filler is not None
    assert (filler.sentence.kind, filler.sentence.topic) == ("filler", topic)


def test_nothing_known_is_near_to_nothing() -> None:
    assert nearest("Xylophone zebra quixotic.", "gravity") is None


def test_sentences_end_at_marks_and_words_carry_no_punctuation() -> None:
    assert split_sentences("Hi there! Is it so?! Yes... - A 10-year-old asks") == [
        "Hi there!",
        "Is it so?!",
        "Yes...",
        "- A 10-year-old asks",
    ]
    assert words("Hi, a 10-year-old's DNA!") == ["hi", "a", "10-year-old's", "dna"]
    assert split_sentences(" ... \n") == []
