"""Scores of a process reward model: one for each step of a completion, at its last token.

A step of text ends with the separator that follows it, the last one too, and is tokenised by itself: its last token
does not depend on whether another step follows, which would tell the model how the completion goes on. A step of
messages ends with the end token of the assistant's message; what is read after it, such as results of tools, is not
part of its score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
from torch.nn.functional import pad as pad_columns

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Rollout, Rows
from tutelage.core.returns import turn_ends
from tutelage.core.rows import EncodedRow, collate, read_at, with_end
from tutelage.data.chat_tokens import encode, encode_next, encode_pieces
from tutelage.data.records import Messages, Step, spoken


@dataclass(frozen=True)
class EncodedSteps:
    """Steps as token ids: the contexts that a model reads, and the (context, number of completion tokens) at the end of
    each step, ascending. As in an episode, a second context begins where the chat template rewrites the past."""

    contexts: tuple[EncodedRow, ...]
    ends: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return sum(map(len, self.contexts))

    def fitting(self, longest: int) -> list[bool]:
        """Which steps end within `longest` tokens of their context, one of which is left for `read_at`."""
        return [len(self.contexts[context].prompt) + end < longest for context, end in self.ends]

    def only(self, which: Sequence[bool]) -> "EncodedSteps":
        """Some of the steps, without the tokens after the last of them in each context."""
        ends = [end for end, chosen in zip(self.ends, which, strict=True) if chosen]
        last = dict(ends)  # of each context
        number = {context: place for place, context in enumerate(last)}
        contexts = [EncodedRow(self.contexts[i].prompt, self.contexts[i].response[:end]) for i, end in last.items()]
        return EncodedSteps(tuple(contexts), tuple((number[context], end) for context, end in ends))


def encode_steps(messages: Messages, steps: Sequence[Step], separator: str, tokenizer: Any) -> EncodedSteps:
    """Steps as token ids. `separator` follows each step of text; steps of messages have their own ends."""
    if not isinstance(steps[0], str):
        return _encode_turns(messages, cast(Sequence[Messages], steps), tokenizer)
    prompt, pieces = encode_pieces(messages, [f"{step}{separator}" for step in steps], tokenizer)
    ends = accumulate(map(len, pieces))
    response = tuple(token for piece in pieces for token in piece)
    return EncodedSteps((EncodedRow(tuple(prompt), response),), tuple((0, end) for end in ends))


def _encode_turns(messages: Messages, steps: Sequence[Messages], tokenizer: Any) -> EncodedSteps:
    contexts, ends = list[tuple[int, list[int]]](), list[tuple[int, int]]()
    context: Messages = messages
    heard: Messages = ()
    for turn, *results in steps:
        tokens, response = encode((*context, *heard), spoken(turn), tokenizer)
        continues = False
        if ends:
            tokens, continues, _ = encode_next(context, heard, tokenizer, ended=True)
        if not continues:
            contexts.append((len(tokens), []))
        prompt, held = contexts[-1]
        held += [*tokens, *response]
        ends.append((len(contexts) - 1, len(held) - prompt))
        context, heard = (*context, *heard, turn), tuple(results)
    rows = (EncodedRow(tuple(tokens[:prompt]), tuple(tokens[prompt:])) for prompt, tokens in contexts)
    return EncodedSteps(tuple(rows), tuple(ends))


def step_rows(items: Sequence[EncodedSteps], pad: int, device: torch.device, *, longest: int | None = None) -> Rows:
    """Rows whose columns are the ends of steps, see `read_at`."""
    contexts = collate([row for item in items for row in item.contexts], pad, device)
    counts = [len(item.contexts) for item in items]
    starts = [0, *accumulate(counts)]
    marked = torch.zeros_like(contexts.mask)
    places = [
        (start + context, end - 1) for start, item in zip(starts, items, strict=False) for context, end in item.ends
    ]
    rows, columns = torch.tensor(places, device=device).T
    marked[rows, columns] = True
    episode = torch.arange(len(items), device=device).repeat_interleave(torch.tensor(counts, device=device))
    return read_at(_fitting(contexts, longest), marked, episode, longest=longest)


def turn_rows(rollout: Rollout, ends: Sequence[int], longest: int | None) -> Rows:
    """Rows whose columns are the ends of the turns of each row of a rollout, see `read_at`.

    A turn ends with one of the tokens `ends`. If a turn was sampled without one, for example because it was cut,
    it is scored at the end token that follows it, `ends[0]` after the last turn.
    """
    contexts = with_end(_fitting(rollout.contexts, longest), ends)
    last = rollout.mask & ~pad_columns(rollout.mask[:, 1:], (0, 1), value=False)
    last = last if rollout.turn is None else turn_ends(rollout.turn, rollout.mask)
    rows, columns = (place[last[rollout.mask]] for place in rollout.places)
    tokens = torch.tensor(ends, device=rows.device)
    columns = columns + ~torch.isin(contexts.response[rows, columns], tokens)
    marked = torch.zeros_like(contexts.mask)
    marked[rows, columns] = True
    return read_at(contexts, marked, None if rollout.branches is None else rollout.branches.episode, longest=longest)


def _fitting(contexts: Rows, longest: int | None) -> Rows:
    """The contexts, after checking that none has more than `longest` tokens."""
    length = int(contexts.lengths().max()) if longest is not None and len(contexts) else 0
    if longest is not None and length > longest:
        raise TutelageError(
            f"A completion has {counted(length, 'token')} with what precedes it, and the model that scores its steps "
            f"reads at most {longest:,}: lower --turns or --sampling.max-new-tokens, or use one with a longer context."
        )
    return contexts
