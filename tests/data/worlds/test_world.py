"""The world is the same for the same seed, holds topics out, and speaks in a small vocabulary about everything."""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from random import Random

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.records import Split
from tutelage.data.worlds import World, find_topic
from tutelage.data.worlds.gold import nearest, split_sentences, words
from tutelage.data.worlds.phrases import ASK
from tutelage.data.worlds.styles import STYLES, compose
from tutelage.data.worlds.topics import topics
from tutelage.data.worlds.world import REGISTERS, conversation


def documents(seed: int, tokens: int) -> list[str]:
    return list(World(seed).corpus(tokens))


def test_the_same_seed_gives_the_same_world() -> None:
    assert documents(3, 20_000) == documents(3, 20_000)
    assert World(3).demonstrations(200) == World(3).demonstrations(200)
    assert World(3).prompts("train") == World(3).prompts("train")


def test_another_seed_gives_another_world() -> None:
    assert documents(3, 20_000) != documents(4, 20_000)
    assert World(3).demonstrations(200) != World(4).demonstrations(200)
    assert set(World(3).topics("held_out")) != set(World(4).topics("held_out"))


def test_a_longer_corpus_begins_with_the_shorter_one() -> None:
    short = documents(0, 5_000)
    assert short == documents(0, 20_000)[: len(short)]
    assert World(0).demonstrations(50) == World(0).demonstrations(80)[:50]


@for_each(range(5))
def test_topics_are_divided_and_all_demonstrated(seed: int) -> None:
    world = World(seed)
    train, held_out = set(world.topics("train")), set(world.topics("held_out"))
    assert train | held_out == set(topics())
    assert not train & held_out
    assert len(held_out) == pytest.approx(len(topics()) / 4, abs=1)
    asked = [find_topic(demonstration.messages[-1].content) for demonstration in world.demonstrations(2000)]
    assert set(asked) == train | held_out


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_prompts_are_distinct_and_speak_of_their_split(split: Split) -> None:
    world = World(1)
    prompts = world.prompts(split)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.messages for prompt in prompts}) == len(prompts) >= 240
    assert {find_topic(prompt.messages[-1].content) for prompt in prompts} == set(world.topics(split))
    assert {prompt.split for prompt in prompts} == {split}
    first = prompts[: len(world.topics(split))]
    assert len({find_topic(prompt.messages[-1].content) for prompt in first}) == len(first)


def test_an_id_means_the_same_prompt_in_every_world() -> None:
    seen: dict[str, str] = {}
    for seed in range(4):
        for prompt in (*World(seed).prompts("train"), *World(seed).prompts("held_out")):
            assert seen.setdefault(prompt.id, prompt.messages[-1].content) == prompt.messages[-1].content


def test_the_corpus_is_as_long_as_asked_and_varied() -> None:
    said = documents(0, 200_000)
    assert sum(len(document.split()) for document in said) > 150_000
    assert sum(len(document.split()) for document in said) < 200_000  # marks count as tokens too
    assert len(set(said)) / len(said) > 0.95
    spoken = Counter(sentence for document in said for sentence in split_sentences(document))
    assert len(spoken) > 5_000
    assert spoken.most_common(1)[0][1] < 0.05 * spoken.total()


def test_the_vocabulary_is_small() -> None:
    vocabulary = Counter(word for document in documents(0, 400_000) for word in words(document))
    for demonstration in World(0).demonstrations(3000):
        vocabulary.update(words(demonstration.messages[-1].content + " " + demonstration.response))
    assert len(vocabulary) < 2200
    assert sum(count < 5 for count in vocabulary.values()) < 0.02 * len(vocabulary)


def test_every_topic_is_talked_about_in_conversation_too() -> None:
    asked = {topic.fill(template): topic.name for topic in topics() for template in ASK}
    talks = [document.split("\n")[0].removeprefix("User: ") for document in documents(0, 200_000)]
    answered = Counter(asked[talk] for talk in talks if talk in asked)
    assert set(answered) == {topic.name for topic in topics()}
    assert min(answered.values()) >= 5


def test_conversations_have_the_form_of_the_product() -> None:
    rng = Random(0)
    for topic in topics():
        lines = conversation(topic, rng).split("\n")
        assert [line.split(": ")[0] for line in lines] == ["User", "Assistant"] * (len(lines) // 2)


@for_each([register for register, _ in REGISTERS], lambda register: register.__name__)
def test_documents_are_clean_text_about_their_topic(register) -> None:
    rng = Random(1)
    for topic in topics():
        document = register(topic, rng)
        assert topic.name.lower().removesuffix("s") in document.lower()
        assert not set(document) & set("{}\t")
        assert "  " not in document
        assert document == document.strip()


@for_each(STYLES, lambda style: style.name)
def test_tutors_say_only_what_the_bank_knows(style) -> None:
    rng = Random(2)
    for topic in islice(topics(), 20):
        for sentence in split_sentences(compose(topic, style, rng)):
            match = nearest(sentence, topic.name)
            assert match is not None
            assert match.nearness == 1.0, sentence


def test_a_pronoun_never_opens_an_answer_or_stands_before_a_modifier() -> None:
    rng = Random(3)
    for topic in topics():
        for style in STYLES:
            said = [
                words(sentence)
                for sentence in split_sentences(compose(topic, replace(style, greeting=0, encouragement=0), rng))
            ]
            assert said[0][0] not in ("it", "they")
            neighbours = {" ".join(pair) for sentence in said for pair in pairwise(sentence)}
            assert not {"they that", "they of", "they with", "they in", "it that", "it of"} & neighbours


def test_a_corpus_of_nothing_is_refused() -> None:
    with pytest.raises(TutelageError, match="0 tokens"):
        World(0).corpus(0)
