"""What an answer is worth, by closed forms."""

import numpy as np
import pytest

from tutelage.stats.acquisition import closeness, disagreement, information

SURE = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 0.5]])
"""Two models on three pairs: sure of the opposite, sure of the same, both at a loss."""


def test_only_closeness_asks_where_all_models_say_a_coin():
    assert closeness(SURE).tolist() == [1, 0, 1]
    assert disagreement(SURE).tolist() == [0.5, 0, 0]
    np.testing.assert_allclose(information(SURE), [np.log(2), 0, 0], atol=1e-9)


def test_information_is_the_mutual_information_of_vote_and_model():
    """Σ P(m, v) log P(m, v)/(P(m) P(v)) with equally likely models."""
    p = np.random.default_rng(0).uniform(size=(4, 1))
    joint = np.concatenate([p, 1 - p], axis=1) / 4
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    assert information(p)[0] == pytest.approx((joint * np.log(joint / apart)).sum())


def test_the_sides_do_not_matter():
    p = np.random.default_rng(1).uniform(size=(3, 20))
    for worth in (closeness, disagreement, information):
        np.testing.assert_allclose(worth(p), worth(1 - p))
