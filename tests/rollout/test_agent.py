"""Programs as agents: their episodes are those of the same agent as a function, and nothing they do reaches others."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from call_templates import TAGGED
from offenders import for_each
from test_player import ENDS, FREE, LONG, PROMPTS, Script, called, context_tokens, far, played, tokens, twice

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Completions
from tutelage.rollout import episode_endpoint
from tutelage.rollout.agent import AgentProgram
from tutelage.rollout.environment import REDRAWS, Environment
from tutelage.rollout.episodes import play_with_tools
from tutelage.rollout.tools.tool import Toolbox, tool_of

PROGRAM = f"{sys.executable} -I {Path(__file__).parent / 'agent_program.py'}"


@pytest.fixture(scope="module")
def policy(tiny_model):
    loaded = Policy(load_backbone(config.Model(tiny_model("qwen3", max_position_embeddings=500), device="cpu")))
    loaded.end_ids = (*loaded.end_ids, *ENDS)
    return loaded


def run(policy, prompts, n=1, **more):
    """Rollout of the program."""
    limits = {name: more.pop(name) for name in ("turns", "seconds", "at_once") if name in more}
    return played(policy, Environment(AgentProgram(PROGRAM), name="agent", **limits), prompts, n, **more)


def doing(does, **columns):
    """A prompt whose row makes the program do something."""
    return Prompt(does, user("Hi"), data={"does": does, **columns})


@pytest.mark.parametrize("at_once", [0, 1])
def test_its_episodes_are_those_of_the_same_function(policy, at_once):
    """Some of them cut at the limit of tokens, which ends the program."""
    sampling = replace(FREE, max_new_tokens=3)
    expected = played(policy, twice, n=3, sampling=sampling)
    found = run(policy, PROMPTS, 3, at_once=at_once, sampling=sampling)
    assert 0 < found.truncated.sum() < len(found)
    for name in ("response", "mask", "terminated", "truncated", "turn"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    torch.testing.assert_close(found.logp, expected.logp)
    assert found.transcripts == expected.transcripts
    assert found.texts == expected.texts
    assert [context_tokens(found, row) for row in range(9)] == [context_tokens(expected, row) for row in range(9)]


def test_its_calls_of_tools_are_those_of_the_same_function(policy):
    tools = Toolbox([tool_of(far)])
    texts = [f"I look.{called('Ayr')}", "It is 6.5 miles."]
    one, other = Script(policy, TAGGED, texts), Script(policy, TAGGED, texts)
    settings = {"n": 1, "sampling": LONG}
    expected = played(one, Environment(play_with_tools, tools), PROMPTS[:1], generator=one.generator, **settings)
    found = run(other, [doing("call", tool=tools.schemas[0])], generator=other.generator, **settings)
    assert tokens(found, 0) == tokens(expected, 0)
    assert context_tokens(found, 0) == context_tokens(expected, 0)
    assert found.transcripts == expected.transcripts


def test_a_retry_has_the_reply_of_the_request_that_it_repeats(policy):
    """A request that was answered and is sent again is another turn."""
    assert [len(run(policy, [doing(name)]).rows(torch.tensor([0])).contexts) for name in ("retry", "twice")] == [1, 2]


@pytest.fixture
def patient(monkeypatch):
    """A client that leaves is noticed where it is slow to do so, too: by default a millisecond after the turn."""
    monkeypatch.setattr(episode_endpoint, "NOTICE", 0.5)


@pytest.mark.parametrize("continues", [False, True])
def test_a_turn_that_nobody_received_is_not_trained(policy, continues, patient):
    first = run(policy, [replace(doing("talk", turns=1), id="leave")])
    found = run(policy, [doing("leave", continues=continues)])
    assert tokens(found, 0) == tokens(first, 0)
    assert found.texts == first.texts
    assert found.transcripts == first.transcripts
    assert found.branches is None


def test_a_turn_that_is_cut_after_its_program_has_ended_is_not_trained(policy, patient):
    """With this seed the first turn ends with its first token, and the one that nobody waits for is cut."""
    settings = {"sampling": replace(FREE, max_new_tokens=3), "seed": 6}
    first = run(policy, [replace(doing("talk", turns=1), id="leave")], **settings)
    found = run(policy, [doing("leave", continues=True)], **settings)
    if not found.truncated.item():  # the program ended before
        assert tokens(found, 0) == tokens(first, 0)
        assert found.transcripts == first.transcripts


def test_a_conversation_goes_on_after_another_one(policy):
    found = run(policy, [doing("aside")], sampling=replace(FREE, max_new_tokens=40))
    assert len(context_tokens(found, 0)) == 2
    assert found.turn[0].max() == 2
    torch.testing.assert_close(policy.scores(found).logp, found.logp, rtol=0, atol=2e-5)


def test_a_stream_has_the_text_of_a_whole_reply(policy):
    expected = run(policy, [replace(doing("talk"), id="stream")])
    found = run(policy, [doing("stream")])
    assert tokens(found, 0) == tokens(expected, 0)


@for_each(
    [
        ({"n": 2}, "n is"),
        ({"stop": "x"}, "stop"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
    ]
)
def test_requests_that_a_training_cannot_answer_are_refused(body, word, policy):
    with pytest.raises(TutelageError) as caught:
        run(policy, [doing("refused", body=body)])
    assert f'400 {{"error":{{"message":"{word}' in str(caught.value)
    assert str(caught.value).count(word) > 1, "in the standard error, and as the last refusal"


def test_a_reward_reads_the_conversation_of_the_program(policy):
    prompt = doing("system")
    rollout = run(policy, [prompt])
    (completion,) = Completions([prompt], rollout.texts, rollout)
    assert completion.messages == (Message("system", "Be brief."), *prompt.messages)
    assert completion.answer == rollout.transcripts[0][-1].content


def test_a_refused_request_is_no_turn(policy):
    expected = run(policy, [replace(doing("talk", turns=1), id="recover")])
    found = run(policy, [doing("recover")])
    assert tokens(found, 0) == tokens(expected, 0)
    assert found.outcome.tolist() == [0.0]


def test_an_error_of_the_program_stops_the_run_and_a_temporary_failure_is_a_fault(policy):
    with pytest.raises(TutelageError, match="status 3") as caught:
        run(policy, [doing("exit", status=3)])
    assert "what is wrong" in str(caught.value)
    rollout = run(policy, [doing("exit", status=75), PROMPTS[0]])
    assert rollout.outcome.isnan().tolist() == [True, False]


@pytest.mark.parametrize("stays", [False, True])
def test_no_process_outlives_its_episode(policy, tmp_path, stays):
    """Whether the program exits, or hangs: then it is played again, and its prompt is left out of the step."""
    file = tmp_path / "children"
    rollout = run(policy, [doing("hang", file=str(file), stays=stays), PROMPTS[0]], seconds=1.0 if stays else 60.0)
    assert rollout.outcome.isnan().tolist() == [stays, False]
    children = [int(line) for line in file.read_text().split()]
    assert len(children) == (REDRAWS + 1 if stays else 1)
    end = time.monotonic() + 5
    while any(map(is_running, children)):
        assert time.monotonic() < end


def is_running(process):
    """Whether a process runs: one whose end nobody has read does not."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_few_programs_run_at_once(policy, tmp_path):
    file = tmp_path / "count"
    prompts = [replace(doing("count", file=str(file)), id=str(number)) for number in range(4)]
    assert run(policy, prompts, at_once=2, sampling=LONG).terminated.all()
    most = running = 0
    for sign in file.read_text():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert (most, running) == (2, 0)


def test_a_program_that_is_not_there_is_refused():
    for command in ("no-such-program --x", "'"):
        with pytest.raises(TutelageError, match="--agent"):
            AgentProgram(command)
