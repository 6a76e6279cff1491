"""Batches of tensors from records: tokenisation, order, splits by a token budget."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.garbage import without_collection
from tutelage.base.nouns import counted
from tutelage.core.batch import Pairs, Rows
from tutelage.core.rows import EncodedRow, RowList, collate
from tutelage.data.chat_template import are_written, render_prompt
from tutelage.data.chat_tokens import NoRoomError, encode, pad_token_id, shorten
from tutelage.data.records import AssistantTurn, Demonstration, Message, Messages, Preference, turn_text
from tutelage.data.tokenizer import SpelledTokens, may_coincide
from tutelage.models.budget import Budget
from tutelage.models.engine_model import EngineModel

T = TypeVar("T")
R = TypeVar("R")


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


Conversation: TypeAlias = tuple[Messages, AssistantTurn]
"""Prompt and completion."""
MOST_IN_MEMORY = 5_000
"""Number of records above which their token ids are not kept."""
AT_ONCE = 256
"""Records whose conversations are rendered at once."""
READ_AT_ONCE = 8_192
"""Rows whose token ids are in memory at once when each is evaluated."""
END_MARKS = 64


class EncodedWhenRead(Sequence[T]):
    """Values of items, computed at every access, so that only the items are kept: records as token ids."""

    def __init__(self, items: Sequence[Any], value: Callable[[Any], T]) -> None:
        self.items, self._value = items, value

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        return list(map(self._value, self.items[place])) if isinstance(place, slice) else self._value(self.items[place])


def in_memory_if_few(values: Sequence[T]) -> Sequence[T]:
    """The values, computed once unless they are more than MOST_IN_MEMORY."""
    return list(values) if len(values) <= MOST_IN_MEMORY else values


@without_collection()
def encode_records(
    thing: str,
    records: Sequence[R],
    conversations: Callable[[R], Sequence[Conversation]],
    encode_one: Callable[[R, Sequence[EncodedRow]], T | str],
    tokenizer: Any,
    max_length: int,
) -> tuple[Sequence[T], Cuts]:
    """Records as token ids of at most `max_length` per conversation, without those that are dropped, and the truncation
    counts. `encode_one` makes the value of a record from the rows of its conversations, or returns why it is dropped.
    Raises TutelageError, in which a record is a `thing`, if none is left.

    Many records are encoded when they are read. Encoded beforehand, for the counts and for what a chat template
    refuses: those with a conversation of more bytes than `max_length`, since a token has one byte or more, or with
    something beside prose; the first with each sequence of roles; those whose conversations may have the same tokens;
    and those that the template refuses or changes, for which the others are rendered.
    """
    cuts = Cuts(spelled=_spelled(map(conversations, records), tokenizer))

    def value(record: R, counts: Cuts) -> T | str:
        rows = [
            _encode_row(messages, response, tokenizer, max_length, counts)
            for messages, response in conversations(record)
        ]
        whole = [row for row in rows if row is not None]
        return encode_one(record, whole) if len(whole) == len(rows) else "no room for its response"

    def kept(number: int, record: R) -> T | None:
        encoded = value(record, cuts)
        if not isinstance(encoded, str):
            return encoded
        cuts.dropped.append(f"row {number}: {encoded}")
        return None

    encoded: Sequence[T]
    if len(records) <= MOST_IN_MEMORY:
        encoded = [one for number, record in enumerate(records, 1) if (one := kept(number, record)) is not None]
    else:
        numbered = zip(enumerate(records, 1), _certain(records, conversations, tokenizer, max_length), strict=False)
        left = [record for (number, record), fits in numbered if fits or kept(number, record) is not None]
        encoded = EncodedWhenRead(left, lambda record: cast(T, value(record, Cuts())))
    if not encoded:
        raise TutelageError(f"No {thing} fits into {counted(max_length, 'token')}: {'; '.join(cuts.dropped[:3])}.")
    return encoded, cuts


def _certain(
    records: Sequence[R], conversations: Callable[[R], Sequence[Conversation]], tokenizer: Any, max_length: int
) -> Iterator[bool]:
    """For each record, whether it is certain beforehand that it is neither cut, nor dropped, nor refused."""
    overheads: dict[tuple[str, ...], int] = {}
    for start in range(0, len(records), AT_ONCE):
        part = [conversations(record) for record in records[start : start + AT_ONCE]]
        short = [
            all(_is_short(one, overheads, tokenizer, max_length) for one in each)
            and not may_coincide([turn_text(response) for _, response in each], tokenizer)
            for each in part
        ]
        rendered = [one for each, fits in zip(part, short, strict=True) if fits for one in each]
        whole = ((*messages, Message("assistant", turn_text(response))) for messages, response in rendered if messages)
        written = iter(are_written(list(whole), tokenizer))
        for each, fits in zip(part, short, strict=True):
            shown = [next(written) for messages, _ in each if messages] if fits else []
            yield fits and all(shown)


def _is_short(
    conversation: Conversation, overheads: dict[tuple[str, ...], int], tokenizer: Any, max_length: int
) -> bool:
    """Whether a conversation of prose has at most `max_length` bytes; false for the first with each sequence of roles,
    whose overhead is computed."""
    messages, response = conversation
    roles = tuple([message.role for message in messages])
    texts = [*[message.content for message in messages], turn_text(response)]
    if roles not in overheads:
        overheads[roles] = _overhead(messages, tokenizer)
        return False
    prose = isinstance(response, str) and all(message.is_text for message in messages)
    text = "".join(texts)
    size = len(text) if text.isascii() else len(text.encode())
    return prose and "<" not in text and size + overheads[roles] <= max_length


def _overhead(messages: Messages, tokenizer: Any) -> int:
    """Upper bound of the tokens of a row that are not of its texts: bytes of the marks in the rendered prompt, and
    END_MARKS for those after the response and at the start."""
    texts = sum(len(message.content.encode()) for message in messages)
    return max(0, len(render_prompt(messages, tokenizer).encode()) - texts) + END_MARKS


def _spelled(records: Iterable[Sequence[Conversation]], tokenizer: Any) -> str:
    spelled = SpelledTokens(tokenizer)
    for conversations in records:
        messages = conversations[0][0]
        spelled.add([*[turn.content for turn in messages], *[turn_text(response) for _, response in conversations]])
    return spelled.describe()


def _encode_row(
    messages: Messages, response: AssistantTurn, tokenizer: Any, max_length: int, cuts: Cuts
) -> EncodedRow | None:
    """Tokenise one row, and count what is cut; None without room for its response."""
    prompt, answer = encode(messages, response, tokenizer)
    spare = max_length - min(len(answer), max_length // 2)  # prompts keep at least half of the context
    try:
        cut = shorten(prompt, answer, max_length, max_prompt=spare if 0 < spare < max_length else None)
    except NoRoomError:
        return None
    cuts.prompts += cut.prompt_cut
    cuts.responses += cut.response_cut
    return EncodedRow(tuple(cut.prompt), tuple(cut.response))


def encode_demonstrations(
    records: Sequence[Demonstration], tokenizer: Any, max_length: int
) -> tuple[Sequence[EncodedRow], Cuts]:
    """Demonstrations as token ids, and the truncation counts. Many of them are encoded when they are read."""
    return encode_records(
        "demonstration",
        records,
        lambda record: [(record.messages, record.response)],
        lambda record, rows: replace(rows[0], weight=record.weight),
        tokenizer,
        max_length,
    )


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
) -> tuple[Sequence[EncodedPair], Cuts]:
    """Preferences as token ids, and the truncation counts. Pairs whose sides are equal after truncation are dropped.
    Many of them are encoded when they are read."""

    def pair(record: Preference, sides: Sequence[EncodedRow]) -> EncodedPair | str:
        return "both sides are equal once cut" if sides[0] == sides[1] else EncodedPair(sides[0], sides[1], record)

    return encode_records(
        "preference",
        records,
        lambda record: [(record.messages, record.chosen), (record.messages, record.rejected)],
        pair,
        tokenizer,
        max_length,
    )


def sources(pairs: Sequence[EncodedPair]) -> Sequence[Preference]:
    """The preferences of pairs, which are not encoded for it."""
    return pairs.items if isinstance(pairs, EncodedWhenRead) else [pair.source for pair in pairs]


def prompts_of(encoded: Sequence[T], row: Callable[[T], EncodedRow]) -> Sequence[Hashable]:
    """The prompt of each encoded record, equal for equal prompts. Those that are encoded when they are read are not
    encoded for it."""
    if isinstance(encoded, EncodedWhenRead):
        return [record.messages for record in encoded.items]
    return [row(one).prompt for one in encoded]


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


def read_parts(model: EngineModel, rows: Sequence[EncodedRow], budget: Budget) -> Iterator[tuple[Tensor, Rows]]:
    """Micro-batches of the rows, with the index of each of their rows. Int[b]"""
    pad = pad_token_id(model.tokenizer)
    for start in range(0, len(rows), READ_AT_ONCE):
        some = rows[start : start + READ_AT_ONCE]
        for index in budget.parts(model.split, RowList(some)):
            yield start + index, collate([some[i] for i in index.tolist()], pad, model.device)


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
        values = torch.zeros(len(rows), *shape)
        for index, batch in read_parts(model, rows, budget):
            values[index] = value(batch).cpu()
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

    Items with equal values in `together` are adjacent, so that a step reads their common prefix once. Such a group
    takes at most a quarter of a batch, so that no step trains on one prompt alone.
    """

    def __init__(self, items: Sequence[T], batch: int, seed: int, together: Sequence[Hashable] | None = None) -> None:
        if not items:
            raise ValueError("there is nothing to order")
        self.items, self.batch, self.seed = items, min(batch, len(items)), seed
        self._groups = _groups(len(items), together, max(1, batch // 4))
        self._epoch: tuple[int, list[int]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch; the last one may be short."""
        return -(-len(self.items) // self.batch)

    def steps(self, epochs: float) -> int:
        """Steps of a number of epochs, at least one."""
        return max(1, round(epochs * self.steps_per_epoch))

    def __call__(self, step: int) -> list[T]:
        """Items of a step (counted from 0)."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            generator = torch.Generator().manual_seed((self.seed * 7_368_787 + epoch) % 2**63)
            order = torch.randperm(len(self._groups), generator=generator).tolist()
            self._epoch = epoch, [item for number in order for item in self._groups[number]]
        start = position * self.batch
        return [self.items[i] for i in self._epoch[1][start : start + self.batch]]


def _groups(count: int, together: Sequence[Hashable] | None, largest: int) -> list[tuple[int, ...]]:
    """Indices of items by group; ungrouped items are groups of one."""
    if together is None:
        return [(place,) for place in range(count)]
    groups: dict[Hashable, list[int]] = {}
    for place, key in enumerate(together):
        groups.setdefault(key, []).append(place)
    return [
        tuple(places[start : start + largest]) for places in groups.values() for start in range(0, len(places), largest)
    ]
