"""Workflows beside sft, reward and improve: their results are what stands in the files that they wrote."""

import csv

import pytest
import torch
from learning_commands import preferences, questions
from tiny_commands import files, model, read_jsonl, write_jsonl
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import tutelage as tt
from tutelage.data.formats import load_comparisons
from tutelage.stats.model_choice import choose_model, fit_model
from tutelage.stats.vote_files import VoteFileColumns, read_votes

SHORT = tt.Sampling(temperature=1.0, max_new_tokens=8)


def letters(prompts, answers):
    """The number of letters in each answer."""
    return [float(sum(character.isalpha() for character in answer)) for answer in answers]


def test_sampling_counts_and_reads_back_what_it_wrote(tiny_model, tmp_path):
    data = files(tmp_path / "data")
    result = tt.sample(
        model=tiny_model("llama"), device="cpu", prompts=data["prompts"], out=tmp_path / "out", n=3, pairs=2,
        sampling=SHORT,
    )  # fmt: skip
    assert (result.prompts, result.answers) == (8, 24)
    answers = result.load()
    assert len(answers) == 24
    assert result.finished == sum(answer.finished for answer in answers) / 24
    assert result.comparisons is not None
    assert result.pairs == len(load_comparisons(result.comparisons).records)


def test_the_best_of_many_is_the_best_of_the_same_samples(tiny_model, tmp_path):
    """By the reward that chose them, computed anew from the texts; answers that were cut come last."""
    data = files(tmp_path / "data")
    common = {"model": tiny_model("llama"), "device": "cpu", "prompts": data["prompts"], "sampling": SHORT}
    plain = tt.sample(**common, out=tmp_path / "plain", n=6).load()
    best = tt.sample(**common, out=tmp_path / "best", n=1, best_of=6, reward=letters).load()

    def worth(answer):
        return answer.finished, letters([""], [answer.text])[0]

    groups = [plain[start : start + 6] for start in range(0, 48, 6)]
    assert [worth(answer) for answer in best] == [max(map(worth, group)) for group in groups]


def test_an_evaluation_is_the_mean_of_its_answers(tiny_model, tmp_path):
    data = files(tmp_path / "data")
    result = tt.evaluate(
        model=tiny_model("llama"), against=tiny_model("llama"), device="cpu", prompts=data["prompts"],
        reward={"letters": letters}, sampling=SHORT, out=tmp_path / "out",
    )  # fmt: skip
    rows = read_jsonl(tmp_path / "out" / "answers.jsonl")
    before, after = ([row[f"letters_{side}"] for row in rows] for side in ("before", "after"))
    assert result.figures["letters_mean"] == pytest.approx(sum(after) / len(after))
    assert result.against["letters_mean"] == pytest.approx(sum(before) / len(before))
    assert before == after, "one model with one seed answers alike"
    assert result.win_rate("letters") == 0.5
    assert result.figures["kl"] == pytest.approx(0.0, abs=1e-5)


def test_the_perplexity_on_texts_is_that_of_transformers(tiny_model, tmp_path):
    """exp of the mean negative log-likelihood of the texts' own tokens, of each of two models."""
    data, folders = files(tmp_path / "data"), (tiny_model("gpt2"), tiny_model("gpt2", seed=1))
    texts = ["The sun is a star.", "Plants turn light, water and air into sugar. Explain it!"]
    write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    result = tt.evaluate(
        model=folders[0], against=folders[1], device="cpu", prompts=data["prompts"], sampling=SHORT,
        text=tmp_path / "texts.jsonl", out=tmp_path / "out",
    )  # fmt: skip
    for folder, figures in zip(folders, (result.figures, result.against), strict=True):
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        losses = []
        for text in texts:
            ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text).input_ids]])  # GPT-2 has no start token
            losses.append(cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none"))
        assert figures["text_perplexity"] == pytest.approx(float(torch.cat(losses).mean().exp().detach()), rel=1e-4)
    assert result.figures["text_perplexity"] != result.against["text_perplexity"]


def test_texts_that_are_none_are_refused_before_anything_is_answered(tiny_model, tmp_path):
    data = files(tmp_path / "data")
    with pytest.raises(tt.TutelageError, match="nowhere"):
        tt.evaluate(
            model=tiny_model("llama"), device="cpu", prompts=data["prompts"], sampling=SHORT,
            text=tmp_path / "nowhere.jsonl", out=tmp_path / "out",
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_raters_are_those_of_the_model_and_of_the_tables(tmp_path):
    votes = [(f"i{i}", f"r{r}", "ab"[(i + (r == 3 and i % 3 == 0)) % 2]) for i in range(30) for r in range(4)]
    path = tmp_path / "votes.csv"
    path.write_text("item,rater,choice\n" + "".join(",".join(vote) + "\n" for vote in votes))
    found = tt.raters(votes=path, out=str(tmp_path / "labels.csv"), raters_out=str(tmp_path / "raters.csv"))
    votes_of_file = read_votes(str(path), VoteFileColumns("item", "rater", "choice", "")).votes
    choice = choose_model(votes_of_file)
    model = fit_model(choice.name, votes_of_file, links=choice.links)
    assert found.model.accuracy.tolist() == model.accuracy.tolist()
    assert found.model.accuracy.argmin() == found.file.votes.raters.index("r3")
    labels = {row["item"]: row["label"] for row in csv.DictReader((tmp_path / "labels.csv").open())}
    assert labels == {f"i{i}": "ab"[i % 2] for i in range(30)}
    assert [row["rater"] for row in csv.DictReader((tmp_path / "raters.csv").open())] == [
        found.file.votes.raters[r] for r in found.by_interest()
    ]


def test_preferences_are_learnt_and_counted(tiny_model, tmp_path):
    data = preferences(tmp_path / "pairs.jsonl")
    result = tt.dpo(
        model=model(tiny_model("llama")), data=data, out=tmp_path / "run", batch_size=6, epochs=6.0, held_out=0.25,
        optimiser={"lr": 3e-3, "schedule": "constant"},
    )  # fmt: skip
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert result.margin is not None
    assert result.margin > 0
    assert result.metrics["pairs"] + result.metrics["held_out_pairs"] + result.dropped == 24


def test_rejection_sampling_raises_the_score_of_held_out_answers(tiny_model, tmp_path):
    prompts = questions(tmp_path / "prompts.jsonl", 24)
    with tt.prepare_rejection(
        model=model(tiny_model("llama")), prompts=prompts, reward=letters, out=tmp_path / "run", rounds=3, samples=6,
        sampling=SHORT, batch_size=6, held_out=0.25, optimiser={"lr": 3e-3, "schedule": "constant"}, epochs=4.0,
    ) as training:  # fmt: skip
        steps = list(training)
        result = training.finish()
    rounds = [step.metrics["score/kept"] for step in steps if "score/kept" in step.metrics]
    assert len(rounds) == 3
    assert result.metrics["prompts"] + result.metrics["held_out_prompts"] == 24
    assert result.score == steps[-1].metrics["held_out/score"]


def test_pretraining_makes_a_model_that_loads(tmp_path):
    rows = [{"text": f"The sun is a star and star {n} is far away."} for n in range(60)]
    result = tt.pretrain(
        data=write_jsonl(tmp_path / "text.jsonl", rows), out=tmp_path / "run", device="cpu", batch_size=4,
        max_length=32, shape={"vocabulary": 300, "hidden": 16, "layers": 1, "heads": 2, "context": 32},
    )  # fmt: skip
    assert result.rows > 0
    assert result.loss is not None
    assert result.load(device="cpu").context == 32
