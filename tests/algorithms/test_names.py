"""Recipes by name, changed by name, refused by meaning, and printed."""

import importlib
import json
from dataclasses import replace

import pytest
from offenders import for_each

from tutelage.algorithms.choice_rules import remarks
from tutelage.algorithms.override import PIECES, override
from tutelage.algorithms.recipe import Critic, GradientSteps, Linear, NaturalStep, Penalty, Recipe
from tutelage.algorithms.registry import RECIPES, about, recipe_named
from tutelage.algorithms.table import pieces, plain, table
from tutelage.base.errors import TutelageError
from tutelage.commands.table import find
from tutelage.core.advantages import Gae, LengthAdaptive, RewardToGo
from tutelage.core.baselines import MovingAverage
from tutelage.core.groups import Group
from tutelage.core.kl import Adaptive
from tutelage.core.shaping import Overlong, ScoreShaping
from tutelage.core.surrogates import Clipped, ImportanceWeighted, ScoreFunction

command = find("recipes")

PPO = RECIPES["ppo"]
OWN = replace(PPO, name="own")


def test_names_are_unique_and_lead_to_their_recipes() -> None:
    assert len(RECIPES) >= 30
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert recipe_named(name) is recipe
        assert recipe.paper


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(TutelageError, match=r"no recipe named 'gprpo'; did you mean .*'grpo'"):
        recipe_named("gprpo")
    with pytest.raises(TutelageError, match=r"\. Known are reinforce, .*module:NAME"):
        recipe_named("xyz")


def test_a_recipe_of_ones_own_by_dotted_path() -> None:
    assert recipe_named(f"{__name__}:OWN") is OWN
    for path, why in (
        (f"{__name__}:PIECES", "is a dict, not a Recipe"),
        (f"{__name__}:NOTHING", "has no 'NOTHING'"),
        ("no_such_module:X", "No module named 'no_such_module'"),
    ):
        with pytest.raises(TutelageError, match=why):
            recipe_named(path)


@for_each(
    [
        (["surrogate.low=0.1"], replace(PPO, surrogate=Clipped(low=0.1))),
        (["surrogate.dual=3"], replace(PPO, surrogate=Clipped(dual=3.0))),
        (["critic.clip=none"], replace(PPO, critic=Critic(clip=None))),
        (["entropy=Linear", "entropy.steps=7"], replace(PPO, entropy=Linear(steps=7))),
        (["entropy=0.02"], replace(PPO, entropy=0.02)),
        (
            ["penalty.controller=Adaptive", "penalty.controller.target=3"],
            replace(PPO, penalty=Penalty(controller=Adaptive(target=3.0))),
        ),
        (
            ["shaping.overlong=Overlong", "shaping.missing_end=none"],
            replace(PPO, shaping=ScoreShaping(overlong=Overlong(), missing_end=None)),
        ),
        (["advantage.lam=LengthAdaptive"], replace(PPO, advantage=Gae(lam=LengthAdaptive()))),
        (["advantage=Group", "critic=none", "samples=4"], replace(PPO, advantage=Group(), critic=None, samples=4)),
        (
            ["surrogate=ImportanceWeighted", "update=NaturalStep", "update.max_kl=.1"],
            replace(PPO, surrogate=ImportanceWeighted(), update=NaturalStep(max_kl=0.1)),
        ),
        (
            ["advantage.whiten=false", "update.epochs=2", "update.epochs=3"],
            replace(PPO, advantage=Gae(whiten=False), update=GradientSteps(epochs=3)),
        ),
        (
            ["critic=none", "advantage=RewardToGo", "advantage.baseline=MovingAverage", "advantage.baseline.decay=0.5"],
            replace(PPO, critic=None, advantage=RewardToGo(MovingAverage(0.5))),
        ),
        ([], PPO),
    ]
)
def test_slots_are_set_by_name_in_any_order(assignments: list[str], expected: Recipe) -> None:
    assert override(PPO, assignments) == expected


def own_surrogate(logp, old_logp, advantage, mask):
    return advantage


def test_a_piece_of_ones_own_by_dotted_path() -> None:
    assert override(PPO, [f"surrogate={__name__}:own_surrogate"]).surrogate is own_surrogate
    found = override(PPO, ["surrogate=tutelage.core.surrogates:Cispo", "surrogate.cap=2"]).surrogate
    assert repr(found) == "Cispo(cap=2.0)"
    with pytest.raises(TutelageError, match=r"surrogate is .* and has no settings"):
        override(PPO, [f"surrogate={__name__}:own_surrogate", "surrogate.low=1"])


@for_each(
    [
        ("surrogate.lo=1", r"there is no surrogate.lo; did you mean 'low'\? Clipped has low, high, dual."),
        ("surogate.low=1", r"there is no surogate; did you mean 'surrogate'\? Recipe has name, "),
        ("surrogate.low=x", "surrogate.low=x: expected a finite number"),
        ("surrogate.low=inf", "surrogate.low=inf: expected a finite number"),
        ("update.epochs=1.5", "expected a whole number"),
        ("advantage.whiten=maybe", "expected true or false"),
        ("reduce=mean", "expected token_mean or sequence_mean or sequence_sum or fixed_length"),
        ("surrogate=Cliped", "expected one of ScoreFunction, .*Clipped.* or module:NAME"),
        ("shaping.overlong.buffer=.2", "shaping.overlong is none .*choose one first: shaping.overlong=Overlong"),
        ("surrogate.low", "is not an assignment; write it as surrogate.low=0.1"),
        ("surrogate.low=", "is not an assignment"),
        ("surrogate.low=-1", r"low must be in \(0, ∞\]"),
        ("surrogate=no_such_module:X", "No module named"),
    ]
)
def test_what_does_not_fit_is_answered_with_what_does(assignment: str, why: str) -> None:
    with pytest.raises(TutelageError, match=why):
        override(PPO, [assignment])


@for_each(
    [
        ("ppo", ["critic=none"], "Gae requires state values, but critic is none"),
        ("grpo", ["critic=Critic"], "Group does not use values"),
        ("grpo", ["samples=1"], "samples=1 leaves nothing to compare"),
        ("reinforce", ["samples=0"], "at least one completion per prompt"),
        ("reinforce", ["update.epochs=2"], "ScoreFunction is valid only for fresh samples, .* takes 2 steps"),
        ("trpo", ["surrogate=ScoreFunction"], "the line search requires a surrogate that measures improvement"),
        ("trpo", ["surrogate=Clipped"], "one bound would have no effect"),
        ("trpo", ["surrogate=KlPenalised"], "one bound would have no effect"),
        ("ppo", ["surrogate=SequenceClipped"], "gives every token its own advantage"),
        ("ppo", ["dynamic_sampling=2"], "requires samples of 2 or more"),
        ("grpo", ["dynamic_sampling=-1"], "cannot be negative"),
        ("ppo", ["ptx=-1"], "would unlearn the pretraining text"),
        ("ppo", ["penalty.coef=0"], "Use penalty=none"),
        ("ppo", ["penalty.kind=k4"], "choose one of k1, k2, mse, k3, k3_ratio, abs, exact"),
        ("ppo", ["penalty.kind=k3_ratio"], "is 1 in a reward"),
        ("ppo", ["penalty.kind=exact"], "a reward has none"),
        ("ppo", ["critic.coef=0"], "coef and clip must be above 0"),
        ("ppo", ["update.epochs=1", "update.max_kl=0.1"], "there is only one per rollout"),
        ("trpo", ["update.search=false", "update.decay=0.5"], "backtracks and decay have no effect"),
        ("trpo", ["update.decay=1.5"], "decay between 0 and 1"),
        ("rloo", ["advantage.standardise=true"], "Use standardise or leave_one_out, not both"),
        ("ppo", ["shaping.missing_end_penalty=1"], "Choose one"),
        ("trpo", ["critic=none", "advantage=RewardToGo", "update.critic_steps=9"], "but there is no critic"),
    ]
)
def test_combinations_without_meaning_are_refused_in_a_sentence(name: str, assignments: list[str], why: str) -> None:
    with pytest.raises(TutelageError, match=why):
        override(RECIPES[name], assignments)


@pytest.mark.parametrize(
    ("name", "assignments", "why"),
    [
        ("grpo", ["penalty.kind=k1"], "noise without any pull"),
        ("grpo", ["update.minibatches=1"], "the limits of the surrogate have no effect"),
        ("cispo", ["update.minibatches=1"], "the limits of the surrogate have no effect"),
        ("a2c", ["critic.clip=0.2"], "critic.clip has no effect"),
        ("grpo", ["samples=2"], "mostly noise"),
        ("gspo", ["reduce=token_mean"], "long completions weigh more"),
    ],
)
def test_legal_but_odd_combinations_earn_a_remark(name: str, assignments: list[str], why: str) -> None:
    said = remarks(override(RECIPES[name], assignments))
    assert any(why in remark for remark in said)


def test_a_surrogate_whose_state_no_step_would_see_is_refused() -> None:
    class Forgetful:
        def init(self):
            return {}

        def __call__(self, logp, old_logp, advantage, mask, state):
            return logp * advantage, state

    with pytest.raises(TutelageError, match=r"Forgetful has init\(\), but .* also has at\(state\) -> surrogate"):
        replace(PPO, surrogate=Forgetful())


def test_published_recipes_earn_none() -> None:
    assert {name: remarks(r) for name, r in RECIPES.items() if remarks(r)} == {}


def test_the_table_has_a_distinct_line_for_every_recipe() -> None:
    rows = table()
    assert [row["name"] for row in rows] == list(RECIPES)
    lines = {tuple(text for column, text in row.items() if column not in ("name", "paper")) for row in rows}
    assert len(lines) == len(rows)
    grpo = next(row for row in rows if row["name"] == "grpo")
    assert (grpo["penalty"], grpo["advantage"]) == ("0.04 k3 in loss", "Group(standardise=true)")


def test_every_file_says_what_differs_when_it_degenerates_and_what_to_watch() -> None:
    for name in RECIPES:
        told = about(name)
        assert "Differs from" in told or "differs from" in told, name
        assert "Degenerates:" in told, name
        assert "Watch:" in told, name
        assert name in told or len(told) > 200
    assert about(f"{__name__}:OWN") == ""


def test_every_piece_says_what_it_is_and_can_be_chosen_by_name() -> None:
    for protocol, classes in PIECES.items():
        for cls in classes:
            assert pieces()[protocol.__name__.lower()][cls.__name__]
            cls()
    assert override(PPO, ["surrogate=ScoreFunction", "update.epochs=1"]).surrogate == ScoreFunction()


def test_a_recipe_as_plain_values_goes_through_json() -> None:
    told = json.loads(json.dumps(plain(PPO)))
    assert told["surrogate"] == {"piece": "Clipped", "low": 0.2, "high": 0.2, "dual": None}
    assert told["penalty"]["controller"] == {"piece": "Fixed"}
    assert plain(replace(PPO, surrogate=own_surrogate))["surrogate"] == "own_surrogate"


def test_the_command_prints_a_table_a_page_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(command.settings()) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in RECIPES)
    assert "SequenceClipped" in printed
    assert "MovingAverage" in printed
    assert command.main(command.settings(about="grpo")) == 0
    assert "Group Relative Policy Optimization" in capsys.readouterr().out
    assert command.main(command.settings(json=True)) == 0
    assert set(json.loads(capsys.readouterr().out)["recipes"]) == set(RECIPES)


def test_narrow_terminals_lose_columns_from_the_right_and_are_told() -> None:
    module = importlib.import_module("tutelage.commands.recipes.show")
    kept, left_out = module._fitting(table(), 100)
    assert kept[:4] == ["name", "samples", "advantage", "surrogate"]
    assert kept + left_out == list(table()[0])
    assert module._fitting(table(), 500)[1] == []
