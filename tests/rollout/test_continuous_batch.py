"""Turns that join and leave a batch: no result depends on when, and no token is read twice while memory holds it."""

import asyncio
import random
import threading
from collections import Counter
from dataclasses import replace

import pytest
import tiny
import torch
from compilers import needs_compiler

from tutelage.base import config
from tutelage.data.records import Message, Prompt, user
from tutelage.engines.cpu import cpu_engine
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout import continuous_batch, local
from tutelage.rollout.continuous_batch import ContinuousBatch
from tutelage.rollout.drafts import Drafts
from tutelage.rollout.environment import Environment
from tutelage.rollout.generator import RolloutError, encode_prompts, prompt_tokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.player import Player
from tutelage.rollout.tools.tool import Fault

PROMPTS = [Prompt(str(number), user(text)) for number, text in enumerate(("Hi", "Why?", "Rain", "A star is far"))]
SAMPLING = config.Sampling(temperature=1.0, max_new_tokens=5)


def policy_of(folder, engine="plain", dtype="float32"):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", engine=engine, dtype=dtype)))
    tiny.roughen(policy.model)
    policy.end_ids = (*policy.end_ids, *range(100, 200))  # so that turns end before their limit
    return policy


@pytest.fixture(scope="module")
def policy(tiny_model):
    return policy_of(tiny_model("qwen3", max_position_embeddings=512))


@pytest.fixture
def batches(monkeypatch):
    """The batches that are made, of which a test may change the limits before their first step."""
    made = []

    def batch(*inputs, **limits):
        made.append(ContinuousBatch(*inputs, **limits | made_with))
        return made[-1]

    made_with = {}
    monkeypatch.setattr(local, "ContinuousBatch", batch)
    batch.made, batch.limits = made, made_with
    return batch


def sleeping(turns, longest, seed=0):
    """Episodes of some turns, with tools that take up to `longest` seconds and write what the policy has to read."""
    draws = random.Random(seed)

    async def play(row, episode):
        answer = await episode.chat()
        for turn in range(1, turns):
            await asyncio.sleep(longest * draws.random())
            answer = await episode.chat(Message("user", f"{turn}. Again, please!"))
        return float(len(answer.content))

    return play


def played(policy, play, n=4, *, seed=1, sampling=SAMPLING, prompts=PROMPTS, **settings):
    environment = Environment(play, **settings)
    player = Player(LocalGenerator(policy), environment, {p.id: p for p in prompts}, policy, policy.context)
    encoded = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
    return player.generate(encoded, n, sampling, seed=seed), environment


def tokens_to_read(rollout):
    """Tokens of all contexts without the last of each, which nothing is sampled after, and each prompt once."""
    contexts = rollout.branches.contexts
    prompts = {tuple(row[mask].tolist()) for row, mask in zip(contexts.prompt, contexts.prompt_mask, strict=True)}
    return sum(map(len, prompts)) + int((contexts.mask.sum(1) - 1).sum())


def assert_same(rollout, other, *, bits=True):
    assert torch.equal(rollout.response, other.response)
    assert torch.equal(rollout.branches.contexts.response, other.branches.contexts.response)
    assert rollout.outcome.tolist() == other.outcome.tolist()
    if bits:
        assert torch.equal(rollout.logp, other.logp)


def test_64_episodes_with_tools_that_sleep_are_read_once_and_decoded_together(policy, batches):
    rollout, environment = played(policy, sleeping(3, 0.05), n=16)
    assert len(rollout) == 64
    assert rollout.turn.max() == 2
    assert environment.metrics() == {"tokens/read": tokens_to_read(rollout), "tokens/reread": 0, "tokens/rejected": 0}
    (batch,) = batches.made
    assert batch.widest > 32
    assert batch.lines.tokens == 0


def test_a_rollout_is_that_of_the_schedule_turn_by_turn(policy):
    rollout, free = played(policy, sleeping(3, 0.01))
    other, turns = played(policy, sleeping(3, 0.0), deterministic=True)
    assert_same(rollout, other, bits=False)
    torch.testing.assert_close(rollout.logp, other.logp)
    read, again = turns.metrics().values()
    assert read - again == free.metrics()["tokens/read"]  # the plain engine has no drafts
    assert again > 0


def test_an_environment_counts_since_the_last_metrics(policy):
    _, environment = played(policy, sleeping(2, 0.0), n=1)
    assert environment.metrics()["tokens/read"] > 0
    assert environment.metrics() == {}


def cpu_policy(tiny_model, monkeypatch, dtype):
    monkeypatch.setattr(cpu_engine, "multiplies_bf16", lambda: True)
    sizes = tiny.MIXED | {"initializer_range": 0.1, "max_position_embeddings": 512}
    return policy_of(tiny_model("qwen3", **sizes), "cpu", dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_on_the_cpu_engine_no_bit_depends_on_time_or_memory(tiny_model, monkeypatch, batches, dtype):
    policy = cpu_policy(tiny_model, monkeypatch, dtype)
    rollout, environment = played(policy, sleeping(3, 0.02, 1))
    assert policy.extends_exactly
    with torch.no_grad():
        assert torch.equal(policy.scores(rollout).logp[rollout.mask], rollout.logp[rollout.mask])
    batches.limits.update(rows=3, room=150)
    other, crowded = played(policy, sleeping(3, 0.01, 2))
    assert_same(rollout, other)
    assert batches.made[-1].widest == 3
    once, again = environment.metrics()["tokens/read"], crowded.metrics()
    assert again["tokens/reread"] > 0
    assert once == tokens_to_read(rollout) == again["tokens/read"] - again["tokens/reread"]


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_drafts_change_no_bit(tiny_model, monkeypatch, batches, dtype):
    """With right drafts there are fewer passes, with wrong ones tokens that are read in vain."""
    policy = cpu_policy(tiny_model, monkeypatch, dtype)
    passes, errors = Counter(), random.Random(0)

    class Prepared(Drafts):
        """Knows what will be written; `wrong` is the chance that a token of a draft is another."""

        known, wrong = (), 0.0

        def __init__(self, ends):
            super().__init__(ends)
            for context in self.known:
                super().learn(context, 0)

        def learn(self, context, start):
            passes[self.wrong, bool(self.known)] += 1
            self.learnt += 1_000  # any number of tokens may be in vain

        def pay(self, turns):
            return True

        def draft(self, before, most):
            found = super().draft(before, most)
            return [errors.randrange(3, 90) if errors.random() < self.wrong else token for token in found]

    monkeypatch.setattr(local, "Drafts", Prepared)
    monkeypatch.setattr(continuous_batch, "WORTH", 0)
    sampling = replace(SAMPLING, max_new_tokens=12)
    rollout, plain = played(policy, sleeping(3, 0.0), sampling=sampling)
    contexts = rollout.branches.contexts
    Prepared.known = [
        [*p[m].tolist(), *r[n].tolist()]
        for p, m, r, n in zip(contexts.prompt, contexts.prompt_mask, contexts.response, contexts.mask, strict=True)
    ]
    counts = [plain.metrics()]
    for Prepared.wrong in (0.0, 0.3):
        other, environment = played(policy, sleeping(3, 0.0), sampling=sampling)
        assert_same(rollout, other)
        counts.append(environment.metrics())
    read = {"tokens/read": tokens_to_read(rollout), "tokens/reread": 0}
    assert all(each | read == each for each in counts)
    assert [each["tokens/rejected"] > 0 for each in counts][::2] == [False, True]
    assert passes[0.0, True] < 0.7 * passes[0.0, False]


@pytest.mark.parametrize("engine", ["plain", "cpu"])
def test_nothing_is_kept_from_the_weights_before(tiny_model, engine):
    policy = policy_of(tiny_model("qwen3", max_position_embeddings=512), engine)
    before, _ = played(policy, sleeping(2, 0.0))
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(1.3)
    after, _ = played(policy, sleeping(2, 0.0))
    assert not torch.equal(before.response, after.response)
    torch.testing.assert_close(policy.scores(after).logp.detach(), after.logp, rtol=0, atol=5e-5)


def test_a_model_that_cannot_keep_a_context_is_played_turn_by_turn(policy, monkeypatch):
    monkeypatch.setattr(type(policy.engine), "_lines", lambda *_: iter(()))
    rollout, environment = played(policy, sleeping(2, 0.0), prompts=PROMPTS[:2], n=2)
    metrics = environment.metrics()
    assert metrics["tokens/reread"] > 0
    assert metrics["tokens/read"] - metrics["tokens/reread"] == tokens_to_read(rollout)


def test_an_attempt_that_ends_while_its_turn_is_sampled_leaves_the_batch(policy):
    attempts = []

    async def impatient(row, episode):
        attempts.append(row)
        turn = asyncio.ensure_future(episode.chat())
        if len(attempts) == 1:
            await asyncio.sleep(0.01)
            raise Fault("no patience")
        return float(len((await turn).content))

    long = replace(SAMPLING, max_new_tokens=60)
    policy.end_ids, ends = policy.end_ids[:1], policy.end_ids
    try:
        rollout, _ = played(policy, impatient, n=1, sampling=long, prompts=PROMPTS[:1])
    finally:
        policy.end_ids = ends
    assert len(attempts) == 2
    assert not rollout.outcome.isnan().any()


def test_an_attempt_that_ends_while_its_turn_waits_for_room_does_not_hold_up_the_next(policy, batches):
    """Both requests of the episode are in the queue: the answer belongs to the later one."""
    batches.limits.update(rows=1)
    attempts, turns, found = Counter(), set(), []

    async def impatient(row, episode):
        attempts[episode.messages] += 1
        turn = asyncio.ensure_future(episode.chat())
        turns.add(turn)
        if attempts[episode.messages] == 1:
            await asyncio.sleep(0)  # the turn is requested
            raise Fault("no patience")
        return float(len((await turn).content))

    playing = threading.Thread(target=lambda: found.append(played(policy, impatient, n=1)[0]), daemon=True)
    playing.start()
    playing.join(20)
    assert found, "it hangs"
    assert set(attempts.values()) == {2}
    assert not found[0].outcome.isnan().any()


def test_a_stop_string_ends_a_turn(policy):
    stop = replace(SAMPLING, max_new_tokens=30, stop=("e",))
    rollout, _ = played(policy, sleeping(2, 0.0), sampling=stop)
    other, _ = played(policy, sleeping(2, 0.0), sampling=stop, deterministic=True)
    assert_same(rollout, other, bits=False)
    assert rollout.texts == other.texts
    assert rollout.terminated.any()


class Served:
    """A generator of several requests at once, as servers are; `asked` are the ids of each."""

    width, context = 3, None

    def __init__(self, policy):
        self.inner, self.asked, self.turn = LocalGenerator(policy), [], threading.Lock()

    def generate(self, prompts, n, sampling, **settings):
        with self.turn:
            self.asked.append((prompts.ids, n))
            return self.inner.generate(prompts, n, sampling, **settings)


def served(policy, play, n=4, **settings):
    generator, environment = Served(policy), Environment(play, **settings)
    player = Player(generator, environment, {p.id: p for p in PROMPTS}, policy, policy.context)
    encoded = prompt_tokens(encode_prompts(PROMPTS, policy.tokenizer))
    return player.generate(encoded, n, SAMPLING, seed=1), generator, environment


def test_servers_are_asked_for_turns_as_they_arrive(policy):
    rollout, generator, environment = served(policy, sleeping(3, 0.02))
    other, slow, _ = served(policy, sleeping(3, 0.0), deterministic=True)
    assert_same(rollout, other, bits=False)
    first = [asked for asked in generator.asked if asked[1] == 4]  # later turns may come before the last of them
    assert sorted(first) == [((p.id,), 4) for p in PROMPTS]
    assert len(generator.asked) > len(slow.asked)
    assert environment.metrics() == {}


def test_an_attempt_that_fails_before_its_first_turn_does_not_hold_up_its_siblings(policy):
    attempts = []

    async def unlucky(row, episode):
        attempts.append(row)
        if len(attempts) == 1:
            raise Fault("no host")
        return float(len((await episode.chat()).content))

    rollout, _, _ = served(policy, unlucky, n=2)
    assert len(attempts) == len(rollout) + 1
    assert not rollout.outcome.isnan().any()


def test_what_a_server_refuses_ends_the_rollout(policy, monkeypatch):
    def refuse(*inputs, **settings):
        raise RolloutError("no server is left")

    monkeypatch.setattr(Served, "generate", refuse)
    with pytest.raises(RolloutError, match="no server"):
        served(policy, sleeping(2, 0.0))
