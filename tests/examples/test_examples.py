"""Every example of the ladder learns: its last scores are high where its first ones are those of chance."""

import json
from dataclasses import replace

import pytest
import torch
from example_files import FOLDER, example

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe, prepare
from tutelage.algorithms.recipe_state import initial_state, restored_state
from tutelage.algorithms.registry import recipe_named
from tutelage.core.advantages import TotalReturn
from tutelage.core.pieces import Context

LADDER = ("1_reinforce", "2_rloo", "3_ppo", "4_grpo", "5_dpo", "6_own_algorithm")


@pytest.mark.parametrize("name", LADDER)
def test_an_example_learns_and_prints_its_curve(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    curve = example(name).main()
    assert curve[0] < 0.2
    assert sum(curve[-10:]) / 10 > 0.95
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("step   0  score 0.")
    assert printed[-1].startswith(f"step {len(curve) - 1:3}  score {curve[-1]:.2f}")


@pytest.mark.parametrize("name", LADDER)
def test_an_example_fits_a_screen_or_two(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert 60 <= len(lines) <= 150


def test_the_same_seed_gives_the_same_curve() -> None:
    module = example("1_reinforce")
    assert module.main(steps=5) == module.main(steps=5)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The recipe of the last example by the name that its first lines give."""
    monkeypatch.syspath_prepend(FOLDER)
    return recipe_named("6_own_algorithm:PROMPT_BASELINE")


def test_the_mean_of_a_prompt_is_that_of_its_earlier_answers(own: Recipe) -> None:
    piece = override(own, ["advantage.baseline.decay=0.5"]).advantage.baseline
    returns, mask = torch.tensor([[3.0, 3.0], [5.0, 0.0], [7.0, 7.0]]), torch.ones(3, 2, dtype=torch.bool)
    first, state = piece(returns, mask, Context(ids=("a", "b", "a")), piece.init())
    assert first.tolist() == [[0.0, 0.0]] * 3
    assert state == {"a": 5.0, "b": 5.0}
    second, after = piece(returns, mask, Context(ids=("b", "c", "c")), state)
    assert second.tolist() == [[5.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    assert after == {"a": 5.0, "b": 4.0, "c": 6.0}
    assert state == {"a": 5.0, "b": 5.0}, "a state is never changed in place"


def test_a_state_of_ones_own_goes_on_bit_for_bit_after_a_checkpoint(own: Recipe) -> None:
    module = example("6_own_algorithm")
    torch.manual_seed(0)
    rollouts = [module.rollout(module.Policy()) for _ in range(3)]
    kept = stored = initial_state(own)
    for scored in rollouts:
        expected, kept, _ = prepare(own, scored, kept)
        batch, stored, _ = prepare(own, scored, restored_state(own, json.loads(json.dumps(stored.to_dict()))))
        assert torch.equal(batch.advantage, expected.advantage)
    plain, _, _ = prepare(replace(own, advantage=TotalReturn()), rollouts[-1], initial_state(own))
    assert not torch.equal(expected.advantage, plain.advantage)
    assert kept == stored
    assert set(kept.advantage) <= {str(n) for n in range(1, 8)}
