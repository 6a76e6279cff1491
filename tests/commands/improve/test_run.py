"""What the ranks of an `improve` run do together at every step."""

from types import SimpleNamespace

import pytest

from tutelage.base import config
from tutelage.commands.improve import run as improve_run
from tutelage.rewards.composite import no_reward
from tutelage.rollout.environment import Environment


@pytest.mark.parametrize("read", [0, 7])
def test_a_rank_without_an_episode_in_a_step_adds_its_counts_too(monkeypatch, read):
    """A short last step of an epoch may have fewer prompts than ranks."""
    monkeypatch.setattr(improve_run, "FirstSteps", lambda *_: SimpleNamespace(look=lambda step: None))
    monkeypatch.setattr(improve_run, "write_samples", lambda *_: None)
    gathered = []

    def totals(values):
        gathered.append(values)
        return dict(values)

    run = SimpleNamespace(ranks=SimpleNamespace(totals=totals))
    settings = SimpleNamespace(sampling=config.Sampling(), steps=1, optimiser=SimpleNamespace(peak=1.0), sample_every=0)
    environment = Environment(lambda row, episode: 0.0)
    if read:
        environment.counts.update(read=read)
    improve_run._look(settings, run, None, no_reward, environment)(None)
    assert len(gathered) == 1
    assert gathered[0].get("tokens/read", 0) == read
