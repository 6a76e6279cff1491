"""The market: careful episodes solve its questions, of which some are held out, and steps are judged by the truth.
Sums: the expression of a question computes its answer, and held-out numbers are others than those of training."""

from collections import Counter
from random import Random

import pytest
from offenders import for_each

from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.worlds.tool_questions import (
    CARELESS,
    GOODS,
    Market,
    Purchase,
    Way,
    called,
    conversation,
    good_steps,
    prompts_of,
    sums,
)
from tutelage.rollout.tools.calculator import calculator

WAYS: tuple[Way, ...] = ("careful", *CARELESS)


def steps_of(messages: Messages) -> list[Messages]:
    """The messages after the question, by turns of the policy."""
    steps: list[list[Message]] = []
    for message in messages[1:]:
        steps = [*steps, [message]] if message.role == "assistant" else [*steps[:-1], [*steps[-1], message]]
    return list(map(tuple, steps))


def test_a_seed_is_a_market_and_another_is_another() -> None:
    assert Market(3).demonstrations(50) == Market(3).demonstrations(80)[:50]
    assert Market(3).prompts("train") == Market(3).prompts("train") != Market(4).prompts("train")
    assert Market(3).price_list("train") != Market(3).price_list("held_out")


@for_each(range(3))
def test_no_held_out_question_is_asked_or_demonstrated_in_training(seed: int) -> None:
    market = Market(seed)
    train, held_out = (market.prompts(split) for split in ("train", "held_out"))
    asked = {prompt.messages for prompt in train}
    demonstrated = {one[:1] for one in market.demonstrations(300)}
    assert len(asked) == len(train)
    assert demonstrated <= asked
    assert not asked & {prompt.messages for prompt in held_out}
    assert len(held_out) / (len(train) + len(held_out)) == pytest.approx(0.25, abs=0.01)
    words = {len(prompt.data["goods"]) for prompt in held_out}  # type: ignore[arg-type]
    assert words == {1, 2}


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_every_question_is_solved_by_two_to_four_good_steps(split) -> None:
    market = Market(1)
    prices = market.prices(split)
    lengths = Counter[int]()
    for purchase, prompt in zip(market.purchases(split), market.prompts(split), strict=True):
        messages = conversation(purchase, prices, "careful", Random(0))
        steps, solution = steps_of(messages), str(prompt.data["solution"])
        assert messages[:1] == prompt.messages
        assert messages[-1].content == solution == str(eval(purchase.sum(prices) or str(prices[purchase.goods[0]])))
        assert good_steps(purchase.goods, solution, steps) == [True] * len(steps)
        lengths[len(steps)] += 1
    assert set(lengths) == {2, 3, 4}


def test_few_demonstrations_are_good_throughout() -> None:
    """Those of the careful way, and others whose mistake their question leaves no room for."""
    good = 0
    for messages in Market(0).demonstrations(1200):
        words = messages[0].content.strip("?").split()
        asked = {
            goods: words[words.index(each) - 1]
            for goods, one in GOODS.items()
            for each in (goods, one)
            if each in words
        }
        prices = {m.content.split()[1]: int(m.content.split()[-1]) for m in messages if m.name == "search"}
        total = sum(int(n.replace("one", "1")) * prices.get(name, 0) for name, n in asked.items())
        good += all(good_steps(list(asked), str(total), steps_of(messages)))
    assert good / 1200 == pytest.approx(1 - sum(CARELESS.values()), abs=0.06)


@for_each(
    [
        ("careful", [True, True, True, True]),
        ("added", [True, True, False, False]),
        ("guess", [False]),
        ("mental", [True, True, False]),
        ("invented", [False, False]),
        ("half", [True, False, False]),
    ]
)
def test_each_way_is_good_up_to_where_it_goes_wrong(way: Way, steps: list[bool]) -> None:
    prices = dict.fromkeys(GOODS, 9) | {"figs": 2, "nuts": 3}
    purchase = Purchase((4, 5), ("figs", "nuts"))
    for seed in range(20):
        messages = conversation(purchase, prices, way, Random(seed))
        if way in ("careful", "half") or messages[-1].content != "23":  # a guess may be right
            assert good_steps(purchase.goods, "23", steps_of(messages)) == steps or messages[-1].content == "23"


@for_each(
    [
        ([("search", "figs", "[figs] figs cost 2")] * 2, [True, False]),
        ([("search", "nuts", "[nuts] nuts cost 3"), ("search", "figs", "[figs] figs cost 2")], [False, True]),
        ([("calculator", "4*2", "8"), ("search", "figs", "[figs] figs cost 2")], [False, True]),
        ([("search", "figs", "[figs] figs cost 2"), *[("calculator", "4*2", "8")] * 2], [True, True, False]),
        ([("search", "figs", "[figs] figs cost 2"), ("calculator", "4*3", "12")], [True, False]),
        ([("search", "figs", "No document has one of these words.")], [False]),
    ]
)
def test_a_step_is_good_if_it_is_right_new_and_follows(steps, good) -> None:
    assert good_steps(["figs"], "8", [called(tool, "text", value, result) for tool, value, result in steps]) == good


def test_an_answer_counts_after_its_prices_and_a_turn_of_two_calls_if_both_do() -> None:
    found = called("search", "query", "figs", "[figs] figs cost 2")
    right, wrong = ((Message("assistant", text),) for text in ("8", "9"))
    assert good_steps(["figs"], "8", [right, found, wrong, right]) == [False, True, False, True]
    calls = tuple(ToolCall("search", f'{{"query": "{good}"}}') for good in ("figs", "nuts"))
    results = tuple(Message("tool", f"[{good}] {good} cost 2", name="search") for good in ("figs", "nuts"))
    both = (Message("assistant", "", calls=calls), *results)
    assert good_steps(["figs", "nuts"], "8", [both, right]) == [True, True]
    assert good_steps(["figs"], "8", [both, right]) == [False, True]


def test_the_tool_computes_the_answers_of_sums() -> None:
    for split in ("train", "held_out"):
        for one in sums(split, 60):  # type: ignore[arg-type]
            assert calculator(one.expression) == str(one.answer)
            asked, call, result, answer = one.demonstration
            assert asked.content == one.question
            assert (result.content, answer.content) == (str(one.answer),) * 2
            assert one.expression in call.calls[0].arguments
            assert one.answer > 0


def test_a_seed_decides_the_sums_and_no_held_out_question_is_asked_in_training() -> None:
    assert sums("train", 40, 3) == sums("train", 80, 3)[:40] != sums("train", 40, 4)
    train, held_out = sums("train", 400), sums("held_out", 200)
    assert not {one.question for one in train} & {one.question for one in held_out}
    assert len({one.question for one in train}) == 400
    assert prompts_of(held_out, "held_out")[3].data == {"solution": str(held_out[3].answer)}
