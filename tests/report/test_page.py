"""The page as a whole: well formed, alone in the world, deaf to hostile text, content with whatever is there."""

import json
import math
import shutil
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.commands.line import main
from tutelage.report.facts import headline, verdict
from tutelage.report.folders import KINDS, RoundContent, RunContent, StageContent, read
from tutelage.report.page import render, write_report

from .fake_round import make_round, write, write_rows

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>{{ 7*7 }}&amp;\x00\u202e"


class Page(HTMLParser):
    """Checks that every element is closed in order, and collects what the tests ask about."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_round(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_round(tmp_path_factory.mktemp("unfinished"), unfinished=True)


@pytest.fixture(scope="session")
def brief(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished round with eight lines of each table: most of the time of a page goes into its curves."""
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("brief") / "round")
    for file in folder.rglob("*.jsonl"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:8]))
    return folder


def page(folder: Path) -> Page:
    return Page(render(read(folder)))


def test_the_story_is_told_in_order(finished: Path) -> None:
    text = page(finished).text
    stages = ["Pretraining", "Supervised fine-tuning", "Sampling", "Judging", "Reward model", "Policy optimisation"]
    places = [text.rindex(f"{number} {title}") for number, title in enumerate([*stages, "Evaluation"], 1)]
    assert places == sorted(places)
    assert "wins 86% of the comparisons (95% interval 82–90%)" in text
    assert "+1.9 standard deviations" in text
    assert "72% of held-out votes predicted; 75% is possible" in text
    assert "Largest losses" in text


def test_nothing_is_fetched_and_nothing_runs(finished: Path) -> None:
    html = write_report(finished).read_text(encoding="utf-8")
    found = Page(html)
    links = [value for name, value in found.attributes if name in ("src", "href", "srcset", "action", "xlink:href")]
    assert links
    assert all(link.startswith("#") and link[1:] in found.ids for link in links)
    assert "script" not in found.tags
    assert not found.tags & {"link", "img", "iframe", "object", "embed", "form", "base"}
    assert "url(" not in html
    assert "@import" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_the_same_folder_gives_the_same_page(finished: Path) -> None:
    assert render(read(finished)) == render(read(finished))


def poisoned(value: object) -> object:
    """The same JSON with hostile text in place of every text, and as a further key of every object."""
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()} | {EVIL: 0.5}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return EVIL + value if isinstance(value, str) else value


def poison(folder: Path) -> None:
    for file in folder.rglob("*.json*"):
        lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        told = [poisoned(json.loads(line)) for line in lines]
        if file.name == "round.json":
            stages = [
                {"name": EVIL, "title": EVIL, "folder": kind, "kind": kind, "status": "done"} for kind in (*KINDS, "x")
            ]
            told = [{"title": EVIL, "about": EVIL, "command": EVIL, "policy": EVIL, "stages": stages}]
        if file.name == "config.json":
            told = [row | {"format": "tutelage-run/1"} for row in told]
        file.write_text("".join(json.dumps(row) + "\n" for row in told))


def test_hostile_text_stays_text(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "evil")
    poison(folder)
    html = write_report(folder).read_text(encoding="utf-8")
    clean, hostile = page(finished), Page(html)
    assert hostile.tags <= clean.tags
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    assert "\x00" not in html
    assert "\u202e" not in html
    assert hostile.text.count("<script>alert(1)</script>") > 50
    assert "49" not in hostile.text.split("onerror")[1][:40], "text is never a template"


def test_half_of_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"format": "tutelage-run/1", "settings": {"data": "\ud800"}})
    assert "�" in write_report(tmp_path).read_text(encoding="utf-8")


def test_an_interrupted_round_says_where_it_stands(unfinished: Path) -> None:
    text = page(unfinished).text
    assert "5 of 7 stages finished; now at improve." in text
    assert "still running, or interrupted at step 64" in text
    assert "not begun" in text
    assert "win rate" not in text.split("Words used here")[0]


DAMAGES = {"empty": b"", "broken": b'{"step": 1,\n{"st', "list": b"[1, 2]\n"}


@for_each(product(["gone", *DAMAGES], [*(f"{kind}/*" for kind in KINDS), "summary.json"]))
def test_whatever_is_missing_is_absent(damage: str, place: str, brief: Path) -> None:
    whole = {file: file.read_bytes() for file in brief.glob(place)}
    assert whole
    try:
        for file in whole:
            file.unlink()
            if damage != "gone":
                file.write_bytes(DAMAGES[damage])
        text = page(brief).text
    finally:
        for file, content in whole.items():
            file.write_bytes(content)
    assert "From babble to tutor" in text
    if damage == "broken" and place != "summary.json":
        assert "could not be read" in text


@for_each(KINDS)
def test_a_single_run_of_every_kind(kind: str, finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished / kind, tmp_path / "anywhere")
    told = read(folder)
    assert told.alone
    expected = "sft" if kind == "pretrain" else kind  # from the metrics alone the two look the same
    assert told.stages[0].kind == expected
    assert page(folder).text


def test_a_run_in_another_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"settings": {"model": {"path": "small"}}})
    with pytest.raises(TutelageError, match=r"tutelage-run/1"):
        read(tmp_path)


def test_a_run_with_a_teacher_is_a_distillation(tmp_path: Path) -> None:
    """Although it has the curves of policy optimisation."""
    write(
        tmp_path / "config.json",
        {"format": "tutelage-run/1", "settings": {"teacher": "large", "model": {"path": "small"}}},
    )
    rows = [{"step": step, "divergence": 1 / step, "kl/reference": 9 / step, "entropy": 2.0} for step in (1, 2, 3)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    assert read(tmp_path).stages[0].kind == "distill"
    text = page(tmp_path).text
    for part in ("Distillation", "Divergence from the teacher", "KL to the teacher"):
        assert part in text, part


def test_the_command_in_the_command_says_what_a_run_did(tmp_path: Path) -> None:
    write(
        tmp_path / "config.json",
        {"format": "tutelage-run/1", "settings": {}, "command": ["tutelage", "pretrain", "--data", "x"]},
    )
    write_rows(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 2.0}])
    assert read(tmp_path).stages[0].kind == "pretrain"


def test_a_line_cut_short_by_a_crash_is_counted(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished / "improve", tmp_path / "improve")
    content = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(content[:-40])
    (folder / "summary.json").unlink()
    text = page(folder).text
    assert "metrics.jsonl: 1 of 150 lines could not be read" in text
    assert "interrupted at step 149" in text


def test_a_step_written_twice_counts_once_as_written_last(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": s, "loss": v} for s, v in ((1, 9), (2, 8), (3, 7), (2, 5))])
    assert [(row["step"], row["loss"]) for row in read(tmp_path).stages[0].run.metrics] == [(1, 9), (2, 5), (3, 7)]


def test_metrics_nobody_foresaw_are_shown(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": s, "novel/thing": s * 0.5, "loss": None} for s in range(1, 4)])
    text = page(tmp_path).text
    assert "novel/thing 0.5 → 1.5" in text
    assert "loss was not a finite number at step 1" in text


@for_each(
    [
        ("{", "JSON"),
        ("[]", "needs a name"),
        ('{"stages": 3}', "needs a name"),
        ('{"stages": [{"kind": "sft"}]}', "needs a name"),
    ]
)
def test_a_round_of_another_form_is_refused(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "round.json").write_text(content)
    with pytest.raises(TutelageError, match=told) as caught:
        write_report(tmp_path)
    assert "round.json" in str(caught.value)


def test_folders_that_hold_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="neither a run"):
        write_report(tmp_path)
    with pytest.raises(TutelageError, match="no folder"):
        write_report(tmp_path / "absent")
    (run := tmp_path / "improve").mkdir()
    write(run / "metrics.jsonl", {"step": 1})
    for name in ("model", "checkpoints/step-1", "adapter"):
        (run / name).mkdir(parents=True)
    write(run / "model" / "config.json", {"model_type": "llama"})
    write(run / "checkpoints" / "step-1" / "checkpoint.json", {"step": 1})
    write(run / "adapter" / "adapter_config.json", {})
    for folder in ("model", "checkpoints/step-1", "adapter"):
        with pytest.raises(TutelageError, match=f"{folder} holds a model, .* which is {run}"):
            write_report(run / folder)
    write(tmp_path / "config.json", {})
    (tmp_path / "report.html").mkdir()
    with pytest.raises(TutelageError, match="Cannot write"):
        write_report(tmp_path)


def test_a_round_that_has_only_begun(tmp_path: Path) -> None:
    write(tmp_path / "round.json", {"stages": [{"name": "pretrain"}, {"name": "sft"}]})
    text = page(tmp_path).text
    assert "0 of 2 stages finished." in text
    assert text.count("not begun") == 4


def test_a_round_that_was_stopped_by_an_error(tmp_path: Path) -> None:
    stages = [{"name": "sft", "status": "done"}, {"name": "reward", "status": "failed"}, {"name": "improve"}]
    write(tmp_path / "round.json", {"stages": stages})
    assert "1 of 3 stages finished; stopped by an error in reward." in page(tmp_path).text


def test_a_single_measurement_makes_no_chart(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "held_out/loss": 1.1}])
    write(tmp_path / "summary.json", {})
    found = page(tmp_path)
    assert "Loss 2 → 1" in found.text
    assert "Perplexity" not in found.text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    *("step", "seconds", "loss", "held_out/loss", "held_out/accuracy", "score/mean", "gold/mean", "entropy"),
    *("length/mean", "kl/reference", "accuracy", "accuracy_interval", "ceiling", "ece", "calibration"),
    *("predicted", "observed", "n", "columns", "rows", "name", "values", "note", "raters", "votes", "reliability"),
    *("interval", "left_rate", "truth", "flags", "agreement", "agreement_interval", "alpha", "items", "ties", "prompt"),
    *("completion", "before", "after", "gold_before", "gold_after", "score_before", "score_after", "ended_after"),
    *("score", "settings", "command", "curves", "mean", "low", "high"),
]
objects = st.dictionaries(
    st.sampled_from(KEYS), anything | st.lists(st.dictionaries(st.sampled_from(KEYS), anything, max_size=4), max_size=3)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(objects, objects, objects, st.lists(objects, max_size=6), st.lists(objects, max_size=4), st.sampled_from(KINDS))
def test_values_of_any_kind_never_break_the_page(
    config: dict[str, object],
    summary: dict[str, object],
    judgements: dict[str, object],
    metrics: list[dict[str, object]],
    rows: list[dict[str, object]],
    kind: str,
) -> None:
    steps = tuple({**row, "step": i} for i, row in enumerate(metrics))
    run = RunContent(config, summary, judgements, steps, samples=tuple(rows), answers=tuple(rows))
    told = RoundContent(
        "t",
        (StageContent("s", kind, "", "running", None, run), StageContent("s", kind, "", "failed", 1.0, run)),
        summary,
    )
    Page(render(told))


def test_the_verdict_follows_the_interval() -> None:
    def told(low: float, high: float) -> str:
        done = StageContent("evaluate", "evaluate", "", "done", 1.0, RunContent())
        summary = {"policy.win_rate": (low + high) / 2, "policy.win_rate_ci": [low, high]}
        return verdict(RoundContent("t", (done,), summary))

    assert "answers better than" in told(0.55, 0.7)
    assert "answers worse than" in told(0.3, 0.45)
    assert "neither clearly better nor clearly worse" in told(0.45, 0.6)


def test_flat_and_nested_summaries_say_the_same(tmp_path: Path) -> None:
    figures = {"policy": {"win_rate": 0.8, "kl_per_sequence": 3.0}, "reward_model": {"accuracy": 0.7}}
    flat = {f"{group}.{key}": value for group, inner in figures.items() for key, value in inner.items()}
    pages = []
    for number, summary in enumerate((figures, flat)):
        write(tmp_path / str(number) / "round.json", {"title": "t", "stages": []})
        write(tmp_path / str(number) / "summary.json", summary)
        pages.append([(fact.name, fact.value) for fact in headline(read(tmp_path / str(number)))])
    assert pages[0] == pages[1] == [("win rate", "80%"), ("KL", "3 nats"), ("reward model", "70%")]


def test_the_command_prints_the_path(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(finished)]) == 0
    assert capsys.readouterr().out.strip() == str(finished / "report.html")
    assert main(["report", str(finished / "absent")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_long_runs_make_pages_of_reasonable_size(tmp_path: Path) -> None:
    names = ("score/mean", "gold/mean", "kl/reference", "entropy", "length/mean", "grad_norm")
    rows = [{"step": s, **{name: math.sin(s * (i + 1)) for i, name in enumerate(names)}} for s in range(6000)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    assert write_report(tmp_path).stat().st_size < 1_000_000


def test_completions_are_read_with_their_prompts(tmp_path: Path) -> None:
    prompts = [
        {"id": "p1", "prompt": "Why rain?"},
        {"id": "p2", "messages": [{"role": "user", "content": "Why snow?"}]},
    ]
    rows = [
        {"id": f"{p}{i}", "prompt_id": p, "text": f"{p} {i}", "finished": i > 0} for p in ("p1", "p2") for i in (0, 1)
    ]
    write_rows(tmp_path / "prompts.jsonl", prompts)
    write_rows(tmp_path / "completions.jsonl", rows)
    (stage,) = read(tmp_path).stages
    assert (stage.kind, stage.status) == ("sample", "done")
    text = page(tmp_path).text
    assert "Why rain? sample 1 cut off p1 0 sample 2 p1 1" in text
    assert "Why snow? sample 1 cut off p2 0" in text


def test_the_ceiling_of_the_judgements_is_told_to_the_reward_model(tmp_path: Path) -> None:
    write(tmp_path / "round.json", {"stages": [{"name": "judge"}, {"name": "reward"}]})
    write(tmp_path / "judge" / "summary.json", {"ceiling": 0.77})
    write(tmp_path / "reward" / "summary.json", {"accuracy": 0.7, "accuracy_interval": [0.66, 0.74]})
    assert "Accuracy against its ceiling" in page(tmp_path).text
    assert read(tmp_path).stages[1].run.summary["ceiling"] == 0.77


def test_training_accuracy_is_not_taken_for_held_out_accuracy(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 0.6, "accuracy": 0.99, "margin": 1.0}])
    write(tmp_path / "summary.json", {"accuracy": 0.99})
    assert "held-out accuracy 9" not in page(tmp_path).text


def test_lines_without_a_step_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 2.0}, {"loss": 1.0}])
    assert "some lines have no step" in page(tmp_path).text


def test_answers_of_one_model_alone(tmp_path: Path) -> None:
    write_rows(tmp_path / "answers.jsonl", [{"prompt": "Why?", "after": "Because.", "gold_after": 1.5}])
    text = page(tmp_path).text
    assert "Why? policy gold 1.50 Because." in text
    assert "Before and after" not in text


def test_the_truth_about_simulated_raters_stands_beside_the_estimate(tmp_path: Path) -> None:
    """People's reliability in truth is unknown, and who judges steps does not choose a side: no columns for them."""
    rater = {"name": "Amina", "votes": 165, "reliability": 0.93, "interval": [0.89, 0.96], "truth": 0.85}
    columns = ("true share of right votes", "chose left")
    for row, shown in ((rater, (True, False)), ({**rater, "truth": None, "left_rate": 0.4}, (False, True))):
        write(tmp_path / "judgements.json", {"raters": [row]})
        text = page(tmp_path).text
        assert tuple(column in text for column in columns) == shown
        assert ("93% (89–96%) 85%" in text) == shown[0]


def test_a_stage_is_explained_in_its_own_words(tmp_path: Path) -> None:
    write(tmp_path / "round.json", {"stages": [{"name": "judge", "about": "Raters judge steps."}, {"name": "sft"}]})
    text = page(tmp_path).text
    assert "Raters judge steps." in text
    assert "side by side in random order" not in text
    assert "learns to answer like them" in text


def test_curves_of_a_comparison_are_one_figure(tmp_path: Path) -> None:
    curves = {"steps": {"mean": [0.1, 0.8], "low": [0, 0.7], "high": [0.2, 0.9]}, "outcome": {"mean": ["x"]}}
    write(tmp_path / "round.json", {"stages": [{"name": "compare", "kind": "compare"}]})
    write(tmp_path / "compare" / "summary.json", {"curves": curves, "seeds": 2})
    found = page(tmp_path)
    assert "Solved over the steps" in found.text
    assert "outcome" not in found.text
    assert "0.7" not in found.text, "the curves are not listed as figures too"
