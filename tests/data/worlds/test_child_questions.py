"""Laws of the clarity of an explanation: what must lower it, what must raise it, and where each peak lies."""

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_prompts
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.text_counts import reading_grade
from tutelage.data.worlds import ChildrensQuestions, clarity, explain_clarity
from tutelage.data.worlds.child_questions import (
    ADDRESS,
    CHEER,
    GRADE,
    GRADE_MOST,
    PICTURE,
    REPEATED,
    SENTENCE,
    SENTENCE_HIGH,
    SENTENCE_MOST,
    SYSTEM,
    TOO_SHORT,
    TOPIC,
    UNFINISHED,
    WORDS_HIGH,
    WORDS_LOW,
    questions,
)

QUESTION = "Why is the sky blue?"
PLAIN = "Light from the sun has all the colors in it. The air sends the blue light to all sides, so the sky is blue."
BEST = (
    "Light from the sun has all the colors in it, like a box of paints. The air sends the blue light to all sides, so "
    "you see a blue sky!"
)
HARD = (
    "The atmosphere preferentially scatters electromagnetic radiation of shorter wavelengths, a phenomenon known as "
    "Rayleigh scattering, which causes the sky to exhibit its characteristic blue colour throughout the day."
)


def value(answer: str, question: str = QUESTION) -> float:
    return clarity([question], [answer])[0]


def part(name: str, answer: str, question: str = QUESTION) -> float:
    return explain_clarity(question, answer)[name]


def test_the_best_answer_has_every_part_at_its_best() -> None:
    parts = explain_clarity(QUESTION, BEST)
    assert parts == {
        "topic": TOPIC,
        "grade": parts["grade"],
        "sentences": parts["sentences"],
        "length": 0.0,
        "warmth": ADDRESS + PICTURE + CHEER,
        "repetition": 0.0,
        "ending": 0.0,
    }
    assert value(BEST) == pytest.approx(sum(parts.values()))
    assert value(BEST) > value(PLAIN) > value(HARD)


def test_each_part_is_what_the_module_says() -> None:
    """A sentence of 16 words, the grade by its own function: two numbers that can be computed by hand."""
    answer = "the sky is " + "blue " * 12 + "now."
    assert part("sentences", answer) == pytest.approx(-SENTENCE * (16 - SENTENCE_HIGH))
    assert part("length", answer) == pytest.approx(-TOO_SHORT * (1 - 16 / WORDS_LOW))
    # 14 triples, of which "blue blue blue" comes ten times
    assert part("repetition", answer) == pytest.approx(-REPEATED * 9 / 14)
    grade = reading_grade(PLAIN + " " + HARD)
    assert grade is not None
    assert part("grade", PLAIN + " " + HARD) == pytest.approx(-GRADE * min(grade - 4, GRADE_MOST))


def test_long_words_and_long_sentences_cost_no_more_than_their_bounds() -> None:
    assert part("grade", HARD) == pytest.approx(-GRADE * GRADE_MOST)
    assert part("sentences", "word " * 200) == pytest.approx(-SENTENCE * SENTENCE_MOST)
    assert part("grade", "The sun is hot.") == part("sentences", "The sun is hot.") == 0.0


def test_an_answer_that_was_cut_is_worse_by_its_ending_alone() -> None:
    assert value(PLAIN[:-1]) == pytest.approx(value(PLAIN) - UNFINISHED)
    for closing in ('"', "”", ")", " "):
        assert part("ending", PLAIN + closing) == 0.0


def test_saying_everything_twice_is_worse() -> None:
    assert value(f"{PLAIN} {PLAIN}") < value(PLAIN) - 0.5


def test_length_is_best_inside_and_falls_on_both_sides() -> None:
    fall = [part("length", "word " * count) for count in range(0, 101, 5)]
    low, high = WORDS_LOW // 5, WORDS_HIGH // 5
    assert fall[: low + 1] == sorted(fall[: low + 1])
    assert set(fall[low : high + 1]) == {0.0}
    assert fall[high:] == sorted(fall[high:], reverse=True)
    assert (fall[0], fall[-1]) == (pytest.approx(-2.0), pytest.approx(-0.04 * 55))


def test_exclamation_marks_have_their_peak_at_one() -> None:
    marks = [value(PLAIN[:-1] + "!" * count) for count in range(1, 6)]
    assert marks == sorted(marks, reverse=True)
    assert marks[0] > value(PLAIN) > marks[2]


@for_each(["you see", "as soon as you’ll see", "Let's see"])
def test_whoever_is_spoken_to_is_addressed_whatever_the_apostrophe(said: str) -> None:
    assert part("warmth", f"The blue sky, {said}.") == ADDRESS


@for_each(["like a ball", "Imagine a ball", "just like when it rains"])
def test_a_comparison_is_one(said: str) -> None:
    assert part("warmth", f"The blue sky: {said}.") == PICTURE
    assert part("warmth", "We like blue, the sky is likely blue.") == 0.0


@for_each(
    [
        (QUESTION, "The skies are grey.", 0.0),
        (QUESTION, "The sky is grey.", 0.5),
        (QUESTION, "The sky's blue.", 1.0),
        ("Why do raindrops have different sizes?", "Each raindrop has its size.", 1.0),
        ("How does a rainbow get its colours?", "A rainbow has colors.", 1.0),
        ("Why do leaves turn red and yellow in autumn?", "In autumn the leaves fall.", 1.0),
        ("Why do leaves turn red and yellow in autumn?", "Every leaf is green.", 0.0),
        ("Why do people make things?", "No idea.", 1.0),  # nothing that an answer could name
    ]
)
def test_the_topic_is_what_the_question_names(question: str, answer: str, share: float) -> None:
    assert part("topic", answer, question) == TOPIC * share


def test_charm_without_the_topic_is_worth_nothing() -> None:
    charm = "What a great thing to ask! You are like a star."
    assert part("warmth", charm) == 0.0
    assert value(charm) < 0 < value(PLAIN)


def test_nonsense_never_wins() -> None:
    for nonsense in ("", "!!!", "blue blue blue blue", "You! " * 20, "Sky blue.", "?" * 40):
        assert value(nonsense) < value(PLAIN) - 1


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(TutelageError, match=r"clarity\(\) was given 2 prompts but 1 completion;"):
        clarity([QUESTION, QUESTION], [PLAIN])


def test_every_line_of_the_file_is_a_question_of_its_topic() -> None:
    assert len(questions()) == 125
    asked = [question for topic in questions().values() for question in topic]
    assert len(asked) == len(set(asked)) == 625
    assert all(question.endswith("?") and question == question.strip() for question in asked)
    assert questions()["sky"][0] == "Why is the sky blue?"


@for_each(range(3))
def test_topics_are_divided_and_no_question_is_on_both_sides(seed: int) -> None:
    world = ChildrensQuestions(seed)
    train, held_out = world.topics("train"), world.topics("held_out")
    assert {*train, *held_out} == set(questions())
    assert len(held_out) == 31
    prompts = {split: world.prompts(split) for split in ("train", "held_out")}
    for split, topics in (("train", train), ("held_out", held_out)):
        asked = {prompt.messages[-1].content for prompt in prompts[split]}
        assert asked == {question for topic in topics for question in questions()[topic]}
        assert {prompt.split for prompt in prompts[split]} == {split}
        assert len({prompt.id for prompt in prompts[split]}) == len(prompts[split]) == 5 * len(topics)


def test_the_first_part_of_the_list_goes_round_the_topics() -> None:
    world = ChildrensQuestions(0)
    first = world.prompts("train")[:94]
    assert [prompt.id for prompt in first] == [f"{topic.replace(' ', '-')}-0" for topic in world.topics("train")]


def test_another_seed_divides_otherwise_and_keeps_the_ids() -> None:
    one, other = ChildrensQuestions(0), ChildrensQuestions(1)
    assert set(one.topics("held_out")) != set(other.topics("held_out"))

    def ids(world: ChildrensQuestions) -> dict[str, str]:
        every = world.prompts("train") + world.prompts("held_out")
        return {prompt.messages[-1].content: prompt.id for prompt in every}

    assert ids(one) == ids(other)


def test_a_prompt_comes_back_from_its_file_with_its_system_turn(tmp_path) -> None:
    prompts = ChildrensQuestions(0).prompts("held_out")
    assert all([turn.role for turn in prompt.messages] == ["system", "user"] for prompt in prompts)
    assert prompts[0].messages[0].content == SYSTEM
    write_jsonl(tmp_path / "prompts.jsonl", map(to_row, prompts))
    assert load_prompts(tmp_path / "prompts.jsonl").records == tuple(prompts)
