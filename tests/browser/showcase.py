"""A study that looks like one: for the screenshots, and for whoever wants to try both screens by hand."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Literal, TypeAlias

from tutelage.data.records import CompletionRecord, Message, Prompt
from tutelage.data.worlds import gold
from tutelage.data.worlds.styles import STYLES, compose
from tutelage.data.worlds.topics import topics
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Plan,
    Presentation,
    Rater,
    Store,
    Study,
    add_items,
    add_rater,
    change_rater,
    consent,
    create_study,
    next_assignment,
    submit,
    write_note,
)
from tutelage.people.answers import Correction, Span
from tutelage.people.live_conversation import keep_answer, next_step, say
from tutelage.people.simulated_raters import TAU, SimulatedRater
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.store.items import Pool

DAYS = 9
ANSWERS = 236
GUIDELINES = """\
Imagine a curious child of **nine** who asks, and choose the answer that you would rather have that child read.

### What counts, in this order

1. **True.** An answer with a mistake loses to one without, however charming it is.
2. **Understood.** Short sentences, words a child knows, a comparison from everyday life.
3. **Invites.** A good tutor ends with something to try or to think about.

### Worked examples

> *Why is the sky blue?*
>
> **A** – “Rayleigh scattering goes with $1/\\lambda^4$.”
>
> **B** – “Sunlight is a mix of colours. Air bounces blue light around the most, so it reaches you from everywhere.”

**B is much better**: both are true, but only B can be understood. If A had been wrong as well, nothing would change.

> **A** – “A whale is the largest fish.”   **B** – “A whale is big.”

**B is slightly better**: it says little, but A teaches something false.

Length alone is no reason. If neither can be shown to a child, choose *both bad*; if you cannot tell, *can’t judge*.
"""
NAME = "Explain it to a child"
TURNS = 4
"""Turns of a live conversation."""
MODELS = ("tutor-2 (ppo)", "tutor-0 (sft)", "tutor-1 (ppo)")
ShownPair: TypeAlias = tuple[str, str, tuple[str, str]]
CRITERIA = ("age-appropriate", "engaging", "accurate", "clear", "interactive")
SHOWN = Presentation("Which answer would you rather give to a child of nine?", 3, CRITERIA, GUIDELINES)
PLAN = Plan(overlap=3, gold_rate=0.06, repeat_rate=0.05)
FRACTIONS = (
    """\
Half means **two equal parts**. Cut a pizza into 2 and you get $\\frac{1}{2}$ each; into 4, and you get $\\frac{1}{4}$.

Now look: two of the quarters make one half!

$$\\frac{1}{4} + \\frac{1}{4} = \\frac{2}{4} = \\frac{1}{2}$$

So a half is bigger, although 4 is a bigger number than 2: the *more* people share, the *less* each one gets.

**Try it:** fold a sheet of paper in half, and then again. How many parts do you see? What is one of them called?""",
    """\
To compare $\\frac{1}{2}$ and $\\frac{1}{4}$, bring them to a common denominator.

1. The least common multiple of 2 and 4 is 4.
2. $\\frac{1}{2} = \\frac{2}{4}$
3. Since $2 > 1$, it follows that $\\frac{2}{4} > \\frac{1}{4}$.

Therefore one half is greater than one quarter: of fractions with equal numerators, the smaller denominator wins.""",
)
LOOPS = (
    """\
A loop does the same thing again and again, so that you need not write it ten times:

```python
for number in range(1, 11):
    print(number)   # says 1, 2, 3 … 10
```

Read it like a sentence: *for every number from 1 up to 10, say the number.* (Python stops just **before** 11.)

What would you change to count backwards?""",
    """\
Here you go!

```python
i = 1
while True:
    print(i)
    i = i + 1
```

This counts for you. Loops are super useful and every programmer uses them every day!""",
)
RANKED = (
    (
        "The Moon is a ball of rock that goes around the Earth once a month. It does not shine by itself: the Sun "
        "lights it, like a lamp lights an orange. Have you seen it by day?"
    ),
    "The Moon orbits Earth at a mean distance of 384,400 km with a sidereal period of 27.3 days.",
    "The Moon is a big lamp in the sky that is switched on at night.",
    "It is a rock. It goes around us.",
)


WRITTEN: tuple[ShownPair, ...] = (
    ("fractions", "My teacher says one half is more than one quarter. But 4 is more than 2! Who is right?", FRACTIONS),
    ("loops", "How do I make Python count from 1 to 10 for me?", LOOPS),
)
PRACTICE: tuple[ShownPair, ...] = (
    (
        "whales",
        "Is a whale a fish?",
        (
            (
                "It looks like one! But a whale breathes air, just like you, and feeds its babies milk. That makes it "
                "a **mammal**. How long can *you* hold your breath?"
            ),
            "Yes. A whale is the largest fish in the sea.",
        ),
    ),
)
EXPLAINED = "The other answer sounds sure, but a whale is no fish: **a mistake weighs more than anything else.**"


class Clock:
    """Real time, moved to the past by some days."""

    def __init__(self, days: float) -> None:
        self.behind = days * 86_400.0

    def __call__(self) -> float:
        return time.time() - self.behind


def answered(store: Store, clock: Clock, *, items: int = 90) -> Study:
    """A tutoring study after some days: three models, five careful raters, one who nearly always takes the left."""
    study = create_study(store, NAME, plan=PLAN, presentation=SHOWN, secret="5e" * 32)
    _add_composed(store, study, items)
    _people_answer(store, study, clock)
    return study


def fresh(store: Store) -> Study:
    """The same study before anybody came, with two pairs that show code and formulae, and one to practise on."""
    plan = replace(PLAN, overlap=100, gold_rate=0.0, repeat_rate=0.0)
    study = create_study(store, NAME, plan=plan, presentation=SHOWN)
    add_pairs(store, study, WRITTEN)
    add_pairs(store, study, PRACTICE, pool="training")
    return study


def ranking(store: Store) -> Study:
    """A study in which four responses are put in order."""
    study = create_study(
        store, "The Moon, in order", kind="ranking", presentation=Presentation("Put these answers in order.")
    )
    keys = [f"moon{place}" for place in range(len(RANKED))]
    completions = [CompletionRecord(key, "moon", text, "tutor-2") for key, text in zip(keys, RANKED, strict=True)]
    prompt = Prompt("moon", (Message("user", "What is the Moon?"),))
    add_items(store, study.id, [prompt], completions, [Item("moon", "moon", tuple(keys))])
    return study


def ratings(store: Store) -> Study:
    """A study in which each of three responses is rated on three criteria."""
    shown = Presentation("How good is each answer?", 5, ("helpful", "correct", "clear"))
    study = create_study(store, "The Moon, rated", kind="likert", presentation=shown)
    keys = [f"moon{place}" for place in range(3)]
    completions = [CompletionRecord(key, "moon", text, "tutor-2") for key, text in zip(keys, RANKED[:3], strict=True)]
    prompt = Prompt("moon", (Message("user", "What is the Moon?"),))
    add_items(store, study.id, [prompt], completions, [Item("moon", "moon", tuple(keys))])
    return study


FISH = "Yes. A whale is the **largest fish** in the sea. It breathes water with its gills, as a goldfish does."
MAMMAL = (
    "A whale looks like a fish, but it is a mammal: it comes up to breathe *air*, and whale mothers feed their young "
    "with milk. It belongs to the order Cetacea, like the dolphin."
)
WHALES: ShownPair = ("whales", "Is a whale a fish?", (FISH, MAMMAL))
TIDES: ShownPair = (
    "tides",
    "Why is there high tide and low tide?",
    ("The Moon pulls at the sea, and the sea bulges towards it.", "Because the sea breathes in and out."),
)


def correcting(store: Store) -> Study:
    """A study that asks for better responses and for wrong words, with the answers of two raters."""
    shown = Presentation(
        "Which answer would you rather give to a child of nine?", corrections=True,
        spans=("wrong fact", "too hard", "unkind"),
    )  # fmt: skip
    study = create_study(store, "Whales and tides", plan=replace(PLAN, overlap=100), presentation=shown)
    add_pairs(store, study, [WHALES])
    simpler = MAMMAL.replace("It belongs to the order Cetacea, like the dolphin.", "Dolphins are mammals, too!")
    for name, words in (("Amina Yusuf", ("largest fish", "gills")), ("Chen Wei", ("largest fish",))):
        question = next_assignment(store, _came(store, study, name).id)
        assert question is not None
        wrong, right = (question.texts.index(text) for text in (FISH, MAMMAL))
        spans = [Span(wrong, FISH.index(each), FISH.index(each) + len(each), "wrong fact") for each in words]
        hard = MAMMAL.index("the order Cetacea")
        spans.append(Span(right, hard, hard + len("the order Cetacea"), "too hard"))
        side = ("left", "right")[right]
        submit(store, question.id, Answer(side, 3, correction=Correction(simpler, right), spans=tuple(spans)))
        simpler = simpler.replace("Dolphins", "So dolphins")
    add_pairs(store, study, [TIDES])
    return study


DIALOGUE = (
    "Why is there high tide and low tide?",
    "The Moon pulls at the sea, and the sea bulges towards it. As the Earth turns, you pass through the bulge.",
    "But there are two high tides a day, and only one Moon!",
    "Well spotted! There is a second bulge on the far side, where the Moon pulls less than at the Earth below.",
    "And the Sun? It is much bigger.",
)
PULLED = (
    (
        "The Sun pulls too, but it is so far away that its tides are less than half as high. When both pull in one "
        "line, at full and new moon, the tide is highest. When will that be next?"
    ),
    "The Sun has no influence on the tides, because it is only a ball of gas.",
)


def dialogue(store: Store) -> Study:
    """A study about the last answer of a long conversation."""
    study = create_study(store, "Talking about tides", plan=Plan(overlap=1, gold_rate=0, repeat_rate=0))
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    messages = tuple(Message(roles[place % 2], text) for place, text in enumerate(DIALOGUE))
    completions = [
        CompletionRecord(f"sun-{side}", "sun", text, model)
        for side, text, model in zip("ab", PULLED, MODELS, strict=False)
    ]
    add_items(store, study.id, [Prompt("sun", messages)], completions, [Item("sun", "sun", ("sun-a", "sun-b"))])
    return study


def conversations(store: Store) -> Study:
    """A study in which raters talk to two models, which the site has to bring along."""
    study = create_study(store, "Talking to a tutor", plan=Plan(overlap=1, gold_rate=0, repeat_rate=0))
    openings = ("Why is the sky blue?", "How do planes stay up?", "What is a whale, and is it a fish?")
    set_live_models(store, study.id, LiveModels("first", "second", openings=openings))
    return study


def spoken(store: Store, clock: Clock) -> Study:
    """A study of live conversations, after some raters have talked to two models."""
    study = create_study(store, "Talking to a tutor", plan=replace(PLAN, overlap=1), presentation=SHOWN)
    set_live_models(store, study.id, LiveModels(*MODELS[:2], turns=TURNS))
    rng, styles = Random(5), {style.name: style for style in STYLES}
    habits = dict(zip(MODELS[:2], (("good", "excellent"), ("dry", "good")), strict=True))
    for name in ("Amina Yusuf", "Bruno Keller", "Chen Wei", "Dalia Haddad"):
        person, rater = SimulatedRater(name, TAU * 0.7, mean_seconds=31), _came(store, study, name)
        conversation = None
        for number, topic in enumerate(rng.sample(list(topics()), 8)):
            begins = number % TURNS == 0
            asked = topic.fill("Can you explain {name} to me?" if begins else "And what about {name}?")
            turn = say(store, rater.id, None if begins else conversation, asked, f"{name} {number}")
            conversation = turn.conversation_id
            for place, manners in enumerate(habits.values()):
                keep_answer(store, turn, place, compose(topic, styles[rng.choice(manners)], rng), sampling={})
            question = next_step(store, rater.id)
            assert isinstance(question, Assignment)
            submit(store, question.id, _judged(person, question, rng))
            clock.behind -= 3_600.0
    return study


def _add_composed(store: Store, study: Study, count: int) -> None:
    """Pairs of answers by three models, each with a style of its own; some of them with a known answer."""
    rng = Random(7)
    styles = {style.name: style for style in STYLES}
    manners = (("good", "excellent"), ("dry", "plain"), ("plain", "good"))
    habits = dict(zip(MODELS, manners, strict=True))
    prompts, completions, asked = [], [], []
    subjects = list(topics())
    for number in range(count):
        topic = rng.choice(subjects)
        models = list(combinations(habits, 2))[number % 3]
        key = f"{topic.slug}-{number:03d}"
        prompts.append(Prompt(key, (Message("user", topic.fill("Can you explain {name} to me? I am nine.")),)))
        texts = [compose(topic, styles[rng.choice(habits[model])], rng) for model in models]
        known = number % 9 == 0
        if known:
            texts[1] = "I do not want to talk about that."
        responses = [
            CompletionRecord(f"{key}-{side}", key, text, model)
            for side, text, model in zip("ab", texts, models, strict=True)
        ]
        completions += responses
        item = Item(key, key, (responses[0].id, responses[1].id))
        asked.append(replace(item, pool="gold", gold="a") if known else item)
    add_items(store, study.id, prompts, completions, asked)


def add_pairs(store: Store, study: Study, asked: Sequence[ShownPair], *, pool: Pool = "production") -> None:
    """Questions with two responses each; those of other pools have the first one as their known answer."""
    prompts = [Prompt(key, (Message("user", question),)) for key, question, _ in asked]
    completions = [
        CompletionRecord(f"{key}-{side}", key, text, model)
        for key, _, texts in asked
        for side, text, model in zip("ab", texts, MODELS, strict=False)
    ]
    gold = None if pool == "production" else "a"
    items = [
        Item(key, key, (f"{key}-a", f"{key}-b"), pool=pool, gold=gold, explanation=EXPLAINED) for key, _, _ in asked
    ]
    add_items(store, study.id, prompts, completions, items)


def _people_answer(store: Store, study: Study, clock: Clock) -> None:
    rng = Random(11)
    people = [
        SimulatedRater("Amina Yusuf", TAU * 0.5, length_bias=0.03, mean_seconds=31),
        SimulatedRater("Bruno Keller", TAU * 0.8, mean_seconds=24),
        SimulatedRater("Chen Wei", TAU * 0.6, mean_seconds=38),
        SimulatedRater("Dalia Haddad", TAU * 1.2, length_bias=0.15, mean_seconds=22),
        SimulatedRater("Emeka Obi", TAU * 0.9, mean_seconds=27),
        # and one who takes what stands on the left
        SimulatedRater("Freya Lund", TAU, kind="careless", side_bias=1.6, mean_seconds=3),
    ]
    raters = {person.name: _came(store, study, person.name) for person in people}
    start = clock.behind
    answered = 0
    while people and answered < ANSWERS:
        person = people[answered % len(people)]
        question = next_assignment(store, raters[person.name].id)
        if question is None:
            people.remove(person)
            continue
        submit(store, question.id, _judged(person, question, rng))
        answered += 1
        clock.behind = max(0.0, start - answered * DAYS * 86_400 / ANSWERS)
    clock.behind = 0.0
    for name, text in NOTES:
        write_note(store, raters[name].id, text)
    change_rater(store, raters["Freya Lund"].id, state="paused", why="see the flags")


def _came(store: Store, study: Study, name: str) -> Rater:
    rater = add_rater(store, study.id, name)
    consent(store, rater.id)
    return rater


def _judged(person: SimulatedRater, question: Assignment, rng: Random) -> Answer:
    asked = question.messages[-1].content
    worth = gold([asked, asked], [question.left, question.right])
    words = [len(text.split()) for text in question.texts]
    vote = person.judge(worth[0], worth[1], words[0], words[1], rng)
    side = vote.verdict if vote.verdict in ("left", "right") else "tie"
    careful = person.kind != "careless" and rng.random() < 0.6
    reason = rng.choice(REASONS) if careful and rng.random() < 0.4 else ""
    if person.kind != "careless" and rng.random() < 0.015:
        return Answer("skip", reason="I do not know enough about this", active_ms=round(1000 * vote.seconds))
    flag = rng.choice(("", *FLAGGED)) if careful and rng.random() < 0.05 else ""
    reason = FLAGGED.get(flag, reason)
    return Answer(
        vote.verdict,
        vote.strength,
        criteria={name: side if rng.random() < 0.8 else "tie" for name in CRITERIA[:4]} if careful else {},  # type: ignore[misc]
        flags=(flag,) if flag else (),
        reason=reason,
        active_ms=round(1000 * vote.seconds),
        wall_ms=round(1300 * vote.seconds),
    )


FLAGGED = {
    "cut_off": "It stops in the middle of a sentence.",
    "wrong_language": "Half of it is in Latin.",
    "identity": "It says that it is a language model.",
}
NOTES = (
    ("Chen Wei", "What shall we do when both answers stop in the middle of a sentence?"),
    ("Amina Yusuf", "May I look things up before I choose?"),
)
REASONS = (
    "Ends with a question that a child can try out.",
    "Too many long words.",
    "Both are true, but only one is friendly.",
    "It says the same thing twice.",
    "The comparison helps a lot.",
)
