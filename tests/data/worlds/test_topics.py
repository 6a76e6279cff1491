"""The topics are complete, plainly written, and can be told apart in a prompt."""

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.worlds import Topic, find_topic
from tutelage.data.worlds.gold import words
from tutelage.data.worlds.phrases import ASK
from tutelage.data.worlds.topics import topics

EVERY_TOPIC = for_each(topics(), lambda topic: topic.slug)


@EVERY_TOPIC
def test_every_topic_is_complete(topic: Topic) -> None:
    assert len(topic.facts) >= 4
    assert len(topic.technical) >= 3
    assert len(topic.analogies) >= 2
    assert len(topic.wrong) >= 1
    assert len(topic.questions) >= 1
    assert topic.subject.lower() == topic.name.lower()
    assert topic.pronoun in ("It", "They")


@EVERY_TOPIC
def test_sentences_are_single_capitalised_and_short(topic: Topic) -> None:
    statements = topic.facts + topic.technical + topic.analogies + topic.wrong
    assert all(statement.startswith(f"{topic.subject} ") for statement in statements)
    for sentence in statements + topic.questions:
        assert sentence[0].isupper()
        assert sentence[-1] == ("?" if sentence in topic.questions else ".")
        assert not set(sentence[:-1]) & set(".!?\n")
        assert len(words(sentence)) <= 16
    assert all(f"{topic.subject} {topic.verb} like " in analogy for analogy in topic.analogies)


def test_there_are_many_topics_and_no_sentence_is_said_of_two() -> None:
    assert len(topics()) >= 64
    said = [text for topic in topics() for text in topic.facts + topic.technical + topic.analogies + topic.wrong]
    assert len(set(said)) == len(said)
    assert len({topic.slug for topic in topics()}) == len(topics())


@EVERY_TOPIC
def test_each_way_to_ask_names_exactly_its_topic(topic: Topic) -> None:
    for template in ASK:
        assert find_topic(topic.fill(template)) is topic
        assert find_topic(topic.fill(template).upper()) is topic


def test_the_longest_name_wins_and_parts_of_words_do_not_count() -> None:
    assert find_topic("Do solar panels need light?").name == "solar panels"
    assert find_topic("Delightful bees").name == "bees"
    with pytest.raises(TutelageError, match=r"No topic .*delightful"):
        find_topic("Explain delightful music to a child.")
