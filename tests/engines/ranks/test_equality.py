"""A run on several ranks is the run in one process: the same tokens, the same figures and the same weights."""

import json
import math
import shutil

import pytest
import tiny
import torch
from jobs import recipe_job, run, run_short_of_memory, run_until, run_with_nan
from safetensors.torch import load_file
from served import serving
from simple_goal import low_tokens
from tiers import long_except
from tiny_training import passes
from vllm_stub import VllmStub

import tutelage
from tutelage.algorithms.recipe import GradientSteps
from tutelage.algorithms.registry import RECIPES
from tutelage.base.errors import TutelageError
from tutelage.models.heads import new_reward_model

COSTS = {"seconds", "tokens_per_second", "tokens_at_once", "tokens/kept", "peak_rss_mb", "skipped"}
"""Figures that say what a run cost, not what it computed. A row is skipped where its gradient is 0 to the last bit."""
LENGTHS = [3, 5, 2, 8, 3, 6, 4, 7, 5, 3, 9]
"""Words of the answers in the files: rows of different lengths, which no number of ranks shares evenly."""
WORDS = ["the", "sun", "is", "a", "hot", "star", "that", "shines", "far", "away", "from", "here"]


def assert_same_figures(one, other, tolerance=1e-5):
    """Numbers under equal names agree to `tolerance` of their size, and everything else is equal."""
    assert one.keys() - COSTS == other.keys() - COSTS
    for name in one.keys() - COSTS:
        if isinstance(one[name], float) and not (math.isnan(one[name]) and math.isnan(other[name])):
            assert other[name] == pytest.approx(one[name], rel=tolerance, abs=1e-5), name


def assert_same_weights(one, other):
    """Adam divides a gradient near 0 by its size: the last bits of an engine move such a weight by
    2e-6, where a step moves one by 1e-3."""
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=5e-6)


IN_SHARDS = {
    passes(recipe): name for name, recipe in RECIPES.items() if isinstance(recipe.update, GradientSteps)
}.values()
"""A recipe of each set of passes. A natural step is not taken in shards."""


@pytest.mark.parametrize("name", long_except({*list(IN_SHARDS)[::2], "trpo"}, RECIPES))
def test_a_recipe(tiny_model, worlds, name):
    """On three ranks: seven prompts, which they do not share evenly, then one, which leaves ranks with nothing to do. A
    recipe of each set of passes on two ranks in shards, too.

    A natural step solves a linear system in float32, which multiplies the rounding of its gradient by the condition of
    the Fisher matrix; its figures are compared with ten times the tolerance.
    """
    recipe = RECIPES[name]
    changes = [] if recipe.samples > 1 else ["samples=2"]
    given = (tiny_model("llama"), name, changes, low_tokens, 2)
    metrics, tokens, weights = recipe_job(*given)
    by_gradients = isinstance(recipe.update, GradientSteps)
    results = worlds(3).run(recipe_job, *given)
    if name in IN_SHARDS:
        results += worlds(2).run(recipe_job, *given, True)
    for theirs, drawn, held in results:
        assert all(torch.equal(a, b) for a, b in zip(tokens, drawn, strict=True))
        for one, other in zip(metrics, theirs, strict=True):
            assert_same_figures(one, other, 1e-5 if by_gradients else 1e-4)
        assert_same_weights(weights, held)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of demonstrations, preferences, prompts and text by name, and the folder of a teacher."""
    folder = tmp_path_factory.mktemp("data")
    texts = [" ".join(WORDS[: count + 1]) for count in LENGTHS]
    prompts = [f"What is {word} {number}?" for number, word in enumerate(WORDS[:11])]
    rows = {
        "sft": [{"prompt": p, "completion": text} for p, text in zip(prompts, texts, strict=True)],
        "pairs": [
            {"prompt": p, "chosen": text, "rejected": f"no {number}"}
            for number, (p, text) in enumerate(zip(prompts, texts, strict=True))
        ],
        "steps": [
            {"prompt": p, "completions": [*WORDS[n : n + 1 + n % 3]], "labels": [True, None, False][: 1 + n % 3]}
            for n, p in enumerate(prompts)
        ],
        "prompts": [{"prompt": p} for p in prompts[:7]],
        "text": [{"text": text} for text in texts],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = {name: str(folder / f"{name}.jsonl") for name in rows}
    return made | {"teacher": tiny.save("llama", folder / "teacher", seed=1)}


@pytest.fixture(scope="module")
def reward_model(tiny_model, tmp_path_factory):
    """The folder of a reward model."""
    folder = tmp_path_factory.mktemp("reward")
    new_reward_model(tutelage.Model(tiny_model("llama")), tutelage.Lora(), seed=1).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def step_model(tiny_model, tmp_path_factory):
    """The folder of a process reward model of turns."""
    folder = tmp_path_factory.mktemp("steps")
    model = new_reward_model(tutelage.Model(tiny_model("qwen3")), tutelage.Lora(), seed=1)
    model.separator = ""
    model.save(folder)
    return str(folder)


def settings_of(command, model, data):
    """The settings of a command, on the files `data`."""
    training = {
        "model": model,
        "seed": 3,
        "batch_size": 5,
        "optimiser": {"lr": 1e-3, "schedule": "constant"},
        "checkpoints": {"every": 1},
    }
    short, held = {"max_length": 48}, {"held_out": 0.2, "evaluate_every": 1}
    reward, limit = ["simple_goal:low_tokens"], {"max_new_tokens": 6}
    own = {"reward": reward, "sampling": limit, "prompts": data["prompts"]}
    sampling = {"model": model, "prompts": data["prompts"], "sampling": limit, "seed": 3}
    return {
        "pretrain": training | short | {"data": data["text"], "evaluate_every": 1},
        "sft": training | short | held | {"data": data["sft"], "samples": 1, "rouge": 2},
        "reward": training | short | held | {"data": data["pairs"]},
        "dpo": training | short | held | {"data": data["pairs"]},
        "rejection": training | short | held | own | {"rounds": 2, "samples": 3},
        "distill": training
        | {"data": data["sft"], "teacher": data["teacher"], "on_policy": 0.5, "steps": 3, "sampling": limit},
        "improve": training | own | {"steps": 2, "batch_size": 3, "recipe": "ppo", "set": TWO_UPDATES},
        "sample": sampling | {"n": 3, "pairs": 1},
        "evaluate": sampling | {"n": 2, "reward": reward, "base": model, "against": model},
    }[command]


TWO_UPDATES = ["update.epochs=2", "update.minibatches=1"]
EXACT_KL = [*TWO_UPDATES, "penalty.kind=exact", "penalty.where=loss"]
TRAINING = ["pretrain", "sft", "reward", "dpo", "rejection", "distill", "improve"]


def figures_of(out):
    """The rows of metrics.jsonl, and summary.json."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [*rows, json.loads((out / "summary.json").read_text())]


def assert_same_run(one, other):
    for ours, theirs in zip(figures_of(one), figures_of(other), strict=True):
        assert_same_figures(ours, theirs)
    (ours,), (theirs,) = ((out / "model").glob("*.safetensors") for out in (one, other))
    ours, theirs = load_file(ours), load_file(theirs)
    assert_same_weights(ours.values(), [theirs[name] for name in ours])


@pytest.mark.parametrize("command", long_except(["pretrain", "dpo", "distill"], TRAINING))
def test_a_command_that_trains(tiny_model, worlds, data, tmp_path, command):
    given = settings_of(command, tiny_model("llama"), data)
    run(command, given | {"out": tmp_path / "alone"})
    worlds(3).run(run, command, given | {"out": tmp_path / "shared"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.long
def test_rated_steps(tiny_model, worlds, data, tmp_path):
    given = settings_of("reward", tiny_model("llama"), data) | {"data": data["steps"], "steps": True}
    run("reward", given | {"out": tmp_path / "alone"})
    for name, layout in {"shared": {}, "in shards": {"shard": "full"}}.items():
        worlds(3).run(run, "reward", given | layout | {"out": tmp_path / name})
        assert_same_run(tmp_path / "alone", tmp_path / name)


def test_episodes(tiny_model, worlds, data, step_model, tmp_path):
    """Turns of every episode, and what they are paid, are those of one process, whichever rank plays and scores it."""
    given = settings_of("improve", tiny_model("qwen3"), data)
    sampling = {"max_new_tokens": 6, "stop": list("aeioutnsr .")}
    given |= {"environment": "simple_goal:two_turns", "turns": 2, "sampling": sampling}
    given["reward"] = [*given["reward"], f"min:{step_model}"]
    run("improve", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "improve", given | {"out": tmp_path / "shared"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")
    assert figures_of(tmp_path / "alone")[0]["turns/mean"] > 1


@pytest.mark.parametrize("command", long_except(["reward", "improve"], TRAINING))
def test_a_command_that_trains_in_shards(tiny_model, worlds, data, reward_model, tmp_path, command):
    """One row more than a rank has passes, so that the last passes of a step are without rows on some ranks.

    `improve` has all that it may shard: the policy, its reference, whose whole distribution is compared, a critic, and
    two reward models.
    """
    given = settings_of(command, tiny_model("llama"), data) | {"tokens_at_once": 40}
    if command == "improve":
        given |= {"critic": "network", "reward": [reward_model, "simple_goal:low_tokens"]}
        given |= {"watch": [f"seen={reward_model}"], "set": EXACT_KL}
    run(command, given | {"out": tmp_path / "alone"})
    worlds(3).run(run, command, given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.parametrize("command", ["sample", "evaluate"])
def test_a_command_that_samples(tiny_model, worlds, data, tmp_path, command):
    given = settings_of(command, tiny_model("llama"), data)
    run(command, given | {"out": tmp_path / "alone"})
    worlds(3).run(run, command, given | {"out": tmp_path / "shared"})
    for file in ("completions.jsonl", "comparisons.jsonl", "answers.jsonl"):
        if (tmp_path / "alone" / file).exists():
            assert (tmp_path / "alone" / file).read_text() == (tmp_path / "shared" / file).read_text()


@pytest.mark.parametrize("command", long_except(["improve"], ["sft", "improve"]))
def test_a_run_goes_on_in_another_number_of_ranks(tiny_model, worlds, data, tmp_path, command):
    """Saved at 2 and resumed at 1 and at 3; at 2 again it is the same run to the last bit."""
    given = settings_of(command, tiny_model("llama"), data)
    worlds(2).run(run, command, given | {"out": tmp_path / "whole"})
    worlds(2).run(run_until, command, given | {"out": tmp_path / "left"}, 1)
    for size in (1, 2, 3):
        out = tmp_path / f"resumed at {size}"
        shutil.copytree(tmp_path / "left", out)
        resumed = given | {"out": out, "resume": True}
        run(command, resumed) if size == 1 else worlds(size).run(run, command, resumed)
        assert_same_run(tmp_path / "whole", out)
    (whole,), (again,) = ((tmp_path / name / "model").glob("*.safetensors") for name in ("whole", "resumed at 2"))
    assert whole.read_bytes() == again.read_bytes()


def test_memory_that_runs_out_on_one_rank(tiny_model, worlds, data, tmp_path):
    """All ranks take the step again in smaller parts, and the run is the run with enough memory."""
    given = settings_of("sft", tiny_model("llama"), data) | {"tokens_at_once": 1024}
    run("sft", given | {"out": tmp_path / "alone"})
    worlds(2).run(run_short_of_memory, given | {"out": tmp_path / "shared"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")
    at_once = [row.get("tokens_at_once") for row in figures_of(tmp_path / "shared")]
    assert at_once[-1] < 1024


@pytest.mark.parametrize("command", long_except(["reward"], ["improve", "reward"]))
def test_a_run_in_shards_goes_on_in_another_number_of_ranks(tiny_model, worlds, data, tmp_path, command):
    """Saved in shards at 2; resumed whole at 1, in shards at 3, and at 2 again to the last bit."""
    given = settings_of(command, tiny_model("llama"), data)
    shards = {"shard": "full"}
    worlds(2).run(run, command, given | shards | {"out": tmp_path / "whole"})
    worlds(2).run(run_until, command, given | shards | {"out": tmp_path / "left"}, 1)
    assert len(list((tmp_path / "left" / "checkpoints" / "step-1" / "shards").iterdir())) == 2
    for size in (1, 2, 3):
        out = tmp_path / f"resumed at {size}"
        shutil.copytree(tmp_path / "left", out)
        resumed = given | {"out": out, "resume": True}
        run(command, resumed) if size == 1 else worlds(size).run(run, command, resumed | shards)
        assert_same_run(tmp_path / "whole", out)
    (whole,), (again,) = ((tmp_path / name / "model").glob("*.safetensors") for name in ("whole", "resumed at 2"))
    assert whole.read_bytes() == again.read_bytes()


@pytest.mark.long
def test_rollouts_of_a_server(tiny_model, worlds, data, tmp_path):
    """Rank 0 asks the server, and hands it the weights of all ranks."""
    given = settings_of("improve", tiny_model("llama"), data)
    for name in ("alone", "shared"):
        with serving(VllmStub(tiny_model("llama"))) as server:
            settings = given | {"out": tmp_path / name, "rollouts": server.url.removesuffix("/v1")}
            if name == "alone":
                run("improve", settings)
            else:
                worlds(2).run(run, "improve", settings | {"shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.parametrize("shards", [{}, {"shard": "full"}])
def test_a_loss_that_is_no_number_on_one_rank_ends_all(tiny_model, worlds, data, tmp_path, shards):
    """Rank 1 names its rows, rank 0 ends because of it, and the step before is kept."""
    given = settings_of("sft", tiny_model("llama"), data) | shards | {"held_out": 0.0, "samples": 0, "rouge": 0}
    first, second = worlds(2).run(run_with_nan, "sft", given | {"out": tmp_path / "run"}, 1, 2)
    assert first == ("PeerError", "rank 1 of 2 failed")
    assert second[0] == "NotFinite"
    assert "loss became nan in step 2 on rows " in second[1]
    assert [each.name for each in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-1"]


@pytest.mark.long
def test_hybrid_shards(tiny_model, worlds, data, tmp_path):
    """On two machines of two ranks: shards within a machine, and a copy on each."""
    given = settings_of("sft", tiny_model("llama"), data) | {"tokens_at_once": 40, "rouge": 0}
    run("sft", given | {"out": tmp_path / "alone"})
    worlds(4, 2).run(run, "sft", given | {"out": tmp_path / "shared", "shard": "hybrid"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.long
def test_a_teacher_in_shards(tiny_model, worlds, data, tmp_path):
    """Its log-probabilities of an adapter's answers. Its whole distributions are compared in
    `test_a_command_that_trains_in_shards`."""
    given = settings_of("distill", tiny_model("llama"), data) | {"tokens_at_once": 40, "on_policy": 1.0}
    del given["data"]
    given |= {"prompts": data["prompts"], "recipe": "reverse_kl", "lora": {"rank": 2}}
    run("distill", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "distill", given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.long
def test_checkpointed_layers_in_shards(tiny_model, worlds, data, tmp_path):
    given = settings_of("sft", tiny_model("llama"), data)
    given |= {"activation_checkpointing": True, "tokens_at_once": 40}
    run("sft", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "sft", given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


def test_adapters_in_shards(tiny_model, worlds, data, tmp_path):
    """The reference is the policy with its adapter off, and the exact KL to it needs its states and the same head."""
    given = settings_of("improve", tiny_model("llama"), data) | {"set": EXACT_KL}
    given |= {"lora": {"rank": 2}, "tokens_at_once": 40}
    run("improve", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "improve", given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.long
def test_adapters_on_tied_layers_in_shards(tiny_model, worlds, data, tmp_path):
    given = settings_of("sft", tiny_model("qwen3"), data) | {"tokens_at_once": 40, "rouge": 0}
    given |= {"lora": {"rank": 2, "targets": "q_proj,embed_tokens,lm_head"}}
    run("sft", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "sft", given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.long
def test_preferences_of_its_own_in_shards(tiny_model, worlds, data, reward_model, tmp_path):
    given = settings_of("rejection", tiny_model("llama"), data) | {"reward": [reward_model]}
    run("dpo", given | {"out": tmp_path / "alone"})
    worlds(2).run(run, "dpo", given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


def test_memory_that_runs_out_before_a_pass_over_shards(tiny_model, worlds, data, tmp_path):
    given = settings_of("sft", tiny_model("llama"), data) | {"tokens_at_once": 1024}
    run("sft", given | {"out": tmp_path / "alone"})
    worlds(2).run(run_short_of_memory, given | {"out": tmp_path / "shared", "shard": "full"})
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.parametrize("command", TRAINING)
def test_one_process_has_nothing_to_divide(tiny_model, data, tmp_path, command):
    given = settings_of(command, tiny_model("llama"), data) | {"out": tmp_path, "shard": "full"}
    with pytest.raises(TutelageError, match="add --processes N"):
        run(command, given)
