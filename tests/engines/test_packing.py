"""Passes over prompts: every token is there, and none that several prompts begin with is read twice in a pass."""

import random

import pytest
import torch

from tutelage.core.rows import COMMON
from tutelage.engines.packing import prompt_passes

CPU = torch.device("cpu")
SYSTEM, OTHER = tuple(range(100, 150)), tuple(range(200, 220))
PROMPTS = [
    (*SYSTEM, 1, 2, 3),
    (5,),
    (*OTHER, 7),
    (*SYSTEM, 4),
    tuple(range(300, 340)),  # its first tokens are those of no other
    SYSTEM,
    OTHER[: COMMON - 1],  # too few to be read once
    (*OTHER, *range(9)),
]


def random_prompts(seed):
    chance = random.Random(seed)
    beginnings = [tuple(chance.choices(range(50), k=chance.randrange(60))) for _ in range(3)]
    return [(*chance.choice(beginnings), *chance.choices(range(50), k=chance.randrange(1, 30))) for _ in range(20)]


@pytest.mark.parametrize("budget", [1, 64, 120, 10_000])
@pytest.mark.parametrize("prompts", [PROMPTS, *map(random_prompts, range(5))])
def test_all_tokens_of_all_prompts_are_read_at_their_positions(prompts, budget):
    passes = list(prompt_passes(prompts, budget, CPU))
    assert [each.first for each in passes] + [len(prompts)] == [0] + [each.end for each in passes]
    for each in passes:
        own = prompts[each.first : each.end]
        assert [tuple(x.tolist()) for x in each.apart(each.packed.tokens)] == own
        assert [x.tolist() for x in each.apart(each.packed.positions)] == [list(range(len(x))) for x in own]
        assert each.packed.tokens[each.packed.last].tolist() == [prompt[-1] for prompt in own]
        assert len(each.packed.tokens) <= budget or each.end == each.first + 1


def test_common_tokens_are_read_once_in_a_pass():
    (whole,) = prompt_passes(PROMPTS, 10_000, CPU)
    assert len(whole.packed.tokens) == sum(map(len, PROMPTS)) - 2 * len(SYSTEM) - len(OTHER)
    assert whole.packed.tokens.bincount()[100:150].tolist() == [1] * 50
    parts = prompt_passes([(*SYSTEM, i) for i in range(20)], 60, CPU)
    assert [len(part.packed.tokens) for part in parts] == [60, 60]


@pytest.mark.parametrize("prompts", [PROMPTS, *map(random_prompts, range(5))])
def test_a_token_attends_to_those_before_it_in_its_prompt(prompts):
    """By the numbers of sequences, as `Layout` describes them."""
    (whole,) = prompt_passes(prompts, 10_000, CPU)
    layout = whole.packed.layout
    assert torch.equal(layout.sequence, layout.prefix), "no prompt continues another"
    seen = (layout.sequence[:, None] == layout.sequence).tril()
    common = layout.common
    token = torch.arange(len(seen)) if common is None else common.token
    first = torch.arange(len(seen)) if common is None else common.place
    for place in whole.apart(torch.arange(len(whole.packed.tokens))):
        for n, packed in enumerate(place.tolist()):
            assert token[seen[first[packed]]].tolist() == place[: n + 1].tolist()
