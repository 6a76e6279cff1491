"""What a judge is asked, what is read from its replies, and what both orders say together."""

from typing import Any

import pytest
from offenders import for_each
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.llm_judge import (
    EndpointPairJudge,
    EndpointRubricJudge,
    Opinion,
    Preferred,
    in_both_orders,
    read_decision,
    read_rating,
    read_verdict,
    require_parts,
)
from tutelage.data.records import Messages, user
from tutelage.data.rubrics import Criterion


@for_each(
    [
        ("[[A]]", "first"),
        ("Not [[A]] but [[B]]", "second"),
        ("[[C]]", "tie"),
        ("A is better.", None),
        ("[A]", None),
        ("", None),
    ]
)
def test_the_last_verdict_counts(reply: str, preferred: Preferred | None) -> None:
    opinion = read_verdict(reply)
    assert (opinion and opinion.preferred) == preferred


@for_each([("[[3]], no [[4.5]]", 4.5), ("[[ 5 ]]", 5.0), ("[[6]]", None), ("[[-1]]", None), ("5", None)])
def test_the_last_rating_counts_if_it_is_on_the_scale(reply: str, rating: float | None) -> None:
    assert read_rating(reply, 1.0, 5.0) == rating


SETTLED: list[tuple[Preferred, Preferred, Preferred]] = [
    ("first", "second", "first"),
    ("second", "first", "second"),
    ("first", "first", "tie"),
    ("second", "second", "tie"),
    ("tie", "tie", "tie"),
    ("first", "tie", "tie"),
]


@for_each(SETTLED)
def test_only_what_is_preferred_in_both_orders_wins(shown: Preferred, turned: Preferred, settled: Preferred) -> None:
    opinions = {("x", "y"): Opinion(shown, 3, "one"), ("y", "x"): Opinion(turned, 1, "two")}

    def compare(messages: Messages, first: str, second: str) -> Opinion:
        return opinions[first, second]

    found = in_both_orders(compare, user("?"), "x", "y").settled
    assert found == Opinion(settled, 0 if settled == "tie" else 1, "one\n\ntwo")
    mirrored = in_both_orders(compare, user("?"), "y", "x").settled
    assert mirrored.preferred == {"first": "second", "second": "first", "tie": "tie"}[settled]


def test_placeholders_in_an_answer_are_left_alone() -> None:
    with serving(lambda body, number: choices("[[C]]")) as served:
        judge = EndpointPairJudge(PaidEndpoint(Endpoint(served.url, "m")), "?")
        assert judge(user("{second}"), "{guidelines}", "x").preferred == "tie"
    asked = str(served.asked[0]["messages"])
    assert "{second}" in asked
    assert "{guidelines}" in asked


def test_a_prompt_without_its_parts_is_refused() -> None:
    require_parts("{conversation}{first}{second}", "conversation", "first", "second")
    with pytest.raises(TutelageError, match=r"lacks \{first\}, \{second\}\."):
        EndpointPairJudge(PaidEndpoint(Endpoint("http://localhost:1/v1", "m")), template="{conversation}")


def test_the_last_verdict_of_a_reply_counts() -> None:
    assert read_decision("[[UNMET]]? No: [[met]]") is True
    assert read_decision("It is [[ Unmet ]].") is False
    assert read_decision("MET, met") is None


def test_a_criterion_without_a_verdict_is_asked_twice_and_then_missing() -> None:
    def reply(request: dict[str, Any], number: int) -> dict[str, Any]:
        text = request["messages"][0]["content"]
        return choices("[[MET]]" if "Is kind" in text else "Hard to say.")

    with serving(reply) as served:
        judge = EndpointRubricJudge(PaidEndpoint(Endpoint(served.url, "m")))
        verdicts = [judge(user("Hello?"), "Hi!", Criterion(text)) for text in ("Is kind", "Is right", "Is kind")]
        assert verdicts == [True, None, True]
        assert len(served.asked) == 3
        assert (judge.endpoint.usage.missing, judge.endpoint.usage.kept) == (1, 1)


def test_a_template_of_ones_own_needs_its_places() -> None:
    with pytest.raises(TutelageError, match="criterion"):
        EndpointRubricJudge(PaidEndpoint(Endpoint("http://localhost:1/v1", "m")), template="{conversation} {response}")
