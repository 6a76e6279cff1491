"""Sampling answers: each different prompt is read once, each token once, and answers that have ended leave.

Every row has its own stream of uniform numbers, and tokens are drawn by inverting the cumulative distribution, one
number per token. So what a row says does not depend on the rows it was sampled with, as far as floating point goes:
the logits of a row may differ with its company in their last bits, by some 1e-6, and a token changes where its number
falls that close to the border between two.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage import config
from tutelage.core.batch import Rollout
from tutelage.data.chat import pad_token_id
from tutelage.errors import TutelageError
from tutelage.models.activations import Activations
from tutelage.models.backbone import inner
from tutelage.models.decoders import Asked, Decoder, way_of_decoding
from tutelage.models.decoding_weights import decoding_weights
from tutelage.models.drawing import draw
from tutelage.models.memory import available_memory
from tutelage.models.policy import Policy
from tutelage.models.random_streams import row_seed, uniforms
from tutelage.models.rows import left_padded
from tutelage.models.stopping import Ends, text_of

STORE = 1 << 29
"""Bytes for the keys and values of the answers that are written at the same time."""
FEWEST_ROWS, MOST_ROWS = 64, 1024
"""A step of fewer rows leaves the linear layers waiting for their weights; more were no faster on a small model."""


@dataclass(frozen=True)
class PromptTokens:
    """Tokenised prompts, each at least one token long. `ids` names the random stream of each prompt."""

    tokens: tuple[tuple[int, ...], ...]
    ids: tuple[str, ...]


def sample(
    policy: Policy,
    prompts: PromptTokens,
    n: int,
    sampling: config.Sampling,
    *,
    seed: int,
    rows_at_once: int | None = None,
    on_token: Callable[[Tensor], None] | None = None,
    keep: Activations | None = None,
) -> Rollout:
    """Sample `n` answers to each prompt. Row b answers prompt b // n.

    `logp` is that of the distribution the token was drawn from: at the temperature, after truncation. A row's
    stream depends on `seed`, the prompt's id and the sample's number alone, never on the other rows. `on_token`
    sees the tokens [B] of every step as they are drawn (for streaming). `rows_at_once` bounds the memory; None takes as
    many as make sense. What the layers compute is left in `keep`, where there is room for it. Raises TutelageError when
    a prompt leaves no room for an answer.
    """
    if n < 1 or not prompts.tokens:
        raise ValueError("sampling needs at least one prompt and one sample")
    _check_room(policy, max(map(len, prompts.tokens)), sampling.max_new_tokens)
    sheet = _Sheet(policy, prompts, n, sampling, seed)
    limit = sampling.max_new_tokens
    rows_at_once = rows_at_once or _rows_at_once(policy, limit)
    parts = [
        (way_of_decoding(policy, asked, limit, sampling.compile), asked, rows)
        for asked, rows in _parts(prompts, n, rows_at_once)
    ]
    keep = keep if keep is not None and keep.start(prompts.tokens, n, limit) else None
    recorded = []
    with decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        for way, asked, lines in parts:
            decoder, rows = way(policy, weights, asked, limit), torch.tensor(lines, device=policy.device)
            if keep is not None and (recording := decoder.record(keep)) is not None:
                recorded.append((recording, rows))
            sheet.write(decoder, rows, on_token)
    rollout = sheet.rollout(prompts, n)
    for recording, rows in recorded:
        recording.name(rollout.rows(rows))
    return rollout


def _rows_at_once(policy: Policy, limit: int) -> int:
    """As many rows as have room for their keys and values in `STORE` bytes, if each head has keys of its own."""
    settings = inner(policy.model).config.get_text_config()
    wide = int(settings.num_hidden_layers * settings.hidden_size)
    store = min(STORE, available_memory(policy.device) / 4)
    return int(min(max(store / (2 * wide * policy.dtype.itemsize * limit), FEWEST_ROWS), MOST_ROWS))


def _check_room(policy: Policy, longest: int, limit: int) -> None:
    if policy.context is not None and longest + limit > policy.context:
        raise TutelageError(
            f"A prompt of {longest} tokens and an answer of up to {limit} need {longest + limit} positions, but "
            f"the model has {policy.context}. Shorten the prompts or set a smaller --sampling.max-new-tokens."
        )


def _parts(prompts: PromptTokens, n: int, rows_at_once: int) -> Iterator[tuple[Asked, list[int]]]:
    """Different prompts, and the rows of the rollout that answer them, about `rows_at_once` rows at a time.

    Prompts of like length, asked equally often, go together; the answers to one prompt are never parted.
    """
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(prompts.tokens):
        rows_of.setdefault(prompt, []).extend(range(index * n, (index + 1) * n))
    part: list[tuple[int, ...]] = []
    rows: list[int] = []
    for prompt, own in sorted(rows_of.items(), key=lambda item: (len(item[1]), len(item[0]))):
        # every prompt takes up as many slots as the one that is asked most
        uneven = bool(part) and len(own) > 2 * len(rows_of[part[0]])
        if part and (uneven or len(rows) + len(own) > rows_at_once):
            yield Asked(tuple(part), tuple(len(rows_of[each]) for each in part)), rows
            part, rows = [], []
        part.append(prompt)
        rows += own
    yield Asked(tuple(part), tuple(len(rows_of[each]) for each in part)), rows


class _Sheet:
    """What the rows have said so far."""

    def __init__(
        self, policy: Policy, prompts: PromptTokens, n: int, sampling: config.Sampling, seed: int
    ) -> None:
        self.sampling, self.device = sampling, policy.device
        self.ends = Ends(policy.tokenizer, policy.end_ids, sampling.stop, policy.device)
        self.pad = pad_token_id(policy.tokenizer)
        seeds = [row_seed(seed, name, number) for name in prompts.ids for number in range(n)]
        limit = sampling.max_new_tokens
        self.uniforms = uniforms(seeds, limit).to(policy.device)
        self.response = torch.full((len(seeds), limit), self.pad, device=policy.device)
        self.logp = torch.zeros(len(seeds), limit, device=policy.device)
        self.length = torch.zeros(len(seeds), dtype=torch.long, device=policy.device)
        self.terminated = torch.zeros(len(seeds), dtype=torch.bool, device=policy.device)

    @torch.no_grad()
    def write(self, decoder: Decoder, rows: Tensor, on_token: Callable[[Tensor], None] | None) -> None:
        """Decode until each of `rows` Int[b] has ended or reached the limit."""
        limit = self.sampling.max_new_tokens
        logits = decoder.start()
        for t in range(limit):
            token, self.logp[rows, t] = draw(logits, self.sampling, self.uniforms[rows, t])
            self.response[rows, t] = token
            self.length[rows] = t + 1
            if on_token is not None:
                on_token(self.response[:, t])
            ended = self.ends.reached(self.response, rows, t + 1)
            if ended.any():
                self.terminated[rows] = ended
                going = (~ended).nonzero().squeeze(1)
                if len(going) == 0:
                    break
                rows, token = rows[going], token[going]
                decoder.keep(going)
            if t + 1 < limit:
                logits = decoder.step(token)

    def rollout(self, prompts: PromptTokens, n: int) -> Rollout:
        """All rows, with no column that is padding in each of them."""
        prompt, prompt_mask = left_padded(prompts.tokens, self.pad, self.device)
        width = int(self.length.max())
        columns = torch.arange(width, device=self.device)
        return Rollout(
            prompt=prompt.repeat_interleave(n, 0),
            prompt_mask=prompt_mask.repeat_interleave(n, 0),
            response=self.response[:, :width],
            mask=columns < self.length[:, None],
            logp=self.logp[:, :width],
            terminated=self.terminated,
            truncated=~self.terminated,
            group=n,
            ids=tuple(name for name in prompts.ids for _ in range(n)),
        )


def answers(policy: Policy, rollout: Rollout, stop: Sequence[str] = ()) -> Iterator[str]:
    """The text of each response, without its end token or stop string."""
    for row, mask in zip(rollout.response.tolist(), rollout.mask.tolist(), strict=True):
        tokens = [token for token, real in zip(row, mask, strict=True) if real]
        yield text_of(tokens, policy.tokenizer, policy.end_ids, stop)
