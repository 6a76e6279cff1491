"""A reward is held against a study before it trains: measured, refused, weighed, and remembered."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from remarks import collected
from served import choices, serving

from tutelage.base import config
from tutelage.base.config.bases import TrustSettings
from tutelage.base.errors import TutelageError
from tutelage.commands import trust
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.line import main
from tutelage.commands.study import RaterKind
from tutelage.commands.trust import RECORD, measure_first
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointPairJudge
from tutelage.data.records import CompletionRecord, Messages, Prompt, user
from tutelage.data.rubrics import Criterion
from tutelage.engines.ranks.ranks import ALONE
from tutelage.people import Answer, Item, Plan, add_items, add_rater, create_study, open_store
from tutelage.people.answers import judged
from tutelage.people.store.bulk import AnswerRecord, write_answers
from tutelage.rewards.composite import WeightedReward
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Completion, Reward
from tutelage.rewards.rubric import RubricReward
from tutelage.rewards.rules import ExactMatch, LengthLimit

PAIRS = 40


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 pairs of a kind and another answer, of equal length: each of two raters prefers the other one in every
    tenth, so that they agree in eight of ten."""
    folder = tmp_path_factory.mktemp("study")
    fill(open_store(folder / "study.sqlite"))
    return folder


def fill(store: Any, kind: RaterKind = "human") -> None:
    """The study in a store, which is closed."""
    made = create_study(store, "kind", plan=Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0))
    prompts = [Prompt(f"p{n}", user(f"What is {n}?")) for n in range(PAIRS)]
    texts = {"a": "A dull answer", "b": "A kind answer"}
    answers = [CompletionRecord(f"p{n}{s}", f"p{n}", f"{texts[s]} {n}.", "m") for n in range(PAIRS) for s in "ab"]
    items = [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in range(PAIRS)]
    add_items(store, made.id, prompts, answers, items)
    for name in ("anna", "bert"):
        add_rater(store, made.id, name, kind=kind)
    told = [
        AnswerRecord(f"c{n}", who, (0, 1), Answer("left" if n % 10 == odd else "right", 1, key=f"{n}/{who}"), 1)
        for n in range(PAIRS)
        for who, odd in (("anna", 8), ("bert", 9))
    ]
    write_answers(store, made.id, told, source="test")
    store.close()


def kind(completions: Sequence[Completion]) -> list[float]:
    return [2.0 * ("kind" in one.answer) for one in completions]


def dull(completions: Sequence[Completion]) -> list[float]:
    return [float("dull" in one.answer) for one in completions]


def trusted(reward: Reward, study: Path, run: Path, *, anyway: bool = False) -> tuple[Reward, list[str]]:
    run.mkdir(exist_ok=True)
    lines: list[str] = []
    with collected(lines):
        record = measure_first(TrustSettings(trust=str(study), trust_anyway=anyway), run, lambda: reward)
    opened: Any = SimpleNamespace(path=run, ranks=ALONE)
    return trust.trusted(reward, record, opened), lines


def test_a_reward_that_agrees_is_put_on_the_scale_of_the_votes(study: Path, tmp_path: Path) -> None:
    """Nine of ten votes go to the kind answer, two points ahead: a weight of log(9) / 2."""
    found, lines = trusted(kind, study, tmp_path / "run")
    record = json.loads((tmp_path / "run" / RECORD).read_text())
    assert record["weight"] == pytest.approx(1.0986, rel=0.02)
    assert record["agreement"][0] == pytest.approx(0.9)
    assert record["raters"][0] == pytest.approx(0.8)
    assert record["snapshot"]["last_judgement"] == 2 * PAIRS
    assert lines[0].startswith("kind: agrees with 90% (")
    assert "of 80 votes on 40 pairs; two raters agree with 80%" in lines[0]
    scores = found([Completion("p", (), "kind"), Completion("p", (), "dull")])
    assert scores[0] == pytest.approx(2 * record["weight"])
    assert scores[1] == 0.0
    (tmp_path / "run" / RECORD).write_text(json.dumps(record | {"weight": 3.0}))
    again, silent = trusted(kind, study, tmp_path / "run")
    assert (again([Completion("p", (), "kind")])[0], silent) == (6.0, [])


def test_a_reward_that_people_contradict_is_refused_unless_asked_for(study: Path, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=r"agrees with 10% .* of the votes of 'kind', and its raters with 80%"):
        trusted(dull, study, tmp_path / "run")
    assert not (tmp_path / "run" / RECORD).exists()
    found, _ = trusted(dull, study, tmp_path / "run", anyway=True)
    assert found([Completion("p", (), "dull")])[0] == 1.0, "a contradicted reward is taken as it is"


def test_parts_that_read_columns_are_left_as_they_are_and_named(study: Path, tmp_path: Path) -> None:
    reward = WeightedReward(((0.5, kind), (3.0, ExactMatch("solution"))))
    found, lines = trusted(reward, study, tmp_path / "run")
    assert lines[-1].startswith("exact: not measured")
    (one,) = found([Completion("p", (), "kind", {"solution": "kind"})])
    assert one == pytest.approx(2 * 1.0986 + 3.0, rel=0.02), "the weight makes up for the half"
    with pytest.raises(TutelageError, match=r"The reward exact reads columns of the prompts \(solution\)"):
        trusted(ExactMatch("solution"), study, tmp_path / "other")


def test_a_judge_that_prefers_whatever_stands_first_is_found_out(study: Path, tmp_path: Path) -> None:
    def biased(body: dict[str, object], number: int) -> dict[str, object]:
        return choices("[[A]]")

    with serving(biased) as served:
        judge = PairwiseJudgeReward(EndpointPairJudge(PaidEndpoint(Endpoint(served.url, "m"))))
        with pytest.raises(TutelageError, match="agrees with 50%"):
            trusted(judge, study, tmp_path / "run")
        _, lines = trusted(judge, study, tmp_path / "run", anyway=True)
        assert len(served.asked) == 2 * PAIRS, "no reply is paid for twice"
    assert "prefers the answer shown first in 100%" in lines[-1]
    assert "100% of its verdicts turn" in lines[-1]


def test_a_study_that_cannot_tell_is_refused(study: Path, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="neither a database nor a folder of one"):
        trusted(kind, tmp_path, tmp_path / "run")
    few = open_store(tmp_path / "few.sqlite")
    create_study(few, "few")
    few.close()
    with pytest.raises(TutelageError, match=r"few.sqlite' has 0 pairs .* measured on 10 or more\. Let raters continue"):
        trusted(kind, tmp_path / "few.sqlite", tmp_path / "run")
    simulated = open_store(tmp_path / "simulated.sqlite")
    fill(simulated, kind="simulated")
    with pytest.raises(TutelageError, match=r"0 pairs that people's votes decide \(models and simulated raters do not"):
        trusted(kind, tmp_path / "simulated.sqlite", tmp_path / "run")
    with pytest.raises(TutelageError, match="Only the text of the answer"):
        trusted(LengthLimit(3, "tokens"), study, tmp_path / "run")


def test_improve_trains_on_what_the_study_trusts_and_begins_with_nothing_else(
    study: Path, tmp_path: Path, tiny_model: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "run"
    prompts.write_text("".join(json.dumps({"prompt": f"What is {n}?"}) + "\n" for n in range(4)))
    words = f"improve --model {tiny_model('llama')} --prompts {prompts} --out {out} --recipe grpo --set samples=2"
    words += " --steps 1 --batch-size 2 --sampling.max-new-tokens 4 --engine plain --device cpu --quiet"
    words += f" --trust {study}"
    assert main([*words.split(), "--reward", "rule:regex(pattern='.*dull.*')"]) == 2
    assert "agrees with 10%" in capsys.readouterr().err
    assert main([*words.split(), "--reward", "rule:regex(pattern='.*kind.*')"]) == 0
    step = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    weight = json.loads((out / RECORD).read_text())["weight"]
    assert step["score/mean"] == pytest.approx(weight * step["score/regex/mean"], abs=1e-6)
    answers = f" --model {tiny_model('llama')} --prompts {prompts} --samples 8 --batch-size 2 --trust {study}"
    answers += " --sampling.max-new-tokens 60 --engine plain --device cpu --quiet --reward"
    letter = "rule:regex(pattern='.*k.*')"  # of "kind", and in some of a tiny model's answers only
    for command in ("rejection", "dpo"):
        run = out.with_name(command)
        words = [command, *answers.split()]
        assert main([*words, "rule:regex(pattern='.*dull.*')", "--out", str(run)]) == 2
        assert "agrees with 10%" in capsys.readouterr().err
        assert main([*words, letter, "--out", str(run)]) == 0
        assert json.loads((run / RECORD).read_text())["weight"] == weight
    with pytest.raises(TutelageError, match=r"With --data .*--trust"):
        DpoSettings(model=config.Model("m"), data="d", out=out, trust="study")
    with pytest.raises(TutelageError, match="need --trust"):
        ImproveSettings(model=config.Model("m"), prompts="p", reward=("rule:format",), out=out, trust_anyway=True)


def test_a_reward_by_rubric_is_measured_on_a_study_that_keeps_rubrics(study: Path, tmp_path: Path) -> None:
    """A judge that decides as the raters do agrees with every vote that decides a pair, and with dropout too, since
    measurements leave no criterion out."""
    rubric = [{"criterion": "kind", "points": 2.0}, {"criterion": "short", "points": 1.0}]
    store = open_store(tmp_path / "study.sqlite")
    made = create_study(store, "criteria", kind="checklist", plan=Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0))
    prompts = [Prompt(f"p{n}", user(f"What is {n}?"), data={"rubric": rubric}) for n in range(20)]
    answers = [
        CompletionRecord(f"p{n}{s}", f"p{n}", text, "m")
        for n in range(20)
        for s, text in (("a", "dull"), ("b", "kind"))
    ]
    add_items(store, made.id, prompts, answers, [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in range(20)])
    for name in ("anna", "bert"):
        add_rater(store, made.id, name)
    said = judged({"kind": ["unmet", "met"], "short": ["met", "met"]})
    told = [
        AnswerRecord(f"c{n}", who, (0, 1), replace(said, key=f"{n}/{who}"), 1)
        for n in range(20)
        for who in ("anna", "bert")
    ]
    write_answers(store, made.id, told, source="test")
    store.close()
    asked: list[str] = []

    def judge(messages: Messages, response: str, criterion: Criterion) -> bool:
        asked.append(criterion.text)
        return criterion.text == "short" or response == "kind"

    reward = RubricReward(judge, at_once=1, dropout=0.5)
    weighted, lines = trusted(reward, tmp_path, tmp_path / "run")
    assert asked.count("kind") == asked.count("short") == 40
    assert any("agrees with 100%" in line for line in lines)
    record = json.loads((tmp_path / "run" / RECORD).read_text())
    assert record["agreement"][0] == 1.0
    assert record["columns"] == ["rubric"]
    assert isinstance(weighted, WeightedReward)
    assert [part for _, part in weighted.parts] == [reward]

    def unsure(messages: Messages, response: str, criterion: Criterion) -> bool | None:
        few = messages[-1].content in {f"What is {n}?" for n in range(unread)} and response == "dull"
        return None if few else judge(messages, response, criterion)

    unread = 4
    _, lines = trusted(RubricReward(unsure, at_once=1), tmp_path, tmp_path / "part")
    assert any(line.startswith("4 pairs left out") for line in lines)
    record = json.loads((tmp_path / "part" / RECORD).read_text())
    assert (record["pairs"], record["votes"], record["agreement"][0]) == (16, 32, 1.0)
    unread = 11
    with pytest.raises(TutelageError, match="9 pairs of 20"):
        trusted(RubricReward(unsure, at_once=1), tmp_path, tmp_path / "few")
    with pytest.raises(TutelageError, match="rubric"):  # the other study keeps none
        trusted(reward, study, tmp_path / "other")
