"""The embedded tutoring world, on which the whole pipeline runs without downloads.

Its documents are in several registers; its instructions are to explain, define, compare, ask a quiz question, and
decide true or false."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.records import Demonstration, Prompt, Split, user
from tutelage.data.worlds import phrases
from tutelage.data.worlds.gold import lower_first, with_pronoun
from tutelage.data.worlds.styles import CASUAL, choose_style, compose, pick, speak
from tutelage.data.worlds.topics import Topic, topics

Task: TypeAlias = Callable[[Topic, Random], tuple[str, str]]

DEFINE = ("Define {name} in one sentence.", "In one sentence, what {is} {name}?", "What does a book say about {name}?")
COMPARE = ("Give me an analogy for {name}.", "What {is} {name} like?", "Find a picture in words for {name}.")
QUIZ = ("Ask me a quiz question about {name}.", "Write a question about {name}.", "Test me on {name}.")
VERDICT = ("True or false? {claim}", "Is this true about {name}? {claim}", "Right or wrong? {claim}")


def define(topic: Topic, rng: Random) -> tuple[str, str]:
    """Definition in one sentence, plain or technical."""
    return topic.fill(rng.choice(DEFINE)), rng.choice((topic.facts[0], topic.technical[0]))


def compare(topic: Topic, rng: Random) -> tuple[str, str]:
    return topic.fill(rng.choice(COMPARE)), rng.choice(topic.analogies)


def quiz_question(topic: Topic, rng: Random) -> tuple[str, str]:
    return topic.fill(rng.choice(QUIZ)), f"True or false? {rng.choice(topic.facts + topic.wrong)}"


def verdict(topic: Topic, rng: Random) -> tuple[str, str]:
    """Verdict on a claim, with a fact if it is false."""
    question = topic.fill(rng.choice(VERDICT))
    if rng.random() < 0.5:
        return question.replace("{claim}", rng.choice(topic.facts)), "That is true."
    return question.replace("{claim}", rng.choice(topic.wrong)), f"That is false. {rng.choice(topic.facts)}"


TASKS: tuple[Task, ...] = (define, compare, quiz_question, verdict)


def choose_task(topic: Topic, rng: Random) -> tuple[str, str]:
    """Random instruction and its response."""
    return rng.choice(TASKS)(topic, rng)


Register: TypeAlias = Callable[[Topic, Random], str]

CHILDREN = ("Mia", "Tom", "Ana", "Ben", "Zoe", "Max", "Lily", "Sam")
FAMILY = ("Grandma", "Grandpa", "Mum", "Dad", "Uncle Leo", "Aunt Rosa")
PLACES = ("in the kitchen", "in the garden", "at the beach", "on the train", "in the library", "by the window")
TIMES = ("One evening", "One morning", "After school", "On a rainy day", "Last week", "In the summer")
PRAISE = ("Well done!", "Very good!", "That is right.", "Exactly.", "Good thinking!")
LEARNED = ("Today we learned about {name}.", "At school we talked about {name}.", "I read a book about {name}.")
HEADINGS = ("Facts about {name}:", "What we know about {name}:", "Five things about {name}:")
PICTURES = ("How to picture {name}:", "Ways to think of {name}:", "Pictures for {name}:")
TASK_SHARE = 0.3
SECOND_TURN_SHARE = 0.3


def encyclopaedia(topic: Topic, rng: Random) -> str:
    """Encyclopaedia entry: a title, then facts and technical sentences."""
    body = pick(topic.facts, rng.randint(3, 5), rng) + pick(topic.technical, rng.randint(1, 3), rng)
    return f"{topic.subject}\n{' '.join(speak(topic, body, rng))}"


def classroom(topic: Topic, rng: Random) -> str:
    """Dialogue of a teacher and two children."""
    first, second = rng.sample(CHILDREN, 2)
    fact, answer = pick(topic.facts, 2, rng)
    picture = with_pronoun(rng.choice(topic.analogies), topic)
    return "\n".join(
        (
            f"Teacher: {topic.fill('Today we talk about {name}.')} {fact}",
            f"{first}: I know that! {answer}",
            f"Teacher: {rng.choice(PRAISE)} {picture}",
            f"{second}: I think that I understand now.",
            f"Teacher: {rng.choice(topic.questions)}",
        )
    )


def letter(topic: Topic, rng: Random) -> str:
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
    """Story of a child who asks a relative."""
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
    facts = rng.sample(topic.facts, len(topic.facts))
    lines = [f"{number}. {fact}" for number, fact in enumerate(facts, 1)]
    return "\n".join([topic.fill(rng.choice(HEADINGS)), *lines])


def pictures(topic: Topic, rng: Random) -> str:
    """Analogies, and the facts behind them."""
    said = [*rng.sample(topic.analogies, len(topic.analogies)), rng.choice(topic.facts)]
    return f"{topic.fill(rng.choice(PICTURES))} {' '.join(speak(topic, said, rng))}"


def conversation(topic: Topic, rng: Random) -> str:
    """Transcript in the plain form, with one or two turns."""
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
    """Text inside quotation marks: a full stop becomes a comma."""
    return speech[:-1] + "," if speech.endswith(".") else speech


HELD_OUT_SHARE = 0.25
EXPLAIN_SHARE = 0.85

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Tutoring world with fixed topics; the seed determines held-out topics and samples.

    Each method has its own random stream, so calls do not affect each other.
    """

    seed: int = 0

    def topics(self, split: Split) -> tuple[Topic, ...]:
        """Topics of a split, in a random order: a quarter of all are held out."""
        return split_items(topics(), split, self._rng("topics"))

    def corpus(self, tokens: int) -> Iterator[str]:
        """Pretraining documents about all topics, in mixed registers, of about `tokens` words and punctuation marks.

        Every topic occurs once before any repeats. Raises TutelageError if `tokens` is not positive.
        """
        if tokens <= 0:
            raise TutelageError(f"A corpus of {counted(tokens, 'token')} was asked for; ask for at least 1.")
        return self._documents(tokens)

    def demonstrations(self, n: int) -> list[Demonstration]:
        """Instructions with responses of mixed quality, mostly explanations for a child.

        They cover all topics: topics held out of the prompts are neither judged nor trained on.
        """
        rng = self._rng("demonstrations")
        every = topics()
        return [_demonstrate(rng.choice(every), every, rng) for _ in range(n)]

    def prompts(self, split: Split) -> list[Prompt]:
        """Every phrasing of a request to explain every topic of a split.

        Topics alternate, so that any prefix of the list covers as many topics as possible. Ids consist of the topic
        and the phrasing and are the same for every seed.
        """
        rng = self._rng(f"prompts/{split}")
        turns = [list(range(len(phrases.ASK))) for _ in self.topics(split)]
        for turn in turns:
            rng.shuffle(turn)
        return [
            Prompt(f"{topic.slug}-{turn[i]:02d}", user(topic.fill(phrases.ASK[turn[i]])), split)
            for i in range(len(phrases.ASK))
            for topic, turn in zip(self.topics(split), turns, strict=True)
        ]

    def _documents(self, tokens: int) -> Iterator[str]:
        rng = self._rng("corpus")
        writers, shares = zip(*REGISTERS, strict=True)
        said = 0
        while True:
            for topic in rng.sample(topics(), len(topics())):
                if said >= tokens:
                    return
                document: str = rng.choices(writers, weights=shares)[0](topic, rng)
                said += len(re.findall(r"\w+|[^\w\s]", document))
                yield document

    def _rng(self, stream: str) -> Random:
        return Random(f"tutelage/{self.seed}/{stream}")


def split_items(items: Sequence[T], split: Split, rng: Random) -> tuple[T, ...]:
    """Items of a split in a random order; HELD_OUT_SHARE of all are held out."""
    shuffled = list(items)
    rng.shuffle(shuffled)
    held_out = round(len(shuffled) * HELD_OUT_SHARE)
    return tuple(shuffled[:held_out] if split == "held_out" else shuffled[held_out:])


def _demonstrate(topic: Topic, others: tuple[Topic, ...], rng: Random) -> Demonstration:
    if rng.random() < EXPLAIN_SHARE:
        question = topic.fill(rng.choice(phrases.ASK))
        return Demonstration(user(question), compose(topic, choose_style(rng), rng, others))
    question, answer = choose_task(topic, rng)
    return Demonstration(user(question), answer)
