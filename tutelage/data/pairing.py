"""Selection of comparisons for raters, and held-out splits of pairs."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from tutelage.base.errors import TutelageError
from tutelage.data.records import (
    Comparison,
    CompletionRecord,
    Demonstration,
    Preference,
    Prompt,
    RatedSteps,
    prompt_id,
    stable_id,
    turn_text,
)

Asks = TypeVar("Asks", Preference, Demonstration, Prompt, RatedSteps)


def pair_completions(
    completions: Iterable[CompletionRecord], *, pairs_per_prompt: int, rng_seed: int, origin: str = "random"
) -> list[Comparison]:
    """Up to `pairs_per_prompt` pairs of different texts for every prompt, sampled without replacement.

    Duplicate texts are used once (`count_repeated` counts the duplicates). The result does not depend on the order
    of the completions, nor the pairs of a prompt on other prompts. The id of a comparison is the same for both
    orders of its completions, so repetitions are recognised.
    """
    if pairs_per_prompt < 1:
        raise TutelageError(f"pairs_per_prompt is {pairs_per_prompt}; ask at least one pair of each prompt.")
    by_prompt = _distinct(completions)
    comparisons: list[Comparison] = []
    for key in sorted(by_prompt):
        rng = random.Random(f"{rng_seed}/{key}")
        pairs = list(combinations(sorted(by_prompt[key].values()), 2))
        for pair in rng.sample(pairs, min(pairs_per_prompt, len(pairs))):
            a, b = rng.sample(pair, 2)
            comparisons.append(Comparison(stable_id(key, *pair), key, a, b, origin))
    return comparisons


def group_completions(
    completions: Iterable[CompletionRecord], *, size: int, groups_per_prompt: int, rng_seed: int
) -> list[tuple[str, tuple[str, ...]]]:
    """Up to `groups_per_prompt` disjoint sets of `size` different texts per prompt for ranking, as (prompt id,
    sorted completion ids). As with pairs, the result does not depend on the order of the completions.
    """
    by_prompt = _distinct(completions)
    groups = []
    for key in sorted(by_prompt):
        ids = sorted(by_prompt[key].values())
        random.Random(f"{rng_seed}/{key}").shuffle(ids)
        for start in range(0, size * min(groups_per_prompt, len(ids) // size), size):
            groups.append((key, tuple(sorted(ids[start : start + size]))))
    return groups


def _distinct(completions: Iterable[CompletionRecord]) -> dict[str, dict[str, str]]:
    """prompt id -> text -> smallest id of the completions with that text."""
    texts_of: dict[str, dict[str, str]] = defaultdict(dict)
    ids: set[str] = set()
    for completion in completions:
        if completion.id in ids:
            raise TutelageError(f"Two completions have the id {completion.id!r}; a comparison could not name them.")
        ids.add(completion.id)
        texts = texts_of[completion.prompt_id]
        text = completion.text.strip()
        texts[text] = min(completion.id, texts.get(text, completion.id))
    return texts_of


def count_repeated(completions: Sequence[CompletionRecord]) -> int:
    """Number of completions that duplicate another of the same prompt verbatim."""
    return len(completions) - len({(completion.prompt_id, completion.text.strip()) for completion in completions})


def split_by_prompt(records: Sequence[Asks], held_out: float, seed: int) -> tuple[tuple[Asks, ...], tuple[Asks, ...]]:
    """(train, held out): about `held_out` of the rows, with no prompt on both sides.

    Rows whose conversations start with the same user turn stay together, so that neither a held-out prompt nor an
    earlier part of its conversation occurs in training. The split depends on content and seed, not on order; both sides
    keep the order of the rows.

    Raises TutelageError if `held_out` is not in [0, 1) or all rows share one prompt.
    """
    if not 0 <= held_out < 1:
        raise TutelageError(f"The held-out share is {held_out:g}; it must be at least 0 and below 1.")
    if held_out == 0 or not records:
        return tuple(records), ()
    keys = [_opening(record) for record in records]
    aside = _choose_groups(Counter(keys), held_out * len(records), seed)
    train = tuple(record for record, key in zip(records, keys, strict=True) if key not in aside)
    return train, tuple(record for record, key in zip(records, keys, strict=True) if key in aside)


def _choose_groups(sizes: Counter[str], target: float, seed: int) -> set[str]:
    """Groups in an order fixed by the seed, as many as fit in `target` rows; the smallest if none fits."""
    if len(sizes) < 2:
        raise TutelageError(
            "All rows share one prompt, so none can be held out: give more prompts or hold out nothing."
        )
    order = sorted(sizes, key=lambda key: stable_id(str(seed), key))
    chosen: set[str] = set()
    rows = 0
    for key in order:
        if rows + sizes[key] <= target:
            chosen.add(key)
            rows += sizes[key]
    return chosen or {min(order, key=lambda key: sizes[key])}


def _opening(record: Preference | Demonstration | Prompt | RatedSteps) -> str:
    """Grouping key of a record: the first user turn, without case and spacing; plain text is its own key."""
    first = next((message.content for message in record.messages if message.role == "user"), None)
    if first is None:
        first = turn_text(record.response) if isinstance(record, Demonstration) else prompt_id(record.messages)
    return " ".join(first.casefold().split())


def distant_pairs(ratings: Mapping[str, float], most: int) -> Iterator[tuple[str, str]]:
    """`most` pairs of responses of different ratings: neighbours in a circle in the order of hashes of their texts,
    then those at distance 2, and so on, so that each response is in about as many pairs. If there are so many, it takes
    O(n · most) steps: a response of a rating of its own has two pairs at every distance."""
    circle = sorted(ratings, key=stable_id)
    count = len(circle)
    for distance in range(1, count // 2 + 1):
        for place in range(count if 2 * distance < count else distance):
            if most <= 0:
                return
            one, other = circle[place], circle[(place + distance) % count]
            if ratings[one] != ratings[other]:
                most -= 1
                yield one, other
