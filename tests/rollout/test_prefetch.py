"""Rollouts ahead of the steps: what is begun when, and how old it may be."""

import threading

import pytest
import torch
from learn.tabular_policy import AtOnce
from offenders import for_each
from scripted import ScriptedGenerator

from tutelage.base import config
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.prefetch import AheadGenerator, RolloutRequest

FREE = config.Sampling(max_new_tokens=3)


class Versioned(ScriptedGenerator):
    """A script that says which version it was asked in, and remembers what it was asked."""

    def __init__(self):
        super().__init__(lambda prompt, number: prompt, frozenset({9}))
        vars(self).update(version=0, asked=[])

    def sync(self, version):
        vars(self)["version"] = version

    def generate(self, prompts, n, sampling, *, seed):
        self.asked.append((seed, self.version))
        rollout = super().generate(prompts, n, sampling, seed=seed)
        return rollout.__class__(**{**vars(rollout), "version": torch.full_like(rollout.response, self.version)})


def plan(step):
    return RolloutRequest(PromptTokens(((step, 5, 9),), (str(step),)), 2, FREE, step)


def asked(generator, step):
    request = plan(step)
    return generator.generate(request.prompts, request.n, request.sampling, seed=request.seed)


@for_each([1, 2, 4])
def test_a_rollout_is_at_most_so_many_versions_old_and_each_is_drawn_once(staleness):
    inner, total = Versioned(), 9
    generator = AheadGenerator(inner, plan, staleness=staleness, total=total, executor=AtOnce())
    for step in range(total):
        generator.sync(step)
        rollout = asked(generator, step)
        assert rollout.prompt[0].tolist() == [step, 5, 9]
        assert set((step - rollout.version).reshape(-1).tolist()) == {min(step, staleness)}
    assert [seed for seed, _ in inner.asked] == list(range(total)), "none is thrown away or asked for again"


def test_what_is_not_in_the_plan_is_answered_with_the_newest_weights():
    generator = AheadGenerator(Versioned(), plan, staleness=2, total=9, executor=AtOnce())
    for step in range(4):
        generator.sync(step)
    other = generator.generate(PromptTokens(((7, 9),), ("x",)), 1, FREE, seed=3)
    assert other.version.unique().tolist() == [3]


def test_a_run_that_goes_on_begins_at_its_step():
    inner = Versioned()
    generator = AheadGenerator(inner, plan, staleness=1, total=9, executor=AtOnce())
    generator.sync(6)
    assert inner.asked == [(6, 6), (7, 6)]


def test_the_next_rollout_is_drawn_while_this_one_is_learnt_from():
    begun = {step: threading.Event() for step in range(3)}

    class Slow(Versioned):
        def generate(self, prompts, n, sampling, *, seed):
            begun[seed].set()
            return super().generate(prompts, n, sampling, seed=seed)

    generator = AheadGenerator(Slow(), plan, staleness=1, total=3)
    generator.sync(0)
    asked(generator, 0)
    assert begun[1].wait(10)
    assert not begun[2].is_set(), "it would be older than is allowed"
    generator.sync(1)
    assert begun[2].wait(10)


def test_an_error_of_the_background_is_raised_where_the_rollout_is_wanted():
    class Lost(Versioned):
        def generate(self, prompts, n, sampling, *, seed):
            if seed == 1:
                raise RolloutError("no server is left")
            return super().generate(prompts, n, sampling, seed=seed)

    generator = AheadGenerator(Lost(), plan, staleness=2, total=9)
    generator.sync(0)
    asked(generator, 0)
    with pytest.raises(RolloutError, match="no server is left"):
        asked(generator, 1)
