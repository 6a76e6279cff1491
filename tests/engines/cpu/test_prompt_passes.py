"""Passes over prompts: every token is there, and none that several prompts begin with is read twice in a pass."""

import random

import pytest
import torch

from tutelage.engines.cpu.prompt_passes import BLOCK, common_tokens, prompt_passes

CPU = torch.device("cpu")
SYSTEM, OTHER = tuple(range(100, 150)), tuple(range(200, 220))
PROMPTS = [
    (*SYSTEM, 1, 2, 3),
    (5,),
    (*OTHER, 7),
    (*SYSTEM, 4),
    tuple(range(300, 340)),  # its first tokens are those of no other
    SYSTEM,
    OTHER[:BLOCK],  # no more than a block
    (*OTHER, *range(9)),
]


def random_prompts(seed):
    chance = random.Random(seed)
    beginnings = [tuple(chance.choices(range(50), k=chance.randrange(60))) for _ in range(3)]
    return [
        (*chance.choice(beginnings), *chance.choices(range(50), k=chance.randrange(1, 30))) for _ in range(20)
    ]


def test_common_tokens_are_whole_blocks_before_the_last_token():
    assert common_tokens(PROMPTS) == [48, 0, 16, 48, 0, 48, 0, 16]
    assert common_tokens([SYSTEM[:49], SYSTEM]) == [48, 48]
    assert common_tokens([SYSTEM[:48], SYSTEM]) == [32, 32], "a prompt keeps a token of its own"
    assert common_tokens([SYSTEM]) == [0]


@pytest.mark.parametrize("budget", [1, 64, 120, 10_000])
@pytest.mark.parametrize("prompts", [PROMPTS, *map(random_prompts, range(5))])
def test_all_tokens_of_all_prompts_are_read_at_their_positions(prompts, budget):
    passes = list(prompt_passes(prompts, budget, CPU))
    assert [each.first for each in passes] + [len(prompts)] == [0] + [each.end for each in passes]
    for each in passes:
        own = prompts[each.first : each.end]
        assert [tuple(x.tolist()) for x in each.apart(each.tokens)] == own
        assert [x.tolist() for x in each.apart(each.positions)] == [list(range(len(x))) for x in own]
        assert each.tokens[each.last].tolist() == [prompt[-1] for prompt in own]
        assert len(each.tokens) <= budget or each.end == each.first + 1


def test_common_tokens_are_read_once_in_a_pass():
    (whole,) = prompt_passes(PROMPTS, 10_000, CPU)
    assert len(whole.tokens) == sum(map(len, PROMPTS)) - 2 * 48 - 16
    counts = whole.tokens.bincount()
    assert counts[100:148].tolist() == [1] * 48
    parts = prompt_passes([(*SYSTEM, i) for i in range(20)], 60, CPU)
    assert [len(part.tokens) for part in parts] == [48 + 4 * 3] * 5


@pytest.mark.parametrize("prompts", [PROMPTS, *map(random_prompts, range(5))])
def test_a_token_attends_to_those_before_it_in_its_prompt(prompts):
    """By the numbers of sequences, as `Layout` describes them."""
    (whole,) = prompt_passes(prompts, 10_000, CPU)
    sequence, prefix = whole.layout.sequence, whole.layout.prefix
    seen = ((sequence[:, None] == sequence) | (prefix[:, None] == sequence)).tril()
    places = whole.apart(torch.arange(len(whole.tokens)))
    for place in places:
        for n, token in enumerate(place.tolist()):
            assert seen[token].nonzero().squeeze(1).tolist() == place[: n + 1].tolist()
