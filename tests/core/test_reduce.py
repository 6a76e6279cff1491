"""Reductions: closed forms, and the law that the parts of a batch add up to the whole."""

import pytest
import torch
from offenders import for_each
from torch import Tensor
from typechecks import unchecked

from tutelage.core.reduce import at_last_token, masked_mean, masked_var, token_weights, whiten

HOW = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")
MASK = torch.arange(5) < torch.tensor([[1], [2], [5], [4]])
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def reduced(x: Tensor, mask: Tensor, how: str, max_length: int = 5) -> float:
    return float((token_weights(mask, how, max_length) * x).sum())


def test_each_reduction_is_what_its_name_says() -> None:
    rows = [X[b, : int(MASK[b].sum())] for b in range(4)]
    assert reduced(X, MASK, "token_mean") == pytest.approx(float(torch.cat(rows).mean()))
    assert reduced(X, MASK, "sequence_mean") == pytest.approx(sum(float(r.mean()) for r in rows) / 4)
    assert reduced(X, MASK, "sequence_sum") == pytest.approx(sum(float(r.sum()) for r in rows) / 4)
    assert reduced(X, MASK, "fixed_length", 7) == pytest.approx(sum(float(r.sum()) for r in rows) / 4 / 7)


@for_each(HOW)
def test_padding_row_order_and_empty_rows_change_nothing(how: str) -> None:
    whole = reduced(X, MASK, how)
    pad = torch.nn.functional.pad
    assert reduced(pad(X, (0, 3)), pad(MASK, (0, 3)), how) == pytest.approx(whole)
    order = torch.tensor([2, 0, 3, 1])
    assert reduced(X[order], MASK[order], how) == pytest.approx(whole)
    assert reduced(pad(X, (0, 0, 0, 2), value=9.0), pad(MASK, (0, 0, 0, 2)), how) == pytest.approx(whole)


def test_weights_cut_from_the_whole_add_up_and_means_of_micro_batches_do_not() -> None:
    for how in HOW:
        weight = token_weights(MASK, how, 5)
        parts = sum(float((weight[i : i + 2] * X[i : i + 2]).sum()) for i in (0, 2))
        assert parts == pytest.approx(reduced(X, MASK, how))
    naive = sum(reduced(X[i : i + 2], MASK[i : i + 2], "token_mean") for i in (0, 2)) / 2
    assert abs(naive - reduced(X, MASK, "token_mean")) > 1e-2


@for_each(HOW)
def test_processes_that_know_the_global_counts_add_up(how: str) -> None:
    counts = {"rows": 4.0, "tokens": float(MASK.sum())}
    parts = sum(float((token_weights(MASK[i : i + 2], how, 5, **counts) * X[i : i + 2]).sum()) for i in (0, 2))
    assert parts == pytest.approx(reduced(X, MASK, how))


@for_each(HOW)
def test_nothing_at_all_weighs_nothing(how: str) -> None:
    weight = token_weights(torch.zeros(3, 4, dtype=torch.bool), how, 4)
    assert torch.equal(weight, torch.zeros(3, 4))


def test_a_fixed_length_needs_the_limit_and_a_name_must_be_known() -> None:
    with pytest.raises(ValueError, match="max_length is 0"):
        token_weights(MASK, "fixed_length")
    with unchecked(), pytest.raises(ValueError, match=r"'mean' .*token_mean, sequence_mean"):
        token_weights(MASK, "mean")


def test_moments_are_those_of_the_unmasked_entries() -> None:
    inside = X[MASK]
    assert float(masked_mean(X, MASK)) == pytest.approx(float(inside.mean()))
    assert float(masked_var(X, MASK)) == pytest.approx(float(inside.var(correction=0)))
    spoiled = torch.where(MASK, X, torch.nan)
    assert float(masked_mean(spoiled, MASK)) == pytest.approx(float(inside.mean()))
    white = whiten(spoiled, MASK)
    assert float(white[MASK].mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(white[MASK].var(correction=0)) == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(white[~MASK], torch.zeros(int((~MASK).sum())))
    kept = whiten(X, MASK, shift_mean=False)
    assert float(kept[MASK].mean()) == pytest.approx(float(inside.mean()))
    assert float(kept[MASK].var(correction=0)) == pytest.approx(1.0, abs=1e-6)


def test_whitening_what_does_not_vary_gives_zeros_and_no_nan() -> None:
    assert torch.equal(whiten(torch.full((2, 3), 4.0), torch.ones(2, 3, dtype=torch.bool)), torch.zeros(2, 3))


@for_each(
    [
        ([True, False, False], 0),  # the end token is the first
        ([True, True, False], 1),
        ([True, True, True], 2),  # exactly the limit
        ([False, False, False], None),  # an empty response
    ]
)
def test_the_score_lands_on_the_last_response_token(mask: list[bool], where: int | None) -> None:
    placed = at_last_token(torch.tensor([2.5]), torch.tensor([mask]))
    expected = torch.zeros(1, 3)
    if where is not None:
        expected[0, where] = 2.5
    assert torch.equal(placed, expected)
