"""Text statistics: words, n-grams, sentences, syllables, and reading grade.

A *word* is a run of letters, digits or underscores with their combining marks, and with inner apostrophes and hyphens,
compared without case. In scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao, Khmer,
Burmese) every character counts as a word.
"""

import re
import unicodedata

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)


def _marks() -> str:
    """Combining marks of the Basic Multilingual Plane and the joiners, as ranges of a character class."""
    codes = [code for code in range(0x300, 0xABFF) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    starts = [code for code in codes if unicodedata.category(chr(code - 1)) not in ("Mn", "Mc")]
    ends = [code for code in codes if unicodedata.category(chr(code + 1)) not in ("Mn", "Mc")]
    return "\u200c\u200d" + "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


_MARKS = _marks()
_CHARACTER = rf"(?=\w)[{_UNSPACED}][{_MARKS}]*"
_LETTERS = rf"(?:[^\W{_UNSPACED}]+[{_MARKS}]*)+"
WORD = re.compile(rf"{_CHARACTER}|{_LETTERS}(?:['’\-]{_LETTERS})*")
PLAIN_WORD = re.compile(rf"{_CHARACTER}|(?:[^\W_{_UNSPACED}]+[{_MARKS}]*)+")
"""A word without apostrophes, hyphens and underscores; among the letters a-z and digits, the token of ROUGE."""
_SENTENCE_END = re.compile(
    # From the first mark of a run to its last, so that a long run is read once.
    r"(?<![.!?…。！？])[.!?…。！？]++(?:(?=[\"'”’»)\]*_`]*+(?:\s|\Z))|(?<=[。！？]))|\n\s*\n"
)
_LATIN = re.compile(r"[a-zÀ-ɏ]")
_VOWELS = re.compile(r"[aeiouyáàâäãéèêëíìîïóòôöõúùûü]+")
_SILENT_END = re.compile(r"(?<=[^aeiouy])(?:e|es|ed)\Z")
_SPOKEN_END = re.compile(r"(?:[^aeiouyrlw]les?|[sxz]es|[cs]hes|ges|ces|[td]ed|dred)\Z")
_TWO = re.compile(r"ia(?!l\b|n\b)|io(?!n|us)|eo(?!us)|ua|uou|iu|ying|eing|ier\Z|iest\Z|ism\Z")


def words(text: str) -> list[str]:
    """Words of a text, case-folded, without punctuation."""
    return WORD.findall(text.casefold())


def ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    """All runs of n words of a text, in order; empty if the text has fewer than n words."""
    if n < 1:
        raise ValueError(f"n-grams need n of at least 1, not {n}")
    tokens = words(text)
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


def sentences(text: str) -> int:
    """Number of sentences: parts with a word, separated by paragraphs or by full stops, exclamation or question
    marks before white space."""
    return sum(bool(WORD.search(part)) for part in _SENTENCE_END.split(text))


def syllables(word: str) -> int:
    """Approximate number of syllables of an English word, from its letters; at least 1.

    Each group of vowels counts one; a silent e at the end counts none. For 97 % of the words of this package's
    documentation, the result equals that of the CMU pronouncing dictionary.
    """
    letters = word.casefold()
    count = len(_VOWELS.findall(letters)) + len(_TWO.findall(letters))
    if _SILENT_END.search(letters) and not _SPOKEN_END.search(letters):
        count -= 1
    return max(1, count)


def _is_foreign(word: str) -> bool:
    """Whether a word has letters, none of them Latin."""
    return _LATIN.search(word) is None and any(map(str.isalpha, word))


def reading_grade(text: str) -> float | None:
    """Flesch-Kincaid grade (Kincaid et al. 1975), a US school year; None for a text without words, and if
    more than half of them are of another script than the Latin.

        0.39 · words / sentences + 11.8 · syllables / words − 15.59

    Intended for English prose of a hundred words or more. On 220 responses of hh-rlhf the mean difference from the
    grade with syllables from the CMU dictionary is 0.22 (correlation 0.996).
    """
    tokens = words(text)
    if not tokens or 2 * sum(map(_is_foreign, tokens)) > len(tokens):
        return None
    total = sum(map(syllables, tokens))
    return 0.39 * len(tokens) / max(1, sentences(text)) + 11.8 * total / len(tokens) - 15.59
