"""Every command that a page or a help shows is run: here on tiny models and files, or by the test named for it."""

import builtins
import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from docs.fences import ROOT, SHOWN, Command
from tiny_commands import TOPICS, rate, write_jsonl

from tutelage.commands.line import main

IN_ORDER = {
    "docs/howto/align_to_a_team.md": "commands/test_howto.py",
    "docs/howto/custom_reward.md": "commands/test_howto.py",
    "docs/howto/learning_from_use.md": "demo/test_demo.py",
    "docs/howto/votes_to_reward.md": "commands/test_howto.py",
}
"""Pages whose commands a test runs one after the other, and its file."""


class Elsewhere(NamedTuple):
    """Commands that cannot run here, by a pattern, and the file of the test that runs the same."""

    pattern: str
    test: str
    why: str


ELSEWHERE = (
    Elsewhere("collect serve .*", "commands/test_collect_server.py", "it serves until it is stopped"),
    Elsewhere("collect init .* --live .*", "commands/test_collect_live.py", "it asks models that are served"),
    Elsewhere("collect invite .*--smtp .*", "people/web/test_serving.py", "it asks a mail server"),
    Elsewhere(
        "collect (init|judge) runs/criteria .*", "commands/collect/test_judge.py", "it needs rubrics and an endpoint"
    ),
    Elsewhere("judge align .*", "commands/judge/test_run.py", "it asks an endpoint"),
    Elsewhere("collect webhook .*--test.*", "commands/collect/test_connections.py", "it calls an address"),
    Elsewhere("serve .*", "rollout/serving/test_policy_server.py", "it serves until it is stopped"),
    Elsewhere("chat --model smollm2", "models/test_gguf_reader.py", "it needs a package of 93 MB"),
    Elsewhere("watch .*", "commands/test_watch.py", "it waits until people have said enough"),
    Elsewhere("demo.*", "demo/test_demo.py", "it trains for minutes; the test has a smaller one"),
    Elsewhere("lab .*", "demo/lab/test_experiments.py", "it trains for minutes; the test has a smaller one"),
    Elsewhere("doctor --endpoint .*", "commands/doctor/test_endpoint.py", "it asks an endpoint"),
    Elsewhere("sft --data runs/study .*", "commands/test_study_data.py", "raters must have written answers"),
    Elsewhere("evaluate .*--tasks .*", "commands/evaluate/test_harness.py", "it needs lm-eval"),
    Elsewhere("evaluate .*--reward-bench .*", "commands/evaluate/test_reward_benchmark.py", "it needs a benchmark"),
    Elsewhere("board .*", "commands/test_board.py", "it serves until it is stopped"),
    Elsewhere("compare .*", "commands/compare/test_run.py", "it needs runs of several recipes and seeds"),
    Elsewhere(
        "improve .*(--environment|--tools|--agent) .*",
        "train/rl/test_multi_turn.py",
        "it needs functions and a template",
    ),
    Elsewhere(".*--seeds .*", "commands/compare/test_run.py", "it trains several times"),
    Elsewhere("push .* --public", "commands/test_push.py", "it writes to a hub"),
    Elsewhere(".*(--rollouts|--teacher) http.*", "commands/test_generators.py", "it asks a server"),
    Elsewhere(".*--rollouts vllm.*", "commands/test_generators.py", "it needs vLLM"),
    Elsewhere(".*--processes .*", "engines/ranks/test_equality.py", "it starts several processes"),
    Elsewhere(".*/shared/.*", "test_deploy.py", "it runs on several machines"),
    Elsewhere(".* runs/demo/.*", "demo/test_demo.py", "it goes on from the demo's folder"),
    Elsewhere("report runs/(demo|mine)", "demo/test_demo.py", "it goes on from the demo's folder"),
)
QUICK = {
    "pretrain": "--batch-size 4 --shape.vocabulary 300 --shape.hidden 16 --shape.layers 1 --shape.heads 1",
    "sft": "--optimiser.lr 1e-3 --epochs 1 --samples 1 --rouge 1 --sampling.max-new-tokens 4",
    "reward": "--epochs 1 --batch-size 8",
    "dpo": "--epochs 1 --batch-size 8",
    "improve": "--steps 1 --batch-size 2 --sampling.max-new-tokens 4",
    "distill": "--steps 1 --batch-size 2 --sampling.max-new-tokens 4",
    "rejection": "--rounds 1 --sampling.max-new-tokens 4",
    "sample": "--sampling.max-new-tokens 4 --sampling.top-k 4",
    "evaluate": "--sampling.max-new-tokens 4",
    "iterate": "--sampling.max-new-tokens 4",
    "chat": "--sampling.max-new-tokens 4",
}
"""What makes a command quick. Nothing else is changed in it, and none of it is on the pages."""


def elsewhere(command: Command) -> Elsewhere | None:
    """Where a command is run that cannot run here."""
    text = " ".join(command.words)
    return next((one for one in ELSEWHERE if re.fullmatch(one.pattern, text)), None)


def kind(command: Command) -> tuple[str, ...]:
    """What two commands have in common that need not both be run: the name, its flags, and the values that choose what
    it does."""
    words = command.words
    flags = tuple(word for word in words if word.startswith("--"))
    chosen = tuple(words[n + 1] for n, word in enumerate(words) if word in ("--recipe", "--kind", "--to", "--loss"))
    start = words[: 2 if words[0] in ("collect", "plan", "doctor") else 1]
    return (*start, *flags, *chosen)


def shown() -> Iterator[Command]:
    """The commands that are run here, each kind once."""
    known = set()
    for command in SHOWN:
        if elsewhere(command) is None and command.page not in IN_ORDER and kind(command) not in known:
            known.add(kind(command))
            yield command


HERE = list(shown())


@pytest.fixture(scope="module")
def world(tiny_model, tmp_path_factory):
    """The folder of a reader who has done everything once: files, a study that was answered, and finished runs."""
    folder = tmp_path_factory.mktemp("reader")
    model, asked = (
        tiny_model("llama", words={"chat": True}),
        [f"What is {topic}{mark}" for topic in TOPICS for mark in "?!"],
    )
    (folder / "path" / "to").mkdir(parents=True)
    for name in ("MODEL", "path/to/model", "path/to/student", "path/to/teacher"):
        (folder / name).symlink_to(model)
    rows = {
        "demonstrations": [{"prompt": one, "completion": "It is far."} for one in asked],
        "pairs": [{"prompt": one, "chosen": "A star.", "rejected": f"No {n}."} for n, one in enumerate(asked)],
        "preferences": [{"prompt": one, "chosen": "A star.", "rejected": f"No {n}."} for n, one in enumerate(asked)],
        "steps": [
            {"prompt": one, "completions": ["It is.", "So."], "labels": [1, n % 2]} for n, one in enumerate(asked)
        ],
        "episodes": [{"prompt": one, "completions": ["It is.", "So."]} for one in asked],
        "prompts": [{"prompt": one, "answer": "4"} for one in asked[:8]],
        "held_out": [{"prompt": one} for one in asked[:4]],
        "sums": [{"prompt": "What is 3 + 4?", "solution": "7"}, {"prompt": "What is 2 + 2?", "solution": "4"}],
        "golds": [{"prompt": "Is 2 + 2 = 4?", "chosen": "Yes.", "rejected": "No."}],
        "practice": [{"prompt": "Is 1 + 1 = 2?", "chosen": "Yes.", "rejected": "No.", "explanation": "It is."}],
    }
    for name, each in (rows | EXPORTED).items():
        write_jsonl(folder / f"{name}.jsonl", each)
    project = [{"id": 1, "data": {"task": "Why?", "question": "Why?", "answer_1": "So.", "answer_2": "No."}}]
    project[0]["data"] |= {"first": "So.", "second": "No."}
    project[0]["annotations"] = [{"id": 1, "result": [{"from_name": "better", "value": {"choices": ["rechts"]}}]}]
    (folder / "project.json").write_text(json.dumps(project))
    tables = {
        "votes": ["item,rater,choice,answer", *(f"{n},{who},{'ab'[n % 2]},a" for n in range(9) for who in "xyz")],
        "table": ["instruction,input,output_1,output_2,annotator,label"]
        + [f"{one},now,A star {n}.,No {n}.,{who},{n % 3}" for n, one in enumerate(asked) for who in "xy"],
        "responses": [
            "arm,user,outcome",
            *(f"{'ba'[n % 10 > 0]},{n},{int(n % 20 == 0 or n % 20 == 5)}" for n in range(900)),
        ],
        "wide": [
            "prompt,completion_a,completion_b,Anna,Bert",
            *(f"{one},A star {n}.,No {n}.,{n % 3},1" for n, one in enumerate(asked)),
        ],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("".join(f"{one} It is far away.\n" for one in asked * 5), encoding="utf-8")
    (folder / "consent.md").write_text("We keep your votes.", encoding="utf-8")
    with contextlib.chdir(folder):
        for line in DONE:
            assert run(line.split()) == 0, line
    shutil.copytree(folder / "runs/study", folder / "study")
    shutil.copytree(folder / "runs/pairs", folder / "runs/sample")
    shutil.copytree(folder / "runs/sft", folder / "runs/distilled")
    return folder


EXPORTED = {
    "traces": [{"id": f"t{n}", "input": "Why?", "output": f"{n}.", "sessionId": None} for n in range(4)],
    "scores": [
        {"id": f"s{n}", "traceId": f"t{n}", "name": "good", "value": n % 2, "dataType": "NUMERIC"} for n in range(4)
    ],
}
"""Files of a tracker."""
DONE = (
    "sft --model path/to/model --data demonstrations.jsonl --out runs/sft",
    "reward --model path/to/model --data preferences.jsonl --out runs/reward",
    "reward --steps --model path/to/model --data steps.jsonl --out runs/steps",
    "improve --model path/to/model --prompts prompts.jsonl --reward runs/reward/model --out runs/ppo",
    "sample --model runs/sft/model --prompts prompts.jsonl --n 4 --pairs 2 --out runs/pairs",
    "collect init runs/study --from-sample runs/pairs",
)


def run(words: Sequence[str]) -> int:
    """Run a command quickly. What it makes is not there when it begins; raters answer a study that it makes."""
    name, *given = words
    made = given[given.index("--out") + 1] if "--out" in given else ""
    if tuple(words[:2]) in {("collect", "init"), ("collect", "restore")}:
        made = words[2]
    if made and Path(made).is_dir():
        shutil.rmtree(made)
    if tuple(words[:2]) == ("collect", "import"):
        given = [word.replace("votes.csv", "table.csv") for word in given]
    status = main([name, *given, *QUICK.get(name, "").split()])
    if tuple(words[:2]) == ("collect", "init") and "--kind" not in given and status == 0:
        rate(made)  # pairs
    return status


@pytest.mark.parametrize("page", sorted({command.page for command in HERE}))
def test_the_commands_of_a_page_run(page, world, tmp_path, monkeypatch, capsys):
    typed = iter(["What is rain?"])  # and then the end of the input
    monkeypatch.setattr(builtins, "input", lambda _: next(typed, None) or sys.exit(0))
    shutil.copytree(world, tmp_path / "reader", symlinks=True)
    monkeypatch.chdir(tmp_path / "reader")
    for command in HERE:
        if command.page == page:
            try:
                status = run(command.words)
            except SystemExit as stop:
                status = stop.code
            wanted = (0, 1) if command.words[0] == "doctor" else (0, None)
            assert status in wanted, f"{command}\n{capsys.readouterr().err}"


def test_the_commands_that_run_elsewhere_have_a_test():
    missing = [one.test for one in ELSEWHERE if not (ROOT / "tests" / one.test).is_file()]
    assert missing == []
    for page, test in IN_ORDER.items():
        assert f'"{Path(page).name}"' in (ROOT / "tests" / test).read_text(encoding="utf-8"), page


def test_every_reason_is_that_of_a_command():
    """A pattern that fits no command that is shown tells of nothing."""
    found = {elsewhere(command) for command in SHOWN}
    assert [one.pattern for one in ELSEWHERE if one not in found] == []
