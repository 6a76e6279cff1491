"""Which comparisons are asked, and which prompts are kept aside."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.pairing import count_repeated, group_completions, pair_completions, split_by_prompt
from tutelage.data.records import CompletionRecord, Demonstration, Message, Preference, Prompt, user

WORLD = st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from(["x", "y", "z", "x "])), max_size=12).map(
    lambda items: [CompletionRecord(str(i), prompt, text, "m") for i, (prompt, text) in enumerate(items)]
)


@given(WORLD, st.integers(1, 5), st.integers(0, 3))
def test_pairs_are_of_one_prompt_different_in_text_and_asked_once(world, count, seed) -> None:  # type: ignore[no-untyped-def]
    by_id = {completion.id: completion for completion in world}
    pairs = pair_completions(world, pairs_per_prompt=count, rng_seed=seed)
    for pair in pairs:
        a, b = by_id[pair.a_id], by_id[pair.b_id]
        assert a.prompt_id == b.prompt_id == pair.prompt_id
        assert a.text.strip() != b.text.strip()
    assert len({frozenset((pair.a_id, pair.b_id)) for pair in pairs}) == len(pairs) == len({p.id for p in pairs})
    for prompt in "pqr":
        texts = {completion.text.strip() for completion in world if completion.prompt_id == prompt}
        possible = len(list(combinations(texts, 2)))
        assert sum(pair.prompt_id == prompt for pair in pairs) == min(count, possible)


@given(WORLD, st.randoms())
def test_the_order_of_completions_does_not_matter(world, shuffle: random.Random) -> None:  # type: ignore[no-untyped-def]
    mixed = shuffle.sample(world, len(world))
    assert pair_completions(world, pairs_per_prompt=2, rng_seed=1) == pair_completions(
        mixed, pairs_per_prompt=2, rng_seed=1
    )


@given(WORLD, st.integers(2, 3), st.integers(1, 2), st.randoms())
def test_sets_are_of_one_prompt_all_different_and_share_no_answer(
    world: list[CompletionRecord], size: int, count: int, shuffle: random.Random
) -> None:
    by_id = {completion.id: completion for completion in world}
    groups = group_completions(world, size=size, groups_per_prompt=count, rng_seed=1)
    for prompt, ids in groups:
        assert {by_id[one].prompt_id for one in ids} == {prompt}
        assert len({by_id[one].text.strip() for one in ids}) == len(ids) == size
    shown = [one for _, ids in groups for one in ids]
    assert len(set(shown)) == len(shown)
    for prompt in "pqr":
        texts = {completion.text.strip() for completion in world if completion.prompt_id == prompt}
        assert sum(key == prompt for key, _ in groups) == min(count, len(texts) // size)
    mixed = shuffle.sample(world, len(world))
    assert groups == group_completions(mixed, size=size, groups_per_prompt=count, rng_seed=1)


def four(prompt: str) -> list[CompletionRecord]:
    return [CompletionRecord(f"{prompt}{i}", prompt, f"text {i}", "m") for i in range(4)]


def test_pairs_of_a_prompt_do_not_depend_on_other_prompts() -> None:
    alone = pair_completions(four("p"), pairs_per_prompt=3, rng_seed=0)
    together = pair_completions(four("o") + four("p"), pairs_per_prompt=3, rng_seed=0)
    assert [pair for pair in together if pair.prompt_id == "p"] == alone


def test_prompts_draw_apart() -> None:
    """With one draw shared by all prompts, the same two of every four answers would be asked about."""
    world = [completion for i in range(60) for completion in four(f"p{i:02}")]
    pairs = pair_completions(world, pairs_per_prompt=1, rng_seed=0)
    assert len({(pair.a_id[-1], pair.b_id[-1]) for pair in pairs}) > 6


def test_the_same_question_has_the_same_id_under_every_seed_and_side() -> None:
    asked = [pair_completions(four("p"), pairs_per_prompt=6, rng_seed=seed, origin="x") for seed in range(20)]
    ids = [{frozenset((p.a_id, p.b_id)): p.id for p in pairs} for pairs in asked]
    assert all(each == ids[0] for each in ids)
    assert {pair.origin for pairs in asked for pair in pairs} == {"x"}
    sides = [(p.a_id, p.b_id) for pairs in asked for p in pairs]
    assert 40 < sum(a < b for a, b in sides) < 80  # of 120: neither side is always the earlier completion


def test_every_pair_is_equally_likely() -> None:
    """600 draws of 1 of 6 pairs: chi-square with 5 degrees of freedom stays below its 99.9 % point, 20.5."""
    counts: dict[str, int] = {}
    for seed in range(600):
        (pair,) = pair_completions(four("p"), pairs_per_prompt=1, rng_seed=seed)
        counts[pair.id] = counts.get(pair.id, 0) + 1
    assert len(counts) == 6
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 20.5


def test_repeated_texts_are_counted() -> None:
    texts = [("p", "x"), ("p", "x "), ("p", "y"), ("q", "x"), ("p", "x")]
    assert count_repeated([CompletionRecord(str(i), prompt, text, "m") for i, (prompt, text) in enumerate(texts)]) == 2


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(TutelageError, match="pairs_per_prompt is 0"):
        pair_completions(four("p"), pairs_per_prompt=0, rng_seed=0)
    with pytest.raises(TutelageError, match="have the id 'p0'"):
        pair_completions([*four("p"), CompletionRecord("p0", "p", "another", "m")], pairs_per_prompt=1, rng_seed=0)


def preference(question: str, answer: str = "yes") -> Preference:
    return Preference(user(question), answer, "no")


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.floats(0, 0.9), st.integers(0, 5), st.randoms())
def test_no_prompt_is_on_both_sides_whatever_the_order(questions, share, seed, shuffle) -> None:  # type: ignore[no-untyped-def]
    rows = [preference(f"question {question}", f"answer {i}") for i, question in enumerate(questions)]
    if share > 0 and len(set(questions)) == 1:
        with pytest.raises(TutelageError, match="share one prompt"):
            split_by_prompt(rows, share, seed)
        return
    train, held_out = split_by_prompt(rows, share, seed)
    assert not {row.messages for row in train} & {row.messages for row in held_out}
    assert sorted(train + held_out, key=rows.index) == rows
    assert train
    mixed = split_by_prompt(shuffle.sample(rows, len(rows)), share, seed)
    assert (set(mixed[0]), set(mixed[1])) == (set(train), set(held_out))
    assert list(train) == sorted(train, key=rows.index)


def test_the_share_is_met_and_the_seed_decides() -> None:
    rows = [preference(f"question {i}") for i in range(200)]
    held = [set(split_by_prompt(rows, 0.25, seed)[1]) for seed in range(8)]
    assert {len(each) for each in held} == {50}
    assert len({frozenset(each) for each in held}) == 8
    assert len(split_by_prompt(rows, 0.001, 0)[1]) == 1
    assert split_by_prompt(rows, 0.0, 0) == (tuple(rows), ())


def test_what_continues_a_conversation_stays_with_its_beginning() -> None:
    """Otherwise the first turns of a held-out conversation have been seen in training."""
    rows = []
    for i in range(20):
        opening = (Message("user", f"Question  {i}"),)
        later = (Message("system", "Be brief."), Message("user", f"question {i}"), Message("assistant", "a"))
        rows += [Prompt(f"{i}", opening), Prompt(f"{i}+", (*later, Message("user", "more")))]
    train, held_out = split_by_prompt(rows, 0.3, 0)
    assert {p.id.rstrip("+") for p in train}.isdisjoint(p.id.rstrip("+") for p in held_out)
    assert len(held_out) == 12


def test_plain_texts_are_split_by_themselves() -> None:
    texts = [Demonstration((), f"text {i % 10}") for i in range(20)]
    train, held_out = split_by_prompt(texts, 0.2, 0)
    assert (len(train), len(held_out)) == (16, 4)
    assert not set(train) & set(held_out)


@for_each([-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(TutelageError, match="held-out share"):
        split_by_prompt([preference("a"), preference("b")], share, 0)
