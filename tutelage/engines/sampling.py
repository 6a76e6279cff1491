"""Sampling of completions: distinct prompts and tokens are read once, and finished completions are dropped.

Every row has its own stream of uniform numbers, and tokens are sampled by inverting the cumulative distribution, one
number per token. The tokens of a row are therefore independent of other rows in its batch, up to rounding: logits may
differ by about 1e-6 between batches, which changes a token if its number is that close to the boundary between two
tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rollout
from tutelage.core.rows import left_padded
from tutelage.data.chat_template import opening
from tutelage.data.chat_tokens import decode_response, pad_token_id
from tutelage.engines.devices import available_memory
from tutelage.engines.interface import Decoder, Decoders, PromptBatch, PromptTokens, SamplingJob
from tutelage.engines.logprobs import PLAIN_KERNELS, HeadKernels
from tutelage.engines.network import Backbone, about_context, context_of, inner, size_in
from tutelage.engines.plans.token_budget import rows_at_once as rows_at_once_by_memory
from tutelage.engines.plans.token_budget import tokens_kept
from tutelage.engines.token_sampling import draw, row_seed, uniforms


def sample(backbone: Backbone, decoders: Decoders, job: SamplingJob, kernels: HeadKernels = PLAIN_KERNELS) -> Rollout:
    """Sample `n` completions per prompt. Row b belongs to prompt b // n.

    `logp` is the log-probability of a token under its sampling distribution: at the temperature, after truncation.
    Raises TutelageError if a prompt and a completion exceed the context of the model, ValueError without prompts or
    samples.
    """
    check_job(job, backbone)
    buffer = RolloutBuffer(backbone, job, kernels)
    at_once = job.rows_at_once or lines_at_once(backbone, job.limit)[0]
    count, batches = 0, prompt_batches(job.prompts, job.n, at_once, mixed=decoders.mixes_lengths)
    with phase("generate", job.rows) as generating:
        for batch, lines in batches:
            decoder = decoders.decoder(batch, job.limit)
            rows = torch.tensor(lines, device=backbone.device)
            buffer.write(decoder, rows)
            rollout = buffer.rollout()
            decoder.close(rollout.rows(rows))
            generating.advance(count := count + len(lines))
    return rollout  # from the last batch, hence complete


def check_job(job: SamplingJob, backbone: Backbone) -> None:
    """Raise ValueError without prompts or samples, and TutelageError if a prompt and a completion exceed the context of
    the model."""
    if job.n < 1 or not job.prompts.tokens:
        raise ValueError("sampling requires at least one prompt and one sample")
    check_room(job.prompts, job.limit, context_of(backbone.model), about_context(backbone.model))


def lines_at_once(backbone: Backbone, limit: int) -> tuple[int, int]:
    """Rows sampled at once, with `limit` tokens each, and tokens with keys and values that are kept at once; see
    `engines.plans.token_budget`."""
    settings = inner(backbone.model).config.get_text_config()
    layers, hidden = size_in(settings, "num_hidden_layers"), size_in(settings, "hidden_size")
    free, itemsize = available_memory(backbone.device), backbone.dtype.itemsize
    rows = rows_at_once_by_memory(free, layers=layers, hidden=hidden, limit=limit, itemsize=itemsize)
    heads = size_in(settings, "num_attention_heads") or 1
    width = (size_in(settings, "head_dim") or hidden // heads) * (size_in(settings, "num_key_value_heads") or heads)
    return rows, tokens_kept(free, layers=layers, width=width, itemsize=itemsize)


def check_room(prompts: PromptTokens, limit: int, context: int | None, place: str) -> None:
    """Raise TutelageError if the longest prompt with a completion of up to `limit` tokens exceeds the `context`.
    `place` describes what has that context, with {} for its length."""
    longest = max(map(len, prompts.tokens))
    if context is not None and longest + limit > context:
        raise TutelageError(
            f"A prompt of {counted(longest, 'token')} and a completion of up to {limit} need "
            f"{counted(longest + limit, 'position')}, but {place.format(context)}. Shorten the prompts or set a "
            "smaller --sampling.max-new-tokens."
        )


def prompt_batches(
    prompts: PromptTokens, n: int, rows_at_once: int, *, mixed: bool = True
) -> Iterator[tuple[PromptBatch, list[int]]]:
    """Batches of distinct prompts and their rows of the rollout, about `rows_at_once` rows each.

    A batch has prompts of similar length (unless `mixed`, of one length) with similar numbers of completions;
    completions of one prompt stay together.
    """
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(prompts.tokens):
        rows_of.setdefault(prompt, []).extend(range(index * n, (index + 1) * n))
    return batches_of(rows_of, rows_at_once, mixed=mixed)


def batches_of(
    rows_of: Mapping[tuple[int, ...], Sequence[int]], rows_at_once: int, *, mixed: bool = True
) -> Iterator[tuple[PromptBatch, list[int]]]:
    """Batches, as from `prompt_batches`, of prompts with their rows."""
    part: list[tuple[int, ...]] = []
    rows: list[int] = []
    for prompt, own in sorted(rows_of.items(), key=lambda item: (len(item[1]), len(item[0]))):
        # every prompt occupies as many slots as the one with the most completions
        uneven = bool(part) and (len(own) > 2 * len(rows_of[part[0]]) or not (mixed or len(prompt) == len(part[0])))
        if part and (uneven or len(rows) + len(own) > rows_at_once):
            yield PromptBatch(tuple(part), tuple(len(rows_of[each]) for each in part)), rows
            part, rows = [], []
        part.append(prompt)
        rows += own
    yield PromptBatch(tuple(part), tuple(len(rows_of[each]) for each in part)), rows


class RolloutBuffer:
    """The tokens of all rows so far, with their log-probabilities and lengths."""

    def __init__(self, backbone: Backbone, job: SamplingJob, kernels: HeadKernels = PLAIN_KERNELS) -> None:
        self.job, self.kernels, self.device = job, kernels, backbone.device
        self.stop_condition = StopCondition(backbone.tokenizer, job.end_ids, job.sampling.stop, self.device)
        self.pad = pad_token_id(backbone.tokenizer)
        seeds = [row_seed(job.seed, name, number) for name in job.prompts.ids for number in range(job.n)]
        self.uniforms = uniforms(seeds, job.limit).to(self.device)
        self.response = torch.full((len(seeds), job.limit), self.pad, device=self.device)
        self.logp = torch.zeros(len(seeds), job.limit, device=self.device)
        self.length = torch.zeros(len(seeds), dtype=torch.long, device=self.device)
        self.terminated = torch.zeros(len(seeds), dtype=torch.bool, device=self.device)

    @torch.no_grad()
    def write(self, decoder: Decoder, rows: Int[Tensor, " b"]) -> None:
        """Decode until each of `rows` has ended or reached the limit."""
        limit, sampling, on_token = self.job.limit, self.job.sampling, self.job.on_token
        logits = decoder.start()
        for t in range(limit):
            token, self.logp[rows, t] = draw(logits, sampling, self.uniforms[rows, t], self.kernels)
            self.response[rows, t] = token
            self.length[rows] = t + 1
            if on_token is not None:
                on_token(self.response[:, t])
            ended = self.stop_condition.reached(self.response, rows, t + 1)
            if ended.any():
                self.terminated[rows] = ended
                going = (~ended).nonzero().squeeze(1)
                if len(going) == 0:
                    break
                rows, token = rows[going], token[going]
                decoder.keep(going)
            if t + 1 < limit:
                logits = decoder.step(token)

    def rollout(self) -> Rollout:
        """All rows, without columns that are padding in every row."""
        prompts, n = self.job.prompts, self.job.n
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


@runtime_checkable
class TextVocabulary(Protocol):
    """The parts of a policy that turn tokens into text."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def end_ids(self) -> Sequence[int]: ...


def answers(vocabulary: TextVocabulary, rollout: Rollout, stop: Sequence[str] = ()) -> Iterator[str]:
    """The text of each completion, without its end token or stop string."""
    for row, mask in zip(rollout.response.tolist(), rollout.mask.tolist(), strict=True):
        tokens = [token for token, real in zip(row, mask, strict=True) if real]
        yield text_of(tokens, vocabulary.tokenizer, vocabulary.end_ids, stop)


MARGIN = 4
"""Extra tokens before a window, since it may begin within a character of up to four bytes."""


class StopCondition:
    """Detects the end of a completion as tokens are sampled: an end token, or a stop string in its text.

    A stop string may begin and end within tokens. The tokens of the completion include the one that completed the
    string; its text ends before the string.

    Raises TutelageError if a stop string contains a special token, which decoded text never contains.
    """

    def __init__(self, tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str], device: torch.device) -> None:
        self.tokenizer, self.stop = tokenizer, tuple(stop)
        self.end_ids = torch.tensor(end_ids, dtype=torch.long, device=device)
        self.special: dict[int, str] = {}
        """Ids and names of the tokens that `plain_text` omits."""
        if stop:
            added = tokenizer.added_tokens_decoder.items()
            self.special = {index: token.content for index, token in added if token.special}
            self.special |= zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
        for text in stop:
            for special in self.special.values():
                if special in text:
                    raise TutelageError(
                        f"The stop string {text!r} contains {special!r}, a special token of this tokenizer, which no "
                        "text contains. End tokens end a completion anyway; omit it from --sampling.stop."
                    )
        # every token except special ones adds at least one byte
        self.window = max((len(text.encode()) for text in stop), default=0) + MARGIN

    def reached(self, response: Int[Tensor, "B R"], rows: Int[Tensor, " n"], length: int) -> Bool[Tensor, " n"]:
        """Whether each of `rows` ends with token `length` of its completion."""
        ended = (response[rows, length - 1, None] == self.end_ids).any(-1)
        if not self.stop:
            return ended
        response = response[rows, :length]
        windows = response[:, -self.window :].tolist()
        for row, window in enumerate(windows):
            if not self.special.keys().isdisjoint(window):
                written = (token for token in response[row].tolist() if token not in self.special)
                windows[row] = list(written)[-self.window :]
        texts = (plain_text(window, self.tokenizer) for window in windows)
        stopped = [any(stop in text for stop in self.stop) for text in texts]
        return ended | torch.tensor(stopped, device=ended.device)


def text_of(tokens: Sequence[int], tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str]) -> str:
    """The text of a completion up to its end token or first stop string, stripped of white space."""
    if not stop:
        return decode_response(tokens, tokenizer, end_ids)
    end = next((index for index, token in enumerate(tokens) if token in end_ids), len(tokens))
    # a stop string may begin or end with white space, so white space is stripped after the search
    text = plain_text(tokens[:end], tokenizer)
    text = text[: min((at for at in map(text.find, stop) if at >= 0), default=None)]
    return (opening(tokenizer) + text).strip()


def plain_text(tokens: Sequence[int], tokenizer: Any) -> str:
    """The text of tokens, without special tokens, for the search of stop strings."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
