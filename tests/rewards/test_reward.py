"""Completions say what the rollout says, and are made only where they are looked at."""

import pytest
import torch

from tutelage.core.rows import EncodedRow, collate
from tutelage.data.records import Prompt, user
from tutelage.rewards.reward import Completion, Completions, device_of, rows_of

from .made import TALK, completion, sampled

ROWS = [EncodedRow((5, 6, 7), (8, 2)), EncodedRow((9,), (3, 4, 2)), EncodedRow((1, 2), ())]


def test_a_completion_carries_conversation_columns_and_the_tokens_as_sampled() -> None:
    prompt = Prompt("p", TALK, data={"solution": "42"})
    made = collate([EncodedRow((0, 0, 7), (0, 2))], 0, torch.device("cpu"))
    (one,) = Completions([prompt], ["So."], made)
    assert one == Completion("p", TALK, "So.", {"solution": "42"}, True, (0, 0, 7), (0, 2)), (
        "tokens that look like the padding stay"
    )


def test_padding_is_no_token_and_a_cut_answer_is_marked() -> None:
    found = sampled(ROWS)
    assert [(one.prompt_tokens, one.tokens) for one in found] == [(r.prompt, r.response) for r in ROWS]
    assert [one.terminated for one in found] == [True, False, True]
    assert [one.data for one in found] == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_they_are_a_sequence() -> None:
    found = sampled(ROWS)
    assert len(found) == 3
    assert found[1] is found[-2] is list(found)[1]
    assert list(found[1:]) == [found[1], found[2]]
    with pytest.raises(IndexError):
        found[3]


def test_rows_go_through_single_completions_unchanged() -> None:
    found = sampled(ROWS)
    one, other = rows_of(found), rows_of(list(found))
    assert one is found.rows
    assert other is not None
    for name in ("prompt_mask", "response", "mask"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(found.rows.prompt * found.rows.prompt_mask, other.prompt * other.prompt_mask)


def test_texts_alone_have_no_rows_and_say_who_ended() -> None:
    prompts = [Prompt("a", user("A?")), Prompt("b", user("B?"))]
    found = Completions(prompts, ["x", "y"], terminated=[True, False])
    assert rows_of(found) is None
    assert [(one.prompt_id, one.terminated, one.tokens) for one in found] == [("a", True, ()), ("b", False, ())]
    assert rows_of([completion("x")]) is None
    assert device_of(found) == device_of([completion("x")]) == torch.device("cpu")


def test_a_reward_that_reads_rows_makes_no_completion() -> None:
    found = sampled(ROWS)
    rows_of(found)
    assert "_items" not in vars(found)


@pytest.mark.parametrize("prompts", [1, 3])
def test_prompts_and_answers_are_of_one_length(prompts: int) -> None:
    with pytest.raises(ValueError, match=f"2 answers cannot belong to {prompts}"):
        Completions([Prompt("p", TALK)] * prompts, ["a", "b"])
