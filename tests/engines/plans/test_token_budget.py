"""The tokens of a pass: how often prompts are read again, and what passes without gradients take."""

from itertools import product
from math import ceil

from offenders import for_each

from tutelage.engines.plans.token_budget import BUSY_ON_CPU, READ_AGAIN, SCORED_ON_CPU, group_tokens, scoring_tokens


def read_again(prompt: int, responses: int, limit: int, tokens: int) -> float:
    """Tokens of the prompt that are read again, in passes of so many tokens, of those of the whole group."""
    together = max(1, min((tokens - prompt) // limit, responses))
    return (ceil(responses / together) - 1) * prompt / (prompt + responses * limit)


def test_a_group_of_usual_size_is_whole():
    assert group_tokens(280, 8, 64) == 792
    assert group_tokens(512, 8, 64) == BUSY_ON_CPU


GROUPS = [
    group
    for group in product((1, 64, 300, 896, 2000, 7000), (1, 2, 5, 8, 16, 64), (16, 64, 300, 1024))
    if group[0] + group[1] * group[2] > BUSY_ON_CPU
]


@for_each(GROUPS)
def test_a_large_group_is_split_while_few_prompts_are_read_again(prompt, responses, limit):
    tokens = group_tokens(prompt, responses, limit)
    assert read_again(prompt, responses, limit, tokens) <= READ_AGAIN
    assert BUSY_ON_CPU <= tokens <= prompt + responses * limit
    if tokens > max(BUSY_ON_CPU, prompt + limit):
        assert read_again(prompt, responses, limit, tokens - limit) > READ_AGAIN, "no response too many"


def test_passes_without_gradients_are_larger_in_bf16_on_a_processor_alone():
    where = {"layers": 30, "half": True, "on_cpu": True}
    assert scoring_tokens(1024, **where) == SCORED_ON_CPU
    assert scoring_tokens(512, **where) == 3840
    assert scoring_tokens(8192, **where) == 8192
    assert scoring_tokens(1024, **where | {"layers": 2}) == 1024, "one layer of two keeps half of what both keep"
    for changes in ({"half": False}, {"on_cpu": False}):
        assert scoring_tokens(1024, **where | changes) == 1024
