"""Sampling answers: each prompt is read once, its samples share what was read, and finished rows leave.

Every row has its own stream of uniform numbers, so what a row says does not depend on the rows it was sampled with.
Tokens are drawn by inverting the cumulative distribution, one number per token.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tutelage import config
from tutelage.core.batch import Rollout
from tutelage.data.chat import decode_response, pad_token_id
from tutelage.errors import TutelageError
from tutelage.models.backbone import inner, trunk
from tutelage.models.cache import preallocated, rows_can_move
from tutelage.models.policy import Policy, positions
from tutelage.models.rows import left_padded

LEAVE_WHEN = 0.75  # rows are dropped once fewer than this share is still at work: dropping copies the cache


@dataclass(frozen=True)
class PromptTokens:
    """Tokenised prompts, each at least one token long. `seeds` names the random stream of each prompt."""

    tokens: tuple[tuple[int, ...], ...]
    ids: tuple[str, ...]


def sample(
    policy: Policy,
    prompts: PromptTokens,
    n: int,
    sampling: config.Sampling,
    *,
    seed: int,
    rows_at_once: int = 256,
    on_token: Callable[[Tensor], None] | None = None,
) -> Rollout:
    """Sample `n` answers to each prompt. Row b answers prompt b // n.

    `logp` is that of the distribution the token was drawn from: at the temperature, after truncation. A row's
    stream depends on `seed`, the prompt's id and the sample's number alone, never on the other rows.
    `on_token` sees the tokens [B] of every step as they are drawn (for streaming).
    """
    if n < 1 or not prompts.tokens:
        raise ValueError("sampling needs at least one prompt and one sample")
    pad = pad_token_id(policy.tokenizer)
    parts = []
    per_part = max(1, rows_at_once // n)
    for start in range(0, len(prompts.tokens), per_part):
        tokens, ids = prompts.tokens[start : start + per_part], prompts.ids[start : start + per_part]
        parts.append(_Decoder(policy, tokens, ids, n, sampling, seed, pad).run(on_token))
    return concatenate(parts, pad)


def row_seed(seed: int, prompt_id: str, number: int) -> int:
    """The seed of one row's random stream: FNV-1a over its names, so that it is the same in every process."""
    state = 0xCBF29CE484222325
    for byte in f"{seed}\0{prompt_id}\0{number}".encode():
        state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    return state >> 1  # torch takes seeds below 2^63


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """One uniform number per row and token. Float64[B, length]"""
    generator = torch.Generator()
    return torch.stack(
        [torch.rand(length, generator=generator.manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )


def draw(logits: Tensor, sampling: config.Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row from logits [B, V] and uniform numbers [B]: (token Int[B], its log-probability Float[B])."""
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros_like(token, dtype=torch.float32)
    log_probs = (truncated(logits.float() / sampling.temperature, sampling)).log_softmax(-1)
    cumulative = log_probs.exp().double().cumsum(-1)
    # scaled to the last entry so that rounding can never leave the number beyond it
    token = torch.searchsorted(cumulative, (uniform.to(cumulative) * cumulative[:, -1])[:, None], right=True)
    token = token.clamp(max=logits.shape[-1] - 1)
    return token.squeeze(-1), log_probs.gather(-1, token).squeeze(-1)


def truncated(logits: Tensor, sampling: config.Sampling) -> Tensor:
    """Logits with −inf wherever top-k, then top-p, then min-p leaves a token out."""
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
        before[:, 0] = 0.0
        left_out = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p)
        logits = logits.masked_fill(left_out, -torch.inf)
    if sampling.min_p > 0:
        probabilities = logits.softmax(-1)
        least = sampling.min_p * probabilities.max(-1, keepdim=True).values
        logits = logits.masked_fill(probabilities < least, -torch.inf)
    return logits


class _Decoder:
    """The state of decoding one part of the rows."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        ids: Sequence[str],
        n: int,
        sampling: config.Sampling,
        seed: int,
        pad: int,
    ) -> None:
        self.policy, self.n, self.sampling, self.pad = policy, n, sampling, pad
        self.ids = tuple(name for name in ids for _ in range(n))
        self.prompt, self.prompt_mask = left_padded(prompts, pad, policy.device)
        limit, room = sampling.max_new_tokens, policy.context
        if room is not None and self.prompt.shape[1] + limit > room:
            raise TutelageError(
                f"A prompt of {self.prompt.shape[1]} tokens and an answer of up to {limit} need "
                f"{self.prompt.shape[1] + limit} positions, but the model has {room}. Shorten the prompts or set a "
                "smaller --sampling.max-new-tokens."
            )
        seeds = [row_seed(seed, name, number) for name in ids for number in range(n)]
        self.uniforms = uniforms(seeds, limit).to(policy.device)
        rows = len(self.ids)
        self.response = torch.full((rows, limit), pad, device=policy.device)
        self.logp = torch.zeros(rows, limit, device=policy.device)
        self.length = torch.zeros(rows, dtype=torch.long, device=policy.device)
        self.terminated = torch.zeros(rows, dtype=torch.bool, device=policy.device)
        self.end_ids = torch.tensor(policy.end_ids, device=policy.device)

    @torch.no_grad()
    def run(self, on_token: Callable[[Tensor], None] | None) -> Rollout:
        """Decode until every row has ended or reached the limit."""
        limit = self.sampling.max_new_tokens
        model_config = inner(self.policy.model).config
        cache = preallocated(model_config, self.prompt.shape[1] + limit)
        together = rows_can_move(cache)
        mask = self.prompt_mask if together else self.prompt_mask.repeat_interleave(self.n, 0)
        prompt = self.prompt if together else self.prompt.repeat_interleave(self.n, 0)
        logits = self._forward(prompt, mask, positions(mask), cache)
        if together and self.n > 1:
            logits, mask = logits.repeat_interleave(self.n, 0), mask.repeat_interleave(self.n, 0)
            cache.batch_repeat_interleave(self.n)
        active = torch.arange(len(self.ids), device=mask.device)  # the row each line of the cache belongs to
        for t in range(limit):
            token, logp = draw(logits, self.sampling, self.uniforms[active, t])
            going = ~self.terminated[active]
            token = torch.where(going, token, self.pad)
            rows = active[going]
            self.response[rows, t], self.logp[rows, t] = token[going], logp[going]
            self.length[rows] = t + 1
            self.terminated[rows] = torch.isin(token[going], self.end_ids)
            if on_token is not None:
                on_token(self.response[:, t])
            still = ~self.terminated[active]
            count = int(still.sum())
            if count == 0 or t + 1 == limit:
                break
            mask = torch.cat([mask, going[:, None]], 1)
            if together and count < LEAVE_WHEN * len(active):
                keep = still.nonzero().squeeze(1)
                cache.batch_select_indices(keep)
                active, mask, token = active[keep], mask[keep], token[keep]
            logits = self._forward(token[:, None], mask, mask.sum(1, keepdim=True) - 1, cache)
        return self._rollout()

    def _forward(self, tokens: Tensor, mask: Tensor, where: Tensor, cache: Any) -> Tensor:
        """Logits of the last position. Float[B, V]"""
        policy = self.policy
        arguments = {
            "input_ids": tokens,
            "attention_mask": mask.long(),
            "position_ids": where,
            "past_key_values": cache,
            "use_cache": True,
        }
        with policy.precision():
            if policy.head.weight is None and policy.head.module is None:
                return policy.model(**arguments).logits[:, -1].float()
            return policy.head.logits(trunk(policy.model)(**arguments).last_hidden_state[:, -1])

    def _rollout(self) -> Rollout:
        width = max(1, int(self.length.max()))
        columns = torch.arange(width, device=self.length.device)
        return Rollout(
            prompt=self.prompt.repeat_interleave(self.n, 0),
            prompt_mask=self.prompt_mask.repeat_interleave(self.n, 0),
            response=self.response[:, :width],
            mask=columns < self.length[:, None],
            logp=self.logp[:, :width],
            terminated=self.terminated,
            truncated=~self.terminated,
            group=self.n,
            ids=self.ids,
        )


def concatenate(parts: Sequence[Rollout], pad: int) -> Rollout:
    """Rollouts one under the other, padded to a common width."""
    if len(parts) == 1:
        return parts[0]
    prompt_width = max(part.prompt.shape[1] for part in parts)
    width = max(part.response.shape[1] for part in parts)

    def stack(name: str, fill: float | bool, left: bool) -> Tensor:
        return torch.cat(
            [_widen(getattr(part, name), prompt_width if left else width, fill, left) for part in parts]
        )

    return Rollout(
        prompt=stack("prompt", pad, True),
        prompt_mask=stack("prompt_mask", False, True),
        response=stack("response", pad, False),
        mask=stack("mask", False, False),
        logp=stack("logp", 0.0, False),
        terminated=torch.cat([part.terminated for part in parts]),
        truncated=torch.cat([part.truncated for part in parts]),
        group=parts[0].group,
        ids=tuple(name for part in parts for name in part.ids),
    )


def _widen(x: Tensor, width: int, fill: float | bool, left: bool) -> Tensor:
    missing = width - x.shape[1]
    return torch.nn.functional.pad(x, (missing, 0) if left else (0, missing), value=fill)


def answers(policy: Policy, rollout: Rollout) -> Iterator[str]:
    """The text of each response, without its end token."""
    for row, mask in zip(rollout.response.tolist(), rollout.mask.tolist(), strict=True):
        tokens = [token for token, real in zip(row, mask, strict=True) if real]
        yield decode_response(tokens, policy.tokenizer, policy.end_ids)
