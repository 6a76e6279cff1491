"""Ranks that fail, are killed or are stopped: all end at once, with one sentence, and what was saved stays."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from forked import command
from jobs import run
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher import api

from tutelage.base.errors import TutelageError
from tutelage.commands.line import main
from tutelage.engines.ranks import processes

PROMPTS = [{"prompt": f"What is {word}?"} for word in ("rain", "the sun", "a star", "light", "water", "air")]


@pytest.fixture
def given(tiny_model, tmp_path):
    """The words of `tutelage improve` for a run of many short steps."""
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    words = ["improve", "--model", tiny_model("llama"), "--prompts", str(file), "--out", str(tmp_path / "run")]
    words += ["--recipe", "rloo", "--steps", "30", "--batch-size", "3", "--sampling.max-new-tokens", "5"]
    return [*words, "--checkpoints.every", "1", "--reward", "simple_goal:low_tokens", "--quiet"]


def start(words, *launcher):
    """`tutelage WORDS`, whose ranks are processes of `python -m tutelage`; with a `launcher` by that."""
    path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    if not launcher:
        return command(words, PYTHONPATH=path, OMP_NUM_THREADS="1")
    return subprocess.Popen(
        [*launcher, *words],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(out, process):
    while process.poll() is None and not list(out.glob("checkpoints/step-*")):
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[1]


def ranks_of(process):
    """The process ids of the ranks, which are the children of the launcher that run the package."""
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(process.pid)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "-m tutelage" in line]


@pytest.mark.long
def test_an_error_on_one_rank_ends_all_with_its_sentence(given, tmp_path):
    """The reward refuses the answers of rank 1 alone."""
    words = [*given, "--processes", "2"]
    words[words.index("simple_goal:low_tokens")] = "jobs:refused_on_rank_1"
    process = start(words)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 2
    assert told.splitlines() == [
        "error: rank 1 of 2: there is no score for these answers",
        "See tutelage improve --help",
    ]


@pytest.mark.long
def test_memory_that_runs_out_in_the_middle_of_a_pass_ends_all(given):
    """In a layer of rank 1, while rank 0 waits for it in the next one. The sentence names the rank and the setting."""
    words = [*given, "--processes", "2", "--shard", "full", "--tokens-at-once", "64"]
    words[words.index("simple_goal:low_tokens")] = "jobs:short_of_memory_on_rank_1"
    process = start(words)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 2
    (line,) = [line for line in told.splitlines() if "error:" in line]
    assert line.startswith("error: rank 1 of 2: Memory ran out in the middle of a pass over shards, with up to 64 ")
    assert "--resume --tokens-at-once 32" in line


def test_a_rank_that_is_killed_ends_the_others_and_the_run_goes_on(given, tmp_path):
    """In shards, where most exchanges are those of a pass; the run goes on without them, in one process, with fewer
    tokens at once."""
    process = start([*given, "--processes", "2", "--shard", "full"])
    wait_for_checkpoint(tmp_path / "run", process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    killed = time.monotonic()
    _, told = process.communicate(timeout=300)
    assert time.monotonic() - killed < 30
    assert process.returncode != 0
    (line,) = [line for line in told.splitlines() if "error:" in line]  # of rank 0, or of the launcher
    assert "Another rank exited" in line or "rank 1 of 2" in line
    assert "--resume" in line
    assert main([*given, "--resume", "--tokens-at-once", "40"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["step"] == 30
    assert summary["tokens_at_once"] == 40


def test_the_launcher_reports_a_rank_that_a_signal_ended_unless_another_rank_has(monkeypatch):
    def launcher(reporting, number=signal.SIGKILL):
        def start(*words):
            if reporting:
                processes.note_report()
            raise ChildFailedError("ranks", {1: ProcessFailure(1, 10**9, -number, "")})

        return lambda *settings: start

    monkeypatch.setattr(api, "elastic_launch", launcher(False))
    with pytest.raises(TutelageError, match=r"rank 1 of 2.* 9 .*memory.*--resume"):
        processes.launch(2, [])
    monkeypatch.setattr(api, "elastic_launch", launcher(False, signal.SIGSEGV))
    with pytest.raises(TutelageError, match=r"rank 1 of 2.* 11 ") as crash:
        processes.launch(2, [])
    assert "memory" not in str(crash.value)
    monkeypatch.setattr(api, "elastic_launch", launcher(True))
    assert processes.launch(2, []) == 128 + signal.SIGKILL
    assert processes.REPORTS not in os.environ


@pytest.mark.long
def test_torchrun_starts_the_ranks_again_by_itself(given, worlds, tiny_model, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = start(given, *torchrun, "--max-restarts", "1", "-m", "tutelage")
    wait_for_checkpoint(tmp_path / "run", process)
    os.kill(ranks_of(process)[0], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 0
    settings = {"model": tiny_model("llama"), "prompts": str(tmp_path / "prompts.jsonl"), "recipe": "rloo"}
    settings |= {"steps": 30, "batch_size": 3, "sampling": {"max_new_tokens": 5}}
    worlds(2).run(run, "improve", settings | {"reward": "simple_goal:low_tokens", "out": tmp_path / "whole"})
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "whole"))
    assert all(bool((one[name] == other[name]).all()) for name in one)


@pytest.mark.long
def test_a_launcher_that_is_told_to_stop_saves_first(given, tmp_path):
    process = start([*given, "--processes", "2"])
    wait_for_checkpoint(tmp_path / "run", process)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=300)
    assert process.returncode in (130, 143)
    assert told.count("everything is saved") == 1
    assert "Traceback" not in told
    assert "--processes 2" in told
    saved = int(told.split("Stopped after step ")[1].split(";")[0])
    assert (tmp_path / "run" / "checkpoints" / f"step-{saved}").is_dir()


def test_ranks_with_other_settings_are_refused(tiny_model, worlds, tmp_path):
    told = worlds(2).run(message_of_own_rate, tiny_model("llama"), tmp_path)
    assert told[0] == "rank 1 of 2 failed"
    assert told[1].startswith("The settings of rank 1 differ from those of rank 0")
    assert "lr" in told[1]


def message_of_own_rate(model, folder):
    """The error of `improve` with a learning rate that depends on the rank."""
    rate = 1e-3 * (1 + int(os.environ["RANK"]))
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    settings = {"model": model, "prompts": str(file), "reward": "simple_goal:low_tokens", "steps": 1}
    try:
        run("improve", settings | {"out": folder / "run", "optimiser": {"lr": rate}})
    except TutelageError as error:
        return str(error)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["chat", "--processes", "2"], "chat runs in one process"),
        (["sft", "--processes", "none"], "--processes is 'none': give the number of processes"),
        (["sft", "--processes"], "--processes is ''"),
    ],
)
def test_numbers_of_processes_that_make_no_sense(words, told, capsys):
    assert main(words) == 2
    assert told in capsys.readouterr().err
