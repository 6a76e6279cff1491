"""Attention of answers that share a prompt: one copy of its keys and values, one softmax over prompt and answer.

    scores = scale · [ q Kᵀ | q kᵀ ]        K, V of the prompt, k, v of the answer so far
    output = softmax(scores) [ V ; v ]

All answers to a prompt put their queries into one matrix product with its keys, which are read once for all of
them; heads that share keys do so too. P prompts, G answers to each, K heads of keys, r queries to each of those,
Q prompt tokens, T answer tokens.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tutelage.engines.cpu.flash_attention import fused
from tutelage.engines.cpu.tree_attention import tells_its_ends


def within_prompts(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> tuple[Tensor, Tensor | None]:
    """Causal attention within prompts of one length. [P, H, Q, w], [P, K, Q, w], [P, K, Q, w'] → [P, H, Q, w'], and
    the log-sum-exp of the scores [P, H, Q] where it is known."""
    if tells_its_ends(query, key, value):
        return fused(query, key, value, 0.0, True, scale=scaling)
    output = scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return output, None


def over_prompt_and_answer(
    query: Tensor,
    prompt: tuple[Tensor, Tensor],
    answer: tuple[Tensor, Tensor],
    hidden: Tensor | None,
    scaling: float | None,
) -> Tensor:
    """Attention of one new token of each answer. Query [P, K, G, r, w] → [P, K, G, r, w']

    `prompt` are keys and values [P, K, Q, ·], `answer` those of the answers [P, K, G, T, ·] with the new token's
    last. `hidden` [P, 1, Q] is −inf behind the end of a prompt and 0 elsewhere. Scores are float32 whatever the
    precision.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.dtype == torch.float32:
        return _joint(query, prompt, answer, hidden, scale)
    if query.device.type == "cpu":
        return _merged(query, prompt, answer, hidden, scale)
    with torch.autocast(query.device.type, enabled=False):
        return _joint(query, prompt, answer, hidden, scale)


def _joint(
    query: Tensor,
    prompt: tuple[Tensor, Tensor],
    answer: tuple[Tensor, Tensor],
    hidden: Tensor | None,
    scale: float,
) -> Tensor:
    """As matrix products with the scores side by side."""
    prompts, heads, answers, queries, width = query.shape
    (prompt_keys, prompt_values), (keys, values) = prompt, answer
    length, written = prompt_keys.shape[2], keys.shape[3]
    together, apart = (prompts * heads, answers * queries), (prompts * heads * answers, queries)
    query = query.contiguous()  # once, since both products want it so
    before = _products(query.view(*together, width), prompt_keys.flatten(0, 1), scale)
    if hidden is not None:
        before.view(prompts, -1, length).add_(hidden)
    after = _products(query.view(*apart, width), keys.flatten(0, 2), scale)
    shares = torch.cat([before.view(*apart, length), after], -1).softmax(-1).to(values.dtype)
    output = torch.bmm(shares.view(*together, -1).narrow(2, 0, length), prompt_values.flatten(0, 1))
    output = torch.baddbmm(output.view(*apart, -1), shares.narrow(2, length, written), values.flatten(0, 2))
    return output.view(prompts, heads, answers, queries, -1)


def _products(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """scale · q Kᵀ in float32: rounded scores would be wrong by more than the softmax forgives."""
    return torch.baddbmm(
        key.new_empty(1, dtype=torch.float32), query.float(), key.float().mT, beta=0.0, alpha=scale
    )


def _merged(
    query: Tensor,
    prompt: tuple[Tensor, Tensor],
    answer: tuple[Tensor, Tensor],
    hidden: Tensor | None,
    scale: float,
) -> Tensor:
    """As two fused attentions, which keep the scores of bfloat16 in float32, weighted by their log-sum-exp ℓ:
    the first has the share σ(ℓ₁ − ℓ₂)."""
    mask = None if hidden is None else hidden[:, None].to(query.dtype)
    first, first_sum = fused(query.flatten(2, 3), *prompt, attn_mask=mask, scale=scale)
    second, second_sum = fused(query.flatten(0, 1), *(x.flatten(0, 1) for x in answer), scale=scale)
    first, first_sum = first.view(*query.shape[:4], -1), first_sum.view(query.shape[:4])
    second, second_sum = second.view(*query.shape[:4], -1), second_sum.view(query.shape[:4])
    share = torch.sigmoid(first_sum - second_sum).to(first.dtype)
    return torch.lerp(second, first, share[..., None])
