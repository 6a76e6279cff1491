"""dpo and rejection on the command line: what they write, what they refuse, and that a crash changes nothing."""

import json
import re

import pytest
import torch
from learning_commands import dpo_settings, online_settings, preferences, questions, rejection_settings, singles
from offenders import for_each
from served import choices, serving
from test_resume import Crash, assert_same_run, crash_in
from tiers import long_except
from tiny_commands import read_jsonl, write_jsonl
from transformers import AutoModelForCausalLM

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.line import main
from tutelage.commands.table import find
from tutelage.core.preferences import PREFERENCE_LOSSES
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner

dpo = find("dpo")
rejection = find("rejection")

pytestmark = pytest.mark.filterwarnings("error::FutureWarning")

EVERY_TWO = config.Checkpoints(every=2, keep=2)


@pytest.fixture
def base(tiny_model):
    return tiny_model("llama")


@pytest.fixture
def prompts(tmp_path):
    return questions(tmp_path / "prompts.jsonl")


@pytest.fixture
def quick_to_end(monkeypatch):
    """Many tokens end an answer, so that a random model finishes what it says."""
    original = Policy.__init__

    def with_ends(self, *given, **named):
        original(self, *given, **named)
        self.end_ids = (*self.end_ids, *range(220, 300))

    monkeypatch.setattr(Policy, "__init__", with_ends)


def loads(folder):
    """Whether plain transformers can use the model."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    return bool(torch.isfinite(model(input_ids=torch.tensor([[5, 6]])).logits).all())


# dpo from a file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 4])
def test_dpo_learns_writes_its_figures_and_a_model_that_loads(base, tmp_path, rank):
    data, out = preferences(tmp_path / "pairs.jsonl"), tmp_path / "run"
    lora = config.Lora(rank=rank) if rank else config.Lora()
    assert dpo.main(dpo_settings(base, out, data=data, epochs=4, lora=lora, evaluate_every=6)) == 0
    rows = read_jsonl(out / "metrics.jsonl")
    assert rows[0]["step"] == 0
    assert rows[0]["held_out/loss"] == pytest.approx(0.6931, abs=1e-3), "policy and reference are one"
    assert [row["step"] for row in rows[1:]] == list(range(1, 13))
    assert {"loss", "accuracy", "margin", "kl/chosen", "kl/rejected", "grad_norm", "lr"} <= set(rows[1])
    told = json.loads((out / "summary.json").read_text())
    assert told["held_out/loss"] < 0.69
    assert told["held_out/accuracy"] >= 0.8
    assert (told["pairs"], told["held_out_pairs"]) == (18, 6)
    assert loads(out / "model")
    if rank:
        assert (out / "checkpoints" / "step-12" / "adapter_config.json").is_file()


@pytest.mark.parametrize("name", long_except(["dpo", "kto", "simpo"], PREFERENCE_LOSSES))
def test_every_loss_by_its_name(base, tmp_path, name):
    data, out = preferences(tmp_path / "pairs.jsonl", p_chosen=0.9, margin=0.1, weight=2.0), tmp_path / "run"
    assert dpo.main(dpo_settings(base, out, data=data, loss=name, held_out=0.0)) == 0
    assert len(read_jsonl(out / "metrics.jsonl")) == 4


def test_settings_of_a_loss_and_labels_and_margins_of_the_data_change_what_is_learnt(base, tmp_path):
    def losses(name, changes=(), **columns):
        data = preferences(tmp_path / f"{name}.jsonl", **columns)
        dpo.main(dpo_settings(base, tmp_path / name, data=data, set=changes, held_out=0.0, epochs=2))
        return [row["loss"] for row in read_jsonl(tmp_path / name / "metrics.jsonl")]

    plain = losses("plain")
    assert losses("soft", p_chosen=0.7) != plain
    assert losses("asking", margin=1.0) != plain
    assert losses("beta", ("beta=0.5",)) != plain
    assert losses("smooth", ("smoothing=0.2",)) != plain


def test_kto_on_single_answers(base, tmp_path):
    data, out = singles(tmp_path / "singles.jsonl"), tmp_path / "run"
    settings = dpo_settings(base, out, data=data, loss="kto", unpaired=True, epochs=4, evaluate_every=24)
    assert dpo.main(settings) == 0
    told = json.loads((out / "summary.json").read_text())
    assert told["held_out/margin"] > 0
    assert told["good"] == told["bad"] == 18
    assert loads(out / "model")


def test_a_reference_of_its_own(base, tiny_model, tmp_path):
    data = preferences(tmp_path / "pairs.jsonl")
    other = tiny_model("llama", seed=5)
    dpo.main(dpo_settings(base, tmp_path / "run", data=data, reference=other))
    assert read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]["held_out/loss"] != pytest.approx(0.6931, abs=1e-3)
    with pytest.raises(TutelageError, match="vocabulary of the reference"):
        dpo.main(dpo_settings(base, tmp_path / "x", data=data, reference=tiny_model("qwen3")))


# dpo on its own answers ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_to_end")
def test_online_dpo_goes_round_by_round(base, prompts, tmp_path):
    out = tmp_path / "run"
    assert dpo.main(online_settings(base, prompts, out)) == 0
    rows = read_jsonl(out / "metrics.jsonl")
    steps = (len(rows) - 1) // 2
    starts = [row for row in rows if "round" in row]
    assert [(row["step"], row["round"]) for row in starts] == [(1, 1), (steps + 1, 2)]
    assert all({"score/mean", "score/std", "score/kept", "ended", "kept"} <= set(row) for row in starts)
    assert all(row["score/kept"] >= row["score/mean"] for row in starts)
    assert starts[0]["margin"] == pytest.approx(0.0, abs=1e-4)
    assert sorted(file.name for file in (out / "rounds").iterdir()) == ["round-1.jsonl", "round-2.jsonl"]
    told = json.loads((out / "summary.json").read_text())
    assert {"held_out/score", "held_out/ended"} <= set(told)
    assert told["prompts"] + told["held_out_prompts"] == 12
    assert loads(out / "model")


@pytest.mark.usefixtures("quick_to_end")
def test_a_judge_compares_in_both_orders(base, prompts, tmp_path):
    def longest(body, number):
        text = body["messages"][0]["content"]
        first, second = (text.partition(f"[Response {side}]\n")[2].partition("\n[End of response")[0] for side in "AB")
        return choices("[[C]]" if len(first) == len(second) else f"[[{'AB'[len(second) > len(first)]}]]")

    out = tmp_path / "run"
    with serving(longest) as served:
        settings = online_settings(
            base, prompts, out, reward=(), judge=served.url, judge_model="j", samples=2, rounds=1
        )
        assert dpo.main(settings) == 0
    assert all("Which response is better?" in asked["messages"][0]["content"] for asked in served.asked)
    answers = read_jsonl(out / "rounds" / "round-1.jsonl")
    for one, other in zip(answers[::2], answers[1::2], strict=True):
        lengths = len(one["answer"]), len(other["answer"])
        assert one["score"] == 0.5 if lengths[0] == lengths[1] else one["score"] == float(lengths[0] > lengths[1])
        assert one["score"] + other["score"] == 1.0


# rejection -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_to_end")
@pytest.mark.parametrize("changes", [{}, {"overall": 0.2}, {"keep": 2}, {"lora": config.Lora(rank=2)}], ids=repr)
def test_rejection_goes_round_by_round(base, prompts, tmp_path, changes):
    out = tmp_path / "run"
    assert rejection.main(rejection_settings(base, prompts, out, **changes)) == 0
    rows = read_jsonl(out / "metrics.jsonl")
    starts = [row for row in rows if "round" in row]
    assert [row["round"] for row in starts] == [1, 2]
    assert all(row["score/kept"] > row["score/mean"] for row in starts)
    assert rows[0]["step"] == 0
    assert "held_out/score" in rows[0]
    assert "held_out/score" in json.loads((out / "summary.json").read_text())
    answers = read_jsonl(out / "rounds" / "round-1.jsonl")
    assert len(answers) == 4 * 9
    learnt = read_jsonl(out / "samples.jsonl")
    assert {row["score"] for row in learnt} <= {a["score"] for a in answers} | {
        a["score"] for a in read_jsonl(out / "rounds" / "round-2.jsonl")
    }
    assert loads(out / "model")


def test_rejection_says_when_the_best_answers_are_no_better(base, prompts, tmp_path, capsys):
    for reward, told in (("nothing_but_one", True), ("length", False)):
        asked = {"reward": (f"given_rewards:{reward}",), "rounds": 1, "quiet": False}
        assert rejection.main(rejection_settings(base, prompts, tmp_path / reward, **asked)) == 0
        assert (
            "Round 1: for 100% of the prompts all completions got the same score" in capsys.readouterr().err
        ) is told
        first = read_jsonl(tmp_path / reward / "metrics.jsonl")[1]
        answers = read_jsonl(tmp_path / reward / "rounds" / "round-1.jsonl")
        assert (first["groups/dead"] == 1.0) is told
        assert first["length/mean"] == sum(len(one["tokens"]) for one in answers) / len(answers)


# Crashes -------------------------------------------------------------------------------------------------------


def resumable(base, tmp_path):
    """Of each kind a function out -> (command, settings) with more than five steps."""
    pairs, single = preferences(tmp_path / "pairs.jsonl"), singles(tmp_path / "singles.jsonl")
    asked = questions(tmp_path / "asked.jsonl")
    common = {"checkpoints": EVERY_TWO}

    def given(out, **more):
        return dpo, dpo_settings(base, out, data=pairs, epochs=2, **common | more)

    def unpaired(out, **more):
        return dpo, dpo_settings(base, out, data=single, loss="kto", unpaired=True, **common | more)

    def adapter(out, **more):
        lora = config.Lora(rank=2)
        return dpo, dpo_settings(base, out, data=pairs, loss="kto", lora=lora, epochs=2, **common | more)

    def online(out, **more):
        return dpo, online_settings(base, asked, out, epochs=2, batch_size=4, **common | more)

    def rejecting(out, **more):
        return rejection, rejection_settings(base, asked, out, lora=config.Lora(rank=2), **common | more)

    return {f.__name__: f for f in (given, unpaired, adapter, online, rejecting)}


@pytest.mark.usefixtures("quick_to_end")
@pytest.mark.parametrize("kind", long_except(["online"], ["given", "unpaired", "adapter", "online", "rejecting"]))
def test_a_run_that_crashed_twice_is_the_run_that_did_not(base, tmp_path, monkeypatch, kind):
    make = resumable(base, tmp_path)[kind]
    command, settings = make(tmp_path / "whole")
    command.main(settings)
    for number, when in enumerate((4, 3)):
        command, settings = make(tmp_path / "broken", resume=number > 0)
        with monkeypatch.context() as patch:
            crash_in(patch, Learner, "update", when)
            with pytest.raises(Crash):
                command.main(settings)
    command, settings = make(tmp_path / "broken", resume=True)
    command.main(settings)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")
    if kind in ("online", "rejecting"):
        for number in (1, 2):
            one, other = (tmp_path / run / "rounds" / f"round-{number}.jsonl" for run in ("whole", "broken"))
            assert one.read_text() == other.read_text()


# Mistakes ------------------------------------------------------------------------------------------------------


@for_each(
    [
        ({"data": "", "prompts": ""}, "either --data.*or --prompts"),
        ({"prompts": "p.jsonl"}, "either --data.*or --prompts"),
        ({"rounds": 3}, "--rounds would have no effect"),
        ({"samples": 4, "reward": ("m:f",)}, "--reward, --samples would have no effect"),
        ({"judge_question": "Which?"}, "--judge-question would have no effect"),
        ({"sampling": config.Sampling(temperature=0.5)}, "--sampling would have no effect"),
        ({"data": "", "prompts": "p.jsonl"}, "either --reward or --judge"),
        ({"data": "", "prompts": "p.jsonl", "judge": "http://x"}, "--judge-model"),
        ({"data": "", "prompts": "p.jsonl", "judge": "http://x", "judge_model": "m"}, "--samples 2 instead of 8"),
        (
            {"data": "", "prompts": "p.jsonl", "judge": "http://x", "judge_model": "m", "samples": 2},
            "--held-out, --evaluate-every and --evaluate-rows have no effect",
        ),
        ({"data": "", "prompts": "p.jsonl", "reward": ("m:f",), "unpaired": True}, "--unpaired"),
        ({"epochs": 0.0}, "--epochs"),
        ({"held_out": 1.0}, "--held-out"),
        ({"samples": 1}, "--samples"),
    ]
)
def test_contradictions_of_dpo(changes, told, base, tmp_path):
    with pytest.raises(TutelageError, match=f"(?s){told}"):
        dpo_settings(base, tmp_path / "run", **{"data": "pairs.jsonl"} | changes)


@for_each(
    [
        ({"prompts": ""}, "needs --prompts"),
        ({"reward": ()}, "--reward"),
        ({"keep": 4}, "rejects nothing"),
        ({"keep": 0}, "--keep"),
        ({"keep": 2, "overall": 0.1}, "one of the two"),
        ({"overall": 1.0}, "--overall"),
        ({"rounds": 0}, "--rounds"),
        ({"sampling": config.Sampling(temperature=0.0)}, "temperature 0"),
    ]
)
def test_contradictions_of_rejection(changes, told, base, tmp_path):
    with pytest.raises(TutelageError, match=told):
        rejection_settings(base, **{"prompts": "p.jsonl", "out": tmp_path / "run"} | changes)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--loss", "dop"], "no loss 'dop'; did you mean 'dpo'.*dpo, cdpo, robust, ipo, hinge, slic, kto, orpo, simpo"),
        (["--set", "betta=1"], "did you mean 'beta'"),
        (["--set", "beta=-1"], r"beta must be in \(0, ∞\]"),
        (["--unpaired"], "only kto trains"),
    ],
)
def test_losses_that_are_none_are_answered_before_anything_begins(base, tmp_path, capsys, words, told):
    data, out = preferences(tmp_path / "pairs.jsonl"), tmp_path / "run"
    code = main(["dpo", "--model", base, "--data", data, "--out", str(out), "--quiet", *words])
    assert code == 2
    assert re.search(told, capsys.readouterr().err)
    assert not out.exists()


@pytest.fixture
def endless(monkeypatch):
    """Policies whose answers all run to the limit."""
    original = Policy.__init__

    def init(self, *given, **named):
        original(self, *given, **named)
        self.end_ids = ()

    monkeypatch.setattr(Policy, "__init__", init)


@pytest.mark.usefixtures("endless")
def test_answers_that_never_end_are_not_imitated(base, prompts, tmp_path):
    with pytest.raises(TutelageError, match=r"(?s)terminated.*--sampling.max-new-tokens"):
        rejection.main(rejection_settings(base, prompts, tmp_path / "run"))


@pytest.mark.usefixtures("endless")
def test_answers_that_never_end_are_compared_by_their_scores(base, prompts, tmp_path, capsys):
    out = tmp_path / "run"
    assert dpo.main(online_settings(base, prompts, out, quiet=False)) == 0
    told = capsys.readouterr().err
    assert "Round 1: more than half of the completions were cut at the length limit" in told
    starts = [row for row in read_jsonl(out / "metrics.jsonl") if "round" in row]
    assert all(row["ended"] == 0 and row["score/kept"] > row["score/mean"] for row in starts)


def test_prompts_without_room(base, tmp_path):
    long = write_jsonl(tmp_path / "long.jsonl", [{"prompt": f"word {i} " * 90} for i in range(4)])
    with pytest.raises(TutelageError, match="No prompt fits"):
        rejection.main(rejection_settings(base, long, tmp_path / "run"))


def test_a_judge_that_is_not_there(base, prompts, tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage.data.transport.LONGEST_WAIT", 0.0)
    settings = online_settings(
        base, prompts, tmp_path / "run", reward=(), judge="http://127.0.0.1:9/v1", judge_model="j", samples=2
    )
    with pytest.raises(TutelageError, match=r"The model j at .* did not answer after 4 attempts"):
        dpo.main(settings)


def test_a_whole_backbone_still_loads_after_an_adapter_was_folded_in(base, tmp_path):
    data = preferences(tmp_path / "pairs.jsonl")
    dpo.main(dpo_settings(base, tmp_path / "run", data=data, lora=config.Lora(rank=2)))
    folded = Policy(load_backbone(config.Model(str(tmp_path / "run" / "model"), device="cpu")))
    assert folded.vocabulary == Policy(load_backbone(config.Model(base, device="cpu"))).vocabulary
