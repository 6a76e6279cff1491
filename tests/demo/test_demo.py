"""The whole loop on the embedded example, as a new user runs it, with a smaller model that learns less."""

import json
import resource
import runpy
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from docs.fences import ROOT, commands

import tutelage as tt
from tutelage.base.config import Shape
from tutelage.commands import watch
from tutelage.commands.line import main
from tutelage.commands.study_data import read_study
from tutelage.data import worlds
from tutelage.data.worlds import gold
from tutelage.demo.rounds import tutoring
from tutelage.people import list_questions, list_votes, open_store, open_study
from tutelage.people.selection import Selection
from tutelage.people.simulated_raters import panel
from tutelage.people.store import schema

SMALL = replace(
    tutoring.TutoringScale(),
    corpus_tokens=60_000,
    shape=Shape(vocabulary=800, hidden=32, layers=2, heads=2, context=192),
    demonstrations=200,
    train_prompts=120,
    answers=2,
    pairs=1,
    overlap=2,
    raters=6,
    reward_epochs=2.0,
    ppo_steps=3,
    ppo_batch=16,
    answer_tokens=32,
    test_prompts=24,
)
"""A scale that takes a few seconds."""
STAGES = ("pretrain", "sft", "sample", "judge", "reward", "improve", "evaluate")


def words(out: Path) -> list[str]:
    return ["demo", "--out", str(out)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a finished round, and what it printed."""
    out, told = tmp_path_factory.mktemp("demo") / "round", StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tutoring, "TutoringScale", lambda: SMALL)
        with redirect_stdout(told):
            assert main(words(out)) == 0
        yield out, told.getvalue()


def test_the_summary_holds_the_figures_of_every_stage(finished) -> None:
    out, _ = finished
    summary = json.loads((out / "summary.json").read_text())
    for section, key in (
        ("sft", "gold_mean"),
        ("sft", "gold_std"),
        ("policy", "gold_mean"),
        ("policy", "win_rate"),
        ("policy", "kl_per_sequence"),
        ("reward_model", "accuracy"),
        ("reward_model", "ceiling"),
    ):
        assert isinstance(summary[section][key], float), (section, key)
    low, high = summary["policy"]["win_rate_ci"]
    assert 0 <= low <= summary["policy"]["win_rate"] <= high <= 1
    assert summary["reward_model"]["accuracy"] <= 1
    assert set(STAGES) <= set(summary["seconds"])
    assert 100 < summary["peak_rss_mb"] <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def test_the_figures_are_those_of_the_answers(finished) -> None:
    """The summary can be computed anew from the answers that stand in the folder, by the gold utility itself."""
    out, _ = finished
    summary = json.loads((out / "summary.json").read_text())
    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_text().splitlines()]
    prompts = [row["prompt"] for row in rows]
    before, after = (gold(prompts, [row[side] for row in rows]) for side in ("before", "after"))
    assert summary["policy"]["gold_mean"] == pytest.approx(sum(after) / len(after), abs=1e-4)
    even = [b == pytest.approx(a, abs=1e-6) for a, b in zip(before, after, strict=True)]  # the sums round
    won = [0.5 if tied else float(b > a) for a, b, tied in zip(before, after, even, strict=True)]
    assert summary["policy"]["win_rate"] == pytest.approx(sum(won) / len(won), abs=1e-3)


def test_no_prompt_of_the_evaluation_was_judged_or_practised(finished) -> None:
    out, _ = finished
    sides = [
        {json.loads(line)["prompt"] for line in (out / "data" / name).read_text().splitlines()}
        for name in ("prompts_train.jsonl", "prompts_held_out.jsonl")
    ]
    assert not sides[0] & sides[1]
    judged = {json.loads(line)["prompt"] for line in (out / "judge" / "preferences.jsonl").read_text().splitlines()}
    assert judged <= sides[0]


def test_the_terminal_ends_with_the_table_the_answers_and_what_to_do_next(finished) -> None:
    _, told = finished
    for expected in ("win rate by gold", "Reward model:", "What to do next", "report.html", "tutelage chat"):
        assert expected in told


def test_the_models_load_with_plain_from_pretrained(finished) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    out, _ = finished
    for stage in ("pretrain", "sft", "improve"):
        AutoModelForCausalLM.from_pretrained(out / stage / "model")
    assert AutoModelForSequenceClassification.from_pretrained(out / "reward" / "model").config.num_labels == 1


def test_the_commands_of_the_tutorial_run_on_it(finished, tmp_path, monkeypatch) -> None:
    """Those that neither make the demonstration nor wait for people, in their order."""
    out, _ = finished
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(out)
    monkeypatch.chdir(tmp_path)
    small = {
        "improve": "--steps 1 --batch-size 4 --sampling.max-new-tokens 8 --quiet",
        "dpo": "--epochs 0.05 --quiet",
        "evaluate": "--sampling.max-new-tokens 8 --quiet",
    }
    page = [command.words for command in commands(ROOT / "docs" / "rlhf_in_one_sitting.md")]
    run = [words for words in page if words[0] not in ("demo", "collect") and "--help" not in words]
    assert {words[0] for words in run} == {*small, "report", "recipes"}
    for words in run:
        assert main([*words, *small.get(words[0], "").split()]) == 0, words
    assert (tmp_path / "runs" / "dpo-evaluate" / "summary.json").is_file()


def test_a_second_run_skips_what_is_done_and_another_seed_is_refused(finished, capsys) -> None:
    out, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    began = time.monotonic()
    assert main(words(out)) == 0
    assert capsys.readouterr().err.count("done already") == len(STAGES)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    assert time.monotonic() - began < 60
    assert main([*words(out), "--seed", "1"]) == 2
    assert "other settings" in capsys.readouterr().err


USERS = 40
LEARNING = {
    "reward": "--epochs 8 --batch-size 16",
    "improve": "--steps 2 --batch-size 8 --sampling.max-new-tokens 32",
    "evaluate": "--limit 8 --sampling.max-new-tokens 32",
}
"""What makes the commands of the circle quick."""


class Circle:
    """The page about learning from use, whose commands run in their order: users come when a model is served, and what
    follows `watch` on the page happens while it waits for the second round."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        page = ROOT / "docs" / "howto" / "learning_from_use.md"
        code = next(block for block in page.read_text().split("```python\n") if "def visit" in block)
        (folder / "users.py").write_text(code.split("```")[0])
        self.use, self.told, self.users = folder / "runs" / "use", StringIO(), 0
        self.acknowledged: list[dict[str, object]] = []
        self.served: dict[str, dict[str, object]] = {}
        skipped = (("demo",), ("collect", "serve"), ("collect", "consent"), ("collect", "forget"))
        self.steps = iter(
            words
            for words in (command.words for command in commands(page))
            if words[:1] not in skipped and words[:2] not in skipped
        )
        patch.setattr(watch, "run", lambda words: main(words[3:]))  # in this process: its imports take seconds
        patch.setattr(watch, "interruptible", self.waiting)

    def run(self) -> None:
        for words in self.steps:
            if words[0] == "serve":
                self.visit(dict(zip(words[1::2], words[2::2], strict=True)))
            elif words[0] == "watch":
                assert main([*map(self.quick, words)]) == 130  # the interrupt after the second round
            elif words[0] == "promote":
                self.let_a_day_pass()
                assert main([*words]) == 1
            else:
                assert main([*words]) == 0, words

    def quick(self, word: str) -> str:
        """A word of `watch`: the votes of these users, and a shorter training."""
        if " " not in word:
            return str(2 * USERS) if word == "3000" else word
        return f"{word} {LEARNING[word.split()[1]]} --model.device cpu --quiet"

    @contextmanager
    def waiting(self):
        def sleep(seconds: float) -> None:
            if self.users > USERS:
                raise KeyboardInterrupt
            self.run()

        yield sleep

    def visit(self, flags: dict[str, str]) -> None:
        """Serve the model or both to as many new users as before, by the code of the page."""
        settings = {flag.removeprefix("--"): value for flag, value in flags.items()}
        settings |= {"split": float(settings["split"])} if "split" in settings else {}
        post = httpx.Client.post

        def record(client: httpx.Client, url: str, **fields: object) -> httpx.Response:
            response = post(client, url, **fields)
            if response.status_code == 200 and url == "/v1/feedback":
                self.acknowledged.append(fields["json"])
            elif response.status_code == 200:
                self.served[response.json()["id"]] = fields["json"] | response.json()
            return response

        with tt.serve(**settings, port=0) as server, pytest.MonkeyPatch.context() as patch:
            patch.setattr(httpx.Client, "post", record)
            patch.setattr(sys, "argv", ["users.py", str(self.users), str(self.users + USERS), server.url])
            runpy.run_path("users.py")
        self.users += USERS

    def let_a_day_pass(self) -> None:
        """Before the last completion: the clock of a split test is that of its responses."""
        table, day = schema.completion, 24 * 3_600_000
        older = table.update().where(table.c.id < sa.select(sa.func.max(table.c.id)).scalar_subquery())
        with closing(open_store(self.use / "study.sqlite")) as store, store.write() as connection:
            connection.execute(older.values(created=table.c.created - day, said=table.c.said - day))

    def text(self, completion: object) -> str:
        return self.served[completion]["choices"][0]["message"]["content"]


def enlarged(prompts: list[str], completions: list[str]) -> list[float]:
    """Gold for the users and raters of a model whose answers differ by tenths: the noise of a person is 1.4."""
    return [20 * (value + 3) for value in gold(prompts, completions)]


@pytest.fixture(scope="module")
def circle(finished, tmp_path_factory) -> Iterator[Circle]:
    """The circle, gone round twice."""
    folder = tmp_path_factory.mktemp("use")
    (folder / "runs").mkdir()
    (folder / "runs" / "demo").symlink_to(finished[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(worlds, "gold", enlarged)
        whole = Circle(folder, patch)
        with redirect_stdout(whole.told):
            whole.run()
        yield whole


@pytest.mark.long
def test_what_was_acknowledged_to_users_is_asked_of_raters(circle) -> None:
    said = Counter()
    for each in circle.acknowledged:
        text = circle.text(each["completion"])
        said[text,] += "thumb" in each
        for other in [each[key] for key in ("better",) if key in each]:
            said[tuple(sorted((text, other)))] += 1
        if "preferred" in each:
            said[tuple(sorted((text, circle.text(each["preferred"]))))] += 1
    with closing(open_store(circle.use / "study.sqlite")) as store:
        asked = Counter(tuple(sorted(each.texts)) for each in list_questions(store, open_study(store).id))
    assert asked == +said
    assert sum(asked.values()) > 4 * USERS


def beyond_chance(count: int) -> float:
    """The share that so many coins reach with three standard deviations."""
    return 0.5 + 1.5 / count**0.5


@pytest.mark.long
def test_the_labels_agree_with_gold(circle) -> None:
    """Those of ordinary raters, and those that the reward model learns; the adversarial rater's do not."""
    with closing(open_store(circle.use / "study.sqlite")) as store:
        study = open_study(store)
        votes, questions = list_votes(store, study.id), {each.key: each for each in list_questions(store, study.id)}
    kinds = {rater.name: rater.kind for rater in panel(seed=0, n=6)}
    agree: dict[str, list[bool]] = {"ordinary": [], "careless": [], "adversarial": []}
    for vote in votes:
        question = questions[vote.item]
        if vote.rater_kind == "simulated" and len(question.texts) == 2 and vote.verdict in ("a", "b"):
            a, b = gold([question.messages[-1].content] * 2, question.texts)
            if a != b:
                agree[kinds[vote.rater]].append((a > b) == (vote.verdict == "a"))
    shares = {kind: sum(each) / len(each) for kind, each in agree.items()}
    assert shares["ordinary"] > beyond_chance(len(agree["ordinary"]))
    assert 1 - shares["adversarial"] > beyond_chance(len(agree["adversarial"]))
    selection = Selection(kinds=("human", "simulated"))
    rows = read_study(
        str(circle.use / "study.sqlite"), "", selection, rows=("votes",), held_out=0.1, seed=0, run=circle.use
    )
    pairs = [*rows.train, *rows.held_out]
    values = [gold([pair.messages[-1].content] * 2, [pair.chosen, pair.rejected]) for pair in pairs]
    different = [chosen > rejected for chosen, rejected in values if chosen != rejected]
    assert sum(different) / len(different) > beyond_chance(len(different))


@pytest.mark.long
def test_the_second_round_learns_from_all_that_was_said_until_then(circle) -> None:
    runs = circle.use.parent
    first, second = (json.loads((runs / f"reward-{n}" / "summary.json").read_text()) for n in (1, 2))
    assert second["pairs"] + second["held_out_pairs"] > 1.5 * (first["pairs"] + first["held_out_pairs"])
    steps = [json.loads(line) for line in (runs / "reward-2" / "metrics.jsonl").read_text().splitlines()][-5:]
    accuracy = sum(each["accuracy"] for each in steps) / len(steps)
    assert accuracy > beyond_chance(second["pairs"])  # of its own pairs; the held-out ones are too few to say so
    told = circle.told.getvalue()
    for number in (1, 2):
        assert (runs / f"evaluation-{number}" / "summary.json").is_file()
        assert f"tutelage promote runs/ppo-{number} --outcomes runs/use" in told


@pytest.mark.long
def test_the_decision_is_that_of_what_users_said(circle, capsys) -> None:
    """The evidence is counted anew from what users were told had arrived. It suffices for a low standard only."""
    with closing(open_store(circle.use / "study.sqlite")) as store, store.read() as connection:
        arms = dict(connection.execute(sa.select(schema.completion.c.key, schema.completion.c.arm)).all())
    thumbs = {"a": [], "b": []}
    for each in circle.acknowledged:
        if "thumb" in each and (arm := arms[each["completion"]]):
            thumbs[arm].append(each["thumb"] == "up")
    assert sum(map(len, thumbs.values())) == USERS
    words = ["promote", "runs/ppo-1", "--outcomes", "runs/use", "--split", "0.5"]
    assert main([*words, "--json"]) == 1
    test = json.loads(capsys.readouterr().out)["test"]
    assert test["users"] == [len(thumbs["a"]), len(thumbs["b"])]
    assert test["means"] == pytest.approx([sum(each) / len(each) for each in thumbs.values()])
    assert main(["watch", "runs/use", "--votes", "1", "--offer", "runs/ppo-1", "--split", "0.5"]) == 0
    assert test["conditions"][0]["finding"] in capsys.readouterr().out
    assert not (circle.use.parent / "ppo-1" / "promotions.json").exists()
    assert main([*words, "--margin", "-0.95", "--tolerance", "0.95"]) == 0
    assert "is promoted" in capsys.readouterr().out
    (decision,) = json.loads((circle.use.parent / "ppo-1" / "promotions.json").read_text())["decisions"]
    assert decision["test"]["means"] == test["means"]
    assert main(["promote", "runs/ppo-1", "--undo"]) == 0
