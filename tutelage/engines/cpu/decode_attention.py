"""Attention in decoding with shared prompts: one copy of the prompt's keys and values, one softmax over prompt and
completion.

    scores = scale · [ q Kᵀ | q kᵀ ]        K, V: prompt; k, v: completion so far
    output = softmax(scores) [ V ; v ]

The queries of all completions to a prompt, and of all heads that share keys, are multiplied with the prompt's keys in
one matrix product, which reads the keys once. Letters: P prompts, G completions to each, K heads of keys, r queries to
each of those, Q prompt tokens, T completion tokens.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.engines.cpu.packed_attention import flash_attention


def over_prompt_and_answer(
    query: Float[Tensor, "P K G r w"],
    prompt: tuple[Float[Tensor, "P K Q w"], Float[Tensor, "P K Q v"]],
    answer: tuple[Float[Tensor, "P K G T w"], Float[Tensor, "P K G T v"]],
    hidden: Float[Tensor, "P 1 Q"] | None,
    scaling: float | None,
) -> Float[Tensor, "P K G r v"]:
    """Attention of one new token per completion to its prompt and to the completion so far, including the new token.

    `prompt` and `answer` are keys and values; the last entries of `answer` belong to the new token. `hidden` is −inf
    after the end of a prompt and 0 elsewhere; None if all prompts are equally long. Scores are float32 for all dtypes.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.dtype == torch.float32:
        return _joint(query, (prompt, answer), hidden, scale)
    if query.device.type == "cpu":
        return _merged(query, (prompt, answer), hidden, scale)
    with torch.autocast(query.device.type, enabled=False):
        return _joint(query, (prompt, answer), hidden, scale)


def _joint(query: Tensor, stored: tuple[Any, Any], hidden: Tensor | None, scale: float) -> Tensor:
    """`over_prompt_and_answer` as matrix products, with all scores of a query in one row."""
    prompts, heads, answers, queries, width = query.shape
    (prompt_keys, prompt_values), (keys, values) = stored
    length, written = prompt_keys.shape[2], keys.shape[3]
    together, apart = (prompts * heads, answers * queries), (prompts * heads * answers, queries)
    query = query.contiguous()  # once, since both products need it
    before = _products(query.view(*together, width), prompt_keys.flatten(0, 1), scale)
    if hidden is not None:
        before.view(prompts, -1, length).add_(hidden)
    after = _products(query.view(*apart, width), keys.flatten(0, 2), scale)
    probabilities = torch.cat([before.view(*apart, length), after], -1).softmax(-1).to(values.dtype)
    output = torch.bmm(probabilities.view(*together, -1).narrow(2, 0, length), prompt_values.flatten(0, 1))
    output = torch.baddbmm(output.view(*apart, -1), probabilities.narrow(2, length, written), values.flatten(0, 2))
    return output.view(prompts, heads, answers, queries, -1)


def _products(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """scale · q Kᵀ in float32, since the softmax would amplify rounding errors of the scores."""
    return torch.baddbmm(key.new_empty(1, dtype=torch.float32), query.float(), key.float().mT, beta=0.0, alpha=scale)


def _merged(query: Tensor, stored: tuple[Any, Any], hidden: Tensor | None, scale: float) -> Tensor:
    """`over_prompt_and_answer` as two flash attentions, which keep the scores of bfloat16 in float32. With their
    log-sum-exp ℓ₁ and ℓ₂, the first has the weight σ(ℓ₁ − ℓ₂)."""
    mask = None if hidden is None else hidden[:, None].to(query.dtype)
    first, first_lse = flash_attention(query.flatten(2, 3), *stored[0], attn_mask=mask, scale=scale)
    second, second_lse = flash_attention(query.flatten(0, 1), *(x.flatten(0, 1) for x in stored[1]), scale=scale)
    first, first_lse = first.view(*query.shape[:4], -1), first_lse.view(query.shape[:4])
    second, second_lse = second.view(*query.shape[:4], -1), second_lse.view(query.shape[:4])
    share = torch.sigmoid(first_lse - second_lse).to(first.dtype)
    return torch.lerp(second, first, share[..., None])
