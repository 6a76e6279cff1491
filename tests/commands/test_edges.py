"""Settings and data at their edges: every command that trains or samples ends well, or says what is wrong.

What a command ends with is decided here: "" for a run that ends well, otherwise what identifies the refusal.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each
from tiny_commands import write_jsonl

from tutelage.commands.line import main

SMALL = "--batch-size 32 --max-length 64 --quiet --out out"
PAIRS = f"{SMALL} --model sft/model --model.device cpu --data"
SAMPLED = "--model sft/model --model.device cpu --sampling.max-new-tokens 4 --quiet --out out --prompts"
SCORED = f"--reward rule:length(limit=3) {SAMPLED}"
COMMANDS = {
    "pretrain": (f"pretrain {SMALL} --device cpu --model base --data", "text.jsonl"),
    "sft": (f"sft {SMALL} --model base --model.device cpu --samples 0 --rouge 0 --data", "data/sft.jsonl"),
    "reward": (f"reward {PAIRS}", "data/pairs.jsonl"),
    "dpo": (f"dpo {PAIRS}", "data/pairs.jsonl"),
    "improve": (f"improve --steps 1 --batch-size 2 {SCORED}", "data/prompts.jsonl"),
    "rejection": (f"rejection --rounds 1 --batch-size 2 {SCORED}", "data/prompts.jsonl"),
    "distill": (f"distill --steps 1 --batch-size 2 --teacher base {SAMPLED}", "data/prompts.jsonl"),
    "sample": (f"sample {SAMPLED}", "data/prompts.jsonl"),
    "evaluate": (f"evaluate {SCORED}", "data/prompts.jsonl"),
}
"""A small run of each command, up to the flag of its data, and its data."""

SETTINGS = {
    "--held-out 0": dict.fromkeys(("pretrain", "sft", "reward", "dpo"), ""),
    "--epochs inf": dict.fromkeys(("pretrain", "sft", "reward", "dpo", "rejection"), "--epochs is inf"),
    "--epochs 0": dict.fromkeys(("pretrain", "sft", "reward", "dpo"), "--epochs is 0"),
    "--steps 0": dict.fromkeys(("improve", "distill"), "--steps is 0"),
    "--set surrogate.low=inf": {"improve": "surrogate.low=inf"},
    "--n 0": dict.fromkeys(("sample", "evaluate"), "--n is 0"),
    "--n 2 --pairs 9": {"sample": ""},
    "--sampling.temperature inf": dict.fromkeys(("improve", "rejection", "distill", "sample", "evaluate"), "inf"),
    "--batch-size 1000000": dict.fromkeys(("pretrain", "sft", "reward", "dpo"), ""),
}
"""Flags at an edge: what each command ends with."""

LONG = "words of a text, " * 200
ROWS = {
    "empty": [],
    "one": [{"prompt": "q", "completion": "a", "chosen": "a", "rejected": "b"}],
    "without weight": [
        {"prompt": f"q{n}", "completion": "a", "chosen": "a", "rejected": "b", "weight": 0} for n in range(4)
    ],
    "too long": [{"prompt": f"{n} {LONG}", "completion": LONG, "chosen": LONG, "rejected": "b"} for n in range(4)],
}
DATA = {
    "empty": dict.fromkeys(COMMANDS, "empty.jsonl"),
    "one": dict.fromkeys(("improve", "distill", "sample", "evaluate"), ""),
    "without weight": dict.fromkeys(("sft", "reward", "dpo"), "weight 0"),
    "too long": dict.fromkeys(("improve", "rejection", "distill"), "No prompt fits"),
}
"""Rows at an edge: what each command ends with."""

EDGES = [
    *((name, flags, "", told) for flags, each in SETTINGS.items() for name, told in each.items()),
    *((name, "", rows, told) for rows, each in DATA.items() for name, told in each.items()),
    *((name, "--out afile", "", "afile") for name in COMMANDS),
    *((name, "", "x" * 5000, "x" * 20) for name in COMMANDS),
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_at_an_edge_ends_well_or_says_what_is_wrong(
    name: str, tiny_runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, usual = COMMANDS[name]

    @for_each([edge for command, *edge in EDGES if command == name])
    def hold(edge: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        flags, rows, told = edge
        enter(tmp_path, tiny_runs, monkeypatch)
        data = rows or usual
        if rows in ROWS:
            own = ("prompt", "completion", "weight") if name == "sft" else ("prompt", "chosen", "rejected", "weight")
            table = [{column: row[column] for column in own if column in row} for row in ROWS[rows]]
            data = write_jsonl(tmp_path / f"{rows}.jsonl", table)
        status = main([*words.split(), str(data), *flags.split()])
        error = capsys.readouterr().err
        assert (status, told in error) == ((2, True) if told else (0, True)), error
        log = tmp_path / "out" / "metrics.jsonl"
        rows_of_log = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
        assert all(math.isfinite(row.get("loss", 0.0)) for row in rows_of_log)

    hold(tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)


def enter(folder: Path, tiny_runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `folder`, with the models and data of the runs, the one in which the command is run."""
    for name in ("base", "data"):
        (folder / name).symlink_to(tiny_runs.source / name)
    for name in ("sft", "reward"):
        (folder / name).symlink_to(tiny_runs.folder / name)
    (folder / "afile").touch()
    write_jsonl(folder / "text.jsonl", [{"text": f"The sun is {n} stars."} for n in range(30)])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TUTELAGE_ENGINE", "plain")
