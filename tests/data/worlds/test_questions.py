"""The questions of children: read whole, divided by topic, the same for every seed but for the division."""

import pytest

from tutelage.data.formats import load_prompts
from tutelage.data.rows import to_row, write_jsonl
from tutelage.data.worlds import ChildrensQuestions
from tutelage.data.worlds.questions import SYSTEM, questions


def test_every_line_of_the_file_is_a_question_of_its_topic() -> None:
    assert len(questions()) == 125
    asked = [question for topic in questions().values() for question in topic]
    assert len(asked) == len(set(asked)) == 625
    assert all(question.endswith("?") and question == question.strip() for question in asked)
    assert questions()["sky"][0] == "Why is the sky blue?"


@pytest.mark.parametrize("seed", range(3))
def test_topics_are_divided_and_no_question_is_on_both_sides(seed: int) -> None:
    world = ChildrensQuestions(seed)
    train, held_out = world.topics("train"), world.topics("held_out")
    assert {*train, *held_out} == set(questions())
    assert len(held_out) == 31
    prompts = {split: world.prompts(split) for split in ("train", "held_out")}
    for split, topics in (("train", train), ("held_out", held_out)):
        asked = {prompt.messages[-1].content for prompt in prompts[split]}
        assert asked == {question for topic in topics for question in questions()[topic]}
        assert {prompt.split for prompt in prompts[split]} == {split}
        assert len({prompt.id for prompt in prompts[split]}) == len(prompts[split]) == 5 * len(topics)


def test_the_first_part_of_the_list_goes_round_the_topics() -> None:
    world = ChildrensQuestions(0)
    first = world.prompts("train")[:94]
    assert [prompt.id for prompt in first] == [
        f"{topic.replace(' ', '-')}-0" for topic in world.topics("train")
    ]


def test_another_seed_divides_otherwise_and_keeps_the_ids() -> None:
    one, other = ChildrensQuestions(0), ChildrensQuestions(1)
    assert set(one.topics("held_out")) != set(other.topics("held_out"))

    def ids(world: ChildrensQuestions) -> dict[str, str]:
        every = world.prompts("train") + world.prompts("held_out")
        return {prompt.messages[-1].content: prompt.id for prompt in every}

    assert ids(one) == ids(other)


def test_a_prompt_comes_back_from_its_file_with_its_system_turn(tmp_path) -> None:
    prompts = ChildrensQuestions(0).prompts("held_out")
    assert all([turn.role for turn in prompt.messages] == ["system", "user"] for prompt in prompts)
    assert prompts[0].messages[0].content == SYSTEM
    write_jsonl(tmp_path / "prompts.jsonl", map(to_row, prompts))
    assert load_prompts(tmp_path / "prompts.jsonl").records == tuple(prompts)
