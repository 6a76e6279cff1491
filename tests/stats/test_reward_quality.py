"""The quality of a reward model: planted accuracies, ties, soft labels, and calibration that knows right from wrong."""

import numpy as np
import pytest

from tutelage.stats.reward_quality import length_baseline, reward_quality


def test_counts_by_hand():
    """Right, wrong, a tie of the scores (half), a label of one half (left out), right about a label below one half."""
    found = reward_quality([1.0, -2.0, 0.0, 3.0, -1.0], [1.0, 1.0, 1.0, 0.5, 0.2], ["a", "b", "c", "d", "e"])
    assert found["n"] == 4
    assert found["accuracy"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    low, high = found["accuracy_interval"]
    assert low <= found["accuracy"] <= high


def planted(count, scale=1.0, seed=0):
    """Differences d whose pair is labelled by votes ~ σ(d), as a perfect model would see them times `scale`."""
    generator = np.random.default_rng(seed)
    d = generator.normal(0, 1.5, count)
    chosen_is_first = generator.random(count) < 1 / (1 + np.exp(-d))
    return np.where(chosen_is_first, d, -d) * scale, [str(i) for i in range(count)]


def test_a_model_that_knows_the_votes_is_calibrated_and_one_that_exaggerates_is_not():
    honest, prompts = planted(20_000)
    loud, _ = planted(20_000, scale=3.0)
    ones = np.ones(20_000)
    good, bad = reward_quality(honest, ones, prompts), reward_quality(loud, ones, prompts)
    assert good["ece"] < 0.02
    assert bad["ece"] > 0.1
    assert good["brier"] < bad["brier"]
    assert good["accuracy"] == bad["accuracy"], "the order of the scores is the same"
    for bin in good["calibration"]:
        assert bin["low"] <= bin["predicted"] <= bin["high"]
        if bin["n"] > 500:
            assert bin["observed"] == pytest.approx(bin["predicted"], abs=0.05)
    assert sum(bin["n"] for bin in good["calibration"]) == 20_000


def test_the_accuracy_of_a_perfect_model_is_what_the_votes_allow():
    """E[max(p, 1 − p)] with p = σ(d), by quadrature."""
    differences, prompts = planted(20_000, seed=4)
    grid = np.linspace(-12, 12, 20_001)
    density = np.exp(-((grid / 1.5) ** 2) / 2)
    p = 1 / (1 + np.exp(-grid))
    ceiling = float((density * np.maximum(p, 1 - p)).sum() / density.sum())
    assert reward_quality(differences, np.ones(20_000), prompts)["accuracy"] == pytest.approx(
        ceiling, abs=0.01
    )


def test_pairs_of_one_prompt_are_one_piece_of_evidence():
    differences, prompts = planted(200)

    def width(found):
        return found["accuracy_interval"][1] - found["accuracy_interval"][0]

    once = width(reward_quality(differences, np.ones(200), prompts))
    copied = width(reward_quality(np.repeat(differences, 8), np.ones(1600), np.repeat(prompts, 8).tolist()))
    assert copied == pytest.approx(once, rel=0.15)


@pytest.mark.parametrize("taste", [1, -1])
def test_the_lengths_alone_are_as_right_as_the_share_of_pairs_that_follow_them(taste):
    """Four pairs by hand: right, wrong, of one length (half), labelled one half (left out). The pairs that are learnt
    from say which way, whatever the others show."""
    found = length_baseline(
        [3 * taste, -2 * taste, 0, 5],
        [1.0, 1.0, 1.0, 0.5],
        ["a", "b", "c", "d"],
        learnt=[4 * taste, taste, -taste],
        p_learnt=[1.0, 0.8, 1.0],
    )
    assert found["prefers"] == ("longer" if taste > 0 else "shorter")
    assert found["accuracy"] == pytest.approx((1 + 0 + 0.5) / 3)
    low, high = found["accuracy_interval"]
    assert low <= found["accuracy"] <= high


def test_a_label_below_one_half_turns_a_pair_round():
    found = length_baseline([2, -2], [0.1, 0.1], ["a", "b"], learnt=[2, 2, 2], p_learnt=[0.2, 0.0, 0.9])
    assert found["prefers"] == "shorter"
    assert found["accuracy"] == pytest.approx(1 / 2)
