"""Split tests with planted outcomes: what counts, what is refused, and what a promotion needs."""

import json

import numpy as np
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.split_test import Requirements, Response, Trial, read_responses, split_test, trials_of

HOUR = 3_600_000
BEGIN = 1_700_000_000_000


def responses(users, share, mean_a, mean_b, *, failing_b=0.0, seed=0):
    """Two responses of each user; outcomes of a user are alike."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        arm = "b" if generator.random() < share else "a"
        likes = float(generator.random() < (mean_b if arm == "b" else mean_a))
        failed = arm == "b" and generator.random() < failing_b
        time = BEGIN + user * HOUR
        rows += [Response(arm, f"u{user}", likes, failed, 1.0, time + step) for step in (0, HOUR)]
    return rows


def unmet(test):
    return [each.name for each in test.conditions if each.met is False]


def test_a_better_candidate_passes_and_a_worse_one_does_not():
    better = split_test(responses(1500, 0.3, 0.4, 0.6), Requirements(split=0.3))
    assert better.passed
    assert better.difference.low > 0
    worse = split_test(responses(1500, 0.3, 0.6, 0.4), Requirements(split=0.3))
    assert unmet(worse) == ["better"]
    assert worse.difference.high < 0


def test_a_user_is_one_outcome_and_counts_after_the_first_hours():
    rows = [
        Response("a", "early", 1.0, False, None, BEGIN),
        Response("a", "early", 0.0, False, None, BEGIN + HOUR),
        Response("a", "early", 0.0, False, None, BEGIN + 30 * HOUR),  # after the hours that count
        Response("b", "silent", None, False, None, BEGIN + HOUR),
        Response("b", "late", 1.0, False, None, BEGIN + 20 * HOUR),
    ]
    test = split_test(reversed(rows), Requirements())
    assert test.assigned == (1, 2)
    assert test.users == (1, 0)
    assert test.means == (0.5, None)
    assert test.pending == 1
    assert "better" in unmet(test)


def test_what_is_said_after_the_first_hours_changes_no_outcome_that_was_counted():
    rows = [
        Response("a", "u1", 1.0, False, None, BEGIN, BEGIN + HOUR),
        Response("a", "u1", None, False, None, BEGIN + HOUR),
        Response("b", "u2", 0.0, False, None, BEGIN, BEGIN),
        Response("b", "u3", None, False, None, BEGIN + 40 * HOUR),
    ]
    before = split_test(rows, Requirements())
    rows[1] = Response("a", "u1", 0.0, False, None, BEGIN + HOUR, BEGIN + 25 * HOUR)
    assert before.means == split_test(rows, Requirements()).means == (1.0, 0.0)


def test_a_larger_split_only_adds_users_to_the_candidate():
    users = [f"user {number}" for number in range(4000)]
    small, large = (Trial("b", "a", split) for split in (0.1, 0.5))
    first, second = ({user for user in users if trial.arm(user) == "b"} for trial in (small, large))
    assert first < second
    for split, found in ((0.1, first), (0.5, second)):
        assert abs(len(found) / 4000 - split) < 4 * (split * (1 - split) / 4000) ** 0.5
    assert {user for user in users if Trial("c", "a", 0.5).arm(user) == "b"} not in (first, second)


def test_another_candidate_present_model_or_split_is_another_test():
    tests = [Trial("b (1)", "a", 0.1), Trial("b (2)", "a", 0.1), Trial("b (1)", "c", 0.1), Trial("b (1)", "a", 0.5)]
    names = [test.name for test in tests]
    assert len(set(names)) == 4
    assert trials_of("b (1)", 0.1, names) == [names[0], names[2]]
    assert trials_of("b (2)", 0.5, names) == []


def test_harm_and_lost_users_prevent_a_promotion():
    rows = responses(1500, 0.3, 0.4, 0.6, failing_b=0.2)
    assert unmet(split_test(rows, Requirements(split=0.3))) == ["errors"]
    assert unmet(split_test(rows, Requirements(split=0.3, tolerance=0.4))) == []
    assert unmet(split_test(rows, Requirements(split=0.5, tolerance=0.4))) == ["assignment"]
    slow = [row if row.arm == "a" else Response("b", row.user, row.outcome, False, 9.0, row.time) for row in rows]
    assert unmet(split_test(slow, Requirements(split=0.3, slow=5))) == ["latency"]
    assert unmet(split_test(slow, Requirements(split=0.3, slow=10))) == []


def test_a_margin_asks_for_more():
    rows = responses(1500, 0.3, 0.4, 0.7)
    assert unmet(split_test(rows, Requirements(split=0.3, margin=0.25))) == ["better by more than 0.25"]
    assert split_test(rows, Requirements(split=0.3, margin=0.1)).passed


def test_no_responses_promote_nothing():
    test = split_test([], Requirements())
    assert not test.passed
    assert test.difference.low == -1


def test_a_user_with_both_models_is_refused():
    with pytest.raises(TutelageError, match="u7"):
        split_test([Response("a", "u7", 1, None, None, 0), Response("b", "u7", 1, None, None, 0)], Requirements())


def test_a_user_with_responses_without_time_is_refused():
    rows = [Response("a", "u8", 1, None, None, time) for time in (0, BEGIN)]
    with pytest.raises(TutelageError, match="u8"):
        split_test(rows, Requirements())


def test_reading(tmp_path):
    file = tmp_path / "responses.csv"
    file.write_text(
        "arm,user,outcome,error,seconds,time,comment\n"
        "A,7,true,0,1.5,2026-01-01T00:00:00Z,fine\nb,8,.25,,,,\nb,9,,true,0,1767225600,\n"
    )
    rows, notes = read_responses(str(file))
    assert rows == [
        Response("a", "7", 1.0, False, 1.5, 1767225600000),
        Response("b", "8", 0.25, None, None, 0),
        Response("b", "9", None, True, 0.0, 1767225600000),
    ]
    assert "comment" in notes[0]


@for_each(
    [
        ({"arm": "c", "user": "1"}, ["line 2", "arm", "'c'"]),
        ({"arm": "a", "user": ""}, ["line 2", "user"]),
        ({"arm": "a", "user": "1", "outcome": 1.5}, ["line 2", "outcome", "[0, 1]"]),
        ({"arm": "a", "user": "1", "outcome": "good"}, ["line 2", "outcome"]),
        ({"arm": "a", "user": "1", "error": "perhaps"}, ["line 2", "error"]),
        ({"arm": "a", "user": "1", "time": 45000}, ["line 2", "45000"]),
    ]
)
def test_rows_that_cannot_be_read_are_refused(row, parts, tmp_path):
    file = tmp_path / "responses.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in ({"arm": "b", "user": "0"}, row)))
    with pytest.raises(TutelageError) as refusal:
        read_responses(str(file))
    assert all(part in str(refusal.value) for part in parts), refusal.value
