"""Rows of a rollout: what belongs to a row stays with it."""

from dataclasses import replace

import torch

from tutelage.core.batch import Branches, Rollout, Rows, stacked
from tutelage.core.pieces import NOTHING, Context
from tutelage.core.rows import EncodedRow, by_shared_tokens, collate, left_aligned, positions, shares, with_end


def rollout() -> Rollout:
    """Four rows of up to three tokens, every field with a value that names its row."""
    mask = torch.arange(3) < torch.tensor([[1], [2], [2], [0]])
    numbers = torch.arange(12).reshape(4, 3)
    return Rollout(
        prompt=numbers[:, :2],
        prompt_mask=torch.ones(4, 2, dtype=torch.bool),
        response=numbers,
        mask=mask,
        logp=-numbers.double(),
        terminated=torch.tensor([True, False, True, False]),
        truncated=torch.tensor([False, True, False, True]),
        group=2,
        ids=("a", "a", "b", "b"),
        texts=("one", "two", "three", ""),
        version=numbers + 100,
    )


def test_texts_and_versions_go_with_their_rows() -> None:
    whole = rollout()
    for index in (torch.tensor([2, 0]), torch.tensor([True, False, True, False])):
        some = whole.rows(index)
        order = index.tolist() if index.dtype == torch.long else [0, 2]
        assert some.texts == tuple(whole.texts[i] for i in order)
        assert some.ids == tuple(whole.ids[i] for i in order)
        assert torch.equal(some.version, whole.version[order])
        assert torch.equal(some.logp, whole.logp[order])
    assert whole.rows(torch.tensor([0])).rows(torch.tensor([False])).texts == ()


def test_a_rollout_without_texts_and_versions_stays_one() -> None:
    bare = replace(rollout(), texts=(), version=None).rows(torch.tensor([3, 1]))
    assert bare.texts == ()
    assert bare.version is None
    assert bare.ids == ("b", "a")


def test_versions_are_trimmed_with_the_tokens_that_they_belong_to() -> None:
    whole = rollout()
    trimmed = whole.trimmed()
    assert trimmed.version.shape == trimmed.response.shape == (4, 2)
    assert torch.equal(trimmed.version, whole.version[:, :2])


def test_a_context_is_cut_as_its_rows_are() -> None:
    context = Context(
        ids=("a", "a", "b", "b"),
        max_length=9,
        score_norm=torch.arange(8.0).reshape(4, 2),
        greedy=torch.tensor([1.0, 1.0, 2.0, 2.0]),
    )
    some = context.rows(torch.tensor([False, True, True, False]))
    assert (some.ids, some.max_length) == (("a", "b"), 9)
    assert some.score_norm.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert some.greedy.tolist() == [1.0, 2.0]
    assert NOTHING.rows(torch.tensor([0])) == NOTHING


def test_every_response_ends_with_the_end_token():
    """After the last token, in place of another token that ends, once only, and in place of the last one of a full row;
    nothing else changes."""
    rows = [(4, 5), (4, 9), (4, 8), (), (4, 5, 6, 7)]
    asked = [(1, 2), (1,), (1, 2, 3), (1,), (1, 2, 3)]
    closed = with_end(
        collate([EncodedRow(*both) for both in zip(asked, rows, strict=True)], 0, torch.device("cpu")),
        (9, 8),
        longest=7,
    )
    found = [tuple(tokens[mask].tolist()) for tokens, mask in zip(closed.response, closed.mask, strict=True)]
    assert found == [(4, 5, 9), (4, 9), (4, 9), (9,), (4, 5, 6, 9)]
    assert [
        tuple(tokens[mask].tolist()) for tokens, mask in zip(closed.prompt, closed.prompt_mask, strict=True)
    ] == asked


def test_left_aligned_rows_have_each_token_in_the_column_of_its_position() -> None:
    """The batch is as wide as its longest row: a model counts positions by columns."""
    items = [EncodedRow((5, 6, 7), (8,)), EncodedRow((9,), (3, 4)), EncodedRow((1, 2), ())]
    rows = collate(items, 99, torch.device("cpu"))
    tokens = left_aligned(rows)
    assert [row.tolist() for row in tokens] == [[5, 6, 7, 8], [9, 3, 4, 0], [1, 2, 0, 0]]
    mask = torch.cat([rows.prompt_mask, rows.mask], 1)
    padded = torch.cat([rows.prompt, rows.response], 1)
    assert torch.equal(tokens.gather(1, positions(mask))[mask], padded[mask])


def episodes() -> tuple[Rows, Branches]:
    """Three episodes: one context with text that was read between two turns, two contexts, and a single turn."""
    texts = [([1, 2], [5, 6, 90, 91, 7]), ([3], [8, 9]), ([3, 92], [9, 93, 10]), ([4], [11])]
    contexts = collate([EncodedRow(tuple(p), tuple(r)) for p, r in texts], 0, torch.device("cpu"))
    sampled = contexts.mask & (contexts.response < 90)
    sampled[2, 0] = False  # a token of the first context, which the second repeats
    rows = [EncodedRow((1, 2), (5, 6, 7)), EncodedRow((3,), (8, 9, 10)), EncodedRow((4,), (11,))]
    branches = Branches(contexts, sampled, torch.tensor([0, 1, 1, 2]))
    return replace(collate(rows, 0, torch.device("cpu")), branches=branches), branches


def tokens_of(rows: Rows) -> list[list[int]]:
    """The tokens at the places of each row, in order."""
    found: list[list[int]] = [[] for _ in range(len(rows))]
    owner = torch.arange(len(rows)) if rows.branches is None else rows.branches.episode
    for row, column in zip(*(x.tolist() for x in rows.places), strict=True):
        found[int(owner[row])].append(int(rows.contexts.response[row, column]))
    return found


def test_the_places_of_episodes_are_their_sampled_tokens_in_any_selection() -> None:
    rows, _ = episodes()
    own = [row[mask].tolist() for row, mask in zip(rows.response, rows.mask, strict=True)]
    assert tokens_of(rows) == own == [[5, 6, 7], [8, 9, 10], [11]]
    for index in ([2, 0], [1], [1, 1, 2], []):
        some = rows.rows(torch.tensor(index, dtype=torch.long)).trimmed()
        assert tokens_of(some) == [own[i] for i in index]
        assert some.lengths().tolist() == [rows.lengths().tolist()[i] for i in index]
    assert rows.lengths().tolist() == [7, 3 + 5, 2]
    assert rows.rows(torch.tensor([False, True, False])).branches.contexts.prompt_mask.sum(1).tolist() == [1, 2]


def test_rows_without_branches_join_those_with_some_as_their_own_contexts() -> None:
    rows, branches = episodes()
    plain = collate([EncodedRow((6,), (12, 13))], 0, torch.device("cpu"))
    joined = Branches.joined([rows, plain, rows])
    whole = stacked(rows, plain, rows)
    assert tokens_of(replace(whole, branches=joined)) == [*tokens_of(rows), [12, 13], *tokens_of(rows)]
    assert Branches.joined([plain, plain]) is None
    last = branches.last(3)
    assert [row[mask].tolist() for row, mask in zip(last.response, last.mask, strict=True)] == [
        [5, 6, 90, 91, 7],
        [9, 93, 10],
        [11],
    ]


def test_an_episode_costs_the_tokens_of_its_contexts() -> None:
    """Each prompt once, and the completion of every context."""
    rows, _ = episodes()
    costs = [[(share.prompt_tokens, share.own_tokens) for share in item] for item in shares(rows)]
    assert costs == [[(2, 5)], [(1, 2), (2, 3)], [(1, 1)]]
    assert sorted(i for part in by_shared_tokens(shares(rows), 8) for i in part.tolist()) == [0, 1, 2]
