"""Which answers are shown: by rule, without repetition, gains and losses alike."""

import random

from tutelage.report.folders import RunContent
from tutelage.report.sample_answers import balance, changes, groups, side_by_side


def rows(*gains: float | None) -> list[dict[str, object]]:
    return [
        {"prompt": f"p{i}", "before": "b", "after": "a"}
        | ({"gold_before": 1.0, "gold_after": 1.0 + gain} if gain is not None else {})
        for i, gain in enumerate(gains)
    ]


def shown(given: list[dict[str, object]]) -> dict[str, list[float]]:
    """The gains in each group."""
    return {
        group.title.split(":")[0]: [float(pair.gain.split()[0].replace("−", "-")) for pair in group.pairs]
        for group in groups(given)
    }


def test_the_three_groups_are_what_they_say() -> None:
    dice = random.Random(0)
    gains = [round(dice.gauss(0.5, 1), 2) for _ in range(101)]
    found = shown(rows(*gains))
    ordered = sorted(gains)
    assert found["Largest gains"] == ordered[:-4:-1]
    assert found["Largest losses"] == ordered[:3]
    assert set(found["Typical"]) <= set(ordered[48:53])


def test_no_pair_is_shown_twice_and_no_gain_as_a_loss() -> None:
    for gains in [(0.1,), (0.1, 0.2), (0.1, 0.2, 0.3, 0.4), (-1.0, 0.0, 1.0, 2.0, 0.0), (-1.0, -2.0, -3.0, -4.0, -5.0)]:
        prompts = [pair.prompt for group in groups(rows(*gains)) for pair in group.pairs]
        assert len(prompts) == len(set(prompts))
        found = shown(rows(*gains))
        assert all(gain < 0 for gain in found.get("Largest losses", []))
        assert all(gain > 0 for gain in found.get("Largest gains", []))


def test_gold_comes_before_score_and_neither_is_needed() -> None:
    both = [{"prompt": "p", "gold_before": 0, "gold_after": 1, "score_before": 5, "score_after": 0}]
    assert groups(both)[0].pairs[0].gain == "+1.00 gold"
    only_score = [{"prompt": "p", "score_before": 5, "score_after": 4.5}]
    assert groups(only_score)[0].pairs[0].gain == "−0.50 score"
    assert groups(only_score)[0].pairs[0].sign == -1
    (plain,) = groups(rows(None, None))
    assert [pair.gain for pair in plain.pairs] == ["", ""]
    assert groups([]) == ()


def test_the_balance_counts_better_worse_and_neither() -> None:
    assert (
        balance(rows(1.0, 1.0, -1.0, 0.0))
        == "By gold, 50% of 4 completions became better and 25% worse, 25% are neither."
    )
    assert balance(rows(1.0, None)) == "By gold, 100% of 1 completion became better and 0% worse."
    assert balance(rows(None)) == ""


def test_a_prompt_is_followed_from_first_to_last_step() -> None:
    samples = tuple({"step": s, "prompt": "p", "completion": f"at {s}"} for s in (0, 10, 20, 30, 40))
    (strand,) = changes(RunContent(samples=(*samples, {"step": 0, "prompt": "once", "completion": "x"})))
    assert [(when, said.text) for when, said in strand.answers] == [
        ("step 0", "at 0"),
        ("step 20", "at 20"),
        ("step 40", "at 40"),
    ]


def test_samples_of_one_prompt_stand_side_by_side() -> None:
    samples = tuple({"step": 0, "prompt": p, "completion": f"{p}{i}", "ended": i > 0} for p in "ab" for i in range(5))
    strands = side_by_side(RunContent(samples=(*samples, {"step": 0, "prompt": "c", "completion": "alone"})))
    assert [strand.prompt for strand in strands] == ["a", "b"]
    assert [said.text for _, said in strands[0].answers] == ["a0", "a1", "a2"]
    assert [said.cut for _, said in strands[0].answers] == [True, False, False]


def test_a_very_long_answer_is_cut_and_says_how_much_is_missing() -> None:
    ((pair,),) = (group.pairs for group in groups([{"prompt": "p", "before": "x" * 7000, "after": ""}]))
    assert pair.before.text.endswith("… (1,000 more characters)")


def test_where_no_prompt_comes_back_one_answer_per_moment_is_shown() -> None:
    samples = tuple({"step": s, "prompt": f"p{s}", "completion": f"at {s}"} for s in range(0, 100, 10))
    strands = changes(RunContent(samples=samples))
    assert [(strand.prompt, [when for when, _ in strand.answers]) for strand in strands] == [
        ("p0", ["step 0"]),
        ("p40", ["step 40"]),
        ("p90", ["step 90"]),
    ]
    assert changes(RunContent()) == ()
