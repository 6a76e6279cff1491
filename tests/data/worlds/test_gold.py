"""The nearest sentence is the one that was said, however it was introduced, and less near the more it is changed."""

from random import Random
from statistics import fmean, pstdev

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.worlds import Topic, explain, gold
from tutelage.data.worlds.gold import FRAGMENT, WORDS_HIGH, WORDS_LOW, bank, nearest, split_sentences, words
from tutelage.data.worlds.phrases import ENCOURAGEMENTS, FILLERS, GREETINGS, OPENERS
from tutelage.data.worlds.styles import STYLES, Style, choose_style, compose
from tutelage.data.worlds.topics import topics


def nearness(text: str, topic: str) -> float:
    match = nearest(text, topic)
    return match.nearness if match else 0.0


def test_every_sentence_is_found_as_itself() -> None:
    for sentence in bank():
        match = nearest(sentence.text, sentence.topic)
        assert match is not None
        assert match.nearness == 1.0
        assert (match.sentence.kind, match.sentence.topic) == (sentence.kind, sentence.topic), sentence.text


@for_each(OPENERS)
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


@for_each(["atoms", "cells", "gravity"])
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


EVERY_TOPIC = for_each(topics(), lambda topic: topic.slug)
STYLE = {style.name: style for style in STYLES}
POOR = ("dry", "short", "drifting", "mistaken", "repeating")


def ask(topic: Topic) -> str:
    return f"Explain {topic.name} to a 10-year-old."


def value(topic: Topic, answer: str) -> float:
    return gold([ask(topic)], [answer])[0]


def apart_from_length(topic: Topic, answer: str) -> float:
    parts = explain(ask(topic), answer)
    return sum(parts.values()) - parts["length"]


def best(topic: Topic) -> str:
    body = " ".join((*topic.facts[:3], topic.analogies[0], topic.questions[0]))
    return f"Hi there! I am glad that you asked. {body}"


def drawn(style: Style, topic: Topic, seed: int) -> str:
    return compose(topic, style, Random(f"{style.name}/{topic.slug}/{seed}"))


@EVERY_TOPIC
def test_more_of_a_good_thing_is_worse(topic: Topic) -> None:
    answer, top = best(topic), value(topic, best(topic))
    assert value(topic, answer.replace("Hi there!", f"{GREETINGS[4]} {GREETINGS[5]}")) < top
    assert value(topic, answer.replace("asked.", f"asked. {ENCOURAGEMENTS[1]}")) < top
    assert value(topic, answer.replace("asked.", "asked!")) < top
    assert value(topic, f"{answer} Would you like to know more about {topic.name}?") < top
    assert value(topic, answer.replace(topic.facts[2], topic.analogies[1])) < top
    assert value(topic, f"{answer} {topic.fill(FILLERS[0])}") < top


@EVERY_TOPIC
def test_what_is_missing_or_wrong_costs(topic: Topic) -> None:
    answer, top = best(topic), value(topic, best(topic))
    for part in ("Hi there! ", "I am glad that you asked. ", topic.facts[1] + " ", topic.analogies[0] + " "):
        assert apart_from_length(topic, answer.replace(part, "")) < apart_from_length(topic, answer)
    assert value(topic, answer.replace(topic.questions[0], "").strip()) < top
    mistaken = apart_from_length(topic, answer.replace(topic.facts[1], topic.wrong[0]))
    assert mistaken < apart_from_length(topic, answer) - 1
    assert value(topic, answer.replace(topic.facts[1], topic.technical[0])) < top
    assert value(topic, answer[:-1]) == pytest.approx(top - 1.0)  # no mark at its end


@EVERY_TOPIC
def test_an_answer_about_another_topic_is_worse(topic: Topic) -> None:
    other = topics()[(topics().index(topic) + 7) % len(topics())]
    assert value(topic, best(other)) < value(topic, best(topic)) - 2.5


@EVERY_TOPIC
def test_shuffled_words_are_much_worse(topic: Topic) -> None:
    said = best(topic).split()
    for seed in range(3):
        shuffled = list(said)
        Random(seed).shuffle(shuffled)
        assert value(topic, " ".join(shuffled)) < value(topic, best(topic)) - 4
        assert explain(ask(topic), " ".join(shuffled))["coherence"] < -0.9 * FRAGMENT


@EVERY_TOPIC
def test_saying_everything_twice_is_worse(topic: Topic) -> None:
    assert value(topic, f"{best(topic)} {best(topic)}") < value(topic, best(topic)) - 3


def test_exclamation_and_question_marks_have_their_peak_at_one() -> None:
    topic = topics()[0]
    body = " ".join(topic.facts[:4])
    marks = [value(topic, body[:-1] + "!" * count) for count in range(1, 6)]
    assert marks == sorted(marks, reverse=True)
    assert marks[0] > value(topic, body) > marks[2]
    asked = [value(topic, f"{body} {topic.questions[0]}" + "?" * count) for count in range(4)]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] > value(topic, body) > asked[2]


def test_length_is_best_inside_and_falls_on_both_sides() -> None:
    topic = topics()[0]
    fall = [explain(ask(topic), "word " * count)["length"] for count in range(0, 121, 5)]
    low, high = WORDS_LOW // 5, WORDS_HIGH // 5
    assert fall[: low + 1] == sorted(fall[: low + 1])
    assert set(fall[low : high + 1]) == {0.0}
    assert fall[high:] == sorted(fall[high:], reverse=True)
    assert fall[0] == pytest.approx(-1.0)
    assert fall[-1] == pytest.approx(-0.1 * 60)


def test_one_analogy_helps_and_every_further_one_costs() -> None:
    topic = topics()[1]
    gains = [
        explain(ask(topic), " ".join(topic.analogies[:count]))["analogy"] for count in range(len(topic.analogies) + 1)
    ]
    assert gains[0] == 0
    assert gains[1:] == sorted(gains[1:], reverse=True)
    assert len(set(gains)) == len(gains) > 3


def test_nonsense_never_wins() -> None:
    topic = topics()[1]
    floor = value(topic, topic.facts[0])
    for nonsense in ("", "!!!", "like like like like", "The of a to in is.", "Hi there! Why? " * 8, "?" * 40):
        assert value(topic, nonsense) < floor


def test_a_fact_counts_once_in_either_form() -> None:
    topic = topics()[0]
    fact = "Gravity pulls you down toward the ground."
    once = explain(ask(topic), fact)["accuracy"]
    assert explain(ask(topic), f"{fact} It pulls you down toward the ground.")["accuracy"] == once


def test_parts_add_up_and_words_of_ones_own_choice_lose_gradually() -> None:
    topic = topics()[0]
    for style in STYLES:
        answer = drawn(style, topic, 0)
        assert value(topic, answer) == pytest.approx(sum(explain(ask(topic), answer).values()))
    fact = "Gravity pulls you down toward the ground."
    one_word = fact.replace("down", "hard")
    two_words = one_word.replace("ground", "street")
    assert value(topic, fact) > value(topic, one_word) > value(topic, two_words)


def test_excellent_answers_beat_poor_ones_of_the_same_topic() -> None:
    wins = [
        value(topic, drawn(STYLE["excellent"], topic, seed)) > value(topic, drawn(STYLE[poor], topic, seed))
        for topic in topics()
        for poor in POOR
        for seed in range(2)
    ]
    assert sum(wins) / len(wins) >= 0.95


def test_demonstrations_leave_headroom() -> None:
    rng = Random(0)
    asked = [rng.choice(topics()) for _ in range(1500)]
    values = gold([ask(topic) for topic in asked], [compose(topic, choose_style(rng), rng) for topic in asked])
    mean, spread = fmean(values), pstdev(values)
    assert 1.8 < spread < 2.4
    excellent = [value(topic, drawn(STYLE["excellent"], topic, 0)) for topic in topics()]
    assert fmean(excellent) > mean + 2 * spread
    assert 0.02 < sum(v > 6 for v in values) / len(values) < 0.15


def test_mistakes_are_told() -> None:
    with pytest.raises(TutelageError, match="2 prompts but 1 completion;"):
        gold(["Explain gravity.", "Explain bees."], ["Hello."])
    with pytest.raises(TutelageError, match="No topic"):
        gold(["Explain music."], ["Hello."])


@EVERY_TOPIC
def test_charm_without_an_explanation_is_worth_less_than_a_single_plain_fact(topic: Topic) -> None:
    charm = f"Hi there! I am glad that you asked. {topic.questions[0]}"
    assert value(topic, charm) < 0 < value(topic, f"{charm} {topic.facts[0]}") - value(topic, topic.facts[0])
    assert value(topic, charm) < value(topic, topic.facts[0])
