"""`tutelage sample` with a reward: the best of many, and test-time preference optimisation."""

from collections import Counter

import pytest
from offenders import for_each
from served import choices, serving
from tiny_commands import files, model, read_jsonl

from tutelage.base import config
from tutelage.base.config.sections import SearchSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.table import find
from tutelage.data.chat_endpoint import KEY
from tutelage.data.formats import load_completions, load_demonstrations, load_prompts

sample = find("sample")

ASKED = config.Sampling(temperature=1.0, max_new_tokens=6)


@pytest.fixture
def data(tmp_path):
    return files(tmp_path / "data")


def settings(base, data, out, **changes):
    usual = {"model": model(base), "prompts": data["prompts"], "out": out, "sampling": ASKED}
    return sample.settings(**usual | changes)


def test_the_best_of_many_are_kept_and_their_scores_are_told(tiny_model, data, tmp_path, capsys):
    base = tiny_model("llama")
    many = settings(base, data, tmp_path / "many", n=8, quiet=True)
    best = settings(base, data, tmp_path / "best", n=2, best_of=8, reward=("given_rewards:length",))
    assert sample.main(many) == sample.main(best) == 0
    rows = read_jsonl(tmp_path / "best" / "completions.jsonl")
    assert len(rows) == 2 * 8
    every = read_jsonl(tmp_path / "many" / "completions.jsonl")
    for row in rows:
        assert row["score"] == len(row["text"])
        same = [r for r in every if r["prompt_id"] == row["prompt_id"]]
        assert row["text"] in {r["text"] for r in same}, "the samples are those of plain sampling"
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        group = [r for r in every if r["prompt_id"] == first["prompt_id"]]
        order = sorted(((r["finished"], len(r["text"])) for r in group), reverse=True)
        assert [(r["finished"], r["score"]) for r in (first, second)] == order[:2]
    asked = {row["id"]: row["prompt"] for row in read_jsonl(tmp_path / "best" / "prompts.jsonl")}
    learnt = read_jsonl(tmp_path / "best" / "demonstrations.jsonl")
    assert [(row["prompt"], row["completion"]) for row in learnt] == [
        (asked[row["prompt_id"]], row["text"]) for row in rows if row["finished"]
    ], "what sft and distill learn from"
    assert not (tmp_path / "many" / "demonstrations.jsonl").exists()
    told = capsys.readouterr().err
    assert "Best of 8" in told
    assert "1.20 nats" in told
    assert load_completions(tmp_path / "best" / "completions.jsonl").records[0].sampling.endswith("best_of=8")


def test_a_reward_that_tells_nothing_apart_chooses_nothing(tiny_model, data, tmp_path, capsys):
    for reward, told in (("nothing_but_one", True), ("length", False)):
        more = {"best_of": 4, "reward": (f"given_rewards:{reward}",)}
        assert sample.main(settings(tiny_model("llama"), data, tmp_path / reward, **more)) == 0
        assert ("For 8 of 8 prompts all completions got the same score" in capsys.readouterr().err) is told


def test_a_small_model_is_told_that_it_cannot_follow(tiny_model, data, tmp_path, capsys):
    """A random model of a few thousand weights: the search runs, loses nothing, and says what it is worth."""
    base = tiny_model("llama", max_position_embeddings=4096)
    search = settings(
        base, data, tmp_path / "run", n=1, reward=("given_rewards:vowels",), test_time=SearchSettings(1, 2, 4)
    )
    assert sample.main(search) == 0
    rows = read_jsonl(tmp_path / "run" / "searches.jsonl")
    assert len(rows) == 8
    assert all(row["best"] >= row["best_sampled"] for row in rows)
    assert "compare with it" in capsys.readouterr().err
    assert len(read_jsonl(tmp_path / "run" / "completions.jsonl")) == 8


def test_a_model_without_room_for_the_critique_is_refused(tiny_model, data, tmp_path):
    search = settings(
        tiny_model("llama"), data, tmp_path / "run", reward=("given_rewards:length",), test_time=SearchSettings(1, 2)
    )
    with pytest.raises(TutelageError, match="positions, but the model has 96"):
        sample.main(search)


def test_an_endpoint_answers_and_its_key_is_not_written_down(data, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, "secret")

    def better_when_told(body, number):
        text = body["messages"][0]["content"]
        return choices(*("aaaa" if "[Instructions]" in text else f"b{'a' * i}" for i in range(body.get("n", 1))))

    out = tmp_path / "run"
    with serving(better_when_told) as served:
        asked = settings(
            "big-model",
            data,
            out,
            n=1,
            endpoint=served.url,
            reward=("given_rewards:vowels",),
            test_time=SearchSettings(2, 3),
        )
        assert sample.main(asked) == 0
    rows = read_jsonl(out / "completions.jsonl")
    assert {(row["text"], row["score"], row["round"], row["sampler"]) for row in rows} == {
        ("aaaa", 1.0, 1, "big-model")
    }
    learnt = load_demonstrations(out / "demonstrations.jsonl").records
    assert [one.response for one in learnt] == ["aaaa"] * len(rows), "revisions can be learnt"
    assert set(served.keys) == {"Bearer secret"}
    assert not any("secret" in file.read_text() for file in out.iterdir())


@for_each(
    [
        ({"best_of": 4}, "name it with --reward"),
        ({"reward": ("m:f",)}, "needs completions to select from"),
        ({"best_of": 2, "n": 3, "reward": ("m:f",)}, "fewer completions than the --n 3"),
        ({"best_of": 4, "test_time": SearchSettings(1), "reward": ("m:f",)}, "one of the two"),
        ({"test_time": SearchSettings(width=9)}, "without --test-time.rounds"),
        ({"best_of": 4, "n": 1, "reward": ("m:f",), "sampling": config.Sampling(temperature=0.0)}, "temperature 0"),
        ({"endpoint": "localhost:8000"}, "not an endpoint"),
    ]
)
def test_contradictions_are_refused(changes, told, data, tmp_path):
    with pytest.raises(TutelageError, match=told):
        sample.main(settings("m", data, tmp_path / "run", **changes))


@pytest.mark.parametrize(("n", "asked", "pairs"), [(2, 9, 1), (3, 3, 3), (3, 9, 3)])
def test_more_pairs_than_completions_make_are_said(tiny_model, data, tmp_path, capsys, n, asked, pairs):
    assert sample.main(settings(tiny_model("llama"), data, tmp_path / "out", n=n, pairs=asked)) == 0
    rows = read_jsonl(tmp_path / "out" / "comparisons.jsonl")
    of_prompts = Counter(row["prompt_id"] for row in rows)
    assert max(of_prompts.values()) == pairs, "completions differ for at least one prompt"
    assert (f"--pairs is {asked}" in capsys.readouterr().err) == (asked > pairs)


@pytest.mark.parametrize("varies", [False, True])
def test_what_an_environment_says_first_is_in_the_prompts(tiny_model, data, tmp_path, varies):
    """The answer of `reset` is added to the last message; where it varies, each episode has a prompt of its own."""
    which = "Varying" if varies else "Greeting"
    out = tmp_path / "out"
    ended = config.Sampling(temperature=1.0, max_new_tokens=200)
    asked = {"environment": f"given_environments:{which}", "sampling": ended, "n": 2, "quiet": True}
    assert sample.main(settings(tiny_model("qwen3"), data, out, **asked)) == 0
    before = load_prompts(data["prompts"]).records
    prompts, completions = (
        load_prompts(out / "prompts.jsonl").records,
        load_completions(out / "completions.jsonl").records,
    )
    assert len(prompts) == len(before) * (2 if varies else 1)
    said = {one.messages[-1].content for one in prompts}
    if varies:
        assert len(said) == len(prompts)
    else:
        assert not {one.id for one in prompts} & {one.id for one in before}
        assert said == {f"{one.messages[-1].content} Hello!" for one in before}
    assert {one.prompt_id for one in completions} == {one.id for one in prompts}
    assert all(len(one.steps) == 1 for one in completions)
