"""Kinds of documents about a topic, as a library for children would hold them, and the conversations of the product."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tutelage.data.worlds import phrases
from tutelage.data.worlds.bank import lower_first, with_pronoun
from tutelage.data.worlds.styles import CASUAL, compose, pick, speak
from tutelage.data.worlds.tasks import choose_task
from tutelage.data.worlds.topics import Topic

Register: TypeAlias = Callable[[Topic, Random], str]

CHILDREN = ("Mia", "Tom", "Ana", "Ben", "Zoe", "Max", "Lily", "Sam")
FAMILY = ("Grandma", "Grandpa", "Mum", "Dad", "Uncle Leo", "Aunt Rosa")
PLACES = (
    "in the kitchen",
    "in the garden",
    "at the beach",
    "on the train",
    "in the library",
    "by the window",
)
TIMES = ("One evening", "One morning", "After school", "On a rainy day", "Last week", "In the summer")
PRAISE = ("Well done!", "Very good!", "That is right.", "Exactly.", "Good thinking!")
LEARNED = (
    "Today we learned about {name}.",
    "At school we talked about {name}.",
    "I read a book about {name}.",
)
HEADINGS = ("Facts about {name}:", "What we know about {name}:", "Five things about {name}:")
PICTURES = ("How to picture {name}:", "Ways to think of {name}:", "Pictures for {name}:")
TASK_SHARE = 0.3
SECOND_TURN_SHARE = 0.3


def encyclopaedia(topic: Topic, rng: Random) -> str:
    """A title, then facts and technical sentences."""
    body = pick(topic.facts, rng.randint(3, 5), rng) + pick(topic.technical, rng.randint(1, 3), rng)
    return f"{topic.subject}\n{' '.join(speak(topic, body, rng))}"


def classroom(topic: Topic, rng: Random) -> str:
    """A teacher and two children."""
    first, second = rng.sample(CHILDREN, 2)
    told, answer = pick(topic.facts, 2, rng)
    picture = with_pronoun(rng.choice(topic.analogies), topic)
    return "\n".join(
        (
            f"Teacher: {topic.fill('Today we talk about {name}.')} {told}",
            f"{first}: I know that! {answer}",
            f"Teacher: {rng.choice(PRAISE)} {picture}",
            f"{second}: I think that I understand now.",
            f"Teacher: {rng.choice(topic.questions)}",
        )
    )


def letter(topic: Topic, rng: Random) -> str:
    """A child writes home."""
    facts = " ".join(speak(topic, pick(topic.facts, rng.randint(2, 3), rng), rng))
    picture = lower_first(rng.choice(topic.analogies))
    return (
        f"Dear {rng.choice(FAMILY)},\n{topic.fill(rng.choice(LEARNED))} {facts} My teacher says that {picture} "
        f"See you soon!\nLove, {rng.choice(CHILDREN)}"
    )


def quiz(topic: Topic, rng: Random) -> str:
    """True-or-false cards and a riddle, in random order."""
    cards = [f"True or false? {fact}\nAnswer: True." for fact in pick(topic.facts, 2, rng)]
    wrong = rng.choice(topic.wrong)
    cards.append(f"True or false? {wrong}\nAnswer: False. {rng.choice(topic.facts)}")
    clues = [with_pronoun(text, topic) for text in topic.facts + topic.analogies]
    riddle = " ".join(pick(tuple(clue for clue in clues if clue.startswith(topic.pronoun + " ")), 2, rng))
    who = "they" if topic.verb == "are" else "it"
    cards.append(f"{riddle} What {topic.verb} {who}?\nAnswer: {topic.subject}.")
    rng.shuffle(cards)
    return "\n".join(cards)


def story(topic: Topic, rng: Random) -> str:
    """A child asks somebody of the family."""
    child, elder = rng.choice(CHILDREN), rng.choice(FAMILY)
    facts = " ".join(speak(topic, pick(topic.facts, rng.randint(2, 3), rng), rng))
    picture = rng.choice(topic.analogies)
    return (
        f"{rng.choice(TIMES)}, {child} and {elder} sat {rng.choice(PLACES)}. "
        f'"Can you tell me about {topic.name}?" asked {child}. "Of course," said {elder}. "{facts}" '
        f'{child} smiled. "So I can say that {lower_first(picture)[:-1]}," said {child}. '
        f'"{_inside(rng.choice(PRAISE))}" said {elder}.'
    )


def fact_list(topic: Topic, rng: Random) -> str:
    """A numbered list."""
    facts = rng.sample(topic.facts, len(topic.facts))
    lines = [f"{number}. {fact}" for number, fact in enumerate(facts, 1)]
    return "\n".join([topic.fill(rng.choice(HEADINGS)), *lines])


def pictures(topic: Topic, rng: Random) -> str:
    """The analogies, and what is behind them."""
    said = [*rng.sample(topic.analogies, len(topic.analogies)), rng.choice(topic.facts)]
    return f"{topic.fill(rng.choice(PICTURES))} {' '.join(speak(topic, said, rng))}"


def conversation(topic: Topic, rng: Random) -> str:
    """What the product's own transcripts look like, with one or two turns."""
    turns = [_turn(topic, rng)]
    if rng.random() < SECOND_TURN_SHARE:
        turns.append(_turn(topic, rng))
    return "\n".join(turns)


# The share of each register in the corpus.
REGISTERS: tuple[tuple[Register, float], ...] = (
    (conversation, 0.40),
    (encyclopaedia, 0.15),
    (classroom, 0.08),
    (letter, 0.08),
    (story, 0.08),
    (quiz, 0.07),
    (fact_list, 0.07),
    (pictures, 0.07),
)


def _turn(topic: Topic, rng: Random) -> str:
    if rng.random() < TASK_SHARE:
        question, answer = choose_task(topic, rng)
    else:
        question, answer = topic.fill(rng.choice(phrases.ASK)), compose(topic, CASUAL, rng)
    return f"User: {question}\nAssistant: {answer}"


def _inside(speech: str) -> str:
    """Inside quotation marks, a full stop becomes a comma."""
    return speech[:-1] + "," if speech.endswith(".") else speech
