"""Sums: the expression of a question computes its answer, and held-out numbers are others than those of training."""

from tutelage.data.worlds.sums import prompts_of, sums
from tutelage.rollout.tools.calculator import calculator


def test_the_tool_computes_the_answers() -> None:
    for split in ("train", "held_out"):
        for one in sums(split, 60):  # type: ignore[arg-type]
            assert calculator(one.expression) == str(one.answer)
            asked, call, result, answer = one.demonstration
            assert asked.content == one.question
            assert (result.content, answer.content) == (str(one.answer),) * 2
            assert one.expression in call.calls[0].arguments
            assert one.answer > 0


def test_a_seed_decides_and_no_held_out_question_is_asked_in_training() -> None:
    assert sums("train", 40, 3) == sums("train", 80, 3)[:40] != sums("train", 40, 4)
    train, held_out = sums("train", 400), sums("held_out", 200)
    assert not {one.question for one in train} & {one.question for one in held_out}
    assert len({one.question for one in train}) == 400
    assert prompts_of(held_out, "held_out")[3].data == {"solution": str(held_out[3].answer)}
