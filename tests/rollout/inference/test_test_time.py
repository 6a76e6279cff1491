"""Test-time preference optimisation with scripted models: one that obeys, one that does not."""

import pytest
from offenders import for_each
from scripted import ScriptedSampler
from served import choices, serving

from tutelage.base import config
from tutelage.base.config.sections import SearchSettings
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.records import Message, Prompt, user
from tutelage.rollout.inference.test_time import followed, optimise_at_test_time
from tutelage.rollout.samplers import HttpSampler

SAMPLING = config.Sampling(temperature=0.9, max_new_tokens=32)
PROMPTS = [Prompt("sun", user("What is {the} sun?")), Prompt("rain", user("What is rain?"))]


def between(text, begin, end):
    """What stands between two lines of a question."""
    return text.partition(f"[{begin}]\n")[2].partition(f"\n[{end}]")[0]


def stars(completions):
    """What is wanted is asterisks, and no model knows that."""
    return [float(one.answer.count("*")) for one in completions]


def obedient(messages, number):
    """Sees what the better answer has more of, says so, and does it."""
    text = messages[-1].content
    if "[Better answer]" in text:
        better, worse = (
            between(text, f"{side} answer", f"End of {side.lower()} answer") for side in ("Better", "Worse")
        )
        return "more asterisks" if better.count("*") > worse.count("*") else "no idea"
    if "[Critique]" in text:
        return f"add: {between(text, 'Critique', 'End of critique')}"
    if "[Instructions]" in text:
        answer = between(text, "Answer", "End of answer")
        obeys = between(text, "Instructions", "End of instructions") == "add: more asterisks"
        return answer + "*" * (number if obeys else 0)
    return f"Well {'*' * (number % 2)}"


def deaf(messages, number):
    """Says anything whatever it is told."""
    return "x" if "[Instructions]" in messages[-1].content else f"Well {'*' * (number % 2)}"


def search(script, prompts=PROMPTS, **settings):
    return optimise_at_test_time(
        ScriptedSampler(script),
        stars,
        prompts,
        SearchSettings(**{"rounds": 3, "width": 4} | settings),
        SAMPLING,
        seed=0,
    )


def test_a_model_that_obeys_climbs_round_by_round():
    for one in search(obedient):
        assert one.best_sampled.text == "Well *"
        best_of_round = [max(c.score for c in one.candidates if c.round == r) for r in range(4)]
        assert best_of_round == [1.0, 4.0, 7.0, 10.0], "each round adds up to three to the best so far"
        assert one.best.score == 10.0
        assert one.best.round == 3
        assert one.advice == ("add: more asterisks",) * 3
        assert len(one.candidates) == 4 * 4
    assert followed(search(obedient)) is True


def test_a_model_that_does_not_obey_loses_nothing():
    for one in search(deaf):
        assert one.best == one.best_sampled
        assert one.best.score == 1.0
    assert followed(search(deaf)) is False


def test_a_later_round_that_is_worse_does_not_replace_the_best():
    def forgets(messages, number):
        text = messages[-1].content
        first_round = "[Instructions]" in text and between(text, "Answer", "End of answer").count("*") == 1
        return obedient(messages, number) if first_round or "[Instructions]" not in text else "nothing"

    (one, _) = search(forgets)
    assert (one.best.score, one.best.round) == (4.0, 1)
    assert {c.text for c in one.candidates if c.round > 1} == {"nothing"}


def test_the_questions_are_about_the_best_and_the_worst_so_far_and_texts_stand_as_they_are():
    asked = []

    def recording(messages, number):
        asked.append(messages[-1].content)
        return obedient(messages, number)

    search(recording, PROMPTS[:1], rounds=2)
    losses = [text for text in asked if "[Better answer]" in text]
    assert [between(t, "Better answer", "End of better answer") for t in losses] == ["Well *", "Well ****"]
    assert [between(t, "Worse answer", "End of worse answer") for t in losses] == ["Well ", "Well "]
    assert all(between(t, "Request", "End of request") == "What is {the} sun?" for t in losses)
    assert len(asked) == 4 + 2 * (1 + 1 + 4), "W at first, then a critique, an advice and W revisions a round"


def test_equal_answers_are_scored_once():
    scored = []

    def counting(completions):
        scored.extend((one.prompt_id, one.answer) for one in completions)
        return stars(completions)

    optimise_at_test_time(ScriptedSampler(deaf), counting, PROMPTS, SearchSettings(rounds=3, width=4), SAMPLING, seed=0)
    revised = [pair for pair in scored if pair[1] == "x"]
    assert len(revised) == len(set(revised)) == 2, "one for each prompt, in three rounds of four"


def test_where_all_answers_score_the_same_there_is_nothing_to_say():
    seen = []

    def same(messages, number):
        seen.append(messages[-1].content)
        return "equal"

    found = search(same)
    assert [one.rounds for one in found] == [0, 0]
    assert followed(found) is None
    assert not any("[Better answer]" in text for text in seen)


def test_one_prompt_may_be_done_while_others_go_on():
    def script(messages, number):
        return "equal" if messages[-1].content == "What is rain?" else obedient(messages, number)

    sun, rain = search(script)
    assert (sun.rounds, rain.rounds) == (3, 0)
    assert sun.best.score == 10.0


def test_a_longer_conversation_is_told_as_one_request():
    messages = (Message("user", "Hi."), Message("assistant", "Hello."), Message("user", "Why?"))
    asked = []

    def recording(messages, number):
        asked.append(messages)
        return obedient(messages, number)

    search(recording, [Prompt("talk", messages)], rounds=1)
    assert asked[0] == messages, "the first answers are those to the conversation itself"
    loss = next(turns[-1].content for turns in asked if "[Better answer]" in turns[-1].content)
    assert between(loss, "Request", "End of request") == "user: Hi.\n\nassistant: Hello.\n\nuser: Why?"


def test_it_works_over_an_endpoint():
    def model(body, number):
        turns = tuple(Message(m["role"], m["content"]) for m in body["messages"])
        return choices(*(obedient(turns, i) for i in range(body.get("n", 1))))

    with serving(model) as served:
        found = optimise_at_test_time(
            HttpSampler(Endpoint(served.url, "m")), stars, PROMPTS, SearchSettings(rounds=2, width=4), SAMPLING, seed=0
        )
    assert [one.best.score for one in found] == [7.0, 7.0]
    limits = {asked["max_tokens"] for asked in served.asked}
    assert limits == {32, 512}, "critiques and advice have a limit of their own"


@for_each([{"width": 1}, {"rounds": -1}, {"words": 0}])
def test_a_search_that_makes_no_sense(bad):
    with pytest.raises(TutelageError, match="at least"):
        SearchSettings(**bad)
