"""Minibatches of a batch: every row once, evenly, and the responses to a prompt together."""

from itertools import chain

import pytest
import torch

from tutelage.train.rl.update import first_minibatch, minibatches


def parts_of(ids, count, seed=0):
    return [part.tolist() for part in minibatches(ids, count, torch.Generator().manual_seed(seed))]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("group", [1, 4])
def test_every_row_is_in_one_part_and_no_prompt_in_two(count, group):
    ids = [f"p{number}" for number in range(6) for _ in range(group)]
    parts = parts_of(ids, count)
    assert sorted(chain(*parts)) == list(range(len(ids)))
    assert len(parts) == count
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= group
    for name in set(ids):
        assert sum(name in [ids[i] for i in part] for part in parts) == 1


def test_with_too_few_prompts_the_rows_are_spread_evenly():
    ids = ["a"] * 8 + ["b"] * 8
    assert [len(part) for part in parts_of(ids, 4)] == [4] * 4
    assert [len(part) for part in parts_of(["a", "b"], 4)] == [1, 1], "never an empty part"


def test_the_first_part_is_known_before():
    ids = [f"p{number}" for number in range(9) for _ in range(4)]
    for seed in range(5):
        torch.manual_seed(seed)
        (part, *_) = minibatches(ids, 2, torch.Generator().manual_seed(torch.initial_seed() ^ 0x5EED))
        first = first_minibatch(ids, 2)
        assert first == {ids[row] for row in part.tolist()}
        assert len(first) == 5
    assert first_minibatch(ids, 1) == set(ids)
    assert first_minibatch(["a"] * 8, 2) == set(), "no prompt has all of its rows in it"


def test_the_split_is_random_and_repeatable():
    ids = [f"p{number}" for number in range(50)]
    cuts = {str(parts_of(ids, 2, seed)) for seed in range(20)}
    assert len(cuts) == 20
    assert parts_of(ids, 2, 3) == parts_of(ids, 2, 3)


def test_every_row_is_as_likely_to_be_in_the_first_part():
    """A row's number of times among 10 of 20 in 400 draws is Binomial(400, 1/2): 200 with deviation 10."""
    ids = [f"p{number}" for number in range(20)]
    first = torch.zeros(20)
    for seed in range(400):
        first[parts_of(ids, 2, seed)[0]] += 1
    assert ((first - 200).abs() < 45).all()
