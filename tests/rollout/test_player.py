"""Episodes: their tokens are those sampled, their contexts those that the template writes, and a row depends on
nothing but its seed, prompt and number."""

import asyncio
import gc
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from call_templates import TAGGED, WITHOUT_THOUGHTS
from offenders import for_each
from scripted import ScriptedGenerator

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Message, Prompt, user
from tutelage.engines.interface import PromptTokens
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.distributed import DealtGenerator
from tutelage.rollout.environment import REDRAWS, Environment, EpisodeText
from tutelage.rollout.episodes import play_with_tools
from tutelage.rollout.generator import RolloutError, SampledCompletion, concatenate, encode_prompts, prompt_tokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.player import Player
from tutelage.rollout.tools.tool import Fault, Toolbox, tool_of

FREE = config.Sampling(temperature=1.0, max_new_tokens=6)
PROMPTS = [Prompt("a", user("Hi")), Prompt("b", user("Why?"), data={"turns": 3}), Prompt("c", user("Hi"))]
ENDS = range(100, 200)
"""Tokens that end a turn beside the end token, so that random turns end before their limit."""


@pytest.fixture(scope="module")
def policy(tiny_model):
    loaded = Policy(load_backbone(config.Model(tiny_model("qwen3"), device="cpu")))
    loaded.end_ids = (*loaded.end_ids, *ENDS)
    return loaded


async def once(row, episode):
    return float(len((await episode.chat()).content))


async def twice(row, episode):
    await episode.chat()
    for number in range(1, row.get("turns", 2)):
        episode.reward(number / 4)
        await episode.chat({"role": "user", "content": f"No, {number}."})
    return 1.0


def played(policy, play, prompts=PROMPTS, n=2, *, seed=1, sampling=FREE, generator=None, **settings):
    environment = play if isinstance(play, Environment) else Environment(play, **settings)
    prompts = environment.offer(prompts)
    encoded = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
    player = Player(
        generator or LocalGenerator(policy), environment, {p.id: p for p in prompts}, policy, policy.context
    )
    return player.generate(encoded, n, sampling, seed=seed)


def tokens(rollout, row):
    """Sampled tokens of a row."""
    return rollout.response[row][rollout.mask[row]].tolist()


def context_tokens(rollout, row):
    """Tokens of each context of a row."""
    contexts, which = rollout.branches.contexts, (rollout.branches.episode == row).nonzero().flatten().tolist()
    return [
        [*contexts.prompt[i][contexts.prompt_mask[i]].tolist(), *contexts.response[i][contexts.mask[i]].tolist()]
        for i in which
    ]


def test_a_single_turn_is_that_of_the_generator_to_the_bit(policy):
    encoded = prompt_tokens(encode_prompts(PROMPTS, policy.tokenizer))
    expected = LocalGenerator(policy).generate(encoded, 3, FREE, seed=1)
    found = played(policy, once, n=3, deterministic=True)
    for name in ("prompt", "prompt_mask", "response", "mask", "logp", "terminated", "truncated", "version"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert (found.ids, found.texts, found.group) == (expected.ids, expected.texts, expected.group)
    assert found.branches is None
    assert found.turn is None
    lengths = [float(len(text)) if end else 0.0 for text, end in zip(found.texts, found.terminated, strict=True)]
    assert found.outcome.tolist() == lengths


@pytest.mark.parametrize("engine", ["plain", "cpu"])
def test_the_log_probabilities_of_all_turns_are_those_of_training(tiny_model, engine):
    policy = Policy(load_backbone(config.Model(tiny_model("qwen3"), device="cpu", engine=engine)))
    policy.end_ids = (*policy.end_ids, *ENDS)
    rollout = played(policy, twice, n=4)
    assert rollout.turn.max() == 2
    torch.testing.assert_close(policy.scores(rollout).logp, rollout.logp, rtol=0, atol=2e-5)


def test_contexts_hold_what_the_template_writes_around_the_sampled_tokens(policy):
    rollout = played(policy, twice, n=4, seed=3)
    finished = [row for row in range(len(rollout)) if rollout.terminated[row]]
    assert finished
    for row in finished:
        (read,) = context_tokens(rollout, row)
        prompt, turn = PROMPTS[row // 4], rollout.turn[row][rollout.mask[row]]
        sampled, expected = tokens(rollout, row), encode(prompt.messages, None, policy.tokenizer)[0]
        for number in range(int(turn.max()) + 1):
            own = [token for token, at in zip(sampled, turn.tolist(), strict=True) if at == number]
            if number:
                between = f"\n<|im_start|>user\nNo, {number}.<|im_end|>\n<|im_start|>assistant\n"
                expected += policy.tokenizer.encode(between, add_special_tokens=False)
            expected += own
        assert read == expected
        assert rollout.transcripts[row][-1].content == rollout.texts[row]


def test_rewards_of_turns_are_on_their_last_tokens(policy):
    rollout = played(policy, twice, n=4)
    for row in range(len(rollout)):
        turn = rollout.turn[row][rollout.mask[row]]
        own = rollout.turn_reward[row][rollout.mask[row]]
        for number in range(int(turn.max()) + 1):
            *before, last = own[turn == number].tolist()
            assert not any(before)
            goes_on = number < turn.max() or (rollout.terminated[row] and number < row // 4 % 2 + 1)
            assert last == ((number + 1) / 4 if goes_on else 0.0)
    assert rollout.outcome.tolist() == rollout.terminated.float().tolist()


def test_a_row_depends_on_its_prompt_and_number_alone(policy):
    whole = played(policy, twice, n=3)
    for some in (PROMPTS[1:], PROMPTS[::-1]):
        part = played(policy, twice, some, n=3)
        for row, name in enumerate(part.ids):
            other = whole.ids.index(name) + row % 3
            assert tokens(part, row) == tokens(whole, other)
            torch.testing.assert_close(part.logp[row][part.mask[row]], whole.logp[other][whole.mask[other]])
    draws = [tuple(tokens(whole, row)) for row in range(len(whole))]
    assert len(set(draws)) > 3  # equal prompts of other ids, other numbers and other turns have other draws


def test_rollouts_of_some_prompts_join_to_that_of_all(policy):
    """As several ranks join theirs, of which one has single turns alone."""

    async def as_told(row, episode):
        return await (twice if "turns" in row else once)(row, episode)

    whole = played(policy, as_told, n=3)
    parts = [played(policy, as_told, some, n=3) for some in (PROMPTS[2:], PROMPTS[:2])]
    assert parts[0].branches is None
    joined = concatenate(parts).rows(torch.tensor([*range(3, 9), *range(3)]))
    assert joined.ids == whole.ids
    for row in range(len(whole)):
        assert tokens(joined, row) == tokens(whole, row)
        assert context_tokens(joined, row) == context_tokens(whole, row)
    for name in ("turn", "turn_reward", "outcome", "logp"):
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
    torch.testing.assert_close(policy.scores(joined).logp, policy.scores(whole).logp)


def test_a_plain_function_is_played_as_a_coroutine(policy):
    def plain(row, episode):
        episode.chat()
        for number in range(1, row.get("turns", 2)):
            episode.reward(number / 4)
            episode.chat({"role": "user", "content": f"No, {number}."})
        return 1.0

    one, other = played(policy, plain), played(policy, twice)
    assert torch.equal(one.response, other.response)
    assert torch.equal(one.turn_reward, other.turn_reward)
    assert torch.equal(one.branches.contexts.response, other.branches.contexts.response)


# Scripts --------------------------------------------------------------------------------------------------------------


class Script:
    """A tokenizer with a template, and a generator that writes the texts of a list, one for each turn."""

    def __init__(self, policy, template, texts):
        self.tokenizer, self.texts = policy.tokenizer.__class__.from_pretrained(policy.tokenizer.name_or_path), texts
        self.tokenizer.chat_template = template
        self.end_ids = (self.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
        self.context = None
        self.asked = []
        self.generator = ScriptedGenerator(self._next, frozenset(self.end_ids), decode=self.tokenizer.decode)

    def _next(self, prompt, number):
        self.asked.append(self.tokenizer.decode(prompt))
        turn = sum(text.count("assistant\n") for text in self.asked[-1:]) - 1
        return [*self.tokenizer.encode(self.texts[turn], add_special_tokens=False), *self.end_ids]


LONG = replace(FREE, max_new_tokens=200)


def far(place: str) -> float:
    """Miles to a place.

    Args:
        place: Its name.
    """
    if place == "Mars":
        raise Fault("no line to Mars")
    return {"Ayr": 6.5}[place]


def called(place):
    return f'<tool_call>{{"name": "far", "arguments": {{"place": "{place}"}}}}</tool_call>'


def test_tools_are_called_until_a_turn_has_no_call(policy):
    texts = [f"I look.{called('Ayr')}", "<tool_call>{oops</tool_call>", called("Ur"), "It is 6.5 miles."]
    script = Script(policy, TAGGED, texts)
    tools = Toolbox([tool_of(far)])
    rollout = played(
        script, Environment(play_with_tools, tools), PROMPTS[:1], 1, sampling=LONG, generator=script.generator
    )
    said = rollout.transcripts[0][1:]
    assert [each.role for each in said] == ["assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]
    assert said[0].content == "I look."
    assert (said[1].content, said[1].name) == ("6.5", "far")
    assert "error" in said[5].content
    assert rollout.texts == ("It is 6.5 miles.",)
    assert rollout.turn.max() == 3
    assert len(rollout.branches.episode) == 1
    assert (tools.calls["calls"], tools.calls["failures"]) == (2, 1)
    assert "far" in script.asked[0]


def test_a_turn_has_the_text_of_its_completion_and_the_opening_of_the_template(policy):
    thinking = TAGGED.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    script = Script(policy, thinking, [])
    tools = Toolbox([tool_of(far)])
    text, (prompt,) = EpisodeText(script, tools), Environment(play_with_tools, tools).offer(PROMPTS[:1])

    def turn(sampled, own):
        ids = script.tokenizer.encode(sampled, add_special_tokens=False)
        return text.turn(SampledCompletion((*ids, *script.end_ids), (), True, own), prompt.messages).message

    assert turn("hm</think>Six. STOP", "<think>\nhm</think>Six.").content == "<think>\nhm</think>Six."
    message = turn(f"hm</think>I look.{called('Ayr')}", "")
    assert message.content == "<think>\nhm</think>I look."
    assert [call.name for call in message.calls] == ["far"]


def test_a_call_that_the_template_refuses_is_a_problem_of_the_policy(policy):
    refusal = "{% if c.function.name == 'no' %}{{ raise_exception('no') }}{% endif %}"
    refusing = TAGGED.replace("<tool_call>", f"{refusal}<tool_call>")
    script = Script(policy, refusing, ['<tool_call>{"name": "no", "arguments": {}}</tool_call>', "Well."])
    environment = Environment(play_with_tools, Toolbox([tool_of(far)]))
    rollout = played(script, environment, PROMPTS[:1], 1, sampling=LONG, generator=script.generator)
    said = rollout.transcripts[0][1:]
    assert [each.role for each in said] == ["assistant", "user", "assistant"]
    assert not said[0].calls
    assert environment.tools.calls["calls"] == 0


@for_each([np.float32(0.5), torch.tensor(0.5), np.int64(1), True])
def test_rewards_are_numbers_of_any_library_and_environments_objects_too(number, policy):
    class Once:
        async def __call__(self, row, episode):
            await episode.chat()
            return number

    rollout = played(policy, Once(), PROMPTS[:1], n=2)
    assert rollout.outcome[rollout.terminated].tolist() == [float(number)] * int(rollout.terminated.sum())


def test_a_template_that_drops_thoughts_makes_another_context(policy):
    script = Script(policy, WITHOUT_THOUGHTS, ["<think>hm</think>Six.", "Seven."])
    rollout = played(script, twice, PROMPTS[:1], 1, sampling=LONG, generator=script.generator)
    first, second = context_tokens(rollout, 0)
    assert "hm" in script.tokenizer.decode(first)
    assert "hm" not in script.tokenizer.decode(second)
    contexts, marks = rollout.branches.contexts, rollout.branches.sampled
    assert contexts.response[marks].tolist() == tokens(rollout, 0)


@pytest.mark.parametrize(
    ("limits", "sampling", "stop"), [({"turns": 2}, LONG, 2), ({}, replace(FREE, max_new_tokens=2), 1)]
)
def test_a_limit_truncates_the_episode_and_keeps_its_turns(policy, limits, sampling, stop):
    async def endless(row, episode):
        while True:
            await episode.chat(*([Message("user", "more")] if episode.rewards else []))

    script = Script(policy, TAGGED, ["One two three."] * 9)
    rollout = played(script, endless, PROMPTS[:2], 2, sampling=sampling, generator=script.generator, **limits)
    assert rollout.truncated.all()
    assert not rollout.terminated.any()
    assert rollout.outcome.tolist() == [0.0] * 4
    turns = 1 if rollout.turn is None else int(rollout.turn.max()) + 1
    assert turns == stop


def test_an_environment_cannot_take_a_limit_for_a_failure_of_its_own(policy):
    async def careful(row, episode):
        try:
            while True:
                await episode.chat(Message("user", "more"))
        except Exception:
            return 5.0

    script = Script(policy, TAGGED, ["One two three."] * 9)
    rollout = played(script, careful, PROMPTS[:1], 1, sampling=LONG, generator=script.generator, turns=2)
    assert rollout.truncated.all()
    assert rollout.outcome.tolist() == [0.0]


@pytest.mark.parametrize("shorter", ["policy", "generator"])
def test_an_episode_without_room_in_the_context_is_truncated(policy, shorter):
    script = Script(policy, TAGGED, ["One two three."] * 99)
    script.context = 60 if shorter == "policy" else 500
    if shorter == "generator":
        object.__setattr__(script.generator, "context", 60)

    async def endless(row, episode):
        while True:
            await episode.chat(*([Message("user", "more")] if episode.rewards else []))

    sampling = replace(FREE, max_new_tokens=12)
    rollout = played(script, endless, PROMPTS[:1], 1, sampling=sampling, generator=script.generator, turns=99)
    assert rollout.truncated.all()
    assert 60 - 12 < rollout.lengths().item() <= 60


@pytest.mark.parametrize("engine", ["plain", "cpu"])
def test_a_prompt_without_room_for_a_turn_has_no_score(tiny_model, engine):
    policy = Policy(load_backbone(config.Model(tiny_model("qwen3"), device="cpu", engine=engine)))

    async def long(row, episode):
        await episode.chat(Message("user", "more " * (99 if row.get("turns") else 1)))
        return 1.0

    rollout = played(policy, long, n=2)
    assert rollout.outcome.isnan().tolist() == [name == "b" for name in rollout.ids]
    assert rollout.mask.any(1).tolist() == [name != "b" for name in rollout.ids]
    with pytest.raises(RolloutError, match="room"):
        played(policy, long, PROMPTS[1:2])
    encoded, by_id = prompt_tokens(encode_prompts(PROMPTS[1:2], policy.tokenizer)), {p.id: p for p in PROMPTS}
    elsewhere = Player(
        LocalGenerator(policy), Environment(long), by_id, policy, policy.context, torch.device("meta")
    )  # on this rank alone no episode has a turn
    assert elsewhere.play(encoded, 2, FREE, 1).response.device.type == "meta"


def test_a_fault_is_drawn_again_and_then_leaves_its_prompt_without_a_score(policy):
    tries = []

    async def unreliable(row, episode):
        answer = await episode.chat()
        tries.append(row.get("turns"))
        if row.get("turns") == 3 or len(tries) < 2:
            raise Fault("no host")
        return float(len(answer.content) > 0)

    rollout = played(policy, unreliable, n=1)
    assert tries.count(3) == REDRAWS + 1
    by_id = dict(zip(rollout.ids, rollout.outcome.tolist(), strict=True))
    assert by_id["b"] != by_id["b"]
    assert by_id["a"] == by_id["a"]
    script = Script(policy, TAGGED, [called("Mars")])
    environment = Environment(play_with_tools, Toolbox([tool_of(far)]))
    with pytest.raises(RolloutError, match="no line to Mars"):
        played(script, environment, PROMPTS[:2], 1, sampling=LONG, generator=script.generator)


@pytest.mark.parametrize("own", [1, 5])
def test_the_share_of_prompts_that_faults_take_is_that_of_all_ranks(policy, own):
    """Of 20 prompts two are lost, which is the limit, all of the first rank, which has `own` times as many; then
    three."""

    async def unreliable(row, episode):
        if row["lost"]:
            raise Fault("no host")
        await episode.chat()
        return 1.0

    class First(Ranks):
        """The first of two ranks; `other` is what the second one has to tell."""

        def together(self, function):
            return function()

        def gather(self, value):
            return [value, other if isinstance(value, tuple) else ""]

    sampling = replace(FREE, max_new_tokens=1)
    for count in (2, 3):
        owners = [int(n >= own * count) for n in range(20)]
        prompts = [Prompt(str(n), user("Hi"), data={"lost": n < count}) for n in range(20)]
        player = Player(LocalGenerator(policy), Environment(unreliable), {p.id: p for p in prompts}, policy)
        encoded = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
        second = PromptTokens(encoded.tokens[own * count :], encoded.ids[own * count :])
        other = (list(range(own * count, 20)), player.play(second, 1, sampling, 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tutelage.rollout.distributed.deal", lambda *_, owners=owners: owners)
            dealt = DealtGenerator(player, First(0, 2), policy.device)
            generate = partial(dealt.generate, encoded, 1, sampling, seed=1)
            if count == 2:
                rollout = generate()
                assert rollout.outcome.isnan().tolist() == [True] * 2 + [False] * 18
                assert torch.equal(rollout.mask.sum(1), torch.tensor([0] * 2 + [1] * 18))
                whole = player.generate(encoded, 1, sampling, seed=1)
                assert torch.equal(rollout.response[2:], whole.response[2:])
                torch.testing.assert_close(policy.scores(rollout).logp, policy.scores(whole).logp, rtol=0, atol=1e-6)
            else:
                with pytest.raises(RolloutError, match=r"3 prompts of 20.*no host"):
                    generate()


def test_a_fault_in_a_task_group_is_a_fault(policy):
    attempts = []

    async def grouped(row, episode):
        await episode.chat()
        attempts.append(row)
        async with asyncio.TaskGroup() as group:
            group.create_task(_no_host(len(attempts)))
        return 1.0

    async def _no_host(attempt):
        if attempt == 1:
            raise Fault("no host")

    rollout = played(policy, grouped, PROMPTS[:1], n=1)
    assert len(attempts) == 2
    assert rollout.outcome.tolist() == [1.0]


def test_an_environment_that_takes_too_long_is_a_fault(policy):
    async def slow(row, episode):
        await episode.chat()
        if row.get("turns"):
            await asyncio.sleep(60)
        return 1.0

    rollout = played(policy, slow, n=1, seconds=0.2)
    assert [name for name, outcome in zip(rollout.ids, rollout.outcome, strict=True) if outcome.isnan()] == ["b"]


def test_a_plain_function_that_takes_too_long_is_played_again(policy):
    attempts, over = [], threading.Event()

    def slow(row, episode):
        attempts.append(row)
        if len(attempts) == 1:
            over.wait(60)
        episode.chat()
        return 1.0

    rollout = played(policy, slow, n=1, seconds=0.2)
    over.set()
    assert len(attempts) == len(PROMPTS) + 1
    assert not rollout.outcome.isnan().any()


def test_an_environment_keeps_its_event_loop_over_rollouts(policy):
    one_at_a_time = asyncio.Semaphore(1)  # of the loop in which an episode first waits for it

    async def polite(row, episode):
        await episode.chat()
        async with one_at_a_time:
            await asyncio.sleep(0.001)
        return 1.0

    for seed in (1, 2):
        assert len(played(policy, polite, seed=seed)) == 2 * len(PROMPTS)


async def _bug(row, episode):
    await episode.chat()
    return {}["missing"]


async def _own_timeout(row, episode):
    raise TimeoutError("mine")


async def _cancelled(row, episode):
    raise asyncio.CancelledError


def _exit(row, episode):
    raise SystemExit(1)


@for_each([(_bug, KeyError), (_own_timeout, TimeoutError), (_cancelled, asyncio.CancelledError), (_exit, SystemExit)])
def test_a_mistake_of_the_author_stops_the_rollout_with_its_traceback(play, error, policy):
    with pytest.raises(error) as raised:
        played(policy, play)
    assert raised.traceback[-1].name == play.__name__


def test_a_plain_function_that_exhausts_an_iterator_stops_the_rollout(policy):
    def exhausted(row, episode):
        episode.chat()
        next(iter(()))

    with pytest.raises(RuntimeError) as raised:
        played(policy, exhausted)
    assert isinstance(raised.value.__cause__, StopIteration)


async def _text(row, episode):
    return "1.0"


async def _early_reward(row, episode):
    episode.reward(1)


async def _not_finite(row, episode):
    await episode.chat()
    episode.reward(float("nan"))


async def _silent(row, episode):
    return 1.0


async def _assistant(row, episode):
    await episode.chat({"role": "assistant", "content": "I am you."})


async def _other_keys(row, episode):
    await episode.chat({"role": "user", "text": "x"})


async def _other_role(row, episode):
    await episode.chat({"role": "usr", "content": "x"})


async def _nothing_new(row, episode):
    await episode.chat()
    await episode.chat()


async def _paid_by_turns(row, episode):
    one, other = user("One."), user("Two.")
    first = await episode.turn(one)
    await episode.turn(other)
    episode.reward(1.0)
    await episode.turn((*one, first, *user("More.")))


async def _both_at_once(row, episode):
    await asyncio.gather(episode.chat(), episode.chat())


@for_each(
    [
        (_text, "'1.0'"),
        (_early_reward, "turn"),
        (_not_finite, "nan"),
        (_silent, "'a'"),
        (_assistant, "I am you"),
        (_other_keys, "text"),
        (_other_role, "usr"),
        (_nothing_new, "chat"),
        (_paid_by_turns, "order in time"),
        (_both_at_once, "one turn"),
    ]
)
def test_what_an_author_gets_wrong_is_refused(play, word, policy):
    sampling = replace(FREE, max_new_tokens=200)
    script = Script(policy, TAGGED, ["Yes."] * 9)
    with pytest.raises(TutelageError, match=word):
        played(script, play, PROMPTS[:1], 1, sampling=sampling, generator=script.generator)


def test_tools_are_offered_in_prompts_that_have_messages_and_no_tools(policy):
    tools = Toolbox([tool_of(far)])
    environment = Environment(play_with_tools, tools)
    (prompt,) = environment.offer(PROMPTS[:1])
    assert prompt.messages[0].tools == tools.schemas
    for other in (Prompt("x", ()), prompt):
        with pytest.raises(TutelageError, match=f"'{other.id}'"):
            environment.offer([other])


def test_batches_turn_by_turn_have_one_order_whatever_tools_take_longer(policy):
    """Their order is that of the prompts, and then that of the names of turns."""

    class Noting(LocalGenerator):
        def generate(self, prompts, n, sampling, *, seed):
            batches[-1].append((prompts.ids, n))
            return super().generate(prompts, n, sampling, seed=seed)

    async def late(row, episode):
        await asyncio.sleep(next(delays))
        await episode.chat()
        await asyncio.sleep(next(delays))
        await episode.chat({"role": "user", "content": "And?"})
        return 0.0

    batches, seconds = [], [0.03 * (number % 3) for number in range(12)]
    for order in (seconds, seconds[::-1]):
        batches.append([])
        delays = iter(order)
        played(policy, late, generator=Noting(policy), deterministic=True)
    assert batches[0][0] == (("a", "b", "c"), 2)
    assert batches[0] == batches[1]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_turn_that_an_episode_does_not_wait_for_ends_with_it(policy, caplog, deterministic):
    expected = played(policy, once, n=2, deterministic=deterministic)
    unread = []

    async def hasty(row, episode):
        answer = await episode.chat()
        unread.append(asyncio.create_task(episode.chat(Message("user", "And?"))))
        await asyncio.sleep(0)  # it begins
        return float(len(answer.content))

    found = played(policy, hasty, n=2, deterministic=deterministic)
    assert found.outcome.tolist() == expected.outcome.tolist()
    assert len(unread) == found.terminated.sum()
    end = time.monotonic() + 5
    while not all(task.done() for task in unread):
        assert time.monotonic() < end
    unread.clear()
    gc.collect()
    assert "destroyed" not in caplog.text
