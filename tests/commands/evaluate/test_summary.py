"""The rows of an evaluation: which prompt each is about."""

from types import SimpleNamespace
from typing import Any

from tutelage.commands.evaluate.summary import answer_rows
from tutelage.data.records import Message, Prompt, user


def test_a_conversation_is_known_by_more_than_its_last_message() -> None:
    """A prompt of one message is its text; each of two conversations with the same last message has an own id."""
    talks = [(*user(first), Message("assistant", "So."), *user("Go on.")) for first in ("One?", "Two?")]
    prompts = [Prompt(str(number), messages) for number, messages in enumerate((user("Go on."), *talks))]
    rollout = SimpleNamespace(transcripts=(), terminated=[True] * 3)
    answered = SimpleNamespace(prompts=prompts, rollout=rollout, texts=["a", "b", "c"])
    side: Any = SimpleNamespace(answered=answered, scores={"words": [1.0, 2.0, 3.0]})
    rows = answer_rows([side])
    assert [row["prompt"] for row in rows] == ["Go on."] * 3
    ids = [row.get("prompt_id") for row in rows]
    assert ids[0] is None
    assert len({str(key) for key in ids}) == 3
    assert [row["words_after"] for row in rows] == [1.0, 2.0, 3.0]
