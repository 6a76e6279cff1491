"""Text statistics of completions: overlap with references, diversity, length, repetition.

Every function takes lists of strings and is independent of their order. Words are those of `tutelage.data.text_counts`.
Statistics without data (no completions, no n-grams) are NaN.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan

from tutelage.data.text_counts import PLAIN_WORD, ngrams, words

SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_`]*\s*\Z")
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL")
LONGEST_STEMMED = 100
"""Maximum length of stemmed words: the stemmer recurses for each letter y of a run."""


@dataclass(frozen=True)
class LengthSummary:
    """Words per completion. `std` is the population standard deviation."""

    mean: float
    std: float
    median: float
    shortest: float
    longest: float


def rouge(answers: Sequence[str], references: Sequence[str], *, stem: bool = True) -> dict[str, float]:
    """Mean ROUGE F1 of each completion against its own reference, as fractions: rouge1, rouge2, rougeL.

    ROUGE-n counts shared n-grams, ROUGE-L the longest common subsequence of words (Lin 2004). Tokens are those of the
    `rouge-score` library for the letters a-z and digits, which drops all others; here other letters count as well, and
    every character of a script without spaces between words is a token (`text_counts.PLAIN_WORD`). `stem` compares
    stems of English words, as is customary. Raises ValueError if the two lists differ in length.
    """
    if len(answers) != len(references):
        raise ValueError(f"ROUGE needs one reference per completion: {len(answers)} and {len(references)} given")
    if not answers:
        return dict.fromkeys(ROUGE_KINDS, nan)
    from rouge_score.rouge_scorer import RougeScorer

    stemmer = None
    if stem:
        from nltk.stem.porter import PorterStemmer  # a dependency of rouge-score

        stemmer = PorterStemmer().stem
    scorer = RougeScorer(["rouge1", "rouge2"], tokenizer=_Tokens())
    scores = dict.fromkeys(ROUGE_KINDS, 0.0)
    for pair in zip(references, answers, strict=True):
        reference, answer = (_tokens(text, stemmer) for text in pair)
        for kind, score in scorer.score(reference, answer).items():
            scores[kind] += score.fmeasure
        scores["rougeL"] += 2 * lcs_length(reference, answer) / max(1, len(reference) + len(answer))
    return {kind: total / len(answers) for kind, total in scores.items()}


class _Tokens:
    """Pass-through for texts that are already tokenised."""

    def tokenize(self, tokens: Sequence[str]) -> Sequence[str]:
        return tokens


def _tokens(text: str, stemmer: Callable[[str], str] | None) -> list[str]:
    """Tokens of ROUGE; words of 4 to `LONGEST_STEMMED` ASCII letters are stemmed."""
    tokens: list[str] = PLAIN_WORD.findall(text.lower())
    if stemmer is None:
        return tokens
    return [stemmer(word) if word.isascii() and 3 < len(word) <= LONGEST_STEMMED else word for word in tokens]


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, bit-parallel (Hyyrö 2004, "Bit-parallel LCS-length computation
    revisited"): n · m / 64 operations and n + m memory."""
    one, other = sorted((one, other), key=len)
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(one):
        places[word].append(place)

    @lru_cache(maxsize=1000)
    def occurrences(word: str) -> int:
        bits = bytearray(len(one) // 8 + 1)
        for place in places[word]:
            bits[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(bits, "little")

    everywhere = (1 << len(one)) - 1
    rest = everywhere
    for word in other:
        if word in places:
            matches = rest & occurrences(word)
            rest = ((rest + matches) | (rest - matches)) & everywhere
    return len(one) - rest.bit_count()


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct n-grams over all n-grams of all texts together (Li et al. 2016, arXiv 1510.03055), in (0, 1].

    It decreases with the number of texts, since common words recur: compare only sets of about the same size.
    """
    grams = [gram for text in texts for gram in ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else nan


def repetition(texts: Sequence[str], n: int = 3) -> float:
    """The share of n-grams that repeat an earlier one of the *same* text, over all texts, in [0, 1).

    Unlike `distinct` it is independent of the number of texts: repeats across texts do not count.
    """
    grams = [ngrams(text, n) for text in texts]
    total = sum(len(of_text) for of_text in grams)
    return 1 - sum(len(set(of_text)) for of_text in grams) / total if total else nan


def word_counts(texts: Sequence[str]) -> list[float]:
    return [float(len(words(text))) for text in texts]


def lengths(texts: Sequence[str]) -> LengthSummary:
    """Statistics of the number of words per text."""
    counts = word_counts(texts)
    if not counts:
        return LengthSummary(nan, nan, nan, nan, nan)
    return LengthSummary(
        mean=statistics.fmean(counts),
        std=statistics.pstdev(counts),
        median=statistics.median(counts),
        shortest=min(counts),
        longest=max(counts),
    )


def ended(texts: Sequence[str]) -> float:
    """The share of texts that end with a complete sentence: a full stop, exclamation or question mark or ellipsis,
    optionally followed by closing quotes, brackets or Markdown marks.

    A heuristic on the text alone; if the sampler recorded the end token (`CompletionRecord.finished`), use that
    instead.
    """
    return statistics.fmean(bool(SENTENCE_END.search(text)) for text in texts) if texts else nan


def text_metrics(answers: Sequence[str]) -> dict[str, float]:
    """The statistics of this module that need no references, by metric name."""
    length = lengths(answers)
    return {
        "words/mean": length.mean,
        "words/std": length.std,
        "distinct/1": distinct(answers, 1),
        "distinct/2": distinct(answers, 2),
        "repetition": repetition(answers),
        "ended/text": ended(answers),
    }
