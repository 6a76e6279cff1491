"""Returns and temporal differences along a completion, from the last token to the first.

The state after the last token is terminal: its value is 0. Where a completion was cut it is not, and `last` [B] may
have its value, for all the rewards that did not come (0 for completions that ended). `gamma` discounts per token; as a
tensor [B, R] it has the discount from each token to the next, which is 1 within a turn where discounts count turns.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from tutelage.core.reduce import at_last_token
from tutelage.core.shapes import PerRow, PerToken, TokenMask


def total_return(reward: PerToken, mask: TokenMask, *, gamma: float = 1.0) -> PerToken:
    """G₀ = Σₜ γᵗ rₜ, the same for every token of the completion. [B, R] -> [B, R]"""
    discount = gamma ** torch.arange(reward.shape[1], device=reward.device, dtype=reward.dtype)
    total = torch.where(mask, reward * discount, 0.0).sum(-1, keepdim=True)
    return torch.where(mask, total, 0.0)


def returns_to_go(
    reward: PerToken, mask: TokenMask, *, gamma: float | PerToken = 1.0, last: PerRow | None = None
) -> PerToken:
    """Gₜ = rₜ + γ Gₜ₊₁. [B, R] -> [B, R]"""
    return _discounted_sum(_with_last(reward, mask, gamma, last), mask, gamma)


def td_errors(
    reward: PerToken, value: PerToken, mask: TokenMask, *, gamma: float | PerToken = 1.0, last: PerRow | None = None
) -> PerToken:
    """δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ), with V = 0, or `last`, after the last token. [B, R] -> [B, R]"""
    reward = _with_last(reward, mask, gamma, last)
    return torch.where(mask, reward + gamma * next_value(value, mask) - value, 0.0)


def gae(
    reward: PerToken,
    value: PerToken,
    mask: TokenMask,
    *,
    gamma: float | PerToken,
    lam: float | PerRow | PerToken,
    last: PerRow | None = None,
) -> PerToken:
    """Aₜ = δₜ + γλ Aₜ₊₁ (Schulman et al. 2016). λ = 0 is the TD error, λ = 1 the return minus the value. [B, R]"""
    return _discounted_sum(td_errors(reward, value, mask, gamma=gamma, last=last), mask, gamma * lam)


def n_step(
    reward: PerToken, value: PerToken, mask: TokenMask, *, gamma: float, n: int, last: PerRow | None = None
) -> PerToken:
    """Gₜ⁽ⁿ⁾ = rₜ + γ rₜ₊₁ + … + γⁿ⁻¹ rₜ₊ₙ₋₁ + γⁿ V(sₜ₊ₙ), cut short by the end of the completion. [B, R] -> [B, R]"""
    reward = _with_last(reward, mask, gamma, last)
    returns = torch.where(mask, value, 0.0)
    for _ in range(n):
        returns = torch.where(mask, reward + gamma * _shifted(returns), 0.0)
    return returns


def next_value(value: PerToken, mask: TokenMask) -> PerToken:
    """V(sₜ₊₁) for each token: the value one column later, 0 after the last token. [B, R] -> [B, R]"""
    return _shifted(torch.where(mask, value, 0.0))


def turn_index(turn: Int[Tensor, "B R"] | None, mask: TokenMask) -> Int[Tensor, "B R"]:
    """The index of each token's turn, 0 at padding; 0 everywhere without turns. [B, R]"""
    return torch.zeros_like(mask, dtype=torch.long) if turn is None else turn.where(mask, 0)


def turn_ends(turn: Int[Tensor, "B R"], mask: TokenMask) -> TokenMask:
    """The last token of every turn. [B, R]"""
    last = torch.nn.functional.pad(mask[:, 1:] & (turn[:, 1:] == turn[:, :-1]), (0, 1), value=False)
    return mask & ~last


def _with_last(reward: PerToken, mask: TokenMask, gamma: float | PerToken, last: PerRow | None) -> PerToken:
    """The rewards, with γ V on the last token for the value V of the state after it."""
    return reward if last is None else reward + gamma * at_last_token(last, mask)


def _shifted(x: PerToken) -> PerToken:
    return torch.nn.functional.pad(x[:, 1:], (0, 1))


def _discounted_sum(x: PerToken, mask: TokenMask, discount: float | PerRow | PerToken) -> PerToken:
    out = torch.zeros_like(x)
    running = torch.zeros_like(x[:, 0]) if x.shape[1] else x.sum(1)
    for t in reversed(range(x.shape[1])):
        rate = discount[:, t] if isinstance(discount, Tensor) and discount.dim() == 2 else discount
        running = torch.where(mask[:, t], x[:, t] + rate * running, 0.0)
        out[:, t] = running
    return out
