"""Drafts of what a policy writes next; `test_continuous_batch` tests that they change no token."""

from tutelage.rollout import drafts
from tutelage.rollout.drafts import ORDER, Drafts

ENDS = frozenset([9])


def test_a_draft_is_what_followed_the_last_time_up_to_the_end_of_its_turn() -> None:
    found, context = Drafts(ENDS), [1, 2, 3, 4, 5, 6, 9, 7, 1, 2, 3, 4]
    found.learn(context, 0)
    assert list(found.draft(context, 8)) == [5, 6]
    assert list(found.draft(context, 1)) == [5]
    context += [8, 8]
    found.learn(context, len(context) - 2)
    assert list(found.draft([0, 1, 2, 3, 4], 8)) == [8, 8]
    assert list(found.draft([2, 3, 4, 4], 8)) == list(found.draft([4] * (ORDER - 1), 8)) == []


def test_the_rollout_before_is_known_and_no_other() -> None:
    found, context = Drafts(ENDS), [1, 2, 3, 4, 5]
    found.learn(context, 0)
    for expected in ([5], []):
        found.begin()
        assert list(found.draft(context[:4], 8)) == expected


def test_there_are_no_drafts_while_too_many_tokens_were_in_vain() -> None:
    found = Drafts(ENDS)
    found.learn([1, 2, 3, 4, 5, 6, 7, 8], 0)
    found.accepted, found.rejected = 100, 101 + int(drafts.IN_VAIN * 8)
    assert not found.draft([1, 2, 3, 4], 1)
    found.learn([7] * 8, 0)
    assert list(found.draft([1, 2, 3, 4], 1)) == [5]


def test_drafts_that_take_more_time_are_tried_now_and_then() -> None:
    found = Drafts(ENDS)
    assert found.pay(8)
    found.time(8, 1.0, 8, drafted=False)
    assert found.pay(8)
    found.time(9, 3.0, 16, drafted=True)
    assert [found.pay(8) for _ in range(2 * drafts.PAUSE)].count(True) == 2
    assert found.pay(3)  # of as many turns nothing is known
    for _ in range(20):
        found.time(8, 1.0, 32, drafted=True)
    assert found.pay(8)
