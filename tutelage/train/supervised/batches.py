"""Batches of tensors from records: tokenisation, order, splits by a token budget."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Pairs, Rows
from tutelage.core.rows import EncodedRow, RowList, collate
from tutelage.data.chat_template import render_prompt, writes_turns
from tutelage.data.chat_tokens import NoRoomError, SpelledTokens, encode, pad_token_id, shorten
from tutelage.data.records import AssistantTurn, Demonstration, Message, Messages, Preference, turn_text
from tutelage.models.budget import Budget
from tutelage.models.engine_model import EngineModel

T = TypeVar("T")


@dataclass
class Cuts:
    """Numbers of rows truncated or dropped to fit the context."""

    prompts: int = 0
    responses: int = 0
    dropped: list[str] = field(default_factory=list)
    spelled: str = ""
    """Remark on special tokens that the data spell out."""

    def describe(self, max_length: int) -> str:
        """Describe the truncated and dropped rows, and tokens read as text, in a sentence each; empty if there are
        none."""
        parts = []
        if self.prompts:
            parts.append(f"{counted(self.prompts, 'prompt')} shortened on the left")
        if self.responses:
            parts.append(f"{counted(self.responses, 'response')} cut")
        if self.dropped:
            parts.append(f"{len(self.dropped)} dropped ({'; '.join(self.dropped[:3])})")
        fit = f"To fit {counted(max_length, 'token')}: {', '.join(parts)}." if parts else ""
        return " ".join(filter(None, [fit, self.spelled]))


def encode_rows(
    conversations: Sequence[tuple[Messages, AssistantTurn]], tokenizer: Any, max_length: int, cuts: Cuts
) -> list[EncodedRow | None]:
    """Tokenise (messages, completion) pairs to at most `max_length` tokens; None for dropped rows."""
    cuts.spelled = _spelled(conversations, tokenizer) or cuts.spelled
    return [
        _encode_row(number, messages, response, tokenizer, max_length, cuts)
        for number, (messages, response) in enumerate(conversations, 1)
    ]


def _spelled(conversations: Iterable[tuple[Messages, AssistantTurn]], tokenizer: Any) -> str:
    spelled = SpelledTokens(tokenizer)
    for messages, response in conversations:
        spelled.add((*(message.content for message in messages), turn_text(response)))
    return spelled.describe()


def _encode_row(
    number: int, messages: Messages, response: AssistantTurn, tokenizer: Any, max_length: int, cuts: Cuts
) -> EncodedRow | None:
    """Tokenise one row, the `number`-th of the data, and count what is cut."""
    prompt, answer = encode(messages, response, tokenizer)
    spare = max_length - min(len(answer), max_length // 2)  # prompts keep at least half of the context
    try:
        cut = shorten(prompt, answer, max_length, max_prompt=spare if 0 < spare < max_length else None)
    except NoRoomError:
        cuts.dropped.append(f"row {number}: no room for its response")
        return None
    cuts.prompts += cut.prompt_cut
    cuts.responses += cut.response_cut
    return EncodedRow(tuple(cut.prompt), tuple(cut.response))


def encode_demonstrations(
    records: Sequence[Demonstration], tokenizer: Any, max_length: int
) -> tuple[Sequence[EncodedRow], Cuts]:
    """Demonstrations as token ids, and the truncation counts. Many of them are encoded when they are read."""
    cuts = Cuts()
    encoded: Sequence[EncodedRow]
    if len(records) > MOST_IN_MEMORY:
        encoded = _encoded_when_read(records, tokenizer, max_length, cuts)
    else:
        rows = encode_rows([(r.messages, r.response) for r in records], tokenizer, max_length, cuts)
        pairs = zip(rows, records, strict=True)
        encoded = [replace(row, weight=record.weight) for row, record in pairs if row is not None]
    if not encoded:
        raise TutelageError(
            f"No demonstration fits into {counted(max_length, 'token')}: {'; '.join(cuts.dropped[:3])}."
        )
    return encoded, cuts


MOST_IN_MEMORY = 20_000
"""Number of demonstrations above which their token ids are not kept."""
END_MARKS = 64


def _encoded_when_read(
    records: Sequence[Demonstration], tokenizer: Any, max_length: int, cuts: Cuts
) -> "EncodedWhenRead":
    """The demonstrations, without those that are dropped.

    Encoded beforehand, for the counts and for what a chat template refuses: rows with more bytes than `max_length`,
    since a token has one byte or more; those with something beside prose; the first with each sequence of roles; and
    those that the template refuses or changes, for which the others are rendered (0.1 ms a row).
    """
    cuts.spelled = _spelled(((r.messages, r.response) for r in records), tokenizer)
    shapes: dict[tuple[str, ...], int] = {}
    kept: list[Demonstration] = []
    for number, record in enumerate(records, 1):
        texts = [*(message.content for message in record.messages), turn_text(record.response)]
        shape = tuple(message.role for message in record.messages)
        prose = isinstance(record.response, str) and all(message.is_text for message in record.messages)
        prose = prose and not any("<" in text for text in texts)
        if (
            not prose
            or shape not in shapes
            or sum(map(_bytes, texts)) + shapes[shape] > max_length
            or not writes_turns(_answered(record), tokenizer)
        ):
            row = _encode_row(number, record.messages, record.response, tokenizer, max_length, cuts)
            if row is None:
                continue
            if shape not in shapes:
                shapes[shape] = _overhead(record.messages, tokenizer)
        kept.append(record)
    return EncodedWhenRead(kept, tokenizer, max_length)


def _answered(record: Demonstration) -> Messages:
    """The conversation with its response; () for text without a conversation."""
    return (*record.messages, Message("assistant", turn_text(record.response))) if record.messages else ()


def _overhead(messages: Messages, tokenizer: Any) -> int:
    """Upper bound of the tokens of a row that are not of its texts: bytes of the marks in the rendered prompt, and
    END_MARKS for those after the response and at the start."""
    texts = sum(len(message.content.encode()) for message in messages)
    return max(0, len(render_prompt(messages, tokenizer).encode()) - texts) + END_MARKS


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class EncodedWhenRead(Sequence[EncodedRow]):
    """Demonstrations as token ids, encoded at every access, so that only their texts are kept."""

    def __init__(self, records: Sequence[Demonstration], tokenizer: Any, max_length: int) -> None:
        self.records, self.tokenizer, self.max_length = records, tokenizer, max_length

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, place: int) -> EncodedRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[EncodedRow]: ...
    def __getitem__(self, place: int | slice) -> EncodedRow | list[EncodedRow]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        record = self.records[place]
        row = _encode_row(place + 1, record.messages, record.response, self.tokenizer, self.max_length, Cuts())
        assert row is not None, "a row that does not fit has been dropped"
        return replace(row, weight=record.weight)


@dataclass(frozen=True)
class EncodedPair:
    """Preference as token ids."""

    chosen: EncodedRow
    rejected: EncodedRow
    source: Preference

    def __len__(self) -> int:
        return len(self.chosen) + len(self.rejected)


def encode_preferences(
    records: Sequence[Preference], tokenizer: Any, max_length: int
) -> tuple[list[EncodedPair], Cuts]:
    """Preferences as token ids. Pairs whose sides are equal after truncation are dropped."""
    cuts = Cuts()
    chosen = encode_rows([(r.messages, r.chosen) for r in records], tokenizer, max_length, cuts)
    rejected = encode_rows([(r.messages, r.rejected) for r in records], tokenizer, max_length, cuts)
    pairs = []
    for number, (record, better, worse) in enumerate(zip(records, chosen, rejected, strict=True)):
        if better is None or worse is None:
            continue
        if better == worse:
            cuts.dropped.append(f"row {number + 1}: both sides are equal once cut")
            continue
        pairs.append(EncodedPair(better, worse, record))
    if not pairs:
        raise TutelageError(f"No preference fits into {counted(max_length, 'token')}: {'; '.join(cuts.dropped[:3])}.")
    return pairs, cuts


def collate_pairs(pairs: Sequence[EncodedPair], pad: int, device: torch.device) -> Pairs:
    """Pad encoded preferences to one batch."""

    def column(name: str) -> Tensor:
        values = [getattr(pair.source, name) for pair in pairs]
        return torch.tensor(values, dtype=torch.float32, device=device)

    return Pairs(
        chosen=collate([pair.chosen for pair in pairs], pad, device),
        rejected=collate([pair.rejected for pair in pairs], pad, device),
        p_chosen=column("p_chosen"),
        weight=column("weight"),
        margin=column("margin"),
    )


def of_each_row(
    model: EngineModel,
    rows: Sequence[EncodedRow],
    value: Callable[[Rows], Tensor],
    budget: Budget,
    shape: Sequence[int] = (),
) -> Tensor:
    """Value of every row, in order. `value` computes a number, or a tensor of `shape`, for each row of a batch that
    `model` reads. Float[N, *shape]"""

    def compute() -> Tensor:
        values, pad = torch.zeros(len(rows), *shape), pad_token_id(model.tokenizer)
        for index in budget.parts(model.split, RowList(rows)):
            values[index] = value(collate([rows[i] for i in index.tolist()], pad, model.device)).cpu()
        budget.ranks.sum_([values])
        return values

    return budget.spend(compute)


def windows(stream: Sequence[int], context: int) -> list[EncodedRow]:
    """Cut a stream of tokens into unpadded rows, whose prompt is their first token.

    Consecutive windows overlap by one token, so every token but the first is predicted once.
    """
    return [
        EncodedRow((stream[start],), tuple(stream[start + 1 : start + context]))
        for start in range(0, max(0, len(stream) - 1), context - 1)
        if len(stream[start + 1 : start + context]) > 0
    ]


class Order(Generic[T]):
    """Items of each step: a new permutation every epoch, a function of (seed, epoch).

    Items with equal `together` are adjacent, so that a step reads their common prefix once. Such a group takes at
    most a quarter of a batch, so that no step trains on one prompt alone.
    """

    def __init__(
        self, items: Sequence[T], batch: int, seed: int, together: Callable[[T], Hashable] | None = None
    ) -> None:
        if not items:
            raise ValueError("there is nothing to order")
        self.items, self.batch, self.seed = items, min(batch, len(items)), seed
        self._groups = _groups(items, together, max(1, batch // 4))
        self._epoch: tuple[int, list[int]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch; the last one may be short."""
        return -(-len(self.items) // self.batch)

    def __call__(self, step: int) -> list[T]:
        """Items of a step (counted from 0)."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            generator = torch.Generator().manual_seed((self.seed * 7_368_787 + epoch) % 2**63)
            order = torch.randperm(len(self._groups), generator=generator).tolist()
            self._epoch = epoch, [item for number in order for item in self._groups[number]]
        start = position * self.batch
        return [self.items[i] for i in self._epoch[1][start : start + self.batch]]


def _groups(items: Sequence[T], together: Callable[[T], Hashable] | None, largest: int) -> list[tuple[int, ...]]:
    """Indices of items by group; ungrouped items are groups of one."""
    if together is None:
        return [(place,) for place in range(len(items))]
    groups: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(together(item), []).append(place)
    return [
        tuple(places[start : start + largest]) for places in groups.values() for start in range(0, len(places), largest)
    ]
