"""The gold utility of an answer: what the simulated raters want, and nobody else is told.

It is computed from two texts, the prompt (for its topic) and the answer. Each sentence of the answer is compared with
everything that a tutor of this world can say (`bank.nearest`). Its credit rises from 0 at a nearness of NEAR_LOW to 1
at NEAR_HIGH; what is missing from 1 counts as a fragment. With sums of credit over the sentences of the answer,

    F different facts about the topic    A analogies for it    T technical sentences about it    W wrong ones
    N all content about the topic: F with repetitions + A + T + W      O anything about another topic
    G greetings   E encouragements   D discouragements   Q questions   P fillers
    n words   t words in technical sentences   f words in fragments   q question marks   x exclamation marks

    peak(k; gain, loss) = gain * min(k, 1) - loss * max(k - 1, 0)          one is good, more is worse
    s = min(N, 1)                                       charm is worth nothing where nothing is explained

the utility is the sum of these parts:

    topic         TOPIC * N / (N + O) - OTHER_TOPIC * O      (0 without content)
    accuracy      FACT * min(F, FACTS_ENOUGH) - WRONG * W
    coherence    -FRAGMENT * f / n
    plain_words  -TECHNICAL * t / n
    analogy       peak(A; ANALOGY, ANALOGY_MORE)
    engagement    peak(G; s GREETING, GREETING_MORE) + peak(E; s ENCOURAGEMENT, ENCOURAGEMENT_MORE) - DISCOURAGEMENT * D
    question      s QUESTION * min(Q, 1) - QUESTION_MORE * max(q - 1, 0)
    exclamation   peak(x; EXCLAMATION, EXCLAMATION_MORE)
    filler       -FILLER * P
    length       -TOO_SHORT * max(1 - n / WORDS_LOW, 0) - TOO_LONG * max(n - WORDS_HIGH, 0)
    repetition   -REPEATED * share of the word triples that were said before
    ending       -UNFINISHED unless the answer ends with . ! or ?

Most answers of an imitating model have too few words, marks, questions and analogies, so votes on them mostly reward
more of each. A reward model that carries this on to where it saw no votes leads an optimiser over the peaks and down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tutelage.data.worlds.bank import Kind, nearest, split_sentences, words
from tutelage.data.worlds.topics import find_topic
from tutelage.data.worlds.utility import peak, repeated, utility

NEAR_LOW, NEAR_HIGH = 0.5, 0.9

TOPIC, OTHER_TOPIC = 0.8, 0.2
FACT, FACTS_ENOUGH, WRONG = 0.3, 3, 0.8
FRAGMENT = 2.0
TECHNICAL = 2.0
ANALOGY, ANALOGY_MORE = 1.5, 0.3
GREETING, GREETING_MORE = 1.2, 0.9
ENCOURAGEMENT, ENCOURAGEMENT_MORE = 0.8, 0.7
DISCOURAGEMENT = 0.8
QUESTION, QUESTION_MORE = 1.5, 1.1
EXCLAMATION, EXCLAMATION_MORE = 0.4, 0.4
FILLER = 0.15
TOO_SHORT, WORDS_LOW = 1.0, 35
TOO_LONG, WORDS_HIGH = 0.1, 60
REPEATED = 1.5
UNFINISHED = 1.0

CONTENT: frozenset[Kind] = frozenset({"fact", "technical", "analogy", "wrong"})


def gold(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """The utility of each completion as an answer to its prompt (see the module for the formula).

    Raises TutelageError for lists of different lengths and for a prompt that names no topic of this world.
    """
    return utility(explain, prompts, completions, "gold")


def explain(prompt: str, completion: str) -> dict[str, float]:
    """The named parts whose sum is the gold utility. Raises TutelageError for a prompt without a topic."""
    said = _tally(completion, find_topic(prompt).name)
    substance = min(said.content(), 1.0)
    marks, asks = completion.count("!"), completion.count("?")
    return {
        "topic": _on_topic(said),
        "accuracy": FACT * min(sum(said.facts.values()), FACTS_ENOUGH) - WRONG * said.of("wrong"),
        "coherence": -FRAGMENT * said.fragment_words / max(said.words, 1),
        "plain_words": -TECHNICAL * said.technical_words / max(said.words, 1),
        "analogy": peak(said.of("analogy"), ANALOGY, ANALOGY_MORE),
        "engagement": peak(said.of("greeting"), substance * GREETING, GREETING_MORE)
        + peak(said.of("encouragement"), substance * ENCOURAGEMENT, ENCOURAGEMENT_MORE)
        - DISCOURAGEMENT * said.of("discouragement"),
        "question": substance * QUESTION * min(said.of("question"), 1) - QUESTION_MORE * max(asks - 1, 0),
        "exclamation": peak(marks, EXCLAMATION, EXCLAMATION_MORE),
        "filler": -FILLER * said.of("filler"),
        "length": _length(said.words),
        "repetition": -REPEATED * repeated(words(completion)),
        "ending": 0.0 if completion.rstrip().endswith((".", "!", "?")) else -UNFINISHED,
    }


@dataclass
class _Tally:
    """Sums of credit over the sentences of one answer."""

    words: int = 0
    fragment_words: float = 0.0
    technical_words: float = 0.0
    other_topic: float = 0.0
    facts: dict[str, float] = field(default_factory=dict)
    credit: dict[Kind, float] = field(default_factory=dict)

    def of(self, kind: Kind) -> float:
        return self.credit.get(kind, 0.0)

    def content(self) -> float:
        return sum(self.of(kind) for kind in CONTENT)

    def add(self, sentence: str, topic: str) -> None:
        count = len(words(sentence))
        self.words += count
        match = nearest(sentence, topic)
        credit = _ramp(match.nearness) if match else 0.0
        self.fragment_words += count * (1 - credit)
        if match is None or credit == 0.0:
            return
        kind, key = match.sentence.kind, match.sentence.key
        if match.sentence.topic not in ("", topic):
            self.other_topic += credit
            return
        self.credit[kind] = self.of(kind) + credit
        if kind == "fact":
            self.facts[key] = max(self.facts.get(key, 0.0), credit)
        if kind == "technical":
            self.technical_words += count * credit


def _tally(completion: str, topic: str) -> _Tally:
    said = _Tally()
    for sentence in split_sentences(completion):
        said.add(sentence, topic)
    return said


def _on_topic(said: _Tally) -> float:
    own = said.content()
    if own + said.other_topic == 0.0:
        return 0.0
    return TOPIC * own / (own + said.other_topic) - OTHER_TOPIC * said.other_topic


def _ramp(nearness: float) -> float:
    return min(max((nearness - NEAR_LOW) / (NEAR_HIGH - NEAR_LOW), 0.0), 1.0)


def _length(count: int) -> float:
    return -TOO_SHORT * max(1 - count / WORDS_LOW, 0) - TOO_LONG * max(count - WORDS_HIGH, 0)
