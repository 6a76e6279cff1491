"""Text measures against values worked out by hand, and the laws they obey."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.stats.text import distinct, ended, lcs_length, lengths, ngrams, repetition, rouge, text_metrics, words

texts = st.lists(st.text(alphabet="ab c.!'-é\n", max_size=30), min_size=1, max_size=6)


@for_each(
    [
        ("Don't stop-gap, now!", ["don't", "stop-gap", "now"]),
        ("- dash 'quoted' -", ["dash", "quoted"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("日本 e=mc2", ["日", "本", "e", "mc2"]),
        ("你好，世界", ["你", "好", "世", "界"]),
        ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
        ("カタカナとkana", ["カ", "タ", "カ", "ナ", "と", "kana"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("...", []),
    ]
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_ngrams_overlap_and_need_enough_words() -> None:
    assert ngrams("a b c", 2) == [("a", "b"), ("b", "c")]
    assert ngrams("a b", 3) == []
    with pytest.raises(ValueError, match="at least 1"):
        ngrams("a", 0)


def test_rouge_by_hand() -> None:
    """Lin's example: against "police killed the gunman", both candidates share three of four words, but only the
    first keeps them in order (longest common subsequence 3 against 2)."""
    reference = "police killed the gunman"
    ordered = rouge(["police kill the gunman"], [reference], stem=False)
    jumbled = rouge(["the gunman kill police"], [reference], stem=False)
    assert ordered["rouge1"] == pytest.approx(3 / 4)
    assert jumbled["rouge1"] == pytest.approx(3 / 4)
    assert ordered["rougeL"] == pytest.approx(3 / 4)
    assert jumbled["rougeL"] == pytest.approx(2 / 4)
    assert ordered["rouge2"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("stem", [True, False])
@given(
    st.lists(st.tuples(st.text(alphabet="running flies-42's_X.\n"), st.text(alphabet="runs fly42's_x!")), min_size=1)
)
def test_rouge_of_ascii_texts_is_that_of_the_library(stem: bool, pairs: list[tuple[str, str]]) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stem)
    peers = [scorer.score(reference, answer) for answer, reference in pairs]
    scores = rouge([answer for answer, _ in pairs], [reference for _, reference in pairs], stem=stem)
    for kind, score in scores.items():
        assert score == pytest.approx(sum(each[kind].fmeasure for each in peers) / len(pairs))


@for_each(
    [("我爱北京", "我爱上海", 2 / 4, 1 / 3), ("привет мир", "привет всем", 1 / 2, 0.0), ("สวัสดี", "สวัสดี", 1.0, 1.0)]
)
def test_rouge_of_other_scripts(answer: str, reference: str, unigrams: float, bigrams: float) -> None:
    scores = rouge([answer], [reference])
    assert scores["rouge1"] == scores["rougeL"] == pytest.approx(unigrams)
    assert scores["rouge2"] == pytest.approx(bigrams)


@given(st.text("abcd", max_size=20), st.text("abcde", max_size=80))
def test_the_common_subsequence_is_that_of_the_table(one: str, other: str) -> None:
    longest = [0] * (len(other) + 1)
    for a in one:
        above = longest[:]
        for place, b in enumerate(other, 1):
            longest[place] = above[place - 1] + 1 if a == b else max(above[place], longest[place - 1])
    assert lcs_length(list(one), list(other)) == longest[-1]


def test_rouge_of_long_texts_and_words() -> None:
    """A table of this longest common subsequence has 4 · 10^8 cells; the stemmer recurs once for each y."""
    words = [str(number) for number in range(20_000)]
    found = rouge([" ".join(words[1:])], [" ".join(words)], stem=False)
    assert found["rougeL"] == pytest.approx(2 * 19_999 / 39_999)
    assert rouge(["y" * 5_000], ["y" * 5_000])["rougeL"] == 1.0


def test_rouge_stems_when_asked() -> None:
    assert rouge(["it falls"], ["it falling"])["rouge1"] == pytest.approx(1.0)
    assert rouge(["it falls"], ["it falling"], stem=False)["rouge1"] == pytest.approx(0.5)


def test_rouge_is_f1_and_so_symmetric() -> None:
    one, other = ["a small cat sat"], ["the cat sat on a mat"]
    assert rouge(one, other) == pytest.approx(rouge(other, one))


def test_rouge_is_the_mean_over_pairs() -> None:
    both = rouge(["same words", "other"], ["same words", "nothing shared"])
    assert both["rouge1"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="2 and 1"):
        rouge(["a", "b"], ["a"])


def test_distinct_by_hand() -> None:
    """Words a b a b c: 3 of 5 different; pairs ab ba ab, bc is not one across texts: 2 of 3."""
    assert distinct(["a b a b", "c"], 1) == pytest.approx(3 / 5)
    assert distinct(["a b a b", "c"], 2) == pytest.approx(2 / 3)


def test_repetition_by_hand() -> None:
    """Trigrams of "a b c a b c": abc bca cab abc, one of four said before."""
    assert repetition(["a b c a b c"]) == pytest.approx(1 / 4)
    assert repetition(["a b c a b c", "x y z"]) == pytest.approx(1 / 5)
    assert repetition(["a b c", "a b c"]) == 0


def test_lengths_by_hand() -> None:
    found = lengths(["one", "one two three", "one two three four five six seven eight"])
    assert (found.mean, found.median, found.shortest, found.longest) == (4, 3, 1, 8)
    assert found.std == pytest.approx(math.sqrt((9 + 1 + 16) / 3))


@for_each(["Yes.", "Really?!", 'He said "no."', "(so.)", "**Done.**\n", "Wait…", "はい。"])
def test_ended_texts(text: str) -> None:
    assert ended([text]) == 1


@for_each(["", "and then", "see e.g. this", "3.14159", "first:", "a list,"])
def test_texts_that_have_not_ended(text: str) -> None:
    assert ended([text]) == 0


@given(texts)
def test_order_and_case_do_not_matter(given_texts: list[str]) -> None:
    backwards = [text.upper() for text in reversed(given_texts)]
    for name, value in text_metrics(given_texts).items():
        assert text_metrics(backwards)[name] == pytest.approx(value, nan_ok=True), name


@given(texts)
def test_saying_everything_twice_halves_variety_and_changes_nothing_else(given_texts: list[str]) -> None:
    once, twice = text_metrics(given_texts), text_metrics(given_texts * 2)
    for name in ("words/mean", "words/std", "repetition", "ended/text"):
        assert twice[name] == pytest.approx(once[name], nan_ok=True)
    assert twice["distinct/1"] == pytest.approx(once["distinct/1"] / 2, nan_ok=True)


def test_figures_about_nothing_are_not_numbers() -> None:
    assert all(math.isnan(value) for value in text_metrics([]).values())
    assert math.isnan(distinct(["..."], 1))
    assert math.isnan(repetition(["two words"]))
